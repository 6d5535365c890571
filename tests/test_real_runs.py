"""Tests of how recordings with a known slowdown are judged; recording them takes minutes and is no test."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace

import traceview
from scripts.real_runs import judge
from scripts.real_runs.advice import saved_share_of
from scripts.real_runs.recount import recounted
from scripts.real_runs.table import Program
from scripts.real_runs.truth import RECORDED, UNDISTURBED, Block, TrueCost, true_costs
from scripts.xspace import XSpace

SLOW_INPUT = Path(__file__).parent.parent / "fixtures" / "slow-input-2"
INPUT = Program("any", ("input-bound",))
MILLISECOND_NS = 10**6


def block(is_slow: bool, *lengths_ms: float) -> Block:
    """Steps of a second each before the recording, these in it, over and over, and steps of two seconds after it."""
    recorded = [round(length * MILLISECOND_NS) for length in lengths_ms]
    count = RECORDED.stop - RECORDED.start
    recorded *= count // len(recorded)
    assert len(recorded) == count
    before = [1000 * MILLISECOND_NS] * RECORDED.start
    return Block(is_slow, (*before, *recorded, *[2000 * MILLISECOND_NS] * 30))


def test_each_slow_run_has_the_cost_by_the_healthy_ones_beside_it() -> None:
    blocks = [
        block(False, 20),
        block(True, 40),
        block(False, 24),
        block(True, 60),
        block(False, 30),
    ]

    first, second = true_costs(blocks, "median", RECORDED)

    assert (first.cost_ps, second.cost_ps) == (18 * 10**9, 33 * 10**9)
    assert first.share == pytest.approx(18 / 40)
    assert first.spread == pytest.approx(4 / 40)
    assert first.is_sure
    assert [row.cost_ps for row in true_costs(blocks, "median", UNDISTURBED)] == [0, 0]


@pytest.mark.parametrize(("statistic", "cost_ms"), [("median", 0), ("mean", 10)])
def test_a_cost_of_some_steps_shows_in_the_mean(
    statistic: Literal["median", "mean"], cost_ms: int
) -> None:
    blocks = [block(False, 20), block(True, 20, 20, 20, 60), block(False, 20)]
    (truth,) = true_costs(blocks, statistic, RECORDED)

    assert truth.cost_ps == cost_ms * 10**9
    assert truth.is_sure


@pytest.fixture(scope="module")
def slow_input() -> traceview.Report:
    return traceview.analyze(SLOW_INPUT)


def test_the_slow_run_of_a_fixture(slow_input: traceview.Report) -> None:
    loss = slow_input.findings[0].loss
    assert loss is not None
    share = loss.ratio

    truth, undisturbed = TrueCost(1, share, 0.0), TrueCost(1, share / 2, 0.0)

    judgement = judge.judge_slow(INPUT, slow_input, truth, undisturbed)

    assert (judgement.finding, judgement.states) == ("input-bound", ("input",))
    assert judgement.is_first_right
    assert judgement.share == pytest.approx(share)
    assert judgement.is_cost_right
    assert not judgement.is_undisturbed_cost_right


@pytest.mark.parametrize(
    ("factor", "is_there", "is_right"),
    [(3, True, True), (0.84, True, True), (0.83, True, False), (0.49, False, False)],
)
def test_no_more_than_what_healthy_steps_spend_as_measured_is_right(
    factor: float, is_there: bool, is_right: bool, slow_input: traceview.Report
) -> None:
    loss = next(row.loss for row in slow_input.findings if row.code == "input-bound")
    assert loss is not None
    present = {"input-bound": loss.ratio * factor}
    judgement = judge.judge_healthy(INPUT, slow_input, present=present)
    assert (judgement.is_first_right, judgement.is_cost_no_higher) == (is_there, is_right)
    assert not judge.judge_healthy(INPUT, slow_input).is_first_right


def test_launches_and_copies_are_counted_from_the_bytes(tmp_path: Path) -> None:
    space = XSpace()
    gpu, host = space.planes.add(name=b"/device:GPU:0"), space.planes.add(name=b"/host:CPU")
    for plane, line in ((gpu, b"Stream #1"), (host, b"train")):
        plane.stat_metadata[1].name = b"correlation_id"
        plane.lines.add(name=line)
    names = (b"kernel", b"MemcpyH2D", b"cuMemcpy", b"cuStreamSynchronize", b"train")

    def add(plane: Any, name: bytes, start_ps: int, end_ps: int, correlation: int) -> None:
        key = names.index(name) + 1
        plane.event_metadata[key].name = name
        times = {"offset_ps": start_ps, "duration_ps": end_ps - start_ps}
        event = plane.lines[0].events.add(metadata_id=key, **times)
        event.stats.add(metadata_id=1, uint64_value=correlation)

    # A period of 100 ps, of which 30 are idle before the copy: 10 the launching thread waits for the device, 5 no step is on, 2
    # the call copies. Half of the copy runs beside the kernel.
    for number, start_ps in enumerate(range(0, 10_000, 100)):
        add(host, b"cuStreamSynchronize", start_ps + 50, start_ps + 80, 0)
        add(host, b"train", start_ps + 75, start_ps + 170, 0)
        add(host, b"train", start_ps + 76, start_ps + 169, 0)
        add(host, b"cuMemcpy", start_ps + 92, start_ps + 94, 2 * number + 2)
        add(gpu, b"MemcpyH2D", start_ps + 100, start_ps + 120, 2 * number + 2)
        add(gpu, b"kernel", start_ps + 110, start_ps + 170, 2 * number + 3)
    (tmp_path / "host.xplane.pb").write_bytes(space.SerializeToString())

    shares = recounted(tmp_path)

    assert shares == {
        "launch-bound": pytest.approx(0.13, rel=0.03),
        "h2d-exposed": pytest.approx(0.12, rel=0.03),
        "callback-stall": pytest.approx(0.05, rel=0.03),
        "d2h-sync": 0,
    }


@pytest.mark.parametrize(
    ("advice", "is_known"), [("Map in parallel", True), ("Map in turns", False), ("", None)]
)
def test_the_advice_that_a_program_follows_is_what_its_report_says(
    advice: str, is_known: bool | None, slow_input: traceview.Report
) -> None:
    truth = TrueCost(1, 0.5, 0.0)
    judgement = judge.judge_slow(replace(INPUT, advice=advice), slow_input, truth, truth)
    assert judgement.is_advice_known is is_known
    count = "0 of 0" if is_known is None else f"{int(is_known)} of 1 ({int(is_known):.0%})"
    assert f"advice as measured: {count}" in list(judge.totals([judgement]))


def test_what_advice_saves_is_a_part_of_the_cost() -> None:
    """Three of eight advised runs were disturbed."""
    kinds = [(False, False, 20), (True, False, 40), (True, True, 25)]
    blocks = [
        replace(block(is_slow, length + (run > 4) * 90 * is_advised), is_advised=is_advised)
        for run in range(8)
        for is_slow, is_advised, length in kinds
    ]
    blocks = [replace(each, step_ns=each.step_ns[: RECORDED.stop]) for each in blocks]
    assert saved_share_of(blocks, "median") == pytest.approx(0.75)
