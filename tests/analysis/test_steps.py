"""How sure the bounds of steps are, what a call of several holds, which steps are slow, and how the chart shows it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios.model import Step, ms, new_trace
from tests.analysis.made import analyzed, finding_of, loss_of
from tests.charts import MS
from tests.python_sidecars import clocks_group
from tests.reports import full_report, step
from tests.sidecars import graph, write_sidecar
from traceview.analysis.gpu_time.steps import step_times
from traceview.analysis.measures.step_report import (
    StepDevice,
    StepRow,
    Steps,
    slow_steps,
    state_growth,
)
from traceview.analysis.rules.finding import Finding
from traceview.document.figures import StepTimes
from traceview.document.html.parts import bars, steps_per_bar
from traceview.document.screen import render
from traceview.report.document import Invocation, document_of, view_of


def steps(*rows: StepRow, **changes: Any) -> Steps:
    known = full_report().results.steps
    assert known is not None
    return replace(known, steps=rows, **changes)


def row(number: int, length_ms: float, host: str = "host0", **states_ms: float) -> StepRow:
    states = {state: ms(length) for state, length in states_ms.items()}
    made = step(number, ms(length_ms), (), None)
    return replace(made, host=host, devices=(StepDevice("GPU:0", states),))


def of_lengths(*lengths_ms: float) -> list[StepRow]:
    return [row(number, length) for number, length in enumerate(lengths_ms)]


@pytest.mark.parametrize(
    ("lengths_ms", "slow", "period"),
    [
        # From a tenth above the typical step on.
        ((20, 20, 20, 21.9), (), None),
        ((20, 20, 20, 22), (3,), None),
        # From four times the distance of the lower quartile on: 20 - 19 ms.
        ((19, 19, 20, 20, 23.9, 20, 20, 20), (), None),
        ((19, 19, 20, 20, 24, 20, 20, 20), (4,), None),
        ((20, 20, 30, 20, 20, 30, 20, 20, 30), (2, 5, 8), 3),
        # Two are no period, three at one distance of which one is missing at an end are none either.
        ((20, 30, 20, 20, 30, 20), (1, 4), None),
        ((20, 30, 20, 30, 20, 30, 20, 20, 20), (1, 3, 5), None),
        ((30, 30, 30, 20, 20, 20, 20), (0, 1, 2), None),
    ],
)
def test_slow_steps(lengths_ms: Sequence[float], slow: tuple[int, ...], period: int | None) -> None:
    found = slow_steps(steps(*of_lengths(*lengths_ms)))
    if not slow:
        assert found is None
        return
    assert found is not None
    assert (found.numbers, found.period) == (slow, period)
    assert sorted((*found.numbers, *found.usual)) == list(range(len(lengths_ms)))
    assert found.slow_ps == sum(ms(lengths_ms[number]) for number in slow) // len(slow)


def test_of_several_hosts_the_slowest_counts() -> None:
    rows = [*of_lengths(20, 20, 20, 20), *(row(n, 20 + 20 * (n == 2), "host1") for n in range(4))]
    found = slow_steps(steps(*rows))
    assert found is not None
    assert found.numbers == (2,)


def test_evaluations_and_updates_are_expected() -> None:
    rows = of_lengths(20, 20, 20, 40, 20)
    assert slow_steps(steps(*rows, evaluated_steps=(3,))) is None
    assert slow_steps(steps(*rows, accumulation_steps=4)) is None
    assert slow_steps(steps(*(replace(each, used=each.number != 3) for each in rows))) is None


def test_what_grows_is_exact() -> None:
    rows = [
        row(0, 20, compute=20),
        row(1, 21, compute=20, input=1),
        row(2, 30, compute=21, input=9),
        row(3, 20, compute=20),
    ]
    assert state_growth(rows, (2,), (0, 1, 3)) == {
        "compute": {"GPU:0": ms(1)},
        "input": {"GPU:0": ms(9) - ms(1) // 3},
    }


def unsteady(folder: Path, callback_ms: float, *, is_compute: bool = False) -> Finding | None:
    """16 steps of 20 ms on two GPUs; after every fourth one more compute, or a callback."""
    trace = new_trace(length_ms=20 * 16 + 4 * callback_ms + 20)
    start_ms = 0.0
    for number in range(16):
        more_ms = callback_ms if number % 4 == 3 else 0
        step = Step(trace, start_ms)
        trace.marker(number, step.at(0), step.at(20))
        for ordinal in (0, 1):
            step.kernel(ordinal, 0.05, 20 + more_ms * is_compute)
        start_ms = round(start_ms + 20 + more_ms, 6)
    return finding_of(analyzed(folder, trace), "unsteady-steps")


@pytest.mark.parametrize(("more_ms", "is_unsteady"), [(4.3, True), (4.1, False)])
def test_a_twentieth_of_the_gpu_time_is_worth_a_finding(
    more_ms: float, is_unsteady: bool, tmp_path: Path
) -> None:
    """4 steps of 16 take 4.2 ms longer: a share of 4 * 4.21 / (16 * 20 + 4 * 4.21) is 5 %."""
    finding = unsteady(tmp_path, more_ms, is_compute=True)
    assert (finding is not None) is is_unsteady
    if finding:
        assert loss_of(finding).gpu_time_ps == 2 * 4 * ms(more_ms)
        assert loss_of(finding).states == ("compute",)


@pytest.mark.parametrize("others_ns", [0, 1_500_000_000])
def test_no_step_on_a_cpu_is_slow_by_its_compute(others_ns: int, tmp_path: Path) -> None:
    """Every fourth step on the CPU takes twice as long; the thread of its op waits for a core for half of the time."""
    trace = new_trace(length_ms=1000)
    executor, start_ms = trace.thread("tf_Compute", 41), 0.0
    for number in range(16):
        length_ms = 80 if number % 4 == 3 else 40
        step = Step(trace, start_ms)
        trace.marker(number, step.at(0), step.at(length_ms))
        step.host("FunctionRun", 0, length_ms)
        step.host("replica_0/x:MatMul", 0.5, length_ms, thread=executor)
        start_ms += length_ms
    own_ns = 500_000_000
    sidecar = {
        "threads": clocks_group({1: (0.0, 0.0), 41: (0.4, 0.4)}, length_ms=1000),
        "cores": {"machine_count": 2, "usable_count": 2},
        "load": {"elapsed_ns": 10**9, "busy_ns": own_ns + others_ns, "own_ns": own_ns, "cores": 2},
    }
    report = analyzed(tmp_path, trace, sidecar=sidecar)
    assert (finding_of(report, "other-processes") is not None) == bool(others_ns)
    assert finding_of(report, "unsteady-steps") is None


# The chart


def steps_of(durations_ps: list[int]) -> StepTimes:
    """The chart of steps of these lengths, whose median is the first."""
    rows = [step(place, ps, ("GPU:0",), None) for place, ps in enumerate(durations_ps)]
    figure = step_times(
        view_of(full_report(), Invocation()), steps(*rows, median_ps=durations_ps[0])
    )
    assert figure is not None
    return figure


def test_of_very_many_steps_a_slow_one_is_as_wide_as_its_share() -> None:
    durations = [20 * MS] * 700
    durations[333] = 60 * MS
    drawn = list(bars(steps_of(durations)))
    (slow_bar,) = (bar for bar in drawn if bar.cause)
    (usual,) = (bar for bar in drawn if bar.title.startswith("3 steps of 332 to 335;"))
    assert slow_bar.title.startswith("step 333: 60.0 ms")
    assert (slow_bar.count, usual.count) == (1, 3)
    assert slow_bar.height == pytest.approx(3 * usual.height)
    assert slow_bar.excess == pytest.approx(2 / 3)
    assert len(drawn) == 175 + 1
    assert steps_per_bar(steps_of(durations)) == 4


def test_no_step_is_called_slow_only_where_all_are_alike() -> None:
    wild = [place * MS for place in (10, 11, 20, 21, 29, 30, 40, 41, 42)]
    assert steps_of([25 * MS, *wild]).lead.startswith(
        "Step times vary without a clear outlier: 10.0"
    )
    alike = steps_of([20 * MS, 14 * MS, 21 * MS])
    assert alike.lead == "No slow step: 14.0 ms to 21.0 ms, median 20.0 ms."


# What a step holds


def shown(logdir: Path) -> tuple[traceview.Report, str]:
    report = traceview.analyze(logdir)
    text = render(document_of(report, is_brief=True), width=100, color=False)
    return report, " ".join(text.split())


# Updates and evaluations


def slowed(numbers: Collection[int], *, slow_ms: int = 30) -> CudaTrace:
    """Nine steps of 20 ms, some of which compute for `slow_ms` more."""
    trace = new_trace(length_ms=230 + slow_ms * len(numbers))
    at_ms = 0
    for number in range(9):
        length_ms = 20 + (slow_ms if number in numbers else 0)
        trace.marker(number, ms(at_ms), ms(at_ms + length_ms) - ms(0.1))
        Step(trace, at_ms).kernel(0, 1, length_ms - 1, op="train/dense/MatMul:MatMul")
        at_ms += length_ms
    return trace


def known_steps(report: traceview.Report) -> Steps:
    assert report.results.steps is not None
    return report.results.steps


def test_gradients_accumulate(tmp_path: Path) -> None:
    path = slowed((3, 7)).write(tmp_path)
    assert "unsteady-steps" in {finding.code for finding in shown(tmp_path)[0].findings}
    write_sidecar(path, {"training": {"accumulation_steps": 4}})
    report, text = shown(tmp_path)
    assert "The optimizer updates in one of 4 steps." in text
    assert "unsteady-steps" not in {finding.code for finding in report.findings}


EVALUATION = {
    "after": 2,
    "functions": {"test_step": 20, "log": 1},
    "begun_ns": 5_000_000,
    "ended_ns": 35_000_000,
}


def evaluated(*evaluations: Any) -> dict[str, Any]:
    return {"window": {"evaluations": [*evaluations]}}


def test_an_evaluation_is_named_with_the_step_that_holds_it(tmp_path: Path) -> None:
    path = slowed(()).write(tmp_path)
    write_sidecar(path, evaluated(EVALUATION, {**EVALUATION, "after": 99}))
    report, text = shown(tmp_path)
    assert known_steps(report).evaluated_steps == (2,)
    assert "An evaluation ran after some steps, whose time holds it (2)." in text


def test_a_step_before_an_evaluation_is_not_unsteady(tmp_path: Path) -> None:
    path = slowed((2,), slow_ms=40).write(tmp_path)
    codes = {finding.code for finding in shown(tmp_path)[0].findings}
    write_sidecar(path, evaluated(EVALUATION))
    assert codes - {finding.code for finding in shown(tmp_path)[0].findings} == {"unsteady-steps"}


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"training_loop": "While"}, "several"),
        ({"replica_runs": 10}, "up to 10"),
    ],
)
def test_a_call_that_holds_the_training_loop_is_named(
    fields: dict[str, Any], most: str, tmp_path: Path
) -> None:
    path = slowed(()).write(tmp_path)
    function = {**graph({"GPU:0": 3}, name="epoch"), **fields}
    write_sidecar(path, {"placement": {"functions": [function]}})
    report, text = shown(tmp_path)
    assert known_steps(report).loop_function == "epoch"
    said = f"One step here is one call of epoch that runs {most} training steps in its graph;"
    assert said in text
