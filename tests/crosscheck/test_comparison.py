"""Each difference is explained by the rule that causes it, and by no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("name", "metric", "ours", "theirs", "reasons"),
    [
        ("A", "compute_ps", (0, 10), 35, ("copies-by-name", "merges-devices")),
        ("A", "h2d_ps", (0, 25), 0, ("copies-by-name", "merges-devices")),
        ("A", "step_ps", (49.975, 49.975), 38, ("device-span",)),
        ("B", "d2d_ps", (0, 12), 0, ("copies-by-name", "merges-devices")),
        ("B", "compute_ps", (10, 10), 22, ("copies-by-name", "merges-devices")),
        ("C", "compute_ps", (5, 40), 40, ("merges-devices",)),
        ("D", "compute_ps", (0, 40), 40, ("merges-devices",)),
        ("D", "idle_total_ps", (1439.2, 1439.2), 30, ("only-spans",)),
        ("E", "idle_total_ps", (19.9, 19.9), 0, ("only-spans", "sums-streams")),
        ("G", "input_ps", (30, 30), 0, ("no-host-waits",)),
        ("G", "idle_other_ps", (9.975, 9.975), 0, ("rest-of-span",)),
        ("G", "step_ps", (49.975, 49.975), 10, ("device-span",)),
    ],
)
def test_known_cases(
    name: str,
    metric: str,
    ours: tuple[float, float],
    theirs: float,
    reasons: tuple[str, ...],
    tmp_path: Path,
) -> None:
    row = rows(case(name, tmp_path))[metric]
    assert (row.ours_least, row.ours_most) == (ours[0] * MS, ours[1] * MS)
    assert (row.theirs, row.expected) == (theirs * MS, theirs * MS)
    assert (row.status, row.reasons) == ("reproduced", reasons)


@pytest.mark.parametrize(
    ("name", "metric"),
    [("B", "collective_ps"), ("E", "compute_ps"), ("G", "compute_ps"), ("D", "device_count")],
)
def test_what_is_the_same_has_no_reason(name: str, metric: str, tmp_path: Path) -> None:
    row = rows(case(name, tmp_path))[metric]
    assert (row.status, row.reasons) == ("same", ())


def test_bfloat16_is_not_16_bit_for_xprof(tmp_path: Path) -> None:
    row = rows(case("F", tmp_path))["half_ratio"]
    assert (row.ours_most, row.theirs, row.expected) == (1.0, 0.0, None)
    assert (row.status, row.reasons) == ("known", ("names-of-shapes",))


def test_the_verdict_follows(tmp_path: Path) -> None:
    row = rows(case("G", tmp_path))["input_verdict"]
    assert (row.ours_most, row.theirs, row.status) == ("high", "none", "reproduced")
    assert row.reasons == ("from-other-numbers", "no-host-waits")


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


def test_steps_at_the_ends_are_left_out_of_ours_too(fixtures: Path) -> None:
    found = rows(fixtures / "plain-1")
    assert (found["step_count"].ours_most, found["step_count"].theirs) == (6, 4)
    assert found["step_count"].reasons == ("drops-end-steps",)
    steps = traceview.analyze(fixtures / "plain-1").results.steps
    assert steps is not None
    inner = [step.duration_ps for step in steps.steps[1:-1]]
    assert found["step_ps"].ours_most == round(sum(inner) / 4)
    assert found["step_ps"].reasons == ("marker-length",)


def test_replicas_are_no_devices_for_xprof(fixtures: Path) -> None:
    found = rows(fixtures / "slow-input-2")
    row = found["device_count"]
    assert (row.ours_most, row.theirs, row.status) == (2, 0, "reproduced")
    assert row.reasons == ("no-replicas",)
    assert "launch_ps" not in found
    assert found["compute_ps"].reasons == ("no-replicas",)


@pytest.mark.shared
def test_a_host_that_is_there_twice_counts_twice(shared_traces: Path) -> None:
    found = rows(shared_traces / "bert-8xV100")
    for metric in ("device_count", "kernel_count", "kernel_ps"):
        row = found[metric]
        assert isinstance(row.theirs, int)
        assert row.ours_most == row.theirs // 2
        assert (row.status, row.reasons) == ("reproduced", ("counts-files-twice",))
    assert "only-linked-events" in found["compute_ps"].reasons
