"""Python of the framework is dispatch; the user's own is not, nor is what no sample stands for, nor garbage collection."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from tests.analysis import made
from tests.analysis.made import finding_of, the
from tests.python_sidecars import PROFILE_START_NS, Line, Sample, python_group
from tests.sidecars import write_sidecar
from traceview.analysis.rules.finding import Finding

THREADS: list[dict[str, Any]] = [{"ident": 140_000, "name": "MainThread", "native_id": 1}]
CALL: Line = ("train.py", "train", 9, True)
WORK: Line = ("train.py", "augmented", 4, True)
ADAPTER: Line = (
    "keras/src/trainers/data_adapters/data_adapter_utils.py",
    "class_weight_to_sample_weights",
    134,
    False,
)
TRAINER: Line = ("keras/src/backend/jax/trainer.py", "fit", 462, False)
TENSORFLOW: Line = ("tensorflow/python/distribute/distribute_utils.py", "wrap", 248, False)
ENUM: Line = ("enum.py", "__hash__", 1230, False)
HASH: Line = ("<string>", "__hash__", 3, False)
JAX: Line = ("jax/_src/pjit.py", "_infer_params", 700, False)
QUEUE: Line = ("queue.py", "get", 171, False)
NUMPY: Line = ("numpy/_core/fromnumeric.py", "sort", 1092, False)
HASHES: tuple[Line, ...] = (("<string>", "__hash__", 3, False),)
ROWS: Line = ("h5py/_hl/dataset.py", "__getitem__", 820, False)
JSON: Line = ("json/encoder.py", "iterencode", 258, False)
CHANCE: Line = ("random.py", "sample", 477, False)


def analyzed(
    folder: Path,
    play: Callable[[Step], None],
    stack_at: Callable[[int], tuple[Line, ...]],
    rounds: Iterable[int] = range(50),
    *,
    period_ms: float = 50,
    marker_ms: float = 50,
    cores: float | None = None,
    held: int | None = None,
    sampler: str | None = None,
    first_rounds: int | None = None,
    collections: Iterable[tuple[float, float]] = (),
    **groups: Any,
) -> traceview.Report:
    """Four steps of 50 ms, each with the events that `play` enters, and with samples of Python at some of its milliseconds.

    `cores`: how much of one the thread uses. `held`: of each sample, as in the sidecar. `first_rounds`: samples
    end after so many. `collections`: start and length of those of garbage in every step, in milliseconds.
    """
    trace = new_trace(length_ms=300)
    samples: list[Sample] = []
    spans: list[tuple[int, int, int]] = []
    for step in marked_steps(trace, period_ms=period_ms, marker_ms=marker_ms):
        play(step)
        begin_ns = PROFILE_START_NS + round(step.start_ms * 1e6)
        known = [(at, stack_at(at)) for at in rounds if stack_at(at)]
        samples += [(begin_ns + at * 1_000_000, 0, lines) for at, lines in known]
        spans += [(begin_ns + round(at * 1e6), round(of * 1e6), 2) for at, of in collections]
    cpu_us = [round((at_ns - PROFILE_START_NS) * (cores or 0)) // 1000 for at_ns, _, _ in samples]
    group = python_group(
        samples[:first_rounds],
        THREADS,
        None if cores is None else cpu_us,
        spans,
        held=None if held is None else [held] * len(samples),
        sampler=sampler,
    )
    write_sidecar(trace.write(folder), {"python": group, **groups})
    return traceview.analyze(folder)


def states_of(report: traceview.Report) -> dict[str, float]:
    """The states of the device in the second step, in milliseconds."""
    steps = report.results.steps
    assert steps is not None
    return {state: ps / ms(1) for state, ps in steps.steps[1].devices[0].states.items()}


def graph(begin_ms: float, call: str = "FunctionRun") -> Callable[[Step], None]:
    """A graph that launches a kernel at 24.9 ms, which runs until the next step."""

    def play(step: Step) -> None:
        step.host(call, begin_ms, 25)
        step.kernel(0, 25, 50, launch_ms=24.9)

    return play


def most_of_python(folder: Path, *stack: Line, call: str = "FunctionRun", **options: Any) -> str:
    """The state of the first 20 ms of each step, in which Python ran with this stack; then a graph is called for 5 ms."""
    report = analyzed(
        folder,
        graph(20, call),
        lambda at: stack if at <= 20 else (CALL,) if at <= 25 else (),
        **options,
    )
    (state,) = (
        state
        for state, length in states_of(report).items()
        if state in ("python", "launch", "between_calls") and length > 10
    )
    return state


@pytest.mark.parametrize(
    ("stack", "state"),
    [
        ((TENSORFLOW, WORK), "launch"),
        # What the framework calls.
        ((ENUM, TENSORFLOW, WORK), "launch"),
        ((NUMPY, WORK), "python"),
        ((TENSORFLOW, NUMPY, WORK), "python"),
        ((TRAINER, WORK), "launch"),
        # What Keras computes of data hands nothing on.
        ((ADAPTER, TRAINER, WORK), "python"),
        # The line at which it is while a graph runs.
        ((CALL,), "launch"),
        ((NUMPY, CALL), "python"),
    ],
)
def test_the_user_s_line_and_what_it_calls_decide(
    stack: tuple[Line, ...], state: str, tmp_path: Path
) -> None:
    assert most_of_python(tmp_path, *stack) == state


def test_what_is_computed_in_the_line_of_a_call_is_no_dispatch_of_jax(tmp_path: Path) -> None:
    """Its events begin with the call, before arguments are flattened: `step(rng.permutation(rows))`."""
    assert most_of_python(tmp_path, CALL, call="PjitFunction(step)") == "python"


@pytest.mark.parametrize(
    ("call", "inner", "state"),
    [
        ("PjitFunction(step)", (HASH,), "python"),
        ("PjitFunction(step)", (JAX,), "launch"),
        ("PjitFunction(step)", (ENUM, JAX), "launch"),
        ("PjitFunction(step)", (), "launch"),
        # What TensorFlow calls back are ops of the graph.
        ("FunctionRun", (HASH,), "launch"),
    ],
)
def test_python_that_a_call_of_jax_calls_back_is_no_dispatch(
    call: str, inner: tuple[Line, ...], state: str, tmp_path: Path
) -> None:
    """The call takes 25 ms before it launches, with the hash of its static arguments."""
    report = analyzed(tmp_path, graph(0, call), lambda at: (*inner, CALL) if at <= 24 else ())
    states = states_of(report)
    assert states[state] > 20
    found = finding_of(report, "python-stall")
    assert (found is not None) is (state == "python")
    if found is not None:
        assert "train.py:9" in found.title


@pytest.mark.parametrize(("cores", "state"), [(0.19, "python"), (0.21, "host_ops")])
def test_at_the_line_of_a_call_dispatch_takes_a_core(
    cores: float, state: str, tmp_path: Path
) -> None:
    """Of a CPU device, which has no queue that the line might wait for."""

    def play(step: Step) -> None:
        step.host("FunctionRun", 20, 25)
        step.host("replica_0/x:MatMul", 25, 50, thread=step.trace.thread("tf_Compute", 41))

    report = analyzed(tmp_path, play, lambda at: (CALL,) if at <= 25 else (), cores=cores)
    assert states_of(report)[state] > 10


def test_what_no_sample_stands_for_is_between_calls(tmp_path: Path) -> None:
    assert most_of_python(tmp_path, WORK, first_rounds=1) == "between_calls"
    found = {row.code for row in traceview.analyze(tmp_path).findings}
    assert "between-calls" in found


def test_a_sample_speaks_for_the_silence_in_which_it_was_taken(tmp_path: Path) -> None:
    """The next one is of a call that the trace shows, and says nothing of the time before that."""
    report = analyzed(
        tmp_path,
        graph(20),
        lambda at: (WORK,) if at < 20 else (TENSORFLOW, CALL),
        (5, 22, 30, 40),
    )
    assert round(states_of(report)["python"]) == 20


@pytest.mark.parametrize("load", [0, 0.21])
def test_a_call_says_nothing_of_the_wait_before_it(load: float, tmp_path: Path) -> None:
    """The thread waits for a kernel, which ends after the last sample of that; the next sample is of the call of a graph."""
    trace = new_trace(length_ms=300)
    samples: list[Sample] = []
    cpu_us: list[int] = []
    for number, step in enumerate(marked_steps(trace, period_ms=50, marker_ms=50)):
        step.host("FunctionRun", 2, 6)
        step.kernel(0, 5.9, 48.5, launch_ms=5.8)
        begin_ns = PROFILE_START_NS + round(step.start_ms * 1e6)
        for at in (3, 4, 5, *range(8, 46)):
            samples.append((begin_ns + at * 1_000_000, 0, (CALL if at < 6 else WORK,)))
            cpu_us.append(
                20_000 * number + 1_000 * min(at, 8) + round(load * max(at - 8, 0) * 1_000)
            )
    write_sidecar(trace.write(tmp_path), {"python": python_group(samples, THREADS, cpu_us)})
    states = states_of(traceview.analyze(tmp_path))
    # From the end of the kernel to the call.
    assert states["python"] == pytest.approx(3.5, abs=0.2)


@pytest.mark.parametrize(
    ("python_ms", "stays", "is_one_cause"),
    [
        pytest.param(17, True, True, id="half of it and more"),
        pytest.param(16, True, False, id="less than half"),
        pytest.param(17, False, False, id="the graph is called at another line"),
    ],
)
def test_what_a_line_does_is_one_cause(
    python_ms: int, stays: bool, is_one_cause: bool, tmp_path: Path
) -> None:
    """Python for some milliseconds of each step, which is not known of the first, then a graph until the kernel begins at 25 ms."""
    report = analyzed(
        tmp_path,
        graph(python_ms),
        lambda at: (NUMPY, WORK) if stays or at < python_ms else (NUMPY, CALL),
        range(26),
    )
    states = states_of(report)
    assert ("launch" not in states) == is_one_cause
    assert round(states["python"]) == (25 if is_one_cause else python_ms)


@pytest.mark.parametrize(("python_ms", "is_one_cause"), [(3.4, True), (3.3, False)])
def test_what_a_line_does_is_a_finding_by_itself(
    python_ms: float, is_one_cause: bool, tmp_path: Path
) -> None:
    """Of four steps of 50 ms a 20th is Python, which is not known of the first; then a graph of 1 ms."""

    def play(step: Step) -> None:
        step.host("FunctionRun", python_ms, python_ms + 1.1)
        step.kernel(0, python_ms + 1, 50, launch_ms=python_ms + 0.9)

    states = states_of(analyzed(tmp_path, play, lambda _: (NUMPY, WORK), range(5)))
    assert ("launch" not in states) == is_one_cause


@pytest.mark.parametrize(
    ("also_at", "is_one_cause"),
    [(None, False), (29, True)],
    ids=["it is only in steps", "the steps are part of it"],
)
def test_a_line_in_steps_is_left_from_one_to_the_next(
    also_at: int | None, is_one_cause: bool, tmp_path: Path
) -> None:
    """A sample at 12 of 30 ms, after Python for 12 ms and a graph for 4, meets the line in each step; between them nothing is known."""

    def play(step: Step) -> None:
        step.host("FunctionRun", 12, 17)
        step.kernel(0, 16, 25, launch_ms=15.9)

    rounds = [11, *([also_at] if also_at else [])]
    stack = (NUMPY, WORK)
    report = analyzed(tmp_path, play, lambda _: stack, rounds, period_ms=30, marker_ms=28)
    assert ("launch" not in states_of(report)) == is_one_cause


ASKED: Line = ("train.py", "<genexpr>", 4, True)
SAVE, EVALUATES = ("SaveV2:SaveV2",), ("IteratorGetNext:IteratorGetNext", "FunctionRun")


@pytest.mark.parametrize(
    ("events", "own_ms", "marker_ms", "state", "whole_ms"),
    [
        # With 0.5 ms before the line and 4.5 ms after it, which are `between` and the save's.
        pytest.param(SAVE, 5, 25, "checkpoint", 25, id="a quarter saves"),
        pytest.param(SAVE, 4, 25, "checkpoint", 9, id="less than a quarter saves"),
        pytest.param(SAVE, 5, 26, "checkpoint", 5, id="a step is at the line too"),
        pytest.param(EVALUATES, 5, 25, "evaluation", 20.5, id="a quarter evaluates"),
        pytest.param(EVALUATES, 4, 25, "evaluation", 4.5, id="less than a quarter evaluates"),
        pytest.param((), 11, 25, "between", 25, id="half is Python"),
        pytest.param((), 9, 25, "between", 14, id="less than half is Python"),
        pytest.param((), 11, 26, "between", 15, id="half borders on a step"),
    ],
)
def test_a_line_outside_of_the_steps_is_what_it_calls_the_framework_for(
    events: tuple[str, ...],
    own_ms: float,
    marker_ms: float,
    state: str,
    whole_ms: float,
    tmp_path: Path,
) -> None:
    """Three steps of 25 ms; after the second 20 ms at a line, of which events take the first part, and compilation the rest."""
    trace = new_trace(length_ms=200)
    for number in range(3):
        step = Step(trace, 50.0 * number)
        trace.marker(number, step.at(0), step.at(marker_ms))
        step.kernel(0, 0, 50 if number != 1 else 25)
        for place, event in enumerate(events if number == 1 else ()):
            length_ms = own_ms / len(events)
            step.host(event, 25.5 + place * length_ms, 25.5 + (place + 1) * length_ms)
        if number == 1:
            step.host("XlaCompile", 25.5 + own_ms, 45.5)
    start_ns = PROFILE_START_NS + 75_500_000
    lines = [(WORK, ASKED)[at % 2] for at in range(21)]
    samples = [(start_ns + at * 1_000_000, 0, (line,)) for at, line in enumerate(lines)]
    write_sidecar(trace.write(tmp_path), {"python": python_group(samples, THREADS)})
    assert states_of(traceview.analyze(tmp_path))[state] == pytest.approx(whole_ms, abs=0.1)


def test_what_a_loop_does_beside_a_save_is_no_checkpoint(tmp_path: Path) -> None:
    """After each step of 30 ms it sorts for 10 ms, and saves for 20."""
    saves: Line = ("train.py", "saved", 9, True)
    main: Line = ("train.py", "main", 3, True)

    def play(step: Step) -> None:
        step.host("FunctionRun", 0, 5)
        step.kernel(0, 5, 30, launch_ms=4.9)
        step.host("SaveV2:SaveV2", 40, 60)

    rounds = [*range(31, 40), *range(41, 60)]
    report = analyzed(
        *(tmp_path, play, lambda at: (WORK if at < 40 else saves, main), rounds),
        period_ms=60,
        marker_ms=30,
    )
    states = states_of(report)
    assert states["checkpoint"] == pytest.approx(20, abs=2.5)
    assert states["between"] == pytest.approx(10, abs=2.5)


def test_a_collection_beside_compute_costs_nothing(tmp_path: Path) -> None:
    report = analyzed(tmp_path, graph(20), lambda _: (WORK,), collections=[(26, 20)])
    assert "garbage_collection" not in states_of(report)


@pytest.mark.parametrize(
    "row", [[1, 2], [1, 2, 3, 4], ["a", 1, 2], [-(10**30), 1, 2], None, 7], ids=str
)
def test_what_is_no_collection_is_left_out(row: Any, tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 42)
    group = {**python_group([(PROFILE_START_NS, 0, (WORK,))], THREADS), "collections": [row]}
    write_sidecar(trace.write(tmp_path), {"python": group})
    assert not states_of(traceview.analyze(tmp_path)).get("garbage_collection")


STAGES = "jax/_src/stages.py"
HLO: Line = ("jax/_src/interpreters/mlir.py", "module_to_bytecode", 231, False)
COST: Line = (STAGES, "cost_analysis", 600, False)
MADE_OP: Line = ("tensorflow/python/framework/func_graph.py", "_create_op_internal", 603, False)
READ: Line = ("tensorflow/python/framework/func_graph.py", "variables", 410, False)


@pytest.mark.parametrize(
    ("stack", "code", "action"),
    [
        ((HLO, COST, WORK), "compile-in-window", "Make each jax.jit once"),
        # Not what runs a compiled function, nor what reads a graph that was made.
        ((HLO, TENSORFLOW, WORK), "compile-in-window", "Make each jax.jit once"),
        (((STAGES, "call", 700, False), WORK), "launch-bound", ""),
        ((MADE_OP, WORK), "compile-in-window", "Make each jax.jit once"),
        ((READ, WORK), "launch-bound", ""),
    ],
)
def test_python_that_traces_and_lowers_is_compilation(
    stack: tuple[Line, ...], code: str, action: str, tmp_path: Path
) -> None:
    play = graph(20, "PjitFunction(step)")
    findings = analyzed(tmp_path, play, lambda at: stack if at <= 20 else ()).findings
    assert findings[0].code == code
    assert findings[0].action.startswith(action)
    assert ("in augmented, train.py:4" in findings[0].title) == (code == "compile-in-window")


@pytest.mark.parametrize(
    ("stack", "between_ms", "is_traced"),
    [
        ((WORK,), 0, True),
        ((NUMPY, WORK), 0, True),
        ((ROWS, WORK), 0, True),
        ((WORK,), 20, True),
        ((JSON, WORK), 20, True),
        ((QUEUE, WORK), 0, False),
    ],
)
def test_what_slows_all_python_down_is_said_of_python_that_runs(
    stack: tuple[Line, ...], between_ms: int, is_traced: bool, tmp_path: Path
) -> None:
    tracing = {"hooks": ["tracemalloc", "sys.settrace"]}
    finding = paused(tmp_path, stack, between_ms, tracing=tracing)
    assert finding.code == ("callback-stall" if between_ms else "python-stall")
    assert ("with tracemalloc and sys.settrace on" in finding.title) is is_traced
    assert finding.action.startswith("Turn tracemalloc and sys.settrace off") is is_traced


@pytest.mark.parametrize(
    ("stack", "held", "where"),
    [
        ((CHANCE, WORK), None, "in another process"),
        ((NUMPY, WORK), None, "in a background thread"),
        # Who has the lock keeps it, whatever runs there.
        ((NUMPY, WORK), 1, "in another process"),
        ((CHANCE, WORK), -1, "in a background thread"),
        ((WORK,), -1, "in a background thread"),
        ((WORK,), 1, "with NumPy on whole arrays"),
    ],
)
def test_a_thread_is_advised_where_it_keeps_no_lock(
    stack: tuple[Line, ...], held: int | None, where: str, tmp_path: Path
) -> None:
    finding = paused(tmp_path, stack, 20, held=held, cores=None if held is None else 1)
    assert finding.code == "callback-stall"
    assert where in finding.action


@pytest.mark.parametrize(("sampler", "sure"), [("python", "medium"), ("native", "high")])
def test_lines_of_samples_that_needed_the_lock_are_less_sure(
    sampler: str, sure: str, tmp_path: Path
) -> None:
    assert paused(tmp_path, (WORK,), 20, sampler=sampler).confidence == sure


@pytest.mark.parametrize("is_of_jax", [False, True])
def test_what_no_sample_shows_is_looked_for_between_steps(is_of_jax: bool, tmp_path: Path) -> None:
    def play(step: Step) -> None:
        step.host("PjitFunction(step)" if is_of_jax else "FunctionRun", 0, 5)
        step.kernel(0, 5, 30, launch_ms=4.9)

    finding = analyzed(tmp_path, play, lambda _: (), marker_ms=30).findings[0]
    assert finding.code == "callback-stall"
    assert "no sample of Python shows the line" in finding.action


def paused(
    folder: Path,
    stack: tuple[Line, ...],
    between_ms: int,
    held: int | None = None,
    **groups: Any,
) -> Finding:
    """The first finding on steps of 50 ms that begin with 20 ms of Python, so much of them between the markers."""
    begin_ms, marker_ms = 20 - between_ms, 50 - between_ms

    def play(step: Step) -> None:
        step.host("FunctionRun", begin_ms, begin_ms + 5)
        step.kernel(0, begin_ms + 5, marker_ms, launch_ms=begin_ms + 4.9)

    rounds = range(1 - between_ms, begin_ms)
    made = analyzed(folder, play, lambda _: stack, rounds, marker_ms=marker_ms, held=held, **groups)
    return made.findings[0]


ONCE = "Do it once before the loop, or only every 100th step"


@pytest.mark.parametrize(
    ("stack", "action"),
    [
        ((NUMPY, WORK), f"{ONCE}; else in a background thread"),
        ((WORK,), "Write its loops with NumPy on whole arrays"),
        ((("train.py", "distance", 8, True), WORK), "Write its loops with NumPy on whole arrays"),
        ((("PIL/Image.py", "convert", 90, False), WORK), "Decode each picture once"),
        ((CHANCE, WORK), f"{ONCE}; else in jax.numpy"),
        ((ROWS, WORK), "Read the file once"),
        ((("zipfile.py", "read", 60, False), WORK), "Read the file once"),
        # It writes, or works in memory.
        ((("zipfile.py", "_write_end_record", 70, False), WORK), ONCE),
        ((("pyarrow/array.pxi", "to_numpy", 80, False), WORK), ONCE),
        ((JSON, WORK), "Do this in every 100th step only"),
        ((("numpy/lib/_npyio_impl.py", "savez_compressed", 774, False), WORK), "Write in every"),
        ((("h5py/_hl/dataset.py", "__setitem__", 980, False), WORK), "Write in every 100th step"),
        ((("pandas/core/frame.py", "__setitem__", 980, False), WORK), ONCE),
        ((("numpy/lib/_function_base_impl.py", "delete", 5258, False), WORK), "Copy no whole"),
        ((("pandas/core/reshape/concat.py", "concat", 157, False), WORK), "Copy no whole array"),
        (
            (("copy.py", "_deepcopy_dict", 231, False), ("copy.py", "deepcopy", 146, False), WORK),
            "Copy only what changes",
        ),
        ((*HASHES, ("flax/nnx/extract.py", "to_tree", 353, False), WORK), "Hand modules over once"),
        ((("flax/nnx/graphlib.py", "cache_args_wrapper", 9, False), WORK), ONCE),
    ],
)
def test_what_a_library_does_decides_what_helps(
    stack: tuple[Line, ...], action: str, tmp_path: Path
) -> None:
    play = graph(20, "PjitFunction(step)")
    report = analyzed(tmp_path, play, lambda at: stack if at <= 20 else ())
    stall = the(report, "python-stall")
    assert stall.action.startswith(action)


# Frames that a tracer of Python recorded


def findings(folder: Path, *frames: tuple[str, float, float]) -> list[Finding]:
    """The findings about four steps of 100 ms, in which GPU:0 waits 30 ms; `frames`: name, start and end in each step."""
    trace = new_trace(length_ms=1000)
    for step in marked_steps(trace, count=4, period_ms=100, marker_ms=100):
        for name, start_ms, end_ms in frames:
            step.host(name, start_ms, end_ms)
        step.host("EagerExecute", 0, 0.001)
        step.host("PjitFunction(step)", 30, 30.01)
        step.kernel(0, 30, 100, launch_ms=30)
    return [row for row in made.analyzed(folder, trace).findings if row.loss]


SCRIPT = ("$train.py:1 <module>", 0, 100)


@pytest.mark.parametrize(
    ("frames", "lost_ms", "line"),
    [
        ((SCRIPT,), 30, "train.py:1"),
        ((("$fromnumeric.py:9 sort", 0, 30), ("$numpy sort", 2, 28)), 30, "sort, fromnumeric.py:9"),
        ((SCRIPT, ("$train.py:9 augmented", 1, 29)), 28, "augmented, train.py:9"),
        (
            (SCRIPT, ("$train.py:9 augmented", 1, 29), ("$numpy sort", 2, 28)),
            28,
            "augmented, train.py:9 (sort of numpy)",
        ),
        (
            (SCRIPT, ("$train.py:9 augmented", 1, 29), ("$fromnumeric.py:9 sort", 2, 28)),
            28,
            "augmented, train.py:9 (sort of fromnumeric)",
        ),
        (
            (
                ("$train.py:40 train", 0, 100),
                ("$trainer.py:2 fit", 1, 99),
                ("$train.py:9 made", 1, 29),
            ),
            28,
            "made, train.py:9",
        ),
        (
            # Most of the time counts, not most of the frames.
            (
                SCRIPT,
                *(("$train.py:5 short", 1 + place, 1.1 + place) for place in range(3)),
                ("$train.py:9 long", 4, 29),
            ),
            25,
            "long, train.py:9",
        ),
    ],
    ids=[
        "script",
        "library alone",
        "function",
        "in C",
        "in a library",
        "below a library",
        "most time",
    ],
)
def test_the_line_of_the_script(
    frames: tuple[tuple[str, float, float], ...], lost_ms: int, line: str, tmp_path: Path
) -> None:
    """What the loop runs itself meanwhile is of another cause."""
    found = findings(tmp_path, *frames)[0]
    assert found.code == "python-stall"
    lost = f"{lost_ms}.0 of 100 ms ({lost_ms}%)"
    assert found.title == f"GPU:0 waits {lost} for Python in the step in {line}"


def test_where_no_frame_is_open_no_python_ran(tmp_path: Path) -> None:
    """Frames were recorded, at the end of the step; while the device waits there is none."""
    (found,) = findings(tmp_path, ("$train.py:9 augmented", 40, 50))
    assert found.code == "between-calls"


@pytest.mark.parametrize(("python_ms", "severity"), [(0.24, "info"), (0.26, "warning")])
def test_what_any_step_takes_in_python_is_a_guess(
    python_ms: float, severity: str, tmp_path: Path
) -> None:
    """Steps of 2 ms."""
    trace = new_trace()
    for step in marked_steps(trace, period_ms=2, marker_ms=2):
        step.host("$train.py:9 drawn", 0, python_ms)
        step.host("PjitFunction(step)", python_ms, python_ms + 0.01)
        step.kernel(0, python_ms, 2, launch_ms=python_ms)
    (found,) = (row for row in made.analyzed(tmp_path, trace).findings if row.loss)
    assert (found.code, found.severity) == ("python-stall", severity)


@pytest.mark.parametrize(
    ("name", "load", "seen_ms", "line"),
    [
        pytest.param(None, 1.0, 20, ", augmented, train.py:4", id="native code calls it"),
        pytest.param(None, 1.0, 8, ", augmented, train.py:4", id="few samples"),
        pytest.param(None, 0.0, 20, "", id="it waits"),
        pytest.param("statistics", 1.0, 20, "", id="a thread of the script"),
    ],
)
def test_a_callback_of_xla_is_named_by_the_line_that_a_native_thread_runs(
    name: str | None, load: float, seen_ms: int, line: str, tmp_path: Path
) -> None:
    """A program calls Python for 20 ms of each step of 50; another thread is seen in a line for the first of them."""
    trace = new_trace()
    thread = trace.thread("device0", 70)
    for step in marked_steps(trace):
        step.host("PjitFunction(step)", 0, 0.2)
        for op, begin_ms, end_ms in (("dot.1", 1, 20), ("pure_callback.3", 20, 40)):
            stats = {"device_ordinal": 0, "hlo_module": "jit_step", "program_id": 1}
            step.host(op, begin_ms, end_ms, stats, thread=thread)
    seen = [at_ms for at_ms in range(200) if 20 <= at_ms % 50 < 20 + seen_ms]
    samples: list[Sample] = [(PROFILE_START_NS + at_ms * 1_000_000, 0, (WORK,)) for at_ms in seen]
    threads = [{"ident": 150_000, "name": name, "native_id": None}]
    python = python_group(samples, threads, [round(1000 * load * at_ms) for at_ms in seen])
    write_sidecar(trace.write(tmp_path), {"python": python})
    title = the(traceview.analyze(tmp_path), "host-op-in-step").title
    assert title.endswith(f"in Python that pure_callback calls inside the step{line}")
