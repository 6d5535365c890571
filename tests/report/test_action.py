"""Advice is cut at the end of a clause, never inside code."""

from __future__ import annotations

import pytest

from traceview.analysis.registry import RULES
from traceview.report.action import LONGEST, action_of


@pytest.mark.parametrize(
    ("advice", "action"),
    [
        ("Capture fewer steps. Then look again.", "Capture fewer steps"),
        ("Capture fewer steps", "Capture fewer steps"),
        ("", ""),
        ("Cast it, e.g. to tf.float16. More.", "Cast it, e.g. to tf.float16"),
        ("Map it. traceview input says more.", "Map it"),
        ("Map in parallel: dataset.map(f, a=b). More.", "Map in parallel: dataset.map(f, a=b)"),
        ("First: do(a, b), then c, then d, then e.", "First: do(a, b), then c, then d"),
        ("A clause without any end that fits", "A clause without any end that fits"),
    ],
)
def test_the_first_sentence_or_the_clauses_of_it_that_fit(advice: str, action: str) -> None:
    assert action_of(advice, longest=36) == action


@pytest.mark.parametrize("code", RULES)
def test_every_rule_has_an_action_of_at_most_two_lines(code: str) -> None:
    action = action_of(RULES[code].advice)
    assert 0 < len(action) <= LONGEST
    assert all(action.count(a) == action.count(b) for a, b in ("()", "[]"))
