"""Each cause of idle time becomes a finding exactly at its threshold, and only where it costs time.

Steps take 100 ms, so that milliseconds are per cent.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import traceview
from scripts.cuda_trace import MS, CudaTrace
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from tests.analysis.test_findings import check_finding
from tests.sidecars import graph, write_sidecar
from traceview.analysis.base import Finding, Severity
from traceview.analysis.idle.device_finding import naming
from traceview.analysis.idle.findings import diagnose
from traceview.analysis.idle.result import Idle, compute
from traceview.analysis.idle.waiting_device import Waiting
from traceview.analysis.idle_attribution import attribute_idle_time
from traceview.analysis.selection import Selection, select
from traceview.analysis.steps.findings import diagnose_unsteady
from traceview.report.model import Report
from traceview.trace.cause import Cause
from traceview.trace.load import load

INPUT = "IteratorGetNext:IteratorGetNext"
WAITING = {
    "input-bound",
    "d2h-sync",
    "launch-bound",
    "callback-stall",
    "checkpoint-stall",
    "host-bound",
    "cpu-heavy-op",
    "retracing",
    "compile-in-window",
    "python-stall",
    "first-call",
    "unsteady-steps",
}
Fill = Callable[[Step], float]


def steps(
    fill: Fill | None = None,
    *,
    count: int = 4,
    marker_ms: float = 100,
    trace: CudaTrace | None = None,
) -> CudaTrace:
    """Steps in which GPU:0 waits until `fill`, which puts host events there, says the kernel is launched."""
    trace = new_trace(length_ms=1000) if trace is None else trace
    for step in marked_steps(trace, count=count, period_ms=100, marker_ms=marker_ms):
        at_ms = fill(step) if fill else 0
        step.kernel(0, at_ms, marker_ms, launch_ms=at_ms)
    return trace


def busy_with(name: str, length_ms: float) -> Fill:
    def fill(step: Step) -> float:
        step.host(name, 0, length_ms)
        return length_ms

    return fill


def python_until(at_ms: float) -> Fill:
    """Python from the end of an op of 1 µs to the next one, which launches the kernel."""

    def fill(step: Step) -> float:
        step.host("EagerExecute", 0, 0.001)
        step.host("EagerExecute", at_ms, at_ms + 0.01)
        return at_ms

    return fill


def prepares_until(at_ms: float) -> Fill:
    """A graph is prepared until it is called; a copy of a constant takes 0.1 ms of that."""

    def fill(step: Step) -> float:
        stats: dict[Any, Any] = {"tf_op": "MakeTensorFromProto"}
        copy = step.trace.copy(0, "H2D", step.at(1), step.at(1.1), size=8, stats=stats)
        step.trace.launch("MemcpyH2D", step.at(1), copy, duration_ps=ms(0.1))
        step.host("FunctionRun", at_ms, at_ms + 0.01)
        return at_ms

    return fill


@pytest.mark.parametrize(
    ("fill", "expected"),
    [
        (python_until(10), {}),
        (python_until(10.001), {"python-stall": "warning"}),
        (prepares_until(50.099), {"compile-in-window": "warning"}),
        (prepares_until(50.1), {"first-call": "critical"}),
    ],
)
def test_what_nothing_shows_from_its_share_on(
    fill: Fill, expected: dict[str, Severity], tmp_path: Path
) -> None:
    by_code = found(tmp_path, steps(fill))
    assert {code: finding.severity for code, finding in by_code.items()} == expected


def found(folder: Path, *traces: CudaTrace, steps: slice | None = None) -> dict[str, Finding]:
    """The findings about waiting, by code."""
    for trace in traces:
        trace.write(folder)
    return of_report(traceview.analyze(folder, steps=steps))


def of_idle_alone(folder: Path, trace: CudaTrace) -> dict[str, Finding]:
    """The findings without what the analysis of input pipelines says."""
    trace.write(folder)
    loaded = load(folder)
    selection = select(loaded)
    attribution = attribute_idle_time(loaded, selection)
    result = compute(loaded, selection, attribution)
    assert isinstance(result, Idle)
    findings = diagnose(loaded, result, attribution, selection)
    return {finding.code: finding for finding in findings}


def of_report(report: Report) -> dict[str, Finding]:
    waiting = [finding for finding in report.findings if finding.code in WAITING]
    for finding in waiting:
        check_finding(finding)
    assert len({finding.code for finding in waiting}) == len(waiting)
    return {finding.code: finding for finding in waiting}


@pytest.mark.parametrize(
    ("event", "length_ms", "expected"),
    [
        (INPUT, 4.999, {}),
        (INPUT, 5, {"input-bound": "warning"}),
        (INPUT, 19.999, {"input-bound": "warning"}),
        (INPUT, 20, {"input-bound": "critical"}),
        ("cuStreamSynchronize", 4.999, {}),
        ("cuStreamSynchronize", 5, {"d2h-sync": "warning"}),
        ("cuStreamSynchronize", 60, {"d2h-sync": "warning"}),
        ("SaveV2:SaveV2", 4.999, {}),
        ("SaveV2:SaveV2", 5, {"checkpoint-stall": "warning"}),
        ("EagerExecute", 9.999, {}),
        ("EagerExecute", 10, {"launch-bound": "warning"}),
        ("EagerExecute", 29.999, {"launch-bound": "warning"}),
        ("EagerExecute", 30, {"launch-bound": "critical"}),
        ("Autotuning", 4.999, {}),
        ("Autotuning", 5, {"compile-in-window": "warning"}),
        ("model/x/PyFunc:PyFunc", 4.999, {}),
        ("model/x/PyFunc:PyFunc", 5, {"cpu-heavy-op": "warning"}),
        ("cuMemHostAlloc", 60, {}),
    ],
)
def test_threshold(
    event: str, length_ms: float, expected: dict[str, Severity], tmp_path: Path
) -> None:
    findings = found(tmp_path, steps(busy_with(event, length_ms)))
    assert {code: finding.severity for code, finding in findings.items()} == expected
    for finding in findings.values():
        assert finding.cost_ps_per_step == int(length_ms * MS)
        assert finding.cost_ratio == pytest.approx(length_ms / 100)
        assert finding.devices == ("GPU:0",)
        assert finding.confidence == "high"


@pytest.mark.parametrize(("pause_ms", "expected"), [(6.17, set()), (6.18, {"callback-stall"})])
def test_callbacks_count_on_average(pause_ms: float, expected: set[str], tmp_path: Path) -> None:
    """Four pauses in five steps; the last step ends without its pause, so the mean step is shorter than the median."""
    findings = found(tmp_path, steps(count=5, marker_ms=100 - pause_ms))
    assert set(findings) == expected


def test_what_happens_in_one_step_of_four(tmp_path: Path) -> None:
    """Each costs its mean, though most steps have none of it."""

    def fill(step: Step) -> float:
        if step.start_ms != 200:
            return 0
        step.host(INPUT, 0, 30)
        step.host("SaveV2:SaveV2", 30, 60)
        return 60

    findings = found(tmp_path, steps(fill))
    assert set(findings) == {"input-bound", "checkpoint-stall"}
    for finding in findings.values():
        assert (finding.cost_ps_per_step, finding.cost_statistic) == (30 * MS // 4, "mean")
        assert finding.steps == (2,)
        assert finding.title.endswith("; 30.0 ms in step 2")


def ops(*lengths_ms: float) -> Fill:
    def fill(step: Step) -> float:
        at_ms = 0.0
        for number, length_ms in enumerate(lengths_ms):
            step.host(f"model/op{number}:PyFunc", at_ms, at_ms + length_ms)
            at_ms += length_ms
        return at_ms

    return fill


@pytest.mark.parametrize(
    ("lengths_ms", "expected"),
    [
        ((4, 4, 1.999), set()),
        ((4, 4, 2), {"host-bound"}),
        ((5, 4, 2), {"cpu-heavy-op"}),
    ],
)
def test_one_heavy_op_explains_a_busy_host(
    lengths_ms: tuple[float, ...], expected: set[str], tmp_path: Path
) -> None:
    findings = found(tmp_path, steps(ops(*lengths_ms)))
    assert set(findings) == expected
    if "cpu-heavy-op" in findings:
        heavy = findings["cpu-heavy-op"]
        assert ("op", "model/op0:PyFunc") in [(e.metric, e.value) for e in heavy.evidence]
        assert heavy.cost_ps_per_step == 5 * MS


def test_an_op_is_to_blame_for_no_more_than_its_cause(tmp_path: Path) -> None:
    """While the thread waited 20 ms for input, an op ran beside; 6 ms of it were left."""

    def fill(step: Step) -> float:
        worker = step.trace.thread("worker", 8)
        step.host(INPUT, 0, 20)
        step.host("FunctionRun", 20, 26)
        step.host("model/x:PyFunc", 0, 26, thread=worker)
        return 26

    findings = found(tmp_path, steps(fill))
    assert set(findings) == {"input-bound", "cpu-heavy-op"}
    assert findings["cpu-heavy-op"].cost_ps_per_step == 6 * MS


# Tracing


def traced_in(*which: int, count: int = 3) -> Fill:
    def fill(step: Step) -> float:
        call = "traced-nonXla" if step.start_ms / 100 in which else "notTraced-nonXla"
        step.host("train_step", 0, 8, {"tf_function_call": call, "tracing_count": count})
        return 8

    return fill


def test_tracing_in_the_first_recorded_step_is_no_retracing(tmp_path: Path) -> None:
    assert found(tmp_path, steps(traced_in(0))) == {}


def test_a_function_that_is_traced_for_the_first_time_is_not_traced_again(tmp_path: Path) -> None:
    """As that of the first evaluation is, between two steps."""

    def fill(step: Step) -> float:
        if step.start_ms == 200:
            step.host("Autotuning", 8, 30)
            traced_in(2, count=1)(step)
        return 30

    found_ = found(tmp_path, steps(fill))
    assert set(found_) == {"compile-in-window"}
    assert "traced for the first time" in found_["compile-in-window"].explanation


def test_a_later_step_that_traces(tmp_path: Path) -> None:
    findings = found(tmp_path, steps(traced_in(0, 2)))
    assert set(findings) == {"retracing"}
    finding = findings["retracing"]
    assert (finding.severity, finding.cost_ps_per_step) == ("warning", 8 * MS // 3)
    assert finding.title.startswith(
        "train_step traced 1 time after the first step: GPU:0 waits 2.67 ms"
    )
    assert [(e.value, e.where) for e in finding.evidence[:1]] == [
        (1, "train_step, 3 since the start")
    ]


@pytest.mark.parametrize(
    ("traced_by", "advice", "why"),
    [
        (("python",), "Pass a tensor instead of a Python number", "in a value of Python"),
        (("shape",), "Let one graph serve every shape", "in the shape of a tensor"),
        (("python", "shape"), "Give it one signature", None),
        ((), "Give it one signature", None),
    ],
)
def test_what_differs_between_the_graphs_decides_the_advice(
    traced_by: tuple[str, ...], advice: str, why: str | None, tmp_path: Path
) -> None:
    written = steps(traced_in(0, 2)).write(tmp_path)
    function = {**graph({"GPU:0": 3}, name="train_step"), "traced_by": traced_by}
    write_sidecar(written, {"placement": {"functions": [function]}})
    finding = found(tmp_path)["retracing"]
    assert finding.advice.startswith(advice)
    assert (f"Its graphs differ {why}" in finding.explanation) is (why is not None)


def test_the_first_recorded_step_stays_the_first_when_others_are_chosen(tmp_path: Path) -> None:
    trace = steps(traced_in(1))
    assert "retracing" in found(tmp_path, trace, steps=slice(1, 4))
    assert "retracing" not in found(tmp_path, steps=slice(2, 4))


def test_retracing_explains_compilation(tmp_path: Path) -> None:
    def fill(step: Step) -> float:
        step.host("Autotuning", 8, 30)
        traced_in(2)(step)
        return 30

    assert set(found(tmp_path, steps(fill))) == {"retracing"}


# How sure


def test_one_step_says_little(tmp_path: Path) -> None:
    finding = found(tmp_path, steps(busy_with(INPUT, 40), count=1))["input-bound"]
    assert (finding.severity, finding.confidence) == ("info", "low")
    assert finding.confidence_reason == "only one step was measured"


def test_without_steps_shares_are_of_the_window(tmp_path: Path) -> None:
    trace = new_trace()
    trace.host_event(INPUT, 10 * MS, 60 * MS)
    trace.kernel(0, 0, 10 * MS)
    trace.kernel(0, 60 * MS, 100 * MS, launch_ps=60 * MS)
    finding = found(tmp_path, trace)["input-bound"]
    assert (finding.severity, finding.confidence, finding.cost_ps_per_step) == ("info", "low", None)
    assert finding.cost_ratio == 0.5
    assert finding.title == "GPU:0 waits 50.0 ms of the 100 ms window for input (50.0%)"
    assert ("longest_gap_ps", "GPU:0, outside of steps") in [
        (e.metric, e.where) for e in finding.evidence
    ]


def test_much_that_nothing_shows_lowers_confidence(tmp_path: Path) -> None:
    def fill(step: Step) -> float:
        step.host(INPUT, 0, 20)
        return 41

    finding = found(tmp_path, steps(fill))["input-bound"]
    assert (finding.severity, finding.confidence) == ("critical", "medium")


def test_no_time_at_all(tmp_path: Path) -> None:
    trace = new_trace()
    for number in range(3):
        trace.marker(number, 0, 0)
    trace.kernel(0, 0, 0, launch_ps=0)
    assert found(tmp_path, trace) == {}


# Which device


def test_the_device_that_is_idle_least_costs_time(tmp_path: Path) -> None:
    def fill(step: Step) -> float:
        step.host(INPUT, 0, 40)
        step.kernel(1, 4, 100, launch_ms=4)
        return 40

    assert of_idle_alone(tmp_path, steps(fill)) == {}


def test_an_unused_device_does_not_count(tmp_path: Path) -> None:
    trace = steps(busy_with(INPUT, 40))
    trace.gpu(1)
    trace.copy(2, "H2D", 0, 99 * MS, size=8)
    assert found(tmp_path, trace)["input-bound"].devices == ("GPU:0",)


def test_each_host_has_its_own(tmp_path: Path) -> None:
    first = steps(busy_with(INPUT, 40), trace=new_trace("a", length_ms=1000))
    second = steps(busy_with(INPUT, 2), trace=new_trace("b", length_ms=1000))
    findings = found(tmp_path, first, second)
    assert {code: finding.devices for code, finding in findings.items()} == {
        "input-bound": ("a/GPU:0",)
    }


def replicas(fill: Fill) -> CudaTrace:
    """Steps of a run on CPUs, in which one replica works from where `fill` says it can."""
    trace = new_trace(length_ms=1000)
    worker = trace.thread("worker", 8)
    for step in marked_steps(trace, period_ms=100, marker_ms=100):
        at_ms = fill(step)
        step.host("FunctionRun", at_ms, 100)
        step.host("replica_0/x:MatMul", at_ms, 100, thread=worker)
    return trace


def test_replicas_wait_for_input(tmp_path: Path) -> None:
    findings = found(tmp_path, replicas(busy_with(INPUT, 30)))
    assert findings["input-bound"].devices == ("replica:0",)


@pytest.mark.parametrize(("until_ms", "is_longer"), [(55, True), (50, False)])
def test_devices_that_wait_longer_are_in_the_title(
    until_ms: float, is_longer: bool, tmp_path: Path
) -> None:
    """GPU:0 is idle least, for 40 ms, so it makes the step as long as it is; the cost is what it waits."""

    def fill(step: Step) -> float:
        step.host("EagerExecute", 0, until_ms)
        step.kernel(1, until_ms, 100, launch_ms=until_ms)
        return 40

    title = found(tmp_path, steps(fill))["launch-bound"].title
    assert title.startswith("GPU:0 waits 40.0 ms of the mean 100 ms step for kernel launches")
    assert title.endswith("; up to 55.0 ms on other devices") == is_longer
    assert is_longer or title.endswith("(40.0%)")


@pytest.mark.parametrize(
    ("until_ms", "who"),
    [(42, "GPU:0 and GPU:1 wait"), (43, "GPU:0 waits"), (38.1, "GPU:0 and GPU:1 wait")],
)
def test_devices_that_wait_alike_are_all_named(until_ms: float, who: str, tmp_path: Path) -> None:
    """One number stands for both if they differ by less than a twentieth."""

    def fill(step: Step) -> float:
        step.host("EagerExecute", 0, until_ms)
        step.kernel(1, until_ms, 100, launch_ms=until_ms)
        return 40

    assert found(tmp_path, steps(fill))["launch-bound"].title.startswith(f"{who} ")


def test_a_name_with_braces_is_a_name() -> None:
    waiting = Waiting(
        device=0,
        key="{device}/GPU:0",
        is_replica=False,
        idle_ps=np.ones((len(Cause), 1), dtype=np.int64),
        others={"{0}/GPU:1": np.ones((len(Cause), 1), dtype=np.int64)},
        step_numbers=(1,),
        window_ps=1,
        selection=cast("Selection", None),
        evaluation_ps=np.zeros(1, dtype=np.int64),
        around_saves_ps=np.zeros(1, dtype=np.int64),
        around_evaluations_ps=np.zeros(1, dtype=np.int64),
        gaps=(),
        python={},
    )
    title = naming("{device} waits {span}", waiting, list(waiting.others))
    assert title.format(device=waiting.key, span="long") == "{0}/GPU:1 and {device}/GPU:0 wait long"


@pytest.mark.parametrize("event", ["EagerExecute", "ExecutorState::Process"])
def test_replicas_have_no_launches(event: str, tmp_path: Path) -> None:
    """What the host does between their ops is information."""
    (finding,) = found(tmp_path, replicas(busy_with(event, 60))).values()
    assert (finding.code, finding.severity, finding.cost_ratio) == ("host-bound", "info", 0.6)
    assert found(tmp_path / "less", replicas(busy_with(event, 2.9))) == {}


# Steps that differ


def unsteady(*lengths_ms: float) -> CudaTrace:
    trace = new_trace(length_ms=1000)
    at_ms = 0.0
    for number, length_ms in enumerate(lengths_ms):
        trace.marker(number, ms(at_ms), ms(at_ms + length_ms))
        Step(trace, at_ms).kernel(0, 0, length_ms, launch_ms=0)
        at_ms += length_ms
    return trace


@pytest.mark.parametrize(
    ("lengths_ms", "expected"),
    [
        ((100, 100, 100, 100, 199), {}),
        ((100, 100, 100, 100, 100, 100, 200), {"unsteady-steps": "warning"}),
        ((100,) * 20 + (200,), {"unsteady-steps": "info"}),
        ((87, 100, 113), {}),
        ((86, 100, 114), {"unsteady-steps": "info"}),
        ((100, 200), {}),
    ],
)
def test_unsteady_steps(
    lengths_ms: tuple[float, ...], expected: dict[str, Severity], tmp_path: Path
) -> None:
    findings = found(tmp_path, unsteady(*lengths_ms))
    assert {code: finding.severity for code, finding in findings.items()} == expected


def test_the_longest_step_is_to_be_compared_with_one_of_the_median(tmp_path: Path) -> None:
    finding = found(tmp_path, unsteady(90, 110, 100, 130, 240))["unsteady-steps"]
    assert finding.advice.startswith(
        "Compare step 4 with step 1, a usual one: traceview gaps LOGDIR --steps 4:5, then --steps 1:2. "
    )


@pytest.mark.parametrize(("on_cpu", "expected"), [(True, "info"), (False, "warning")])
def test_steps_of_replicas_differ_by_what_else_runs(
    on_cpu: bool, expected: str, tmp_path: Path
) -> None:
    unsteady(100, 100, 100, 100, 100, 100, 200).write(tmp_path)
    result = traceview.analyze(tmp_path).results.steps
    assert result is not None
    (finding,) = diagnose_unsteady(result, (), on_cpu=on_cpu)
    assert finding.severity == expected


def test_what_another_finding_explains_is_no_finding(tmp_path: Path) -> None:
    trace = new_trace(length_ms=1000)
    at_ms = 0.0
    for number, length_ms in enumerate((60, 60, 60, 220)):
        trace.marker(number, ms(at_ms), ms(at_ms + length_ms))
        step = Step(trace, at_ms)
        step.host("SaveV2:SaveV2", 0, length_ms - 40)
        step.kernel(0, length_ms - 40, length_ms, launch_ms=length_ms - 40)
        at_ms += length_ms
    assert set(found(tmp_path, trace)) == {"checkpoint-stall"}


# Evidence


def test_what_a_step_did_is_no_evidence_of_what_ran_between_steps(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace, marker_ms=30):
        step.kernel(0, 2, 12)
        step.host("cpu/work:Work", 13, 29)
        step.host("EagerLocalExecute: WriteSummary", 40, 41)
    trace.write(tmp_path)
    idle = traceview.analyze(tmp_path).results.idle
    assert idle is not None
    gap = idle.devices[0].gaps[0]
    assert (gap.cause, gap.host_event) == ("callback", "EagerLocalExecute: WriteSummary")


@pytest.mark.parametrize(("second_ms", "both"), [(31.5, True), (2, False)])
def test_devices_that_wait_as_long_are_named(tmp_path: Path, second_ms: float, both: bool) -> None:
    """GPU:0 is idle least; GPU:1 waits for the same input, or had its kernel before it."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.host("IteratorGetNext:IteratorGetNext", 1, 31)
        step.kernel(0, 32, 44, launch_ms=31.5)
        begin = second_ms + 0.5
        step.kernel(1, begin, begin + (10 if both else 11), launch_ms=second_ms if both else 0.5)
        if not both:
            step.kernel(1, 14, 14.5, launch_ms=0.6)
    trace.write(tmp_path)
    (finding,) = [f for f in traceview.analyze(tmp_path).findings if f.code == "input-bound"]
    assert finding.devices == (("GPU:0", "GPU:1") if both else ("GPU:0",))
    assert (finding.title.startswith("GPU:0 and GPU:1 wait ")) is both


