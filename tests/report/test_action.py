"""Advice is cut at the end of a clause, never inside code."""

from __future__ import annotations

import pytest

from traceview.analysis.registry import RULES
from traceview.report.action import LONGEST, actions_of


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
    assert "".join(actions_of(advice, longest=36)[:1]) == action


@pytest.mark.parametrize("code", RULES)
def test_every_rule_has_an_action_of_at_most_two_lines(code: str) -> None:
    actions = actions_of(RULES[code].advice)
    assert actions
    assert [len(action) for action in actions] == sorted(map(len, actions), reverse=True)
    for action in actions:
        assert 0 < len(action) <= LONGEST
        assert all(action.count(a) == action.count(b) for a, b in ("()", "[]"))


def test_shorter_ones_follow() -> None:
    assert actions_of("Do this: f(a, b), then that. More.") == (
        "Do this: f(a, b), then that",
        "Do this: f(a, b)",
        "Do this",
    )
