"""Each difference is explained by the rule that causes it, and by no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import traceview
from scripts.crosscheck.answer import Answer
from scripts.crosscheck.comparison import Compared, compare, facts_of
from scripts.crosscheck.recount import kernels_of, recount
from scripts.scenarios import SCENARIOS

MS = 1_000_000_000


def rows(logdir: Path, theirs: Answer | None = None, top: int = 3) -> dict[str, Compared]:
    """The comparison with an answer; without one with what XProf's rules give."""
    trace = traceview.load(logdir)
    redone = recount(trace)
    found = compare(
        traceview.analyze(trace),
        trace.ledger(),
        kernels_of(trace),
        theirs or replace(redone, half_ratio=0.0),
        redone,
        facts_of(trace),
        top,
    )
    return {row.metric: row for row in found}


def case(name: str, tmp_path: Path) -> Path:
    SCENARIOS[name]().write(tmp_path)
    return tmp_path


def test_another_number_than_its_rules_give_is_not_explained(tmp_path: Path) -> None:
    logdir = case("A", tmp_path)
    redone = recount(traceview.load(logdir))
    assert redone.steps is not None
    odd = replace(redone.steps[0], compute_ps=36 * MS)
    row = rows(logdir, replace(redone, steps=(odd,) * 4))["compute_ps"]
    assert (row.theirs, row.expected, row.status) == (36 * MS, 35 * MS, "unexplained")
    # A nanosecond is what XProf rounds to.
    near = replace(redone.steps[0], compute_ps=35 * MS + 1000)
    row = rows(logdir, replace(redone, steps=(near,) * 4))["compute_ps"]
    assert row.status == "reproduced"
