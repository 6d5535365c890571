"""The list of findings and the entry of each leave nothing out, at any width."""

from __future__ import annotations

import re

import pytest

from traceview.analysis.registry import RULES
from traceview.analysis.rules.rule import Rule
from traceview.document.phrase import plain
from traceview.document.terminal import render_section
from traceview.document.vocabulary import STATES
from traceview.report.document import entry, explain_list

RULE = Rule(
    code="slow-host",
    title="{who:waits/wait} {loss} for the host[ in {line}]",
    meaning="The host is slow.",
    notes={"much": "It is {much} slow."},
    action="Use `tf.function`.",
    advice="Look at `traceview show gaps LOGDIR`.",
    actions={"jax": ("Use `jax.jit`.", "")},
    metrics={"host_ratio": "time of the host"},
    starts_at="{limit} of the GPU time, and {least_ps} at least",
    limits={"least_ps": 20_000_000},
    explains=("few-workers",),
    example="GPU:0 waits 8.00 of 50.0 ms (16%) for the host",
)
PLAIN = Rule(
    code="plain",
    severity="warning",
    starts_at="any",
    title="T",
    meaning="M.",
    action="A.",
    example="X",
)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_list_has_every_code_with_its_limits(width: int) -> None:
    text = render_section(explain_list([RULE, PLAIN], STATES.values()), width=width, color=False)
    words = " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width
    assert "slow-host (warning or critical): 5% of the GPU time, and 20 µs at least" in words
    assert "plain (warning): any" in words
    assert "input (input): the next batch was not ready" in words


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_what_there_is_to_say_of_a_rule_has_no_placeholder(rule: Rule) -> None:
    said = dict(entry(rule))
    for text in map(plain, said.values()):
        assert text.strip()
        assert not re.search(r"[{}]|\[[ ,]", text), text
    assert {"Meaning", "Reported from", "Advice", "Example"} <= said.keys()
