"""What a replica loses to a pipeline that takes cores from it: what takes longer than usual, or its share of the cores.

Steps of 100 ms: 10 ms wait, and on two cores an op of 10 ms, 5 ms of dispatch and an op of 20 ms. In the last one of each
three steps both ops take 8 ms longer and the dispatch 4 ms.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import traceview
from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.analysis.made import lost_ps
from tests.python_sidecars import native_threads
from traceview.analysis.facts.pipeline_threads import beyond_median
from traceview.analysis.rules.finding import Finding

WAIT_MS = 10


def crowded(
    folder: Path,
    *,
    cores: int | None = 2,
    pipeline_threads: int = 2,
    other_threads: int = 0,
    is_on_gpu: bool = False,
    empty: bool = True,
    work: str = "decode:DecodePng",
    load: float | None = None,
) -> Finding | None:
    """Six steps beside a pipeline that works on some threads all the time; `other_threads` of the model run an op too.

    `load`: the part of a core that each thread of the pipeline uses, in a function of the script that was sampled.
    """
    trace = new_trace(length_ms=1000)
    reader = trace.thread("tf_data_iterator_resource", 40)
    workers = [trace.thread("tf_data_private", 50 + n) for n in range(pipeline_threads)]
    executor = trace.thread("tf_Compute", 41)
    others = [trace.thread("tf_Compute", 60 + n) for n in range(other_threads)]
    for index, step in enumerate(marked_steps(trace, count=6, period_ms=100, marker_ms=100)):
        late_ms, between_ms = (8, 4) if index % 3 == 2 else (0, 0)
        step.host("IteratorGetNextOp::DoCompute", 0, WAIT_MS)
        fill = {} if empty else {"buffered_elements": 1}
        step.host("Iterator::Root::Prefetch", 0, 10, {"id": 2, "buffer_limit": 2, **fill})
        made = {"id": 3, "parent_id": 2}
        step.host("Iterator::Root::Prefetch::Map", 0, 99, made, thread=reader)
        for number, worker in enumerate(workers):
            run = {"id": 900 + number}
            step.host("InstantiatedCapturedFunction::Run", 0, 100, run, thread=worker)
            step.host(work, 0, 100, thread=worker)
        step.host("FunctionRun", WAIT_MS, 100)
        for other in others:
            step.host("replica_0/side:Add", WAIT_MS, 100, thread=other)
        first_ms = WAIT_MS + 10 + late_ms
        second_ms = first_ms + 5 + between_ms
        end_ms = second_ms + 20 + late_ms
        for name, start_ms, until_ms in (
            ("replica_0/x:MatMul", WAIT_MS, first_ms),
            ("replica_0/y:Conv2D", second_ms, end_ms),
            ("replica_0/z:Relu", end_ms, 100),
        ):
            if is_on_gpu:
                step.kernel(0, start_ms, until_ms, launch_ms=start_ms)
            else:
                step.host(name, start_ms, until_ms, thread=executor)
    written = trace.write(folder)
    if cores is not None:
        sidecar = written.with_name(written.name.replace(".xplane.pb", ".traceview.json"))
        facts: dict[str, Any] = {
            "schema_version": 1,
            "cores": {"machine_count": 8, "usable_count": cores},
        }
        if load is not None:
            facts["python"] = native_threads(
                [50 + n for n in range(pipeline_threads)], length_ms=600, load=load
            )
        sidecar.write_text(json.dumps(facts))
    report = traceview.analyze(folder)
    return next((row for row in report.findings if row.code == "input-bound"), None)


def measured(finding: Finding, metric: str) -> float | str | int | None:
    return next((row.value for row in finding.evidence if row.metric == metric), None)


@pytest.mark.parametrize("work", ["decode:DecodePng", "ExecutorState::Process"])
def test_what_takes_longer_than_usual_is_part_of_the_cost(work: str, tmp_path: Path) -> None:
    finding = crowded(tmp_path, work=work)
    assert finding is not None
    # In two of six steps two ops take 8 ms longer, and the dispatch 4 ms: Relu ends where it always does.
    assert lost_ps(finding) == ms(WAIT_MS) + (2 * ms(16) + 2 * ms(4)) // 6
    assert measured(finding, "slowed_ops_ps") == 2 * ms(16) // 6
    assert finding.title.startswith("replica:0 waits 16.7 of 100 ms (17%) for input")
    assert "Its threads work 200% of the window, added up" in finding.explanation


@pytest.mark.parametrize("load", [None, 0.3])
def test_a_python_function_that_computes_takes_a_core(load: float | None, tmp_path: Path) -> None:
    """Also one whose processor time nobody recorded."""
    finding = crowded(tmp_path, work="PyFunc:PyFunc", load=load)
    assert finding is not None
    assert measured(finding, "slowed_ops_ps") == 2 * ms(16) // 6


def test_a_python_function_that_waits_takes_no_core(tmp_path: Path) -> None:
    finding = crowded(tmp_path, work="PyFunc:PyFunc", load=0.02)
    assert finding is not None
    assert lost_ps(finding) == ms(WAIT_MS)


def test_an_op_on_a_thread_that_waits_in_python_takes_a_core(tmp_path: Path) -> None:
    """The samples are of Python, and the op is none."""
    finding = crowded(tmp_path, load=0.02)
    assert finding is not None
    assert measured(finding, "slowed_ops_ps") == 2 * ms(16) // 6


@pytest.mark.parametrize(
    ("cores", "pipeline_threads", "other_threads"),
    [
        # Enough cores for all; cores that nobody recorded; a model that alone has more threads than cores.
        (4, 2, 0),
        (2, 1, 0),
        (None, 2, 0),
        (2, 2, 2),
    ],
)
def test_where_the_pipeline_does_not_take_cores_only_the_wait_is_lost(
    cores: int | None, pipeline_threads: int, other_threads: int, tmp_path: Path
) -> None:
    finding = crowded(
        tmp_path, cores=cores, pipeline_threads=pipeline_threads, other_threads=other_threads
    )
    assert finding is not None
    assert lost_ps(finding) == ms(WAIT_MS)


def test_all_threads_of_the_model_need_cores(tmp_path: Path) -> None:
    """One thread of the pipeline leaves a core for one thread of the model, but not for two."""
    finding = crowded(tmp_path, pipeline_threads=1, other_threads=1)
    assert finding is not None
    assert measured(finding, "slowed_ops_ps") == 2 * ms(16) // 6


def test_a_gpu_needs_no_core(tmp_path: Path) -> None:
    finding = crowded(tmp_path, is_on_gpu=True)
    assert finding is not None
    assert lost_ps(finding) == ms(WAIT_MS)


@pytest.mark.parametrize("work", ["decode:DecodePng", "ExecutorDoneCallback"])
def test_a_pipeline_that_is_ahead_costs_its_share_of_the_cores(work: str, tmp_path: Path) -> None:
    """Two threads of it and one of the model share two cores: each goes without a third of one."""
    finding = crowded(tmp_path, empty=False, work=work)
    assert finding is not None
    # Each row is rounded down.
    assert lost_ps(finding) == pytest.approx(ms(100 / 3), abs=20)
    title = "replica:0 loses 33.3 of 100 ms (33%) to the cores that the input pipeline takes: Map"
    assert finding.title == title


def test_a_pipeline_that_is_ahead_and_leaves_cores_costs_nothing(tmp_path: Path) -> None:
    assert crowded(tmp_path, empty=False, pipeline_threads=1) is None


def test_the_median_is_of_things_with_the_same_key() -> None:
    key = np.array([7, 3, 7, 3, 7, -1, 5, -1], dtype=np.int64)
    length = np.array([10, 1, 14, 4, 11, 99, 6, 10], dtype=np.int64)
    assert beyond_median(key, length).tolist() == [0, 0, 3, 2, 0, 0, 0, 0]
    assert beyond_median(key[:0], length[:0]).tolist() == []


def test_what_another_replica_waits_meanwhile_is_part_of_the_cost(tmp_path: Path) -> None:
    """Of six steps two make an op of one replica 20 ms longer; the other one comes to the all-reduce and waits for it."""
    trace = new_trace(length_ms=1000)
    reader, worker = (
        trace.thread("tf_data_iterator_resource", 40),
        trace.thread("tf_data_private", 50),
    )
    executors = trace.thread("tf_Compute", 41), trace.thread("tf_Compute", 42)
    for index, step in enumerate(marked_steps(trace, count=6, period_ms=100, marker_ms=100)):
        step.host("IteratorGetNextOp::DoCompute", 0, WAIT_MS)
        step.host("Iterator::Root::Prefetch", 0, 10, {"id": 2, "buffer_limit": 2})
        made = {"id": 3, "parent_id": 2}
        step.host("Iterator::Root::Prefetch::Map", 0, 99, made, thread=reader)
        step.host("InstantiatedCapturedFunction::Run", 0, 100, {"id": 900}, thread=worker)
        step.host("decode:DecodePng", 0, 100, thread=worker)
        step.host("FunctionRun", WAIT_MS, 100)
        for replica, thread in enumerate(executors):
            until_ms = 60 if index % 3 == 2 and replica == 0 else 40
            step.host(f"replica_{replica}/x:MatMul", WAIT_MS, until_ms, thread=thread)
            reduce = f"replica_{replica}/CollectiveReduceV2:CollectiveReduceV2"
            step.host(reduce, until_ms, 90, thread=thread)
    written = trace.write(tmp_path)
    sidecar = written.with_name(written.name.replace(".xplane.pb", ".traceview.json"))
    sidecar.write_text(
        json.dumps({"schema_version": 1, "cores": {"machine_count": 8, "usable_count": 2}})
    )
    (finding,) = (row for row in traceview.analyze(tmp_path).findings if row.code == "input-bound")
    assert lost_ps(finding) == ms(WAIT_MS) + 2 * ms(20) // 6
    assert finding.title.startswith("Both replicas wait 16.7 of 100 ms (17%) for input")
