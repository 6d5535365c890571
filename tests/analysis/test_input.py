"""Tests where the findings on the input pipeline start, and what is measured without devices or steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from tests.analysis.made import finding_of, loss_of, the
from tests.python_sidecars import Line, native_threads
from tests.sidecars import write_sidecar
from traceview.analysis.facts.input_supply import DETERMINED
from traceview.analysis.gpu_time.input import Input
from traceview.analysis.gpu_time.input_rules import INPUT_BOUND
from traceview.analysis.rules.finding import Finding
from traceview.document.phrase import plain
from traceview.report.model import phrases_of_verdict

WAIT = "IteratorGetNextOp::DoCompute"


def examined(
    trace: CudaTrace, folder: Path, sidecar: dict[str, Any] | None = None
) -> tuple[Input, Finding | None]:
    """The result, and `input-bound` if it is found."""
    write_sidecar(trace.write(folder), sidecar)
    report = traceview.analyze(folder)
    assert report.results.input is not None
    return report.results.input, finding_of(report, INPUT_BOUND.code)


def bound_of(trace: CudaTrace, folder: Path, sidecar: dict[str, Any] | None = None) -> Finding:
    """`input-bound`, which has to be found."""
    _, bound = examined(trace, folder, sidecar)
    assert bound is not None
    return bound


def steps_of_100(trace: CudaTrace, count: int = 4) -> list[Step]:
    return marked_steps(trace, count=count, period_ms=100, marker_ms=100)


def computes(step: Step, begin_ms: float, end_ms: float = 100) -> None:
    """A graph of one op on a CPU device."""
    executor = step.trace.thread("tf_Compute", 41)
    step.host("FunctionRun", begin_ms, end_ms)
    step.host("replica_0/x:MatMul", begin_ms, end_ms, thread=executor)


def calls(step: Step, *stages: tuple[str, float, float]) -> None:
    """Calls of stages of a pipeline, each below the one that asks for it: path, begin and end."""
    ids: dict[str, int] = {}
    for number, (path, begin, end) in enumerate(stages, 1):
        above = ids.get(path.rpartition("::")[0])
        ids[path] = number
        stats = {"id": number} if above is None else {"id": number, "parent_id": above}
        step.host(f"Iterator::{path}", begin, end, stats)


def waiting(wait_ms: float, *stages: tuple[str, float, float]) -> CudaTrace:
    """Four steps of 100 ms that begin with a wait, in which these stages run."""
    trace = new_trace(length_ms=1000)
    for step in steps_of_100(trace):
        step.host(WAIT, 0, wait_ms)
        calls(step, *stages)
    return trace


@pytest.mark.parametrize(("share", "named"), [(0.49, False), (0.5, True)])
def test_a_stage_is_named_from_half_of_the_own_time_on(
    share: float, named: bool, tmp_path: Path
) -> None:
    # Three stages, so that the largest may have less than half.
    batch, first = "Root::BatchV2", 40 * share
    readers = (f"{batch}::Map::TFRecord", 0, first), (f"{batch}::Map::Range", first, first + 15)
    stages = ("Root", 0, 40), (batch, 0, 40), (f"{batch}::Map", 0, 39.96), *readers
    result, bound = examined(waiting(40, *stages), tmp_path)
    (host,) = result.hosts
    assert (host.slowest_stage or "").endswith("::TFRecord")
    assert bound is not None
    assert ("stage" in bound.arguments) is named


def buffered(
    folder: Path,
    *,
    work_ms: float,
    empty_steps: int,
    name: str = "Map",
    wait_ms: float = 10,
    other_wait_ms: float | None = None,
    silent_ms: float = 0,
    returns_ms: float = 0,
    python_ms: tuple[float, float] | None = None,
    load: float | None = None,
    inner: Sequence[Line] = (),
    outer: Line = ("train.py", "fetch", 7, True),
) -> tuple[Input, Finding | None]:
    """Eight steps of 100 ms on a replica that waits, behind a buffer that is empty in some of them.

    The stage works on a thread of its own, and runs a Python function for `python_ms`. After the wait the thread of the
    step records nothing for some time, and then does not return for some time from a call of TensorFlow.
    `other_wait_ms`: where the buffer is not empty. `load`: the part of a core that the Python function uses, which calls
    `inner`; `outer`: another one than that of the script.
    """
    trace = new_trace(length_ms=1000)
    worker = trace.thread("tf_data_iterator_resource", 40)
    for index, step in enumerate(steps_of_100(trace, 8)):
        fill = {"buffered_elements": 1} if index >= empty_steps else {}
        waits_ms = other_wait_ms if fill and other_wait_ms is not None else wait_ms
        step.host(WAIT, 0, waits_ms)
        step.host("Iterator::Root", 0, waits_ms, {"id": 1})
        limit = {"id": 2, "parent_id": 1, "buffer_limit": 2}
        step.host("Iterator::Root::Prefetch", 0, waits_ms, {**limit, **fill})
        made = {"id": 3, "parent_id": 2}
        step.host(f"Iterator::Root::Prefetch::{name}", 0, work_ms, made, thread=worker)
        if python_ms is not None:
            call = "InstantiatedCapturedFunction::Run"
            step.host(call, *python_ms, {"id": 9}, thread=worker)
            step.host("PyFunc:PyFunc", *python_ms, thread=worker)
        begin = waits_ms + silent_ms
        if returns_ms:
            step.host("TFE_Py_Execute", begin, begin + 1 + returns_ms)
            step.host("EagerExecute", begin, begin + 1)
            begin += 1 + returns_ms
        computes(step, begin)
    python = None
    if load is not None:
        python = native_threads([40], length_ms=800, load=load, inner=inner, outer=outer)
    return examined(trace, folder, {"python": python})


@pytest.mark.parametrize(
    ("work_ms", "empty_steps", "is_bound"),
    [(95, 8, True), (25, 2, True), (24.9, 2, False), (25, 1, False), (95, 0, False)],
)
def test_a_full_buffer_or_a_stage_that_rests_contradicts_a_wait(
    work_ms: float, empty_steps: int, is_bound: bool, tmp_path: Path
) -> None:
    result, bound = buffered(tmp_path, work_ms=work_ms, empty_steps=empty_steps)
    (row,) = result.hosts
    assert row.slowest_stage == "Iterator::Root::Prefetch::Map"
    assert row.work_ratio == pytest.approx(work_ms / 100)
    assert row.empty_step_ratio == empty_steps / 8
    assert (bound is not None) is is_bound
    assert row.keeps_up is not is_bound
    if bound:
        shown = {item.metric: item.value for item in bound.evidence if item.threshold}
        assert shown == {"work_ratio": work_ms / 100, "empty_step_ratio": empty_steps / 8}


@pytest.mark.parametrize(("wait_ms", "ratio"), [(0.05, 0), (0.051, 1)])
def test_an_empty_buffer_that_hands_on_at_once_keeps_nobody_waiting(
    wait_ms: float, ratio: float, tmp_path: Path
) -> None:
    result, _ = buffered(tmp_path, work_ms=95, empty_steps=8, wait_ms=wait_ms)
    (row,) = result.hosts
    assert row.empty_step_ratio == ratio
    (buffer,) = (stage for stage in result.stages if stage.name.endswith("::Prefetch"))
    assert buffer.empty_ratio == ratio


@pytest.mark.parametrize(("work_ms", "is_bound"), [(14, True), (1.7, False)])
def test_what_works_only_while_the_model_waits_is_compared_with_the_wait(
    work_ms: float, is_bound: bool, tmp_path: Path
) -> None:
    """The stage works 14 % of the window, and the model waits 56 of 800 ms."""
    waits: dict[str, Any] = {"wait_ms": 56, "other_wait_ms": 0.1}
    result, bound = buffered(tmp_path, work_ms=work_ms, empty_steps=1, **waits)
    (row,) = result.hosts
    assert row.work_ratio == pytest.approx(work_ms / 100)
    assert (bound is not None) is is_bound


def stalled(trace: CudaTrace, stage: str, worker_count: int, works: dict[str, float]) -> None:
    """Eight steps of 100 ms with 40 ms between two; behind a full buffer a stage, on so many threads, works for this long."""
    batches = trace.thread("tf_data_prefetch", 50)
    workers = [trace.thread("tf_data_private_threadpool", 60 + n) for n in range(worker_count)]
    for step in marked_steps(trace, count=8, period_ms=100, marker_ms=60):
        step.host(WAIT, 0, 1)
        step.host("Iterator::Root", 0, 1, {"id": 1})
        asks = {"id": 2, "parent_id": 1, "buffer_limit": 2, "buffered_elements": 1}
        step.host("Iterator::Root::Prefetch", 0, 1, asks)
        made = {"id": 3, "parent_id": 2}
        length_ms = 1 if worker_count > 1 else works["map"]
        step.host(f"Iterator::Root::Prefetch::{stage}", 0, length_ms, made, thread=batches)
        for worker in workers if worker_count > 1 else ():
            step.host(
                "InstantiatedCapturedFunction::Run", 0, works["map"], {"id": 9}, thread=worker
            )
            step.host("decode:DecodeJpeg", 0, works["map"], thread=worker)
        if works.get("python"):
            step.host("PyFunc:PyFunc", 0, works["python"], thread=batches)
        computes(step, 1, 60)


@pytest.mark.parametrize(
    ("works", "worker_count", "cores", "gain_ms"),
    [
        ({"map": 60}, 1, None, 35),
        ({"map": 75}, 1, None, 20),
        # Python of the pipeline may be faster where nothing else has its lock.
        ({"map": 75, "python": 30}, 1, None, 35),
        ({"map": 99}, 1, None, 0),
        # Two calls of a parallel map need cores, in the last step for 60 ms, with which the window ends.
        ({"map": 75}, 2, 2, 21.875),
        ({"map": 75}, 2, 3, 35),
        ({"map": 75}, 2, None, 35),
    ],
)
def test_of_a_stall_while_the_pipeline_works_ahead_only_the_rest_is_gained(
    works: dict[str, float], worker_count: int, cores: int | None, gain_ms: float, tmp_path: Path
) -> None:
    trace = new_trace(length_ms=1000)
    stalled(trace, "Map" if worker_count == 1 else "ParallelMapV2", worker_count, works)
    sidecar = {"cores": {"machine_count": 8, "usable_count": cores}} if cores else None
    write_sidecar(trace.write(tmp_path), sidecar)
    report = traceview.analyze(tmp_path)
    stall = the(report, "callback-stall")
    assert loss_of(stall).ps_per_step == ms(35)
    assert loss_of(stall).gain_ps_per_step == pytest.approx(ms(gain_ms), rel=0.01, abs=1)
    assert loss_of(stall).then_input == (gain_ms < 35)
    _, action = phrases_of_verdict(report)
    is_limited = report.leading == stall and gain_ms < 35
    assert plain(action).endswith(" a step, which then waits for input.") == is_limited


@pytest.mark.parametrize(
    ("name", "python_ms", "returns_ms", "lost_ms"),
    [
        # The thread of the step is silent from the 4th to the 24th ms, and waits for the lock from the 25th to the 45th.
        ("Generator", (0, 45), 20, 45 - 4 + 4),
        ("Map", (0, 45), 20, 45 - 4 + 4),
        ("Generator", (25, 35), 20, 10),
        # Less than 2 % of the window in a wait for the lock, and Python while nobody waits for it.
        ("Generator", (25, 26.9), 20, None),
        ("Generator", (46, 90), 20, None),
        ("Generator", None, 20, None),
    ],
)
def test_python_of_a_pipeline_that_keeps_up_keeps_the_lock_from_the_step(
    name: str,
    python_ms: tuple[float, float] | None,
    returns_ms: float,
    lost_ms: float | None,
    tmp_path: Path,
) -> None:
    result, bound = buffered(
        tmp_path,
        work_ms=46,
        empty_steps=0,
        name=name,
        wait_ms=4,
        silent_ms=20,
        returns_ms=returns_ms,
        python_ms=python_ms,
    )
    assert result.hosts[0].keeps_up
    assert (bound and bound.loss and bound.loss.ps_per_step) == (lost_ms and ms(lost_ms))
    if bound:
        assert "loses" in bound.title
        assert bound.title.endswith("to the input pipeline, whose Python holds the GIL")


@pytest.mark.parametrize(
    ("name", "load", "python_ms", "action"),
    [
        ("ParallelMapV2", None, 51, "Replace Python of the pipeline"),
        ("ParallelMapV2", None, 49, "Store what is the same"),
        # One that does not run in parallel is told to do so first: its Python may wait without the lock.
        ("Map", None, 51, "Map in parallel"),
        # As for a server: more calls at once help, and need no core.
        ("ParallelMapV2", 0.3, 51, "Replace Python of the pipeline"),
        ("ParallelMapV2", 0.02, 51, "Let late elements hold up no others"),
        ("ParallelMapV2", 0.3, 40, "Store what is the same"),
    ],
)
def test_a_map_that_is_mostly_python_is_written_in_ops_unless_it_waits(
    name: str, load: float | None, python_ms: float, action: str, tmp_path: Path
) -> None:
    python = (20, 20 + python_ms)
    _, bound = buffered(tmp_path, work_ms=95, empty_steps=8, name=name, python_ms=python, load=load)
    assert bound is not None
    assert bound.action.startswith(action)


_FETCH: Line = ("train.py", "fetch", 7, True)
_OF_SCIPY: Line = ("scipy/ndimage/interpolate.py", "affine_transform", 9, False)
_WEAK: Line = ("weakref.py", "get", 452, False)


@pytest.mark.parametrize(
    ("load", "inner", "outer", "title", "action"),
    [
        (0.3, (), _FETCH, "Generator is too slow in fetch, train.py:7", "Do the work in ops"),
        (0.02, (), _FETCH, "a generator waits in fetch, train.py:7", "Let threads load ahead"),
        # It is woken often: what another process hands over comes in pieces.
        *(
            (load, [("multiprocessing/connection.py", "_recv", 395, False)], _FETCH, title, action)
            for load, title, action in (
                (0.49, "a generator waits for another thread or process in fetch", "Give that more"),
                (0.51, "Generator is too slow in fetch", "Do the work in ops"),
            )
        ),
        (
            *(0.9, [("pandas/core/base.py", "to_numpy", 600, False)], _FETCH),
            "Generator is too slow in fetch, train.py:7 (to_numpy of pandas)",
            "Let pandas work on the whole table, once",
        ),
        (
            *(0.9, [("pandas/io/parsers/readers.py", "read_csv", 600, False)], _FETCH),
            "Generator is too slow in fetch, train.py:7 (read_csv of pandas)",
            "Open files once, not for each element",
        ),
        (
            *(0.9, [_WEAK, ("keras/src/layers/layer.py", "call", 335, False)], _FETCH),
            *("Generator is too slow in fetch, train.py:7", "Call ops and layers once"),
        ),
        (
            *(0.9, [("zipfile.py", "_EndRecData", 302, False), ("zipfile.py", "open", 1284, False)]),
            *(_FETCH, "Generator is too slow in fetch, train.py:7 (open of zipfile)"),
            "Open files once, not for each element",
        ),
        (
            *(0.9, [_WEAK, ("tensorflow/python/autograph/impl/api.py", "converted_call", 335, False)]),
            *(_FETCH, "Generator is too slow", "Define what tf.py_function"),
        ),
        (0.9, [_WEAK, ("numpy/api.py", "call", 335, False)], _FETCH, "Generator is", "Do the work"),
        # One of a library is named after what runs in it.
        (
            *(0.9, [_OF_SCIPY], ("tensorflow/python/ops/script_ops.py", "__call__", 140, False)),
            "Generator is too slow in affine_transform, scipy/ndimage/interpolate.py:9",
            "Do the work in ops",
        ),
        (0.9, [_OF_SCIPY], ("threading.py", "__call__", 140, False), "Generator is too slow", "Do"),
    ],
)  # fmt: skip
def test_what_a_generator_does_decides_what_helps(
    load: float, inner: list[Line], outer: Line, title: str, action: str, tmp_path: Path
) -> None:
    _, bound = buffered(
        tmp_path,
        work_ms=95,
        empty_steps=8,
        name="Generator",
        python_ms=(0, 95),
        load=load,
        inner=inner,
        outer=outer,
    )
    assert bound is not None
    assert f" for input: {title}" in bound.title
    assert bound.action.startswith(action)


@pytest.mark.parametrize(("wait_ms", "action"), [(50, "End the pipeline"), (50.1, "Map in par")])
def test_prefetch_comes_first_where_the_pipeline_fits_beside_the_step(
    wait_ms: float, action: str, tmp_path: Path
) -> None:
    """In each wait two stages run: a map 3 parts of 4, a reader 1."""
    stages = (
        ("Root", 0, wait_ms),
        ("Root::Map", 0, wait_ms),
        ("Root::Map::TFRecord", 0, wait_ms / 4),
    )
    bound = bound_of(waiting(wait_ms, *stages), tmp_path)
    assert bound.action.startswith(action)
    assert "does not end with prefetch" in bound.explanation


@pytest.mark.parametrize(
    ("path", "lacks_prefetch"),
    [
        ("Root::Map", True),
        ("Root::Prefetch::Range", False),
        ("Root::MaxIntraOpParallelism::PrivateThreadPool::Options::ParallelMapV2", False),
        ("Root::FiniteTake::Shuffle", True),
        ("Prefetch::Map", False),
    ],
)
def test_prefetch_is_recognised_below_wrappers(
    path: str, lacks_prefetch: bool, tmp_path: Path
) -> None:
    trace = new_trace(length_ms=1000)
    for step in steps_of_100(trace):
        step.host(WAIT, 0, 40)
        step.host(f"Iterator::{path}", 0, 40, {"id": 2, "buffer_limit": 3})
    result, _ = examined(trace, tmp_path)
    assert result.lacks_prefetch == lacks_prefetch


@pytest.mark.parametrize(
    ("path", "kept", "made", "said"),
    [
        # In four steps 4 of 8 are dropped, which is less than a buffer may hold, and 8 of 12.
        ("FiniteSkip::Map::BatchV2", 1, 2, ""),
        ("FiniteSkip::Map::BatchV2", 1, 3, "Skip keeps 4 of 12 elements"),
        ("FiniteTake::FiniteSkip::Map::BatchV2", 1, 3, "Skip keeps 4 of 12 elements"),
        ("BatchV2::Filter::ParallelMapV2::Range", 8, 16, "Filter keeps 32 of 64 elements"),
        ("BatchV2::Filter::ParallelMapV2::Range", 8, 15, ""),
        ("Shard::Map::TFRecord", 1, 3, "Shard keeps 4 of 12 elements"),
        # What a batch is made of is more than batches, and a shuffle fills its buffer.
        ("FiniteSkip::BatchV2::Map", 1, 40, ""),
        ("FiniteSkip::Shuffle::Map", 1, 40, ""),
        # Nothing was recorded below what hands on each element.
        ("FiniteTake::Prefetch::ForeverRepeat::MemoryCache", 1, 1, ""),
    ],
)  # fmt: skip
def test_what_a_stage_drops_is_made_for_nothing(
    path: str, kept: int, made: int, said: str, tmp_path: Path
) -> None:
    """The last stage is asked `made` times a step, those before it `kept` times; the last but one works longest."""
    trace = new_trace(length_ms=1000)
    parts = path.split("::")
    for step in steps_of_100(trace):
        step.host(WAIT, 0, 60)
        for depth in range(1, len(parts) + 1):
            stage = "::".join(parts[:depth])
            is_last = depth == len(parts)
            count = made if is_last else kept
            for call in range(count):
                begin = 60 * call / count + 0.01 * depth
                ids = {"id": 1 + depth, "parent_id": depth}
                length = 30 / count if is_last else 59 / kept - 0.1 * depth
                step.host(f"Iterator::Root::{stage}", begin, begin + length, ids)
    bound = bound_of(trace, tmp_path)
    assert said in bound.title
    assert (" keeps " in bound.title) == bool(said)
    assert bound.action.startswith("Drop elements before") == bool(said)


@pytest.mark.parametrize(
    ("path", "is_cut"),
    [
        ("Root::Prefetch::BatchV2::ShuffleAndRepeat::FiniteTake::MemoryCacheImpl::ParallelMapV2", True),
        ("Root::FiniteTake::MemoryCache::MemoryCacheImpl::Map", True),
        ("Root::FiniteTake::BatchV2[0]::MemoryCache::Map", True),
        # What is repeated may be read to its end.
        ("Root::FiniteTake::ForeverRepeat::MemoryCache::Map", False),
        ("Root::MemoryCache::FiniteTake::Map", False),
        ("Root::FiniteTake::Map", False),
    ],
)  # fmt: skip
def test_a_cache_that_take_leaves_before_its_end_is_made_anew(
    path: str, is_cut: bool, tmp_path: Path
) -> None:
    bound = bound_of(waiting(60, (path, 0, 60)), tmp_path)
    assert ("take ends before the cache is full" in bound.title) == is_cut
    assert bound.action.startswith("Take before the cache") == is_cut


@pytest.mark.parametrize(
    ("count", "each_ms", "parallelism", "is_quick"),
    [
        (16, 0.25, 1, True),
        (15, 0.25, 1, False),
        (16, 0.251, 1, False),
        (16, 0.125, 2, True),
        (16, 0.126, 2, False),
    ],
)
def test_functions_are_written_for_batches_where_each_element_is_quick(
    count: int, each_ms: float, parallelism: int, is_quick: bool, tmp_path: Path
) -> None:
    """Functions that run beside each other take as often as long."""
    whole_ms = count * each_ms
    trace = new_trace(length_ms=1000)
    for step in steps_of_100(trace):
        step.host(WAIT, 0, 60)
        step.host("Iterator::Root::Prefetch", 0, 60, {"id": 1})
        above = "Iterator::Root::Prefetch::MapAndBatch"
        made = {"id": 2, "parent_id": 1}
        at_once = {"parallelism": parallelism} if parallelism > 1 else {}
        step.host(above, 0, whole_ms, {**made, **at_once})
        for place in range(count):
            given = {"id": 3, "parent_id": 2}
            step.host(f"{above}::BatchV2", place * each_ms, place * each_ms, given)
            # What is further back may come in smaller pieces.
            for _ in range(16):
                step.host(f"{above}::BatchV2::TensorSlice", 1, 1, {"id": 4, "parent_id": 3})
    action = bound_of(trace, tmp_path).action
    assert action.startswith("Batch before mapping") is is_quick


@pytest.mark.parametrize(
    ("stage", "decode_ms", "said"),
    [
        ("Map", 20, ": Map is too slow, most of it DecodeJpeg"),
        ("Map", 19.9, ": Map is too slow"),
        ("Generator", 20, ": Generator is too slow"),
        # The ops of two maps are told apart by how often these are called.
        ("Map::ParallelMapV2", 20, ": Map is too slow"),
        ("Map::BatchV2::ParallelMapV2", 20, ": Map is too slow, most of it DecodeJpeg"),
    ],
)
def test_the_op_that_takes_most_of_the_functions_is_named(
    stage: str, decode_ms: float, said: str, tmp_path: Path
) -> None:
    stage, _, before = stage.partition("::")
    trace = new_trace(length_ms=1000)
    worker = trace.thread("tf_data_map", 40)
    for step in steps_of_100(trace):
        step.host(WAIT, 0, 60)
        step.host("Iterator::Root", 0, 60, {"id": 1})
        made = {"id": 2, "parent_id": 1}
        step.host(f"Iterator::Root::{stage}", 0, 60, made, thread=worker)
        path = f"Iterator::Root::{stage}"
        for number, kind in enumerate(before.split("::") if before else (), 3):
            path += f"::{kind}"
            for _ in range(8 if number == 4 else 1):
                step.host(path, 0, 0, {"id": number, "parent_id": number - 1}, thread=worker)
                # Of each call of the map below the batch another op, which takes longer in all.
                if number == 4:
                    step.host("pad/Pad:Pad", 56, 59, thread=worker)
        step.host("InstantiatedCapturedFunction::Run", 1, 55, {"id": 9}, thread=worker)
        step.host("decode/DecodeJpeg:DecodeJpeg", 1, 1 + decode_ms, thread=worker)
        step.host("resize/ResizeBilinear:ResizeBilinear", 30, 45, thread=worker)
        step.host("crop/Slice:Slice", 50, 55, thread=worker)
        computes(step, 60)
    assert bound_of(trace, tmp_path).title.endswith(f"for input{said}")


@pytest.mark.parametrize(
    ("first_ms", "other_ms", "made", "is_cause"),
    [(50, 50, 2, True), (49.9, 50, 2, False), (50, 50, 1, False)],
)
def test_iterators_made_in_the_loop_are_the_cause_where_first_requests_are_most_of_the_wait(
    first_ms: float, other_ms: float, made: int, is_cause: bool, tmp_path: Path
) -> None:
    trace = new_trace(length_ms=1000)
    for number, step in enumerate(steps_of_100(trace)):
        is_first = number % (4 // made) == 0
        if is_first:
            step.host("EagerLocalExecute: MakeIterator", 0, 1)
        requests = made if is_first else 4 - made
        wait_ms = (first_ms if is_first else other_ms) * 2 / requests
        step.host(WAIT, 1, 1 + wait_ms)
        step.host("Iterator::Root::Prefetch::Map", 1, 1 + wait_ms, {"id": number})
    action = bound_of(trace, tmp_path).action
    assert action.startswith("Make one iterator, ") is is_cause


DECODED = "train.py:7 in decoded"


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        # TensorFlow may have made the maps parallel, or not; other stages call nothing.
        ([("ParallelMap", None), ("Map", DECODED)], " in decoded, train.py:7"),
        # What it puts behind a pipeline may be gone.
        ([("Map", None), ("Map", "train.py:9"), ("Map", DECODED)], " in decoded, train.py:7"),
        ([("Map", "train.py:9"), ("Map", None), ("Map", DECODED)], ""),
        ([("Filter", None), ("Map", DECODED)], ""),
        ([("Map", DECODED)], ""),
    ],
)
def test_the_function_that_a_stage_calls_is_named(
    functions: list[tuple[str, str | None]], said: str, tmp_path: Path
) -> None:
    of_branch = [{"stage": stage, "line": line} for stage, line in functions]
    batch = {"branches": [{"functions": of_branch}]}
    trace, stage = new_trace(length_ms=1000), "Root::MapAndBatch::Shuffle::ParallelMapV2"
    for step in steps_of_100(trace):
        step.host(WAIT, 0, 40)
        calls(step, *((path, 0, 40) for path in accumulate(stage.split("::"), "{}::{}".format)))
        computes(step, 40)
    result, bound = examined(trace, tmp_path, {"batch": batch})
    slowest = max(result.stages, key=lambda stage: stage.own_ps)
    assert slowest.function == (DECODED if said else None)
    assert bound is not None
    assert bound.title.endswith(f"for input: ParallelMapV2 is too slow{said}")


@pytest.mark.parametrize("is_debugged", [True, False])
def test_a_pipeline_that_is_debugged_runs_on_one_thread(is_debugged: bool, tmp_path: Path) -> None:
    mode = "tf.data.experimental.enable_debug_mode"
    sidecar = {"tracing": {"hooks": [mode] * is_debugged}}
    bound = bound_of(waiting(40, ("Root", 0, 40), ("Root::Map", 0, 40)), tmp_path, sidecar)
    assert bound.action.startswith(f"Turn {mode} off") is is_debugged
    # That it does not work ahead is the mode's doing.
    assert ("does not end with prefetch" in bound.explanation) is not is_debugged


@pytest.mark.parametrize(
    ("hooks", "draws", "said"),
    [
        (
            [DETERMINED],
            True,
            ": op determinism lets Map make one call at a time in crop, train.py:7",
        ),
        ([DETERMINED], False, ": Map is too slow"),
        ([], True, ": Map is too slow"),
    ],
)
def test_with_op_determinism_maps_that_draw_make_one_call_at_a_time(
    hooks: list[str], draws: bool, said: str, tmp_path: Path
) -> None:
    function = {"stage": "ParallelMap", "line": "train.py:7 in crop", "draws": draws}
    sidecar = {"tracing": {"hooks": hooks}, "batch": {"branches": [{"functions": [function]}]}}
    bound = bound_of(waiting(40, ("Root", 0, 40), ("Root::Map", 0, 40)), tmp_path, sidecar)
    assert bound.title.endswith(f" for input{said}")
    assert bound.action.startswith("Draw from") is ("determinism" in said)


@pytest.mark.parametrize(
    ("draws", "at_once", "action"),
    [
        (True, 2, "Make the mapped function cheaper"),
        (False, 2, "Store what is the same"),
        (False, 1, "Map in parallel"),
    ],
)
def test_what_a_map_does_decides_what_helps(
    draws: bool, at_once: int, action: str, tmp_path: Path
) -> None:
    trace = new_trace(length_ms=1000)
    worker = trace.thread("tf_data_private_threadpool", 40)
    for step in steps_of_100(trace):
        step.host(WAIT, 0, 60)
        step.host("Iterator::Root", 0, 60, {"id": 1})
        made = {"id": 2, "parent_id": 1, "parallelism": at_once}
        step.host("Iterator::Root::ParallelMapV2", 0, 60, made, thread=worker)
        step.host("InstantiatedCapturedFunction::Run", 1, 55, {"id": 9}, thread=worker)
        step.host("mask/SelectV2:SelectV2", 1, 50, thread=worker)
        computes(step, 60)
    lines = {"mask/SelectV2": "train.py:12 in mixed"}
    function = {"stage": "ParallelMap", "line": "train.py:7", "draws": draws, "line_of": lines}
    sidecar = {"batch": {"branches": [{"functions": [function]}]}}
    bound = bound_of(trace, tmp_path, sidecar)
    assert bound.action.startswith(action)
    # Of its function the line that makes the op.
    assert bound.title.endswith("is too slow, most of it SelectV2 in mixed, train.py:12")
    assert "It calls" not in bound.explanation


@pytest.mark.parametrize(
    ("second", "named"),
    [("train.py:13 in mixed", "in mixed, train.py:12"), ("train.py:20 in other", "in train.py:7")],
)
def test_the_line_that_takes_most_in_the_function_that_takes_most(
    second: str, named: str, tmp_path: Path
) -> None:
    """Of 53 ms line 12 takes 24; without the 20 of the second line that is not most of the time."""
    trace = new_trace(length_ms=1000)
    worker = trace.thread("tf_data_private_threadpool", 40)
    for step in steps_of_100(trace):
        step.host(WAIT, 0, 60)
        step.host("Iterator::Root", 0, 60, {"id": 1})
        made = {"id": 2, "parent_id": 1, "parallelism": 2}
        step.host("Iterator::Root::ParallelMapV2", 0, 60, made, thread=worker)
        step.host("InstantiatedCapturedFunction::Run", 1, 55, {"id": 9}, thread=worker)
        for op, start_ms, end_ms in (("Exp:Exp", 1, 25), ("sub:Sub", 25, 45), ("to:Cast", 45, 54)):
            step.host(op, start_ms, end_ms, thread=worker)
        computes(step, 60)
    lines = {"Exp": "train.py:12 in mixed", "sub": second}
    function = {"stage": "ParallelMap", "line": "train.py:7", "line_of": lines}
    bound = bound_of(trace, tmp_path, {"batch": {"branches": [{"functions": [function]}]}})
    assert bound.title.endswith(f"ParallelMapV2 is too slow {named}")


def test_the_device_whose_batch_comes_late_is_named_and_who_waits_for_it(tmp_path: Path) -> None:
    SCENARIOS["late_batch"]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    (bound,) = (row for row in report.findings if row.code == "input-bound")
    assert bound.title.startswith("GPU:1 waits 11.8 of 50.0 ms (24%) for input")
    assert bound.title.endswith("; meanwhile GPU:0 waits 10.0 ms")
    assert bound.devices == ("GPU:1", "GPU:0")
