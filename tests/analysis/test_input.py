"""Tests where the findings on the input pipeline start, and what is measured without devices or steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from tests.python_sidecars import native_threads
from tests.sidecars import write_sidecar
from traceview.analysis.base import Finding, Skipped
from traceview.analysis.input.advice import advice_for
from traceview.analysis.input.findings import diagnose
from traceview.analysis.input.result import Input, compute
from traceview.analysis.input.rules import (
    INPUT_BOUND,
    NO_PREFETCH,
    REPLICA_STARVED,
    SLOW_INPUT_STAGE,
)
from traceview.analysis.selection import Selection, select
from traceview.api import Trace, load

WAIT = "IteratorGetNextOp::DoCompute"


def loaded(trace: CudaTrace, folder: Path) -> tuple[Trace, Selection]:
    trace.write(folder)
    read = load(folder)
    return read, select(read)


def examined(trace: CudaTrace, folder: Path) -> tuple[Input, dict[str, Finding]]:
    read, selection = loaded(trace, folder)
    result = compute(read, selection, {})
    assert isinstance(result, Input)
    return result, {finding.code: finding for finding in diagnose(result, selection)}


def steps_of_100(trace: CudaTrace, count: int = 4) -> list[Step]:
    return marked_steps(trace, count=count, period_ms=100, marker_ms=100)


def waiting(folder: Path, wait_ms: float, *, count: int = 4) -> tuple[Input, dict[str, Finding]]:
    """Steps of 100 ms, in each a wait in which two stages run: a map 3 parts of 4, a reader 1."""
    trace = new_trace(length_ms=1000)
    for step in steps_of_100(trace, count):
        step.host(WAIT, 1, 1 + wait_ms)
        step.host("Iterator::Root", 1, 1 + wait_ms, {"id": 1})
        step.host("Iterator::Root::Map", 1, 1 + wait_ms, {"id": 2, "parent_id": 1})
        inner = {"id": 3, "parent_id": 2}
        step.host("Iterator::Root::Map::TFRecord", 1, 1 + wait_ms / 4, inner)
    return examined(trace, folder)


@pytest.mark.parametrize(
    ("wait_ms", "severity"),
    [(4.96, None), (5, "warning"), (19.96, "warning"), (20, "critical")],
)
def test_waiting_is_a_finding_from_its_thresholds_on(
    wait_ms: float, severity: str | None, tmp_path: Path
) -> None:
    result, findings = waiting(tmp_path, wait_ms)
    assert result.input_ratio == pytest.approx(wait_ms / 100)
    if severity is None:
        assert (result.verdict, findings) == ("none", {})
        return
    assert result.verdict == ("high" if severity == "critical" else "moderate")
    assert set(findings) == {"input-bound", "slow-input-stage", "no-prefetch"}
    bound = findings["input-bound"]
    assert (bound.severity, bound.confidence) == (severity, "high")
    assert bound.cost_ps_per_step == ms(wait_ms)
    assert findings["no-prefetch"].severity == findings["slow-input-stage"].severity == "info"


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(0.0499, "none"), (0.05, "moderate"), (0.1999, "moderate"), (0.2, "high")],
)
def test_verdict(ratio: float, verdict: str) -> None:
    assert INPUT_BOUND.verdict_of(ratio) == verdict


def test_one_step_is_only_a_hint(tmp_path: Path) -> None:
    _, findings = waiting(tmp_path, 50, count=1)
    assert {finding.severity for finding in findings.values()} == {"info"}
    assert {finding.confidence for finding in findings.values()} == {"low"}


@pytest.mark.parametrize(("share", "named"), [(0.49, False), (0.5, True)])
def test_a_stage_is_named_from_half_of_the_own_time_on(
    share: float, named: bool, tmp_path: Path
) -> None:
    trace = new_trace(length_ms=1000)
    for step in steps_of_100(trace):
        step.host(WAIT, 0, 40)
        step.host("Iterator::Root", 0, 40, {"id": 1})
        # Three stages, so that the largest may have less than half.
        step.host("Iterator::Root::BatchV2", 0, 40, {"id": 2, "parent_id": 1})
        outer = {"id": 3, "parent_id": 2}
        step.host("Iterator::Root::BatchV2::Map", 0, 39.96, outer)
        inner = {"id": 4, "parent_id": 3}
        first = 40 * share
        step.host("Iterator::Root::BatchV2::Map::TFRecord", 0, first, inner)
        other = {"id": 5, "parent_id": 3}
        step.host("Iterator::Root::BatchV2::Map::Range", first, first + 15, other)
    result, findings = examined(trace, tmp_path)
    assert result.bottleneck is not None
    assert result.bottleneck.kind == "TFRecord"
    assert result.bottleneck.share_ratio == pytest.approx(share)
    assert ("slow-input-stage" in findings) is named


def two_shards(folder: Path, late_ms: float, late_steps: int) -> dict[str, Finding]:
    """Five steps of 100 ms in which shard 1 arrives later than shard 0, in some of them."""
    trace = new_trace(length_ms=1000)
    shard_thread = trace.thread("tf_data_multi_device_iterator_get_next", 90)
    for index, step in enumerate(steps_of_100(trace, 5)):
        at = 1.0
        for shard in (0, 1):
            wait = 0.01 + (late_ms if shard and index < late_steps else 0)
            step.host(f"GetNextFromShard{shard}", at, at, {"shard_num": shard}, thread=shard_thread)
            step.host(WAIT, at, at + wait)
            step.host("Iterator::Root", at, at + wait, {"id": 10 + shard})
            at += wait + 1
    return examined(trace, folder)[1]


@pytest.mark.parametrize(
    ("late_ms", "late_steps", "starved"), [(5, 3, True), (4.96, 3, False), (5, 2, False)]
)
def test_a_shard_is_late_from_its_thresholds_on(
    late_ms: float, late_steps: int, starved: bool, tmp_path: Path
) -> None:
    findings = two_shards(tmp_path, late_ms, late_steps)
    assert ("replica-starved" in findings) is starved
    if starved:
        starving = findings["replica-starved"]
        assert (starving.cost_ps_per_step, starving.cost_statistic) == (ms(3), "mean")
        assert findings["replica-starved"].severity == "warning"
        assert findings["replica-starved"].title == (
            "replica 1 gets its shard of the batch 5.00 ms late in 3 of 5 steps"
        )


def buffered(
    folder: Path,
    *,
    work_ms: float,
    empty_steps: int,
    name: str = "Map",
    wait_ms: float = 10,
    other_wait_ms: float | None = None,
    silent_ms: float = 0,
    at_work: bool = True,
    returns_ms: float = 0,
    python_ms: tuple[float, float] | None = None,
    load: float | None = None,
) -> tuple[Input, dict[str, Finding]]:
    """Eight steps of 100 ms on a replica or a GPU that waits, behind a buffer that is empty in some of them.

    The stage works on a thread of its own, and runs a Python function for `python_ms`. After the wait the thread of the
    step records nothing for some time, and then does not return for some time from a call of TensorFlow.
    `other_wait_ms`: where the buffer is not empty. `load`: the part of a core that the Python function uses.
    """
    empty_wait_ms = wait_ms
    trace = new_trace(length_ms=1000)
    worker, executor = trace.thread("tf_data_iterator_resource", 40), trace.thread("tf_Compute", 41)
    for index, step in enumerate(steps_of_100(trace, 8)):
        fill = {"buffered_elements": 1} if index >= empty_steps else {}
        wait_ms = other_wait_ms if fill and other_wait_ms is not None else empty_wait_ms
        step.host(WAIT, 0, wait_ms)
        step.host("Iterator::Root", 0, wait_ms, {"id": 1})
        limit = {"id": 2, "parent_id": 1, "buffer_limit": 2}
        step.host("Iterator::Root::Prefetch", 0, wait_ms, {**limit, **fill})
        made = {"id": 3, "parent_id": 2}
        step.host(f"Iterator::Root::Prefetch::{name}", 0, work_ms, made, thread=worker)
        if python_ms is not None:
            call = "InstantiatedCapturedFunction::Run"
            step.host(call, *python_ms, {"id": 9}, thread=worker)
            step.host("PyFunc:PyFunc", *python_ms, thread=worker)
        begin = wait_ms + silent_ms
        if returns_ms:
            step.host("TFE_Py_Execute", begin, begin + 1 + returns_ms)
            step.host("EagerExecute", begin, begin + 1)
            begin += 1 + returns_ms
        step.host("FunctionRun", begin, 100)
        if at_work:
            step.host("replica_0/x:MatMul", begin, 100, thread=executor)
        else:
            step.kernel(0, begin, 100, launch_ms=begin)
    written = trace.write(folder)
    if load is not None:
        write_sidecar(written, {"python": native_threads([40], length_ms=800, load=load)})
    report = traceview.analyze(folder)
    assert report.results.input is not None
    return report.results.input, {finding.code: finding for finding in report.findings}


@pytest.mark.parametrize(
    ("work_ms", "empty_steps", "is_bound"),
    [(95, 8, True), (25, 2, True), (24.9, 2, False), (25, 1, False), (95, 0, False)],
)
def test_a_full_buffer_or_a_stage_that_rests_contradicts_a_wait(
    work_ms: float, empty_steps: int, is_bound: bool, tmp_path: Path
) -> None:
    result, findings = buffered(tmp_path, work_ms=work_ms, empty_steps=empty_steps)
    (row,) = result.hosts
    assert row.slowest_stage == "Iterator::Root::Prefetch::Map"
    assert row.work_ratio == pytest.approx(work_ms / 100)
    assert row.empty_step_ratio == empty_steps / 8
    assert ("input-bound" in findings) is is_bound
    assert ("slow-input-stage" in findings) is is_bound


@pytest.mark.parametrize(("other_wait_ms", "is_bound"), [(8, True), (8.1, False)])
def test_a_buffer_that_is_filled_from_time_to_time_makes_few_steps_wait(
    other_wait_ms: float, is_bound: bool, tmp_path: Path
) -> None:
    """The buffer is empty in one of eight steps, which waits 56 ms: at least as long as the others together."""
    result, findings = buffered(
        tmp_path, work_ms=50, empty_steps=1, wait_ms=56, other_wait_ms=other_wait_ms
    )
    (row,) = result.hosts
    assert row.empty_step_ratio == 1 / 8
    assert row.empty_wait_ratio == pytest.approx(56 / (56 + 7 * other_wait_ms))
    assert ("input-bound" in findings) is is_bound
    if is_bound:
        bound = findings["input-bound"]
        assert (bound.cost_ps_per_step, bound.cost_statistic) == (ms(14), "mean")
        assert bound.steps == (0,)
        assert bound.title.endswith("; 56.0 ms in step 0")
        assert "empty_wait_ratio" in {item.metric for item in bound.evidence}


@pytest.mark.parametrize(("work_ms", "is_bound"), [(14, True), (1.7, False)])
def test_what_works_only_while_the_model_waits_is_compared_with_the_wait(
    work_ms: float, is_bound: bool, tmp_path: Path
) -> None:
    """The stage works 14 % of the window, and the model waits 56 of 800 ms."""
    result, findings = buffered(
        tmp_path, work_ms=work_ms, empty_steps=1, wait_ms=56, other_wait_ms=0.1
    )
    (row,) = result.hosts
    assert row.work_ratio == pytest.approx(work_ms / 100)
    assert row.work_of_wait_ratio == pytest.approx(8 * work_ms / 56.7)
    assert ("input-bound" in findings) is is_bound
    if is_bound:
        assert "work_of_wait_ratio" in {item.metric for item in findings["input-bound"].evidence}


@pytest.mark.parametrize(
    ("name", "work_ms", "silent_ms", "on_gpu", "cost_ms"),
    [
        # A generator holds Python's lock.
        ("Generator", 80, 20, True, 20),
        ("Generator", 80, 20, False, 20),
        ("Map", 80, 20, False, 4),
        ("Map", 80, 20, True, 4),
        ("Generator", 69.9, 20, False, 4),
        ("Generator", 80, 1, False, 4.8),
    ],
)
def test_a_pipeline_at_its_limit_hides_a_part_of_the_wait(
    name: str, work_ms: float, silent_ms: float, on_gpu: bool, cost_ms: float, tmp_path: Path
) -> None:
    _, findings = buffered(
        tmp_path,
        work_ms=work_ms,
        empty_steps=8,
        name=name,
        wait_ms=4,
        silent_ms=silent_ms,
        at_work=not on_gpu,
    )
    if cost_ms < 5:
        assert "input-bound" not in findings
        return
    bound = findings["input-bound"]
    assert bound.cost_ps_per_step == ms(cost_ms)
    assert "Python of the input pipeline holds Python's lock: 16.0 ms of" in bound.explanation


@pytest.mark.parametrize(
    ("name", "work_ms", "empty_steps", "returns_ms", "cost_ms"),
    [
        ("Generator", 80, 8, 20, 20.8),
        ("Map", 80, 8, 20, None),
        # Full buffers do not contradict it. Dispatch counts as well, all in the share that the generator works.
        ("Generator", 80, 0, 20, 16.8),
        ("Generator", 80, 0, 4.9, None),
        ("Generator", 69.9, 0, 20, None),
    ],
)
def test_a_generator_keeps_calls_of_tensorflow_from_returning(
    name: str,
    work_ms: float,
    empty_steps: int,
    returns_ms: float,
    cost_ms: float | None,
    tmp_path: Path,
) -> None:
    _, findings = buffered(
        tmp_path,
        work_ms=work_ms,
        empty_steps=empty_steps,
        name=name,
        wait_ms=4,
        returns_ms=returns_ms,
    )
    assert ("input-bound" in findings) is (cost_ms is not None)
    if cost_ms is not None:
        assert findings["input-bound"].cost_ps_per_step == ms(cost_ms)


@pytest.mark.parametrize("silent_ms", [20, 0])
@pytest.mark.parametrize(("load", "is_lock"), [(0.3, True), (0.02, False)])
def test_a_generator_that_waits_for_something_else_keeps_no_lock(
    silent_ms: float, load: float, is_lock: bool, tmp_path: Path
) -> None:
    """It works 80% of the window, by its calls; the thread of the step is silent, or does not return from TensorFlow."""
    _, findings = buffered(
        tmp_path,
        work_ms=80,
        empty_steps=8,
        name="Generator",
        wait_ms=6,
        silent_ms=silent_ms,
        returns_ms=20 - silent_ms,
        python_ms=(0, 80),
        load=load,
    )
    bound = findings["input-bound"]
    assert ("Python's lock" in bound.title) is is_lock
    assert bound.cost_ps_per_step == (
        ms(22) if silent_ms and is_lock else ms(22.8) if is_lock else ms(6)
    )


@pytest.mark.parametrize(
    ("name", "python_ms", "cost_ms"),
    [
        # The thread of the step is silent for 20 ms from the 4th on, and then in a call from whose 1st ms on it waits 20 ms.
        ("Generator", (0, 45), 40),
        ("Map", (0, 45), 40),
        ("Generator", (25, 35), 10),
        ("Generator", (4, 24), 20),
        # For the other 90 ms it is silent for 10: for as long, 1.11 of the 10 ms are usual.
        ("Generator", (4, 14), 8.889),
        # Less than a warning, and Python while nobody waits for its lock.
        ("Generator", (25, 29.9), None),
        ("Generator", (46, 90), None),
        ("Generator", None, None),
    ],
)
def test_python_of_a_pipeline_that_rests_keeps_the_lock_from_the_step(
    name: str, python_ms: tuple[float, float] | None, cost_ms: float | None, tmp_path: Path
) -> None:
    _, findings = buffered(
        tmp_path,
        work_ms=46,
        empty_steps=0,
        name=name,
        wait_ms=4,
        silent_ms=20,
        returns_ms=20,
        python_ms=python_ms,
    )
    assert ("input-bound" in findings) is (cost_ms is not None)
    if cost_ms is not None:
        bound = findings["input-bound"]
        assert bound.cost_ps_per_step == pytest.approx(ms(cost_ms), rel=1e-3)
        assert next(row for row in bound.evidence if row.metric == "work_ratio").threshold is None
        # The stage is named beside what the pipeline costs, not beside a wait that is much shorter.
        stage = {row.metric: row.value for row in findings["slow-input-stage"].evidence}
        assert stage["input_cost_ratio"] == bound.cost_ratio
        assert "input_ratio" not in stage


def test_python_that_keeps_the_lock_now_and_then_is_no_finding(tmp_path: Path) -> None:
    """A thread of the pipeline loses its core while it holds the lock: three of eight steps wait for 40 ms."""
    trace = new_trace(length_ms=1000)
    worker, executor = trace.thread("tf_data_iterator_resource", 40), trace.thread("tf_Compute", 41)
    for index, step in enumerate(steps_of_100(trace, 8)):
        step.host(WAIT, 0, 1)
        step.host("Iterator::Root", 0, 1, {"id": 1})
        fill = {"id": 2, "parent_id": 1, "buffer_limit": 2, "buffered_elements": 1}
        step.host("Iterator::Root::Prefetch", 0, 1, fill)
        step.host(
            "Iterator::Root::Prefetch::Generator", 1, 41, {"id": 3, "parent_id": 2}, thread=worker
        )
        held_ms = 40 if index < 3 else 0.1
        step.host("InstantiatedCapturedFunction::Run", 1, 1 + held_ms, {"id": 9}, thread=worker)
        step.host("PyFunc:PyFunc", 1, 1 + held_ms, thread=worker)
        step.host("TFE_Py_Execute", 1, 2 + held_ms)
        step.host("EagerExecute", 1, 1.05)
        step.host("FunctionRun", 2 + held_ms, 100)
        step.host("replica_0/x:MatMul", 2 + held_ms, 100, thread=executor)
    trace.write(tmp_path)
    assert "input-bound" not in {row.code for row in traceview.analyze(tmp_path).findings}


def test_calls_that_still_run_are_no_buffer(tmp_path: Path) -> None:
    trace = new_trace(length_ms=1000)
    for step in steps_of_100(trace):
        step.host(WAIT, 0, 40)
        running = {"id": 2, "parallelism": 2, "buffered_elements": 2}
        step.host("Iterator::Root::ParallelMapV2", 0, 40, running)
        step.host("Iterator::Root::ParallelMapV2::Range", 0, 39, {"id": 3, "parent_id": 2})
    result, _ = examined(trace, tmp_path)
    assert result.hosts[0].slowest_stage == "Iterator::Root::ParallelMapV2::Range"
    assert result.hosts[0].empty_step_ratio is None


def test_a_generator_is_not_helped_by_prefetch(tmp_path: Path) -> None:
    trace = new_trace(length_ms=1000)
    for step in steps_of_100(trace):
        step.host(WAIT, 0, 40)
        step.host("Iterator::Root::BatchV2", 0, 40, {"id": 2})
        step.host("Iterator::Root::BatchV2::Generator", 0, 39, {"id": 3, "parent_id": 2})
    result, findings = examined(trace, tmp_path)
    assert result.missing == ("prefetch",)
    assert set(findings) == {"input-bound", "slow-input-stage"}
    advice = findings["input-bound"].advice
    assert advice.startswith("Do the work in ops of TensorFlow, dataset.map(function")
    assert "prefetch alone does not help" in advice


@pytest.mark.parametrize(
    ("path", "missing"),
    [
        ("Root::Map", ("prefetch", "parallel_map")),
        ("Root::Prefetch::Range", ()),
        ("Model::Prefetch::Range", ()),
        ("Root::MaxIntraOpParallelism::PrivateThreadPool::Options::ParallelMapV2", ()),
        ("Root::ForeverRepeat::Prefetch::Range", ()),
        ("Root::FiniteTake::Shuffle", ("prefetch",)),
        ("Prefetch::Map", ("parallel_map",)),
    ],
)
def test_prefetch_is_recognised_below_wrappers(
    path: str, missing: tuple[str, ...], tmp_path: Path
) -> None:
    trace = new_trace(length_ms=1000)
    for step in steps_of_100(trace):
        step.host(WAIT, 0, 40)
        step.host(f"Iterator::{path}", 0, 40, {"id": 2, "buffer_limit": 3})
    result, _ = examined(trace, tmp_path)
    assert result.missing == missing


@pytest.mark.parametrize(
    ("calls", "advice"), [(1, "Map in parallel"), (2, "fills the buffer of the shuffle")]
)
def test_what_fills_a_shuffle_is_blamed_on_the_shuffle(
    calls: int, advice: str, tmp_path: Path
) -> None:
    trace = new_trace(length_ms=1000)
    for step in steps_of_100(trace):
        step.host(WAIT, 0, 40)
        step.host("Iterator::Root::Shuffle", 0, 40, {"id": 2})
        for call in range(calls):
            made = {"id": 3, "parent_id": 2}
            step.host("Iterator::Root::Shuffle::Map", 15 * call, 15 * call + 38 / calls, made)
    result, _ = examined(trace, tmp_path)
    assert result.bottleneck is not None
    assert result.bottleneck.kind == "Map"
    assert advice in result.bottleneck.advice


def gpu_run(folder: Path) -> tuple[Trace, Selection]:
    trace = new_trace()
    for step in marked_steps(trace):
        step.host(WAIT, 1, 31)
        for ordinal in (0, 1):
            step.kernel(ordinal, 32, 42, launch_ms=31.5)
    return loaded(trace, folder)


def test_with_gpus_the_wait_is_the_idle_time_of_the_device_that_waits_most(tmp_path: Path) -> None:
    trace, selection = gpu_run(tmp_path)
    idle = {0: np.array([ms(5)] * 4), 1: np.array([ms(10), ms(10), ms(10), ms(2)])}
    result = compute(trace, selection, idle)
    assert isinstance(result, Input)
    assert [step.wait_ps for step in result.steps] == [ms(10), ms(10), ms(10), ms(5)]
    assert (result.input_ratio, result.hosts[0].device) == (0.2, "GPU:1")
    assert [finding.code for finding in diagnose(result, selection)] == ["input-bound"]
    assert diagnose(result, selection, []) == []


def test_with_gpus_and_no_causes_there_is_no_ratio(tmp_path: Path) -> None:
    trace, selection = gpu_run(tmp_path)
    result = compute(trace, selection, {})
    assert isinstance(result, Input)
    assert (result.input_ratio, result.verdict) == (None, None)
    assert result.reason
    assert diagnose(result, selection) == []


def test_without_an_iterator_there_is_nothing_to_say(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 42)
    result = compute(*loaded(trace, tmp_path), {})
    assert isinstance(result, Skipped)


def test_without_steps_the_ratio_is_of_the_window(tmp_path: Path) -> None:
    trace = new_trace(length_ms=100)
    Step(trace, 0).host(WAIT, 10, 60)
    result, findings = examined(trace, tmp_path)
    assert result.input_ratio == 0.5
    assert result.hosts[0].wait_per_step_ps is None
    assert (findings["input-bound"].severity, findings["input-bound"].confidence) == ("info", "low")


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("Map", "num_parallel_calls"),
        ("ParallelMapV2", "batch"),
        ("TFRecord", "interleave"),
        ("Generator", "generator"),
        ("Shuffle", "shuffle"),
        ("ShuffleAndRepeat", "shuffle"),
        ("BatchV2", "batch"),
        ("FlatMap", "interleave"),
        ("ParallelInterleaveV4", "cycle_length"),
        ("FilterV2", "filter"),
        ("MemoryCacheImpl", "cache"),
        ("ForeverRepeat", "batch"),
        ("Unheard", "prefetch"),
    ],
)
def test_advice_names_the_call_to_change(kind: str, call: str) -> None:
    assert call in advice_for(kind, None)


def test_advice_for_a_parallel_stage_that_runs_one_call() -> None:
    assert advice_for("MapAndBatch", 1) == (
        "The stage runs one call at a time: num_parallel_calls=tf.data.AUTOTUNE. "
        + advice_for("MapAndBatch", 8)
    )


def test_one_limit_says_when_input_matters() -> None:
    share = INPUT_BOUND.limits["warning_ratio"]
    assert NO_PREFETCH.limits["input_ratio"] == SLOW_INPUT_STAGE.limits["input_ratio"] == share
    assert REPLICA_STARVED.start == (
        "a shard is late by at least 5.0% of the step, in at least 60.0% of the steps"
    )


def test_the_table_may_be_cut(tmp_path: Path) -> None:
    SCENARIOS["slow_map"]().write(tmp_path)
    trace = load(tmp_path)
    result = compute(trace, select(trace), {}, 1)
    assert isinstance(result, Input)
    assert (len(result.stages), result.stage_count, result.left_out_count) == (1, 4, 3)
    assert len(trace.input_stages) == 4
