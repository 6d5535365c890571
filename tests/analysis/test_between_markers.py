"""What a host does between step markers: saving, evaluating, and ops one by one, which are to go into a graph if that saves most of their time."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.cuda_trace import PROFILE_START_NS, CudaTrace
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from tests.analysis.made import analyzed, in_program, lost_ps, the
from tests.python_sidecars import Line, python_group
from tests.xplane.hlo_messages import ModuleWriter, add_programs
from traceview.analysis.rules.finding import Finding

STEP_MS, PAUSE_MS, LONG_PAUSE_MS = 40, 2, 60
GRAPH, INPUT, SAVE = "FunctionRun", "IteratorGetNext:IteratorGetNext", "SaveV2:SaveV2"
RESTORE, TRACED = "RestoreV2:RestoreV2", "XlaCompile"


def run_of(
    count: int, events: tuple[str, ...], long_after: Collection[int], pause_ms: int = PAUSE_MS
) -> CudaTrace:
    """Steps of 40 ms with short pauses between, and long ones in which each event takes 10 ms in the middle."""
    trace = new_trace(length_ms=1000)
    start_ms = 0.0
    for number in range(count):
        step = Step(trace, start_ms)
        trace.marker(number, step.at(0), step.at(STEP_MS))
        step.kernel(0, 0, STEP_MS)
        for place, event in enumerate(events if number in long_after else ()):
            step.host(event, STEP_MS + 15 + 10 * place, STEP_MS + 25 + 10 * place)
        start_ms += STEP_MS + (LONG_PAUSE_MS if number in long_after else pause_ms)
    return trace


def findings_of(folder: Path, trace: CudaTrace) -> dict[str, Finding]:
    return {row.code: row for row in analyzed(folder, trace).findings}


def test_python_around_a_save_is_the_save(tmp_path: Path) -> None:
    found = findings_of(tmp_path, run_of(8, (SAVE,), long_after=(2, 6)))
    assert lost_ps(found["checkpoint-stall"]) == 2 * ms(LONG_PAUSE_MS) // 8
    assert found["checkpoint-stall"].steps == (2, 6)
    assert found["checkpoint-stall"].title == (
        "GPU:0 waits 15.0 of 56.2 ms (27%) for checkpoints, in 2 of 8 used steps"
    )
    assert "It occurs in 2 of 8 used steps, 60.0 ms each." in found["checkpoint-stall"].explanation
    assert "callback-stall" not in found


@pytest.mark.parametrize(
    ("events", "title"),
    [
        ((RESTORE, TRACED), "15.0 of 56.2 ms (27%) to restore variables"),
        ((RESTORE,), "15.0 of 56.2 ms (27%) to restore variables"),
        # What was traced before has nothing to do with it, nor has a save.
        ((TRACED, RESTORE), "12.5 of 56.2 ms (22%) to restore variables"),
        ((SAVE, TRACED), "12.5 of 56.2 ms (22%) for checkpoints"),
    ],
)
def test_what_is_traced_of_what_was_restored_is_part_of_that(
    events: tuple[str, ...], title: str, tmp_path: Path
) -> None:
    found = findings_of(tmp_path, run_of(8, events, long_after=(2, 6)))
    assert found["checkpoint-stall"].title == f"GPU:0 waits {title}, in 2 of 8 used steps"


def test_python_elsewhere_is_other_python(tmp_path: Path) -> None:
    found = findings_of(tmp_path, run_of(8, (SAVE,), long_after=(2,), pause_ms=6))
    assert lost_ps(found["callback-stall"]) == 6 * ms(6) // 8


def test_a_device_that_evaluates_is_not_idle_and_costs_as_much(tmp_path: Path) -> None:
    trace = run_of(8, (INPUT, GRAPH), long_after=(3,))
    Step(trace, 3 * (STEP_MS + PAUSE_MS)).kernel(0, STEP_MS + 30, STEP_MS + 55)
    found = findings_of(tmp_path, trace)
    assert lost_ps(found["validation-stall"]) == ms(55) // 8


@pytest.mark.parametrize(("makes", "more_ms"), [(True, 10), (False, 0)])
def test_an_evaluation_ends_with_its_iterator(makes: bool, more_ms: int, tmp_path: Path) -> None:
    events = ("MakeIterator" if makes else "Range", INPUT, GRAPH, "TFE_DeleteTensorHandle")
    found = findings_of(tmp_path, run_of(8, events, long_after=(3,)))
    assert lost_ps(found["validation-stall"]) == ms(45 + more_ms) // 8


@pytest.mark.parametrize("events", [(INPUT,), (GRAPH,)])
def test_input_or_a_graph_alone_is_no_evaluation(events: tuple[str, ...], tmp_path: Path) -> None:
    assert "validation-stall" not in findings_of(tmp_path, run_of(8, events, long_after=(3,)))


@pytest.mark.parametrize(
    ("code", "long_after", "lost"),
    [
        # Step 3 ends 5 ms after its marker, and the evaluation after another 27.
        ("logits", (3,), (27, 8)),
        ("other", (3,), None),
        ("logits", (0, 1, 2, 3, 4), None),
    ],
)
def test_a_function_that_repeats_the_one_that_trains_is_an_evaluation(
    code: str, long_after: tuple[int, ...], lost: tuple[int, int] | None, tmp_path: Path
) -> None:
    trace, start_ms, programs = new_trace(length_ms=1000), 0.0, {}
    made = {"step": (("jvp()", "logits"), ("transpose(jvp())", "logits")), "seen": (("", code),)}
    for number, (function, places) in enumerate(made.items()):
        module = ModuleWriter()
        given = module.add("x", "parameter", shape=(4, 4))
        for place, (scope, of_code) in enumerate(places):
            module.add(f"dot.{place}", "dot", given, scope=f"jit({function})/{scope}/dot")
            module.made_in(of_code)
        programs[f"jit_{function}({number})"] = module
    for number in range(8):
        step, is_long = Step(trace, start_ms), number in long_after
        trace.marker(number, step.at(0), step.at(STEP_MS))
        kernels = [(0, 20, "step", "dot.0", 0), (20, STEP_MS + 5 * is_long, "step", "dot.1", 1)]
        kernels += [(STEP_MS + 12, STEP_MS + 32, "seen", "dot.0", STEP_MS + 10)] * is_long
        for begin, end, function, name, launch_ms in kernels:
            stats = in_program(name, f"jit_{function}", int(function == "seen"))
            step.kernel(
                0, begin, end, launch_ms=launch_ms, name="dot", op="XlaModule:", stats=stats
            )
        start_ms += STEP_MS + (LONG_PAUSE_MS if is_long else PAUSE_MS)
    path = trace.write(tmp_path)
    add_programs(path, programs)
    found = {row.code: row for row in traceview.analyze(tmp_path).findings}
    stall = found.get("validation-stall")
    assert (stall and lost_ps(stall)) == (lost and ms(lost[0]) // lost[1])


@pytest.mark.parametrize(
    ("batches", "is_input"),
    [
        # It lasts for 45 and 55 ms.
        (2, False),
        (3, True),
    ],
)
def test_an_evaluation_may_wait_for_its_own_input(
    batches: int, is_input: bool, tmp_path: Path
) -> None:
    events = (*(INPUT,) * batches, GRAPH)
    finding = findings_of(tmp_path, run_of(8, events, long_after=(3,)))["validation-stall"]
    assert ("mostly waits for its own input, in" in finding.title) is is_input
    assert finding.action.startswith("Cache its batches" if is_input else "Evaluate less")


@pytest.mark.parametrize(("count", "is_evaluation"), [(3, True), (4, False)])
def test_what_follows_most_steps_is_the_training(
    count: int, is_evaluation: bool, tmp_path: Path
) -> None:
    """Of seven spans between eight markers."""
    found = findings_of(tmp_path, run_of(8, (INPUT, GRAPH), long_after=range(count)))
    assert ("validation-stall" in found) is is_evaluation


# Ops between steps

PERIOD_MS, SPACING_MS = 50, 0.4


def eager(
    step: Step, op: str, start_ms: float, call_ms: float, own_ms: float, *, is_graph: bool
) -> None:
    """One call of an op from Python, in which the op itself runs for a part, as TensorFlow 2.21 records it."""
    step.host(f"EagerLocalExecute: {op}", start_ms, start_ms + call_ms)
    step.host("EagerKernelExecute", start_ms + 0.01, start_ms + 0.01 + own_ms)
    if is_graph:
        step.host("FunctionRun", start_ms + 0.02, start_ms + own_ms)


def stall(
    folder: Path,
    *,
    count: int = 70,
    first_ms: float = 21,
    spacing_ms: float = SPACING_MS,
    own_ms: float = 0.05,
    is_graph: bool = False,
    marker_ms: float = 20,
    op: str = "AddV2",
    sidecar: dict[str, Any] | None = None,
) -> Finding:
    """The finding on what follows the markers of steps of 50 ms."""
    trace = new_trace()
    for step in marked_steps(trace, period_ms=PERIOD_MS, marker_ms=marker_ms):
        step.kernel(0, 0, marker_ms)
        for place in range(count):
            eager(step, op, first_ms + spacing_ms * place, 0.25, own_ms, is_graph=is_graph)
    findings = analyzed(folder, trace, sidecar=sidecar).findings
    return next(finding for finding in findings if finding.code == "callback-stall")


def test_a_graph_saves_the_time_between_ops(tmp_path: Path) -> None:
    finding = stall(tmp_path)
    assert finding.action.startswith(
        "Make a graph of the ops between steps, @tf.function, for whole"
    )
    # After three of four steps 69 times 0.4 ms and a call of 0.25 ms, of which 70 times 0.05 ms are the ops.
    assert "Python runs 70 ops per step one by one" in finding.explanation
    assert "most often AddV2. That takes 20.9 ms, of which the ops themselves take 2.62 ms." in (
        finding.explanation
    )
    values = {evidence.metric: evidence.value for evidence in finding.evidence}
    assert values["eager_ops_per_step"] == 70


@pytest.mark.parametrize(
    ("shape", "action"),
    [
        ({"op": "StridedSlice"}, "Fetch the tensor once, values = tensor.numpy(), and index"),
        ({"op": "VarHandleOp"}, "Make metrics, layers and variables once, before the loop"),
        (
            {"count": 20, "marker_ms": 41, "first_ms": 41.5},
            "Make a graph of the ops between steps",
        ),
        ({"count": 19, "marker_ms": 41, "first_ms": 41.5}, ""),
        ({"own_ms": 0.2}, ""),
        ({"is_graph": True}, ""),
        # Python of its own between the ops.
        ({"count": 35, "spacing_ms": 0.8}, ""),
        # Within the markers.
        ({"count": 40, "first_ms": 1}, ""),
    ],
    ids=str,
)
def test_which_ops_are_named(shape: dict[str, Any], action: str, tmp_path: Path) -> None:
    """Otherwise it is any Python."""
    finding = stall(tmp_path, **shape)
    assert finding.action.startswith(action)
    assert action or "a graph" not in finding.action
    metrics = {evidence.metric for evidence in finding.evidence}
    assert ("eager_ops_per_step" in metrics) is bool(action)


def test_what_layers_index_is_no_index_of_the_script(tmp_path: Path) -> None:
    """What the loop calls is named, for that is what a graph is made of."""
    loop: Line = ("train.py", "<module>", 60, True)
    layer: Line = ("keras/src/layers/rnn/gru.py", "call", 9, False)
    of_step, of_loss = (
        (("train.py", "step", 50, True), loop),
        (layer, ("train.py", "loss", 4, True)),
    )
    between = (*of_loss, ("train.py", "judged", 30, True), loop)
    samples = [
        (PROFILE_START_NS + 1_000_000 * ms, 0, of_step if ms % PERIOD_MS < 20 else between)
        for ms in range(4 * PERIOD_MS)
    ]
    threads = [{"ident": 140_000, "name": "MainThread", "native_id": 1}]
    python = python_group(samples, threads)
    finding = stall(tmp_path, op="StridedSlice", sidecar={"python": python})
    assert " in loss, train.py:4" in finding.title
    assert finding.action.startswith(
        "Make a graph of the ops between steps, @tf.function on judged"
    )


@pytest.mark.parametrize(
    ("inner", "is_graph_advised"),
    [
        pytest.param(
            ("tensorflow/python/ops/gen_array_ops.py", "identity", 9, False), True, id="ops"
        ),
        pytest.param(("json/encoder.py", "encode", 9, False), False, id="Python of its own"),
    ],
)
def test_samples_show_the_thread_in_ops_that_are_far_apart(
    inner: Line, is_graph_advised: bool, tmp_path: Path
) -> None:
    begin_ns = [PROFILE_START_NS + PERIOD_MS * 1_000_000 * number for number in range(4)]
    stack = inner, ("train.py", "log", 4, True)
    times = [at + number * 1_000_000 for at in begin_ns for number in range(PERIOD_MS)]
    samples = [(at_ns, 0, stack) for at_ns in times]
    threads = [{"ident": 140_000, "name": "MainThread", "native_id": 1}]
    python = python_group(samples, threads, [0] * len(samples) if is_graph_advised else None)
    finding = stall(tmp_path, count=35, spacing_ms=0.8, sidecar={"python": python})
    assert ("a graph" in finding.action) is is_graph_advised


@pytest.mark.parametrize(
    ("gpu_count", "action"), [(1, "Run several steps per call"), (2, "Run fewer steps")]
)
def test_python_of_fit_is_run_less_often(gpu_count: int, action: str, tmp_path: Path) -> None:
    """On several replicas a call of several steps ended with an error."""
    of_fit: tuple[Line, ...] = (
        ("keras/src/utils/tracking.py", "tracked", 9, False),
        ("keras/src/backend/tensorflow/trainer.py", "fit", 5, False),
        ("train.py", "<module>", 60, True),
    )
    trace = new_trace()
    for step in marked_steps(trace, period_ms=PERIOD_MS, marker_ms=20):
        for ordinal in range(gpu_count):
            step.kernel(ordinal, 0, 20)
    begin_ns = [PROFILE_START_NS + ms * 1_000_000 for ms in range(4 * PERIOD_MS)]
    threads = [{"ident": 140_000, "name": "MainThread", "native_id": 1}]
    python = python_group([(at_ns, 0, of_fit) for at_ns in begin_ns], threads)
    report = analyzed(tmp_path, trace, sidecar={"python": python})
    assert the(report, "callback-stall").action.startswith(action)


@pytest.mark.parametrize(
    ("ended_ms", "is_found"), [(16, True), (14, False)], ids=["most of the time", "less than half"]
)
def test_to_end_iterators_between_steps_is_of_the_line_that_does(
    ended_ms: float, is_found: bool, tmp_path: Path
) -> None:
    """30 ms between steps of 50; the pipeline hands on each batch at once."""
    trace, line = new_trace(), ("train.py", "next_file", 8, True)
    worker = trace.thread("tf_data_iterator_resource", 40)
    for step in marked_steps(trace, period_ms=PERIOD_MS, marker_ms=20):
        step.host("EagerLocalExecute: MakeIterator", 0.1, 0.2)
        step.host("IteratorGetNextOp::DoCompute", 0.3, 0.33)
        step.host("Iterator::Root", 0.3, 0.33, {"id": 1})
        buffer = {"id": 2, "parent_id": 1, "buffer_limit": 2, "buffered_elements": 1}
        step.host("Iterator::Root::Prefetch", 0.3, 0.33, buffer)
        made = {"id": 3, "parent_id": 2}
        step.host("Iterator::Root::Prefetch::Map", 0, 1, made, thread=worker)
        step.kernel(0, 0, 20)
        step.host("TFE_DeleteTensorHandle", 22, 22 + ended_ms)
    samples = [(PROFILE_START_NS + ms * 1_000_000, 0, (line,)) for ms in range(4 * PERIOD_MS)]
    threads = [{"ident": 140_000, "name": "MainThread", "native_id": 1}]
    python = python_group(samples, threads)
    report = analyzed(tmp_path, trace, sidecar={"python": python})
    stall = the(report, "callback-stall")
    # The last step has nothing after it.
    assert lost_ps(stall) == 3 * ms(30) // 4
    assert stall.title.endswith("in next_file, train.py:8")
    assert stall.action.startswith("Make one data set of all inputs and one iterator") is is_found
