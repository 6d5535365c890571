"""The critical path of hand-made traces fits in the head; that of every other one sums to its steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.cuda_trace import NCCL_NAME, CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import ORIGIN_PS, Step, marked_steps, ms, new_trace
from tests.analysis.sections import cells_of, check_printed, tables_of
from traceview.analysis.base import SEVERITIES, Finding
from traceview.analysis.path.findings import UNEXPLAINED_IDLE
from traceview.analysis.path.result import MOST_LISTED, MOST_PARTS, CriticalPath
from traceview.analysis.path.section import section
from traceview.document.model import Bar, Span
from traceview.report.build import analyze
from traceview.report.document import view_of
from traceview.report.model import Report
from traceview.trace.windows import WindowKind

FIXTURES = sorted(path.parent.name for path in Path("fixtures").glob("*/plugins"))
SHARED = ["bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8"]

LARGEST = {
    "waits_for_input": "input",
    "waits_for_input_in_the_graph": "input",
    "exposed_collectives": "collective",
    "packs_over_pcie": "collective",
    "saves_checkpoints": "checkpoint",
    "waits_for_a_value": "sync",
    "launches_back_to_back": "launch",
    "retracing": "compile",
    "late_batch": "input",
    "callbacks_between_steps": "callback",
    "computes_on_the_host": "host_compute",
    "stages_a_copy": "h2d",
    "pageable_copies": "h2d",
    "A": "h2d",
    "G": "input",
    "queued_on_another_stream": "dependency",
    "serial_gpus": "dependency",
    "slower_gpu": "collective",
    "more_work": "collective",
}
"""The largest loss with a recorded cause on the path. A slower GPU makes its compute longer, which is no loss."""

Work = list[tuple[str, float, float]]
"""Kernels, collectives and copies of a device in a step: kind, start and end in milliseconds."""


def written(folder: Path, *devices: Work, count: int = 2, step_ms: float = 50) -> Report:
    """Steps in which the devices do the same work; each event is launched when it begins."""
    trace = new_trace()
    for step in marked_steps(trace, count=count, period_ms=step_ms, marker_ms=step_ms):
        for ordinal, work in enumerate(devices):
            add(step, ordinal, work)
    trace.write(folder)
    return analyze(folder)


def add(step: Step, ordinal: int, work: Work) -> None:
    for kind, start, end in work:
        if kind in ("H2D", "D2H"):
            step.copy(ordinal, kind, start, end, size=1_000_000, launch_ms=start)
        elif kind == "nccl":
            step.kernel(ordinal, start, end, name=NCCL_NAME, stream=30, launch_ms=start)
        else:
            step.kernel(ordinal, start, end, op=f"model/{kind}:MatMul", launch_ms=start)


def path_of(report: Report) -> CriticalPath:
    assert report.results.path is not None
    return report.results.path


def in_ms(by_cause: dict[str, int]) -> dict[str, float]:
    return {cause: ps / ms(1) for cause, ps in by_cause.items()}


def walked(report: Report) -> list[tuple[str, str, float, float]]:
    """The parts of the first step in time order: device, cause, start and length in milliseconds."""
    (first, *_) = path_of(report).steps
    assert first.part_count == len(first.parts)
    parts = sorted(first.parts, key=lambda part: part.start_ps)
    start_ps = parts[0].start_ps
    return [
        (
            part.device,
            part.cause,
            (part.start_ps - start_ps) / ms(1),
            part.duration_ps / ms(1),
        )
        for part in parts
    ]


# Hand-made traces


def test_one_device_is_its_activity_and_its_gaps(tmp_path: Path) -> None:
    report = written(tmp_path, [("H2D", 0, 5), ("a", 5, 20), ("b", 30, 50)])
    assert walked(report) == [
        ("GPU:0", "h2d", 0, 5),
        ("GPU:0", "compute", 5, 15),
        ("GPU:0", "unattributed", 20, 10),
        ("GPU:0", "compute", 30, 20),
    ]
    (step, _) = path_of(report).steps
    assert in_ms(step.by_cause) == {"compute": 35, "unattributed": 10, "h2d": 5}
    assert (step.host, step.step, step.duration_ps) == ("host0", 0, ms(50))


def test_waiting_in_a_collective_goes_on_at_the_device_that_came_last(tmp_path: Path) -> None:
    report = written(
        tmp_path,
        [("a", 0, 20), ("nccl", 20, 50)],
        [("a", 0, 40), ("nccl", 40, 50)],
    )
    assert walked(report) == [
        ("GPU:1", "compute", 0, 40),
        # Both end together; GPU:0 was busy for longer.
        ("GPU:0", "collective", 40, 10),
    ]


def test_what_kept_the_last_device_is_on_the_path(tmp_path: Path) -> None:
    """The wait of GPU:0 is not: it costs nothing that GPU:1 does not cost."""
    trace = new_trace()
    for step in marked_steps(trace, count=2, marker_ms=50):
        step.host("IteratorGetNext:IteratorGetNext", 0, 10)
        add(step, 0, [("a", 0, 20), ("nccl", 20, 46)])
        add(step, 1, [("a", 10, 40), ("nccl", 40, 46)])
    trace.write(tmp_path)
    report = analyze(tmp_path)
    assert walked(report) == [
        ("GPU:1", "input", 0, 10),
        ("GPU:1", "compute", 10, 30),
        ("GPU:0", "collective", 40, 6),
        ("GPU:0", "unattributed", 46, 4),
    ]
    (part,) = [part for part in path_of(report).steps[0].parts if part.cause == "input"]
    assert (part.host_event, part.thread) == ("IteratorGetNext:IteratorGetNext", "python3")
    assert (part.before, part.after, part.op) == (None, "model/a:MatMul", None)


def replicas(folder: Path, *components: dict[str, tuple[float, float]]) -> Report:
    """Three steps of 50 ms on CPU replicas; each op is on a thread of its own."""
    trace = new_trace()
    for step in marked_steps(trace, count=3, period_ms=50, marker_ms=50):
        for number, ops in enumerate(components):
            key = round(step.start_ms) * 10 + number
            step.host("FunctionRun", 1, 1.1, {"_pt": 3, "_p": key})
            consumed = {"_ct": 3, "_c": key, "id": 1, "iter_num": 0}
            for place, (op, (start, end)) in enumerate(ops.items()):
                thread = trace.thread(f"tf_Compute_{number}_{place}", 900 + 20 * number + place)
                step.host("ExecutorState::Process", 2, 49, consumed, thread=thread)
                step.host(op, start, end, thread=thread)
    trace.write(folder)
    return analyze(folder)


def test_of_devices_that_wait_for_each_other_the_one_that_began_last_goes_on(
    tmp_path: Path,
) -> None:
    """At 30 ms replica 1 pauses, and only replica 0 looks busy: it waits in a collective, for replica 1."""
    reduce = "sgd/CollectiveReduceV2:CollectiveReduceV2"
    report = replicas(
        tmp_path,
        {"model/MatMul:MatMul": (2, 6), reduce: (6, 40)},
        {
            "replica_1/model/MatMul:MatMul": (2, 30),
            "replica_1/model/Relu:Relu": (31, 38),
            f"replica_1/{reduce}": (38, 40),
        },
    )
    parts = [part for part in walked(report) if 2 <= part[2] < 40]
    assert parts == [
        ("replica:1", "compute", 2, 28),
        ("replica:1", "peer", 30, 1),
        ("replica:1", "compute", 31, 7),
        ("replica:0", "collective", 38, 2),
    ]


def test_the_path_changes_the_device_at_every_wait(tmp_path: Path) -> None:
    """GPU:1 comes last to the first collective, GPU:0 to the second one."""
    report = written(
        tmp_path,
        [("a", 0, 10), ("nccl", 10, 24), ("b", 24, 44), ("nccl", 44, 50)],
        [("a", 0, 20), ("nccl", 20, 24), ("b", 24, 30), ("nccl", 30, 50)],
    )
    assert [part[:2] for part in walked(report)] == [
        ("GPU:1", "compute"),
        ("GPU:0", "collective"),
        ("GPU:0", "compute"),
        ("GPU:0", "collective"),
    ]
    assert in_ms(path_of(report).by_cause) == {"compute": 40, "collective": 10}


def test_streams_that_overlap_count_by_class_and_then_by_start(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace, count=2, marker_ms=50):
        step.copy(0, "H2D", 0, 30, size=1000, launch_ms=0)
        step.kernel(0, 10, 20, op="first:MatMul", launch_ms=0)
        step.kernel(0, 15, 25, op="second:MatMul", stream=9, launch_ms=0)
        step.kernel(0, 40, 50, op="third:MatMul", launch_ms=40)
    trace.write(tmp_path)
    report = analyze(tmp_path)
    path = path_of(report)
    assert [part[1:] for part in walked(report)] == [
        ("h2d", 0, 10),
        ("compute", 10, 10),
        ("compute", 20, 5),
        ("h2d", 25, 5),
        ("unattributed", 30, 10),
        ("compute", 40, 10),
    ]
    assert [(op.cause, op.op, op.ps_per_step // ms(1)) for op in path.ops][1:] == [
        ("compute", "first", 10),
        ("compute", "third", 10),
        ("compute", "second", 5),
    ]
    assert path.ops[0].ps_per_step == ms(15)
    assert path.op_count == 4


def test_parts_are_cut_at_the_bounds_of_steps(tmp_path: Path) -> None:
    """A kernel that runs from one step into the next has a part in each."""
    trace = new_trace()
    for step, (start, end) in zip(
        marked_steps(trace, count=3, marker_ms=50), ((0, 60), (20, 50), (0, 50)), strict=True
    ):
        step.kernel(0, start, end, launch_ms=0)
    trace.write(tmp_path)
    first, second, _ = path_of(analyze(tmp_path)).steps
    assert in_ms(first.by_cause) == {"compute": 50}
    assert in_ms(second.by_cause) == {"compute": 40, "dependency": 10}
    assert [part.duration_ps for part in second.parts] == [ms(30), ms(10), ms(10)]


def test_a_run_without_steps_is_one_window(tmp_path: Path) -> None:
    trace = CudaTrace("host0")
    trace.kernel(0, ORIGIN_PS, ORIGIN_PS + ms(3))
    trace.kernel(0, ORIGIN_PS + ms(7), ORIGIN_PS + ms(10))
    trace.write(tmp_path)
    report = analyze(tmp_path)
    (only,) = path_of(report).steps
    assert (only.step, only.duration_ps) == (None, ms(10))
    assert in_ms(only.by_cause) == {"compute": 6, "unattributed": 4}
    assert path_of(report).unexplained_ratio == pytest.approx(0.4)


def test_a_run_without_a_kernel_has_no_path(tmp_path: Path) -> None:
    report = written(tmp_path, [("H2D", 0, 5)])
    assert report.results.path is None
    assert report.skipped["path"] == "no device ran a kernel in the window"


def test_a_peer_on_another_host_is_followed_if_the_clocks_agree(tmp_path: Path) -> None:
    SCENARIOS["collectives_of_two_hosts"]().write(tmp_path)
    path = path_of(analyze(tmp_path))
    assert {part.device for step in path.steps if step.host == "host0" for part in step.parts} > {
        "host1/GPU:1"
    }
    assert all("peer" not in step.by_cause for step in path.steps)


def test_every_step_of_a_long_run_lists_its_longest_part(tmp_path: Path) -> None:
    work = [("a", start, start + 0.5) for start in range(20)]
    report = written(tmp_path, [*work], count=60, step_ms=20)
    counts = {len(step.parts) for step in path_of(report).steps}
    assert counts == {MOST_LISTED // 60}
    assert len(path_of(report).longest) == MOST_PARTS


# All traces


def adds_up(report: Report) -> None:
    path = report.results.path
    if path is None:
        assert "path" in report.skipped
        return
    for step in path.steps:
        assert sum(step.by_cause.values()) == step.duration_ps
        assert sum(part.duration_ps for part in step.parts) <= step.duration_ps
        lengths = [part.duration_ps for part in step.parts]
        assert lengths == sorted(lengths, reverse=True)
    assert sum(path.share_by_cause.values()) == pytest.approx(1)
    assert path.unexplained_ratio == path.share_by_cause.get("unattributed", 0)
    if report.windows[0].kind == "steps" and len(report.windows) == 1 and report.results.steps:
        used = {row.number: row.duration_ps for row in report.results.steps.steps if row.used}
        assert {step.step: step.duration_ps for step in path.steps} == used


@pytest.mark.parametrize("window", ["auto", "trace"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios_add_up(name: str, window: WindowKind, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    adds_up(analyze(tmp_path, window=window))


@pytest.mark.parametrize("name", FIXTURES)
def test_recorded_runs_add_up(name: str) -> None:
    adds_up(analyze(Path("fixtures", name)))


@pytest.mark.shared
@pytest.mark.parametrize("name", SHARED)
def test_recorded_gpu_runs_add_up(shared_traces: Path, name: str) -> None:
    adds_up(analyze(shared_traces / name))


@pytest.mark.parametrize(("name", "cause"), LARGEST.items())
def test_a_known_fault_is_the_largest_loss(name: str, cause: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    path = path_of(analyze(tmp_path))
    losses = [key for key in path.share_by_cause if key not in ("compute", "unattributed")]
    assert losses[0] == cause


@pytest.mark.parametrize(("name", "device"), [("slower_gpu", "GPU:2"), ("more_work", "GPU:1")])
def test_the_path_is_on_the_device_that_computes_longest(
    name: str, device: str, tmp_path: Path
) -> None:
    SCENARIOS[name]().write(tmp_path)
    path = path_of(analyze(tmp_path))
    for step in path.steps:
        longest = next(part for part in step.parts if part.cause == "compute")
        assert longest.device == device


# The finding


def unexplained(folder: Path, idle_ms: float, *, count: int = 3) -> Finding | None:
    """One kernel per step, and time after it in which the host records nothing."""
    report = written(folder, [("a", 0, 50 - idle_ms)], count=count)
    rows = [row for row in report.findings if row.code == UNEXPLAINED_IDLE.code]
    return rows[0] if rows else None


@pytest.mark.parametrize(
    ("idle_ms", "severity"),
    [(4.99, None), (5.01, "info"), (9.99, "info"), (10.01, "warning"), (40, "warning")],
)
def test_the_rule_on_both_sides_of_its_limits(
    idle_ms: float, severity: str | None, tmp_path: Path
) -> None:
    finding = unexplained(tmp_path, idle_ms)
    assert (finding.severity if finding else None) == severity


def test_one_step_is_no_warning(tmp_path: Path) -> None:
    finding = unexplained(tmp_path, 40, count=1)
    assert finding is not None
    assert (finding.severity, finding.confidence) == ("info", "low")


def test_time_in_one_step_is_said_of_that_step(tmp_path: Path) -> None:
    """Only the second of three steps has 30 ms without a cause: a mean of 10 ms says little."""
    trace = new_trace()
    for number, step in enumerate(marked_steps(trace, count=3, marker_ms=50)):
        step.kernel(0, 0, 20 if number == 1 else 50, launch_ms=0)
    trace.write(tmp_path)
    (finding, *_) = (row for row in analyze(tmp_path).findings if row.code == UNEXPLAINED_IDLE.code)
    assert finding.title == (
        "GPU:0 is idle 10.0 ms of the mean 50.0 ms step without a recorded cause (20.0%); 30.0 ms in step "
        f"{finding.steps[0]}"
    )
    assert len(finding.steps) == 1


def test_the_finding_says_where_and_what_was_recorded_around_it(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace, count=3, marker_ms=50, launch_name="cuLaunchKernel"):
        step.kernel(0, 0, 10, op="model/first:MatMul", launch_ms=0)
        step.kernel(0, 30, 50, op="model/second:MatMul", launch_ms=30)
    trace.write(tmp_path)
    (finding, *_) = analyze(tmp_path).findings
    assert finding.code == UNEXPLAINED_IDLE.code
    assert finding.title == (
        "GPU:0 is idle 20.0 ms of the mean 50.0 ms step without a recorded cause (40.0%)"
    )
    assert finding.explanation.endswith(
        "The longest part, 20.0 ms on GPU:0, lies between model/first:MatMul and model/second:MatMul; a Python thread "
        "recorded nothing there."
    )
    evidence = {row.metric: (row.value, row.where) for row in finding.evidence}
    assert evidence["unexplained_ratio"] == (0.4, "of all steps together")
    assert evidence["unexplained_ps"] == (ms(20), "GPU:0, step 2")
    assert evidence["previous_event"] == ("cuLaunchKernel", "Python thread")
    assert evidence["next_event"] == ("cuLaunchKernel", "Python thread")
    assert (finding.cost_ps_per_step, finding.cost_ratio) == (ms(20), 0.4)


def test_a_launch_that_was_not_recorded_is_named(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace, count=3, marker_ms=50):
        step.kernel(0, 0, 10, launch_ms=0)
        step.kernel(0, 30, 50, op="model/second:MatMul", launch_ps=None)
    trace.write(tmp_path)
    (finding, *_) = (row for row in analyze(tmp_path).findings if row.code == "unexplained-idle")
    assert finding.explanation.endswith("the launch of model/second:MatMul was not recorded.")


@pytest.mark.parametrize("name", SCENARIOS)
def test_unexplained_time_is_a_finding_from_its_limit_on(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = analyze(tmp_path)
    codes = [finding.code for finding in report.findings]
    path = report.results.path
    limit = UNEXPLAINED_IDLE.limits["info_ratio"]
    assert (UNEXPLAINED_IDLE.code in codes) == (
        path is not None and path.unexplained_ratio >= limit
    )
    severities = [SEVERITIES.index(finding.severity) for finding in report.findings]
    assert severities == sorted(severities)


# The section


def test_the_section_shows_causes_steps_parts_and_ops(tmp_path: Path) -> None:
    SCENARIOS["late_batch"]().write(tmp_path)
    report = analyze(tmp_path)
    path = path_of(report)
    shown = section(view_of(report), path)
    causes, steps, parts, ops = tables_of(shown)
    assert cells_of(causes, "on the path")[:2] == ["compute", "waiting for input"]
    assert cells_of(causes, "share")[:2] == ["60.0%", "23.6%"]
    assert cells_of(causes, "mean per step")[0] == "30.0 ms"
    assert cells_of(steps, "step time") == ["50.0 ms"] * 3 + ["49.9 ms"]
    assert cells_of(steps, "largest loss") == ["waiting for input"] * 4
    (bar, *_) = next(row.values for row in steps.columns if row.kind == "bar")
    assert isinstance(bar, Bar)
    assert sum(part.ratio for part in bar.parts) == pytest.approx(1)
    (span, *_) = next(row.values for row in parts.columns if row.kind == "span")
    assert isinstance(span, Span)
    assert span.device == "GPU:1"
    assert cells_of(ops, "op or kernel")[0] == "model/dense/MatMul"
    assert shown.lead == (
        "Along the critical path of the steps: compute 60.0%, waiting for input 23.6%, no recorded cause 8.1%."
    )
    check_printed(shown, "Critical path", "input")


def test_a_brief_section_is_short(tmp_path: Path) -> None:
    SCENARIOS["late_batch"]().write(tmp_path)
    report = analyze(tmp_path)
    shown = section(view_of(report, is_brief=True), path_of(report))
    causes, parts = tables_of(shown)
    assert (causes.shown_count, parts.shown_count) == (4, 3)
    check_printed(shown, "Critical path")
