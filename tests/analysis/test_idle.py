"""Each cause of idle time becomes a finding exactly at its threshold, and only where it costs time; what was around each gap.

Steps of findings take 100 ms, so that milliseconds are per cent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traceview
from scripts.cuda_trace import MS, CudaTrace
from scripts.scenarios.model import ORIGIN_PS, Step, marked_steps, ms, new_trace
from tests.analysis.made import analyzed, loss_of, lost_ps
from tests.sidecars import graph, write_sidecar
from traceview.analysis.facts.selection import select
from traceview.analysis.gpu_time.idle import RULES
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.idle_report import (
    Gap,
    Idle,
    IdleRow,
    compute,
    gaps_of,
    longest_first,
)
from traceview.analysis.rules.finding import Finding, Severity
from traceview.trace.reading.load import load

CODES = {rule.code for rule in RULES}
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


def python_until(at_ms: float, frame: str = "") -> Fill:
    """Python from the end of an op of 1 µs to the next one, which launches the kernel."""

    def fill(step: Step) -> float:
        if frame:
            step.host(frame, 0, at_ms)
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


def found(
    folder: Path, *traces: CudaTrace, sidecar: dict[str, Any] | None = None, **options: Any
) -> dict[str, Finding]:
    """The findings about waiting for the host, by code."""
    report = analyzed(folder, *traces, sidecar=sidecar, **options)
    waiting = [row for row in report.findings if row.code in CODES]
    assert len({finding.code for finding in waiting}) == len(waiting)
    for finding in waiting:
        assert len(finding.title.split()) <= 20
    return {finding.code: finding for finding in waiting}


@pytest.mark.parametrize(
    ("fill", "expected"),
    [
        (python_until(5), {}),
        (python_until(5.001), {"between-calls": "info"}),
        (python_until(5.001, "$train.py:7 step"), {"python-stall": "warning"}),
        (prepares_until(50.099), {"compile-in-window": "critical"}),
        (prepares_until(50.1), {"first-call": "critical"}),
        (busy_with("cuStreamSynchronize", 4.999), {}),
        (busy_with("cuStreamSynchronize", 5), {"d2h-sync": "warning"}),
        (busy_with("cuStreamSynchronize", 60), {"d2h-sync": "critical"}),
        (busy_with("SaveV2:SaveV2", 5), {"checkpoint-stall": "warning"}),
        (busy_with("EagerExecute", 7.99), {}),
        (busy_with("EagerExecute", 8), {"launch-bound": "warning"}),
        (busy_with("Autotuning", 5), {"compile-in-window": "warning"}),
        (busy_with("model/x/PyFunc:PyFunc", 5), {"cpu-heavy-op": "warning"}),
        (busy_with("cuMemHostAlloc", 60), {}),
    ],
)
def test_threshold(fill: Fill, expected: dict[str, Severity], tmp_path: Path) -> None:
    findings = found(tmp_path, steps(fill))
    assert {code: finding.severity for code, finding in findings.items()} == expected
    for code, finding in findings.items():
        assert finding.devices == (() if code == "first-call" else ("GPU:0",))
        assert finding.confidence == ("low" if code == "between-calls" else "high")
        assert loss_of(finding).gpu_time_ratio == loss_of(finding).gpu_time_ps / (400 * MS)


@pytest.mark.parametrize(
    ("compiling", "recurs"),
    [((1, 2, 3, 4), True), ((2, 5, 8), True), ((0, 1, 2), False), ((4,), False)],
    ids=["half", "some-in-between", "warm-up", "once"],
)
def test_what_compiles_again_and_again_is_not_told_to_be_captured_later(
    compiling: tuple[int, ...], recurs: bool, tmp_path: Path
) -> None:
    """50 ms of 100 in some of nine used steps."""

    def fill(step: Step) -> float:
        is_compiling = round(step.start_ms / 100) in compiling
        if is_compiling:
            step.host("Autotuning", 0, 50)
        return 50 if is_compiling else 0

    finding = found(tmp_path, steps(fill, count=9))["compile-in-window"]
    assert finding.action.startswith("Make each" if recurs else "Capture later")


def on_cpu(step_ms: float, dispatch_ms: float, op_count: int = 1) -> CudaTrace:
    """Steps in which one replica runs so many ops one after the other from when its graph is called to the end."""
    trace = new_trace(length_ms=1000)
    worker = trace.thread("worker", 8)
    for step in marked_steps(trace, period_ms=step_ms, marker_ms=step_ms):
        step.host("EagerExecute", 0, dispatch_ms)
        step.host("FunctionRun", dispatch_ms, step_ms)
        length_ms = (step_ms - dispatch_ms) / op_count
        for place in range(op_count):
            start_ms = dispatch_ms + place * length_ms
            step.host("replica_0/x:MatMul", start_ms, start_ms + length_ms, thread=worker)
    return trace


@pytest.mark.parametrize(
    ("step_ms", "ratio", "is_small"),
    [(9.9, 0, True), (10, 0, False), (19.9, 1, True), (20, 1, False)],
)
def test_a_step_that_is_small_without_the_profiler_is_called_small(
    step_ms: float, ratio: float, is_small: bool, tmp_path: Path
) -> None:
    overhead = {"unprofiled_ns": 80, "profiled_ns": 100, "ratio": ratio, "spread_ratio": 0.0}
    finding = found(tmp_path, on_cpu(step_ms, 8), sidecar={"overhead": overhead})["host-bound"]
    assert finding.title.startswith("Dispatch takes 8.00 of ") is is_small
    assert finding.action.startswith("Give the devices more work per call") is is_small


@pytest.mark.parametrize(
    ("count", "end_ms", "is_found"), [(16, 5.1, True), (15, 5.1, False), (16, 4.9, False)]
)
def test_arguments_that_are_handed_over_one_by_one(
    count: int, end_ms: float, is_found: bool, tmp_path: Path
) -> None:
    """Of 8 ms of dispatch the second ones up to then, or so many are too few."""
    trace = on_cpu(20, 8)
    for step in marked_steps(trace, period_ms=20, marker_ms=20):
        step.host("shard_args", 1, end_ms)
        for place in range(count):
            step.host("DevicePutWithSharding", 1.1 + 0.01 * place, 1.105 + 0.01 * place)
    title = found(tmp_path, trace)["host-bound"].title
    said = f"replica:0 waits 8.00 of 20.0 ms (40%) for handing over {count} arguments per step"
    assert title.startswith(said) is is_found


@pytest.mark.parametrize(
    ("step_ms", "dispatch_ms", "count", "title", "action"),
    [
        # A call and 100 ops take 4 ms and 20 µs each.
        (20, 6, 100, "Dispatch takes ", "Give the devices more work per call"),
        (20, 6.1, 100, "replica:0 waits ", "Run fewer and larger ops"),
        # To call it and to dispatch 200 ops usually takes 8 ms.
        (9.9, 8.1, 200, "replica:0 waits ", "Run fewer and larger ops"),
        (9.9, 8.1, 199, "Dispatch takes ", "Give the devices more work per call"),
        (9.9, 8, 200, "Dispatch takes ", "Give the devices more work per call"),
        (
            *(40, 12, 300),
            "replica:0 waits 12.0 of 40.0 ms (30%) for the dispatch of 300 ops per step",
            "Run fewer and larger ops",
        ),
        # Replicas have no launches: what the host does between their ops is host ops.
        (
            *(100, 60, 1),
            "replica:0 waits 60.0 of 100 ms (60%) for host ops",
            "Run fewer and larger ops",
        ),
    ],
)  # fmt: skip
def test_what_dispatch_takes_in_any_step_decides_whether_it_is_small(
    step_ms: float, dispatch_ms: float, count: int, title: str, action: str, tmp_path: Path
) -> None:
    (finding,) = found(tmp_path, on_cpu(step_ms, dispatch_ms, count)).values()
    assert finding.title.startswith(title)
    assert finding.action.startswith(action)


@pytest.mark.parametrize(("within", "is_named"), [(151, True), (150, False)])
def test_the_scope_of_most_ops_is_named_where_no_line_is_known(
    within: int, is_named: bool, tmp_path: Path
) -> None:
    trace = new_trace(length_ms=1000)
    for step in marked_steps(trace, period_ms=40, marker_ms=40):
        step.host("EagerExecute", 0, 12)
        step.host("FunctionRun", 12, 40)
        for number in range(300):
            scope = "sgd/decay" if number < within else f"net/block_{number}"
            start_ms, name = 12 + 0.09 * number, f"replica_0/{scope}/mul_{number}:Mul"
            step.host(name, start_ms, start_ms + 0.09, thread=trace.thread("worker", 8))
    title = found(tmp_path, trace)["host-bound"].title
    said = "for the dispatch of 300 ops per step"
    assert title.endswith(said + (", most of them in sgd/decay" if is_named else "")), title


@pytest.mark.parametrize("hooks", [["jax_debug_nans"], []], ids=["a mode that checks", "none"])
def test_a_mode_that_checks_each_call_is_turned_off_first(hooks: list[str], tmp_path: Path) -> None:
    trace = new_trace(length_ms=1000)
    for step in marked_steps(trace, period_ms=8, marker_ms=8):
        step.host("EagerExecute", 0, 4)
        step.host("FunctionRun", 4, 8)
        step.host("replica_0/x:MatMul", 4, 8, thread=trace.thread("worker", 8))
    write_sidecar(trace.write(tmp_path), {"tracing": {"hooks": hooks}})
    (finding,) = (row for row in traceview.analyze(tmp_path).findings if row.code == "host-bound")
    assert finding.title.endswith(", with jax_debug_nans on" if hooks else "so many ops")
    assert finding.action.startswith("Turn jax_debug_nans off" if hooks else "Give the devices")
    # It is not the fault of a small step.
    assert finding.title.startswith("Dispatch takes ") is not bool(hooks)
    assert finding.confidence == ("medium" if hooks else "low")


# Tracing


def traced_in(*which: int, count: int = 3) -> Fill:
    def fill(step: Step) -> float:
        is_traced = step.start_ms / 100 in which
        call, length_ms = ("traced-nonXla", 20) if is_traced else ("notTraced-nonXla", 4)
        step.host("train_step", 0, length_ms, {"tf_function_call": call, "tracing_count": count})
        return length_ms

    return fill


def test_tracing_goes_on_while_it_makes_variables(tmp_path: Path) -> None:
    """Ops that make and begin them run 5 ms after the call; its own graph runs from 40 ms on."""

    def fill(step: Step) -> float:
        if step.start_ms != 200:
            return traced_in()(step)
        traced = {"tf_function_call": "traced-nonXla", "tracing_count": 3}
        step.host("train_step", 0, 50, traced)
        step.host("KernelAndDeviceFunc::Run", 5, 6)
        step.host("KernelAndDeviceFunc::Run", 40, 50)
        step.host("FunctionRun", 41, 50)
        return 50

    lost = found(tmp_path, steps(fill))["retracing"].loss
    assert lost is not None
    assert round(lost.gpu_time_ps / 1e9) == 40


def test_a_function_that_is_traced_for_the_first_time_is_not_traced_again(tmp_path: Path) -> None:
    """As that of the first evaluation is, between two steps."""

    def fill(step: Step) -> float:
        if step.start_ms == 200:
            step.host("Autotuning", 20, 30)
            traced_in(2, count=1)(step)
        return 30

    found_ = found(tmp_path, steps(fill))
    assert set(found_) == {"compile-in-window"}
    assert found_["compile-in-window"].action.startswith("Capture later")


@pytest.mark.parametrize(
    ("traced_by", "compiled", "action", "why"),
    [
        (("python",), False, "Pass a tensor instead of a Python number", "in a value of Python"),
        (("shape",), False, "Let one graph serve every shape", "in the shape of a tensor"),
        (("python", "shape"), False, "Give each call arguments", None),
        # No signature helps.
        (("shape",), True, "Give all batches one shape", "in the shape of a tensor"),
    ],
)
def test_what_differs_between_the_graphs_decides_the_action(
    traced_by: tuple[str, ...], compiled: bool, action: str, why: str | None, tmp_path: Path
) -> None:
    trace = steps(traced_in(0, 2))
    if compiled:
        trace.host_event("CpuCompiler::CompileCpuExecutable", 203 * MS, 205 * MS)
    function = {**graph({"GPU:0": 3}, name="train_step"), "traced_by": traced_by}
    sidecar = {"placement": {"functions": [function]}}
    finding = found(tmp_path, trace, sidecar=sidecar)["retracing"]
    assert finding.action.startswith(action)
    assert (f"Its graphs differ {why}" in finding.explanation) is (why is not None)


def test_the_first_recorded_step_stays_the_first_when_others_are_chosen(tmp_path: Path) -> None:
    trace = steps(traced_in(1))
    assert "retracing" in found(tmp_path, trace, steps=slice(1, 4))
    assert "retracing" not in found(tmp_path, steps=slice(2, 4))


@pytest.mark.parametrize(
    ("between_ms", "severity", "confidence"), [(0.26, "info", "low"), (0.28, "warning", "high")]
)
def test_so_little_between_steps_as_any_loop_takes_is_no_warning(
    between_ms: float, severity: str, confidence: str, tmp_path: Path
) -> None:
    """The limit is 0.2 ms; of four steps the last has nothing after it."""
    trace = new_trace(length_ms=20)
    for step in marked_steps(trace, period_ms=2, first_ms=1, marker_ms=2 - between_ms):
        step.kernel(0, 0.01, 2 - between_ms)
    finding = found(tmp_path, trace)["callback-stall"]
    assert (finding.severity, finding.confidence) == (severity, confidence)


@pytest.mark.parametrize(("restore_ms", "is_restored"), [(21, True), (19, False)])
def test_what_takes_longer_of_saves_and_restores_is_advised_about(
    restore_ms: float, is_restored: bool, tmp_path: Path
) -> None:
    def fill(step: Step) -> float:
        step.host("RestoreV2:RestoreV2", 0, restore_ms)
        step.host("SaveV2:SaveV2", restore_ms, 40)
        return 40

    finding = found(tmp_path, steps(fill))["checkpoint-stall"]
    assert finding.action.startswith("Restore less often" if is_restored else "Save less often")
    assert ("to restore variables" in finding.title) is is_restored


@pytest.mark.parametrize(
    ("until_ms", "copies_ms", "is_prepared"),
    [
        pytest.param(40, (), True, id="nothing is recorded until the graph runs"),
        pytest.param(0.9, (), False, id="any call takes so long"),
        pytest.param(40, range(40), False, id="it takes its arguments, one by one"),
    ],
)
def test_a_graph_that_is_prepared_in_each_call(
    until_ms: float, copies_ms: Iterable[int], is_prepared: bool, tmp_path: Path
) -> None:
    """As after `tf.random.set_seed`, which drops the kernels of all graphs."""

    def fill(step: Step) -> float:
        step.host("EagerLocalExecute: __inference_step_7", 0, 45)
        step.host("EagerKernelExecute", until_ms, 45)
        for begin_ms in copies_ms:
            step.host("EagerCopyToDevice", begin_ms + 0.5, begin_ms + 0.6)
        return 45

    prepared = found(tmp_path, steps(fill)).get("compile-in-window")
    assert (prepared is not None) is is_prepared
    if prepared is not None:
        assert lost_ps(prepared) == 40 * MS
        assert prepared.action.startswith("Make each tf.function once")


# How sure


def test_one_step_says_little(tmp_path: Path) -> None:
    finding = found(tmp_path, steps(busy_with("SaveV2:SaveV2", 40), count=1))["checkpoint-stall"]
    assert (finding.severity, finding.confidence) == ("warning", "low")


# Which devices


def test_all_devices_that_wait_are_named(tmp_path: Path) -> None:
    """The loss is that of all; the title states the mean of those that wait half as long as the one that waits most."""

    def fill(step: Step) -> float:
        step.host("EagerExecute", 0, 40)
        step.kernel(1, 24, 100, launch_ms=24)
        step.kernel(2, 4, 100, launch_ms=4)
        return 40

    finding = found(tmp_path, steps(fill))["launch-bound"]
    assert finding.title == "GPU:0 and 1 wait 32.0 of 100 ms (32%) for kernel launches"
    assert finding.loss is not None
    assert (finding.loss.gpu_time_ps, finding.loss.ratio) == (4 * 68 * MS, 0.32)
    assert finding.loss.gpu_time_ratio == pytest.approx(0.68 / 3)


# The report of gaps


def row_of(trace: CudaTrace, folder: Path) -> IdleRow:
    """The idle time of GPU:0."""
    trace.write(folder)
    loaded = load(folder)
    selection = select(loaded)
    result = compute(Context(loaded, selection))
    assert isinstance(result, Idle)
    return result.devices[0]


def one_gap(request: str = "IteratorGetNext:IteratorGetNext", until_ms: float = 38) -> CudaTrace:
    """Two steps of 50 ms; between 20 and 40 ms of the first the GPU waits for input."""
    trace = new_trace()
    for step in marked_steps(trace, count=2, marker_ms=50):
        step.host("fit", 0, 45)
        step.host("next_batch", 21, 39)
        step.host(request, 22, until_ms)
        step.kernel(0, 0, 20, op="model/first:MatMul", launch_ms=0)
        step.kernel(0, 40, 50, name="second", op=None, launch_ms=39)
    return trace


def test_a_gap_says_what_was_around_it(tmp_path: Path) -> None:
    row = row_of(one_gap(), tmp_path)
    gap, _ = row.gaps
    assert gap == Gap(
        start_ps=ORIGIN_PS + 20 * MS,
        duration_ps=20 * MS,
        state="input",
        states={"input": 16 * MS, "unknown": 3 * MS, "dependency": MS},
        before="model/first:MatMul",
        after="second",
        step=0,
        thread="python3",
        host_event="IteratorGetNext:IteratorGetNext",
    )
    assert (row.gap_count, row.longest_gap_ps) == (2, 20 * MS)


@pytest.mark.parametrize(
    ("makes", "length_ms", "input_ms"), [(True, 1, 1), (True, 0.999, 0), (False, 16, 0)]
)
def test_to_delete_an_iterator_waits_for_its_pipeline(
    makes: bool, length_ms: float, input_ms: float, tmp_path: Path
) -> None:
    trace = one_gap("TFE_DeleteTensorHandle", 22 + length_ms)
    if makes:
        Step(trace, 0).host("EagerLocalExecute: MakeIterator", 1, 2)
    [gap, _] = row_of(trace, tmp_path).gaps
    assert gap.states.get("input", 0) == input_ms * MS


@pytest.mark.parametrize("most", [3, 10**9])
@given(
    st.integers(0, 700), st.sampled_from([None, 0, 1, 2, 5, 10]), st.randoms(use_true_random=False)
)
def test_longest_first_is_a_sort(most: int, count: int, top: int | None, random: Random) -> None:
    draw = np.random.default_rng(random.randrange(2**32))
    lengths = draw.integers(0, most, count)
    expected = sorted(range(count), key=lambda place: -lengths[place])
    assert longest_first(lengths, top).tolist() == expected[:top]


@pytest.mark.parametrize("seed", range(20))
def test_states_of_some_gaps_are_those_among_all(seed: int, tmp_path: Path) -> None:
    choice, trace = Random(seed), new_trace()
    for step in marked_steps(trace, count=8, marker_ms=50):
        step.host("fit", 0, 45)
        step.host("IteratorGetNext:IteratorGetNext", 12, choice.randrange(13, 38))
        step.kernel(0, 0, choice.randrange(1, 20), op="model/first:MatMul", launch_ms=0)
        step.kernel(0, 40, 50, name="second", op=None, launch_ms=choice.randrange(20, 40))
    trace.write(tmp_path)
    loaded = load(tmp_path)
    every = gaps_of(Context(loaded, select(loaded)), 0)
    numbers = sorted(choice.sample(range(every.number.size), choice.randrange(every.number.size)))
    some, chosen = every.at(np.array(numbers, dtype=np.int64)), np.array(numbers, dtype=np.int64)
    assert some.state.tolist() == every.state[chosen].tolist()
    assert some.duration_ps.tolist() == every.duration_ps[chosen].tolist()
    for state, in_state in every.states.by_state.items():
        nothing = np.zeros(chosen.size, dtype=np.int64)
        assert some.states.by_state.get(state, nothing).tolist() == in_state[chosen].tolist()
    for found, of_all in zip(
        some.states.longest_parts(), every.states.longest_parts(), strict=True
    ):
        assert found.tolist() == of_all[chosen].tolist()
    assert sum(ps.sum() for ps in every.states.by_state.values()) == every.duration_ps.sum()


@pytest.mark.parametrize("is_done", [True, False])
def test_a_call_that_outlasts_the_devices_is_said_to(is_done: bool, tmp_path: Path) -> None:
    """The host is blocked for 40 ms of 100; GPU:1 has work meanwhile, or has not."""
    trace = new_trace(length_ms=1000)
    for step in marked_steps(trace, period_ms=100, marker_ms=100):
        step.host("cuStreamSynchronize", 0, 40)
        for ordinal in range(2):
            step.kernel(ordinal, 40, 100, launch_ms=40)
        if not is_done:
            step.kernel(1, 0.01, 40, launch_ms=0.005)
    finding = found(tmp_path, trace)["d2h-sync"]
    assert finding.title.endswith("the host stays blocked after they are done") is is_done
