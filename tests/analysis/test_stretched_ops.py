"""What a replica loses to a pipeline that takes cores from it: its share of them, while there are too few for all.

Steps of 100 ms: 10 ms wait, and ops and dispatch of one thread for 90 ms. Two threads of the pipeline and that one share two
cores: each goes without a third of one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.python_sidecars import native_threads
from traceview.analysis.rules.finding import Finding

WAIT_MS = 10
TAKEN_MS = 90 // 3
"""Where a batch is ready, asking for it is dispatch, of which a third is taken as well."""
OF_OPS_MS = 85 / 3
"""Without the dispatch of 5 ms."""
CLOSE_PS = 20
"""Each row is rounded down."""


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
    for step in marked_steps(trace, count=6, period_ms=100, marker_ms=100):
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
        first_ms = WAIT_MS + 10
        second_ms = first_ms + 5
        end_ms = second_ms + 20
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


def lost_ps(finding: Finding) -> int | None:
    return finding.loss.ps_per_step if finding.loss else None


def measured(finding: Finding, metric: str) -> float | str | int | None:
    return next((row.value for row in finding.evidence if row.metric == metric), None)


@pytest.mark.parametrize("work", ["decode:DecodePng", "ExecutorState::Process", "PyFunc:PyFunc"])
def test_the_cores_that_the_pipeline_takes_are_part_of_the_cost(work: str, tmp_path: Path) -> None:
    finding = crowded(tmp_path, work=work)
    assert finding is not None
    assert lost_ps(finding) == pytest.approx(ms(WAIT_MS + TAKEN_MS), abs=CLOSE_PS)
    assert measured(finding, "slowed_ops_ps") == pytest.approx(ms(OF_OPS_MS), abs=CLOSE_PS)
    assert finding.title.startswith("replica:0 waits 40.0 of 100 ms (40%) for input")
    assert "The pipeline keeps about 2 cores busy" in finding.explanation


def test_a_python_function_that_computes_takes_a_core(tmp_path: Path) -> None:
    finding = crowded(tmp_path, work="PyFunc:PyFunc", load=0.3)
    assert finding is not None
    assert measured(finding, "slowed_ops_ps") == pytest.approx(ms(OF_OPS_MS), abs=CLOSE_PS)


def test_a_python_function_that_waits_takes_no_core(tmp_path: Path) -> None:
    finding = crowded(tmp_path, work="PyFunc:PyFunc", load=0.02)
    assert finding is not None
    # Nobody sampled it before the first round.
    assert lost_ps(finding) == pytest.approx(ms(WAIT_MS), abs=ms(0.1))


def test_an_op_on_a_thread_that_waits_in_python_takes_a_core(tmp_path: Path) -> None:
    """The samples are of Python, and the op is none."""
    finding = crowded(tmp_path, load=0.02)
    assert finding is not None
    assert measured(finding, "slowed_ops_ps") == pytest.approx(ms(OF_OPS_MS), abs=CLOSE_PS)


@pytest.mark.parametrize(
    ("cores", "pipeline_threads", "other_threads"),
    [
        # Enough cores for all; cores that nobody recorded; a model that alone has more threads than cores.
        (4, 2, 0),
        (2, 1, 0),
        (None, 2, 0),
        (2, 2, 3),
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
    assert measured(finding, "slowed_ops_ps") == pytest.approx(ms(OF_OPS_MS), abs=CLOSE_PS)


def test_a_gpu_needs_no_core(tmp_path: Path) -> None:
    finding = crowded(tmp_path, is_on_gpu=True)
    assert finding is not None
    assert lost_ps(finding) == ms(WAIT_MS)


def test_a_pipeline_that_is_ahead_takes_cores_as_well(tmp_path: Path) -> None:
    finding = crowded(tmp_path, empty=False)
    assert finding is not None
    assert lost_ps(finding) == pytest.approx(ms(TAKEN_MS + WAIT_MS / 3), abs=CLOSE_PS)
    title = "replica:0 loses 33.3 of 100 ms (33%) to the cores that the input pipeline takes: Map"
    assert finding.title == title


def test_what_hands_on_the_results_of_a_function_is_work(tmp_path: Path) -> None:
    finding = crowded(tmp_path, empty=False, work="ExecutorDoneCallback")
    assert finding is not None
    assert lost_ps(finding) == pytest.approx(ms(TAKEN_MS + WAIT_MS / 3), abs=CLOSE_PS)


def test_what_another_replica_waits_meanwhile_is_part_of_the_cost(tmp_path: Path) -> None:
    """Of six steps two have an op of 20 ms more on one replica; the other one comes to the all-reduce and waits for it.

    Each of two threads of both the pipeline and the model has half of a core; beside one replica alone each has two thirds.
    """
    trace = new_trace(length_ms=1000)
    reader = trace.thread("tf_data_iterator_resource", 40)
    workers = trace.thread("tf_data_private", 50), trace.thread("tf_data_private", 51)
    executors = trace.thread("tf_Compute", 41), trace.thread("tf_Compute", 42)
    for index, step in enumerate(marked_steps(trace, count=6, period_ms=100, marker_ms=100)):
        step.host("IteratorGetNextOp::DoCompute", 0, WAIT_MS)
        step.host("Iterator::Root::Prefetch", 0, 10, {"id": 2, "buffer_limit": 2})
        made = {"id": 3, "parent_id": 2}
        step.host("Iterator::Root::Prefetch::Map", 0, 99, made, thread=reader)
        for number, worker in enumerate(workers):
            run = {"id": 900 + number}
            step.host("InstantiatedCapturedFunction::Run", 0, 100, run, thread=worker)
            step.host("decode:DecodePng", 0, 100, thread=worker)
        step.host("FunctionRun", WAIT_MS, 100)
        for replica, thread in enumerate(executors):
            until_ms = 40
            step.host(f"replica_{replica}/x:MatMul", WAIT_MS, until_ms, thread=thread)
            if index % 3 == 2 and replica == 0:
                until_ms = 60
                step.host(f"replica_{replica}/y:Conv2D", 40, until_ms, thread=thread)
            reduce = f"replica_{replica}/CollectiveReduceV2:CollectiveReduceV2"
            step.host(reduce, until_ms, 90, thread=thread)
    written = trace.write(tmp_path)
    sidecar = written.with_name(written.name.replace(".xplane.pb", ".traceview.json"))
    sidecar.write_text(
        json.dumps({"schema_version": 1, "cores": {"machine_count": 8, "usable_count": 2}})
    )
    (finding,) = (row for row in traceview.analyze(tmp_path).findings if row.code == "input-bound")
    waited_ms, dispatch_ms = 20 / 3 * 2 / 6, 10 / 3
    lost_ms = WAIT_MS + 15 + dispatch_ms + waited_ms
    assert lost_ps(finding) == pytest.approx(ms(lost_ms), abs=CLOSE_PS)
    assert finding.title.startswith("Both replicas wait 30.6 of 100 ms (31%) for input")