# Titles


def title_of_stall(pauses_ms: list[float], logdir: Path) -> str:
    """Of the finding `callback-stall` for steps of 50 ms, each followed by a pause between markers."""
    trace = new_trace(length_ms=1000)
    start_ms = 0.0
    for number, pause_ms in enumerate(pauses_ms):
        step = Step(trace, start_ms)
        trace.marker(number, step.at(0), step.at(50))
        step.kernel(0, 1, 49)
        start_ms += 50 + pause_ms
    # Ends the last pause; too short to count beside the others.
    last = Step(trace, start_ms)
    trace.marker(len(pauses_ms), last.at(0), last.at(50))
    trace.write(logdir)
    findings = traceview.analyze(logdir).findings
    return next(finding.title for finding in findings if finding.code == "callback-stall")


@pytest.mark.parametrize("slow", [0, 2])
def test_a_single_affected_step_is_named(slow: int, tmp_path: Path) -> None:
    pauses: list[float] = [2, 2, 2, 2]
    pauses[slow] = 300
    assert title_of_stall(pauses, tmp_path).endswith(f"; 300 ms in step {slow}")


def test_several_affected_steps_are_counted(tmp_path: Path) -> None:
    """30, 36 and 5.9 ms are less or more than a fifth of the longest."""
    title = title_of_stall([5.9, 30, 0, 5.9, 36], tmp_path)
    assert title.endswith("; 33.0 ms each in 2 of 6 steps")


def test_no_step_is_named_where_most_have_some(tmp_path: Path) -> None:
    expected = "GPU:0 waits 16.0 ms of the mean 66.0 ms step for Python between steps (24.2%)"
    assert title_of_stall([20, 20, 20, 20], tmp_path) == expected


def test_of_two_steps_none_is_named(tmp_path: Path) -> None:
    assert "in step" not in title_of_stall([100], tmp_path)
