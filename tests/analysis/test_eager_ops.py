"""A step without a graph is a finding on a host without GPUs, and only there."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from tests.analysis.made import analyzed, finding_of, loss_of
from tests.python_sidecars import PROFILE_START_NS, Sample, python_group
from tests.sidecars import write_sidecar
from tests.trace.test_replicas import FIRST, SECOND, component
from traceview.analysis.facts.input_supply import DEBUGGED
from traceview.analysis.rules.finding import Finding

SPACING_MS: Final = 0.4


def eager(step: Step, op: str, start_ms: float, length_ms: float) -> None:
    """One op as TensorFlow 2.21 records it if it runs outside of a graph."""
    for inset, name in (
        (0.0, f"EagerLocalExecute: {op}"),
        (0.01, "EagerKernelExecute"),
        (0.02, "KernelAndDeviceFunc::Run"),
    ):
        step.host(name, start_ms + inset, start_ms + length_ms - inset)


def run_of(
    count: int, length_ms: float = 0.3, *, graph_op_count: int = 1, with_graph: bool = False
) -> CudaTrace:
    """Steps of 50 ms in which two replicas compute and `count` ops run one by one."""
    trace = new_trace()
    for step in marked_steps(trace):
        component(step, 1, 2, *[FIRST] * graph_op_count)
        component(step, 2, 2, *[SECOND] * graph_op_count)
        for place in range(count):
            start_ms = 5 + SPACING_MS * place
            eager(step, "AddV2" if place else "Mul", start_ms, length_ms)
            if with_graph:
                step.host("FunctionRun", start_ms + 0.05, start_ms + length_ms - 0.05)
    return trace


def found(folder: Path, trace: CudaTrace) -> Finding | None:
    report = analyzed(folder, trace)
    rows = [row for row in report.findings if row.code == "host-bound"]
    return next(
        (row for row in rows if "eager_ops_per_step" in {item.metric for item in row.evidence}),
        None,
    )


@pytest.mark.parametrize(("count", "is_reported"), [(100, True), (99, False)])
def test_from_a_hundred_ops_on_the_step_is_no_graph(
    count: int, is_reported: bool, tmp_path: Path
) -> None:
    finding = found(tmp_path, run_of(count))
    assert (finding is not None) == is_reported
    if finding is not None:
        # No replica computes for 48.1 ms; before the first op of three steps nothing is recorded for 3.2 ms.
        assert (finding.severity, loss_of(finding).ps_per_step) == ("critical", ms(48.1 - 2.4))
        assert finding.title.endswith("for 100 ops per step outside of any tf.function")
        assert "most often AddV2 and Mul" in finding.explanation


@pytest.mark.parametrize(("function_count", "is_reported"), [(2, True), (1, False)])
def test_a_step_of_several_functions_under_one_tape_is_no_graph(
    function_count: int, is_reported: bool, tmp_path: Path
) -> None:
    """However few ops it runs beside the functions: of one function the rest of the step is little."""
    trace = run_of(50)
    for index in range(4):
        step = Step(trace, 50 * index)
        for number in range(function_count):
            graphs = f"__forward_call_{number}", f"__inference___backward_call_{number}_9"
            for place, graph in enumerate(graphs):
                begin_ms = 30 + 4 * number + 2 * place
                eager(step, graph, begin_ms, 1)
                step.host("FunctionRun", begin_ms + 0.05, begin_ms + 0.95)
    finding = found(tmp_path, trace)
    assert (finding is not None) is is_reported
    if finding is not None:
        # Each function has two graphs.
        assert finding.title.endswith("for 54 calls per step outside of any tf.function")


@pytest.mark.parametrize(
    ("hook", "action"),
    [
        ("tf.config.run_functions_eagerly", "Turn tf.config.run_functions_eagerly off"),
        # Then the pipeline runs ops one by one.
        (DEBUGGED, f"Turn {DEBUGGED} off"),
        # It makes nothing run outside of a graph.
        ("tracemalloc", "Put the step into a graph"),
    ],
)
def test_functions_that_are_told_to_run_op_by_op(hook: str, action: str, tmp_path: Path) -> None:
    write_sidecar(run_of(100).write(tmp_path), {"tracing": {"hooks": [hook]}})
    (finding,) = (row for row in traceview.analyze(tmp_path).findings if row.code == "host-bound")
    assert finding.action.startswith(action)
    assert finding.title.endswith(f"with {hook} on")


@pytest.mark.parametrize(("work_ms", "is_own"), [(2, False), (7, True)])
def test_python_at_another_line_is_a_cause_of_its_own(
    work_ms: int, is_own: bool, tmp_path: Path
) -> None:
    """Ops run one by one from 9 ms on; before that NumPy sorts, for less or more than 5 % of the steps."""
    sorts = (("numpy/_core/fromnumeric.py", "sort", 1092, False), ("train.py", "kept", 4, True))
    trace = new_trace()
    samples: list[Sample] = []
    for step in marked_steps(trace):
        for replica in (FIRST, SECOND):
            component(step, 1 if replica == FIRST else 2, 0.5, replica)
        for place in range(100):
            eager(step, "AddV2", 9 + SPACING_MS * place, 0.3)
        begin_ns = PROFILE_START_NS + round(step.start_ms * 1_000_000)
        for at in range(50):
            stack = sorts if 9 - work_ms < at < 9 else (("train.py", "train", 9, True),)
            samples.append((begin_ns + at * 1_000_000, 0, stack))
    threads = [{"ident": 140_000, "name": "MainThread", "native_id": 1}]
    report = analyzed(tmp_path, trace, sidecar={"python": python_group(samples, threads)})
    findings = {row.code: row for row in report.findings}
    assert ("python-stall" in findings) is is_own
    if is_own:
        assert findings["python-stall"].title.endswith(
            "in the step in kept, train.py:4 (sort of numpy)"
        )
    assert "100 ops per step" in findings["host-bound"].title


def test_a_call_of_a_function_is_no_single_op(tmp_path: Path) -> None:
    assert found(tmp_path, run_of(100, with_graph=True)) is None


def test_with_a_gpu_the_launches_show_it(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 1, 4)
        for place in range(100):
            eager(step, "AddV2", 5 + SPACING_MS * place, 0.3)
    assert found(tmp_path, trace) is None


def test_with_a_gpu_functions_may_run_op_by_op_too(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        for place in range(100):
            at_ms = 5 + SPACING_MS * place
            eager(step, "AddV2", at_ms, 0.3)
            step.kernel(0, at_ms + 0.2, at_ms + 0.21, launch_ms=at_ms + 0.1)
    hooks = ["tf.config.run_functions_eagerly"]
    write_sidecar(trace.write(tmp_path), {"tracing": {"hooks": hooks}})
    finding = traceview.analyze(tmp_path).findings[0]
    assert finding.code == "launch-bound"
    assert finding.title.endswith(f", with {hooks[0]} on")
    assert finding.action.startswith(f"Turn {hooks[0]} off")


def on_one_cpu(wait_ms: float = 0, count: int = 100) -> CudaTrace:
    """Steps of 50 ms, in the markers 45 ms: first a wait for input, from 5 ms on ops of 28 ms together."""
    trace = new_trace()
    for step in marked_steps(trace, marker_ms=45):
        step.host("TFE_Py_Execute", 0, 45)
        if wait_ms:
            step.host("IteratorGetNext:IteratorGetNext", 0, wait_ms)
        for place in range(count):
            eager(step, "AddV2", 5 + SPACING_MS * place * 100 / count, 28 / count + 0.02)
    return trace


@pytest.mark.parametrize("wait_ms", [0, 2])
def test_without_a_device_the_steps_show_it(wait_ms: float, tmp_path: Path) -> None:
    """Eager ops on one CPU belong to no replica. What lies between steps and waits for input is lost in a graph, too."""
    finding = found(tmp_path, on_one_cpu(wait_ms))
    assert finding is not None
    assert (finding.severity, loss_of(finding).ps_per_step) == ("critical", ms(45 - wait_ms - 28))
    assert finding.devices == ()
    assert "tf.function: at least 17.0 of" in finding.title or wait_ms


@pytest.mark.parametrize(
    ("added_ms", "count", "is_reported"),
    [(14.6, 100, True), (15.2, 100, False), (16, 245, True), (16, 243, False)],
)
def test_what_the_profiler_may_have_taken_is_no_finding(
    added_ms: float, count: int, is_reported: bool, tmp_path: Path
) -> None:
    """2.5 of 17 ms are left of each step, which took 50 ms with the profiler; but each op takes 10 µs without it, too."""
    left_ms = 50 - added_ms
    overhead = {"unprofiled_ns": left_ms, "profiled_ns": 50, "spread_ratio": 0.0}
    sidecar = {"overhead": overhead | {"ratio": added_ms / left_ms}}
    report = analyzed(tmp_path, on_one_cpu(count=count), sidecar=sidecar)
    assert (finding_of(report, "host-bound") is not None) is is_reported


def test_an_op_counts_no_longer_than_in_the_quickest_quarter_of_the_steps(tmp_path: Path) -> None:
    """In three of four steps each op takes 0.28 ms, in one of them 0.1."""
    trace = new_trace()
    for number, step in enumerate(marked_steps(trace, marker_ms=45)):
        step.host("TFE_Py_Execute", 0, 45)
        for place in range(100):
            eager(step, "AddV2", 5 + SPACING_MS * place, (0.1 if number == 1 else 0.28) + 0.02)
    finding = found(tmp_path, trace)
    assert finding is not None
    assert loss_of(finding).ps_per_step == ms(45 - 100 * 0.1)


def jitted(count: int, length_ms: float, op_count: int = 1, called: str = "add") -> CudaTrace:
    """Steps of 50 ms of JAX: a program of `op_count` ops, 10 ms, and `count` programs of one op each, called one by one."""
    trace = new_trace()
    thread = trace.thread("device0", 70)
    for step in marked_steps(trace):
        step.host("PjitFunction(step)", 0, 0.2)
        for op in range(op_count):
            begin_ms, end_ms = (1 + 10 * (op + after) / op_count for after in (0, 1))
            step.host(f"dot.{op}", begin_ms, end_ms, on_cpu("jit_step", 1), thread=thread)
        for place in range(count):
            start_ms = 12 + 0.3 * place
            for name in (called, called) if place else ("multiply", "multiply"):
                step.host(f"PjitFunction({name})", start_ms, start_ms + 0.1)
            ends_ms = start_ms + 0.1 + length_ms
            step.host("wrapped_add", start_ms + 0.1, ends_ms, on_cpu("jit_add", 2), thread=thread)
    return trace


def on_cpu(module: str, program: int) -> dict[str, int | str]:
    return {"device_ordinal": 0, "hlo_module": module, "program_id": program}


@pytest.mark.parametrize(
    ("count", "length_ms", "op_count", "is_dispatch"),
    [
        # Many short programs.
        (20, 0.04, 1, True),
        (19, 0.04, 1, False),
        (110, 0.06, 1, False),
        # Of one op each, however long, but not beside a step that may be one op as well.
        (8, 0.1, 5, True),
        (8, 0.1, 4, False),
    ],
)
def test_programs_of_jax_beside_the_step_are_dispatch(
    count: int, length_ms: float, op_count: int, is_dispatch: bool, tmp_path: Path
) -> None:
    steps = analyzed(tmp_path, jitted(count, length_ms, op_count)).results.steps
    assert steps is not None
    computed = [row.devices[0].states["compute"] for row in steps.steps]
    assert computed == [ms(10 + (0 if is_dispatch else count * length_ms))] * len(computed)


def test_calls_of_jitted_functions_are_counted_once(tmp_path: Path) -> None:
    finding = found(tmp_path, jitted(110, 0.04))
    assert finding is not None
    # What JAX calls inside of such a call is part of it.
    assert finding.title.endswith("for 111 calls of ops and jitted functions per step")
    assert "most often add, step and multiply" in finding.explanation


@pytest.mark.parametrize(
    ("called", "action"),
    [
        ("add", "Put all that a step computes"),
        ("gather", "Index what"),
        ("dynamic_slice", "Index"),
        ("unstack", "Index"),
    ],
)
def test_an_array_that_is_indexed_is_fetched_once(called: str, action: str, tmp_path: Path) -> None:
    finding = found(tmp_path, jitted(110, 0.04, called=called))
    assert finding is not None
    assert finding.action.startswith(action)


@pytest.mark.parametrize(("called", "lost"), [("unstack", 37.7), ("add", 33.7)])
def test_reads_of_a_loop_over_an_array_are_of_its_calls(
    called: str, lost: float, tmp_path: Path
) -> None:
    """From 45.3 to 49.3 ms the line that calls the ops reads values."""
    trace = new_trace()
    thread = trace.thread("device0", 70)
    samples: list[Sample] = []
    for step in marked_steps(trace):
        step.host("PjitFunction(step)", 0, 0.2)
        step.host("dot.1", 1, 11.8, on_cpu("jit_step", 1), thread=thread)
        for place in range(110):
            start_ms = 12 + 0.3 * place
            step.host(f"PjitFunction({called})", start_ms, start_ms + 0.3)
        step.host("np.asarray(jax.Array)", 45.3, 49.3)
        step.host("last.1", 49.3, 50, on_cpu("jit_step", 1), thread=thread)
        begin_ns = PROFILE_START_NS + round(step.start_ms * 1e6)
        stack = (("train.py", "counted", 7, True),)
        samples += [(begin_ns + at * 1_000_000, 0, stack) for at in range(50)]
    threads = [{"ident": 140_000, "name": "MainThread", "native_id": 1}]
    write_sidecar(trace.write(tmp_path), {"python": python_group(samples, threads)})
    report = traceview.analyze(tmp_path)
    (finding,) = (row for row in report.findings if row.code == "host-bound")
    assert loss_of(finding).ps_per_step == ms(lost)
    assert [row.code for row in report.findings if row.code == "d2h-sync"] == (
        [] if called == "unstack" else ["d2h-sync"]
    )
