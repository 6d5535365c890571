"""The list of findings and the entry of each leave nothing out, at any width."""

from __future__ import annotations

import pytest

from traceview.analysis.base import Rule
from traceview.analysis.registry import RULES
from traceview.document.terminal import render_section
from traceview.report.explain import explain_list, explain_section

RULE = Rule(
    "slow-input",
    starts_at="input waits of {warning_ratio} of the step, and of {least_ps} at least",
    limits={"warning_ratio": 0.05, "least_ps": 20_000_000},
    meaning="The model waits for the next batch.",
    evidence="wait_ps of the step",
    advice="End the pipeline with prefetch: dataset.prefetch(tf.data.AUTOTUNE).",
    example="GPU:0 waits 8.00 ms of each step for input",
    severities=("warning", "critical"),
    explains=("few-workers", "small-batch"),
    conditions_of="with buffers, one of these",
    conditions=("they are empty for {least_ps}", "they are small"),
    advice_where={"for files": "Read several files at once."},
)
PLAIN = Rule("plain", starts_at="any", meaning="M.", evidence="E", advice="A.", example="X")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_list_has_every_code_with_its_limits(width: int) -> None:
    text = render_section(explain_list([RULE, PLAIN]), width=width, color=False)
    words = " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width
    assert "slow-input (warning or critical): input waits of 5.0% of the step" in words
    assert "and of 20.0 µs at least" in words
    assert "plain (warning): any" in words


@pytest.mark.parametrize("width", [40, 80, 200])
def test_an_entry_says_everything_of_a_rule(width: int) -> None:
    text = render_section(explain_section(RULE), width=width, color=False)
    words = " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width
    for part in (RULE.code, RULE.start, RULE.meaning, RULE.evidence, RULE.advice, RULE.example):
        assert part in words
    assert "warning or critical" in words
    assert "few-workers, small-batch" in words
    assert "Advice for files: Read several files at once." in words
    assert (
        "; with buffers, one of these: (1) they are empty for 20.0 µs; (2) they are small" in words
    )


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_limits_are_written_as_numbers(rule: Rule) -> None:
    texts = (
        rule.start,
        *rule.start_conditions,
        rule.meaning,
        rule.evidence,
        rule.advice,
        *rule.advice_where.values(),
        rule.example,
    )
    assert not [name for name in rule.limits if f"{{{name}}}" in " ".join(texts)]


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_what_a_list_of_findings_says_of_one_is_short(rule: Rule) -> None:
    """Further conditions are a list in the entry."""
    assert len(rule.start) <= 220
    assert bool(rule.conditions) == bool(rule.conditions_of)


def test_a_rule_that_explains_no_other_does_not_say_so() -> None:
    assert "Explains" not in render_section(explain_section(PLAIN), width=80, color=False)
