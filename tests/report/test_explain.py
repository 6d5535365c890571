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


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_list_has_every_code_with_its_limits(width: int) -> None:
    section = explain_list(RULES.values(), STATES.values())
    text = render_section(section, width=width, color=False)
    words = " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width
    assert all(f"{code} (" in words for code in RULES)
    assert "h2d-exposed (warning or critical): 5% of the GPU time" in words
    assert "input (input): the next batch was not ready" in words


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_what_there_is_to_say_of_a_rule_has_no_placeholder(rule: Rule) -> None:
    said = dict(entry(rule))
    for text in map(plain, said.values()):
        assert text.strip()
        assert not re.search(r"[{}]|\[[ ,]", text), text
    assert {"Meaning", "Reported from", "Advice", "Example"} <= said.keys()
