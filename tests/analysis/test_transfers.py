"""Tests that copies are measured as defined, attributed to what issued them, and found where they hold up a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.cuda_trace import CudaTrace, Ref, Stats
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from tests.analysis.made import analyzed, loss_of
from traceview.analysis.measures.device_report import COPIES, ActivityTime
from traceview.report.model import Report


def copies_of(report: Report) -> list[ActivityTime]:
    """What the first GPU copies, by direction."""
    assert report.results.device_time is not None
    activity = report.results.device_time.devices[0].activity
    assert activity is not None
    return [activity[way] for way in COPIES]


def one_step() -> tuple[CudaTrace, Step]:
    """A trace of one step without a marker of its own; its window is that of the device events."""
    trace = new_trace()
    return trace, Step(trace, 0)


# Measures


def test_what_is_not_recorded_is_not_zero(tmp_path: Path) -> None:
    """Neither the size of a copy nor the memory it comes from is known."""
    trace, step = one_step()
    step.copy(0, "H2D", 1, 2, size=None)
    step.copy(0, "D2H", 3, 4, size=1000, details=Ref("size:1000 dest:0 async:1"))
    step.copy(0, "D2H", 5, 6, size=1000, host_kind="pageable")
    step.copy(0, "D2D", 7, 8, size=1000)
    step.copy(0, "D2D", 9, 10, size=None)
    step.kernel(0, 11, 12)
    h2d, d2h, d2d = copies_of(analyzed(tmp_path, trace))
    assert (h2d.count, h2d.bytes, h2d.bytes_per_second) == (1, None, None)
    # Speed needs every size.
    assert (d2h.bytes, d2h.bytes_per_second) == (2000, 1_000_000)
    assert (d2d.count, d2d.bytes, d2d.bytes_per_second) == (2, 1000, None)


# Sources


def test_sources_share_the_exposed_time_without_counting_it_twice(tmp_path: Path) -> None:
    """Two ops copy at once: the one that began first has the time in which both did."""
    trace, step = one_step()
    executor = trace.thread("tf_Compute", 9)
    named: Stats = {"tf_op": Ref("replica_1/model/x:_Recv")}
    step.copy(0, "H2D", 1, 4, size=10, stats=named)
    step.copy(0, "H2D", 2, 6, size=20, stream=22, stats={"tf_op": Ref("model/y:_Recv")})
    step.copy(0, "H2D", 2, 3, size=5, stream=23, stats={"tf_op": Ref("model/x:_Recv")})
    step.host("model/z:Assign", 6.5, 7.5, thread=executor)
    number = trace.copy(0, "H2D", ms(8), ms(9), size=1)
    trace.launch("MemcpyH2D", ms(7), number, thread=executor)
    step.kernel(0, 5, 8.5)
    step.kernel(0, 10, 11)
    report = analyzed(tmp_path, trace)
    assert report.results.transfers is not None
    assert [
        (s.op, s.op_type, s.thread, s.count, s.bytes, s.total_ps, s.exposed_ps)
        for s in report.results.transfers.sources
    ] == [
        ("model/x", "_Recv", "python3", 2, 15, ms(4), ms(3)),
        ("model/y", "_Recv", "python3", 1, 20, ms(4), ms(1)),
        ("model/z", "Assign", "tf_Compute/9", 1, 1, ms(1), ms(0.5)),
    ]
    assert copies_of(report)[0].exposed_ps == ms(4.5)


# Findings


@pytest.mark.parametrize(
    ("way", "code", "verb"),
    [
        ("H2D", "h2d-exposed", "waits"),
        ("D2H", "d2h-copies", "spends"),
        ("D2D", "d2d-copies", "spends"),
    ],
)
@pytest.mark.parametrize(
    ("exposed_ms", "severity"), [(2.49, None), (2.5, "warning"), (10, "critical")]
)
def test_copies_that_no_compute_covers(
    way: str, code: str, verb: str, exposed_ms: float, severity: str | None, tmp_path: Path
) -> None:
    trace = new_trace()
    for step in marked_steps(trace, marker_ms=50):
        step.kernel(0, 0, 20)
        step.copy(0, way, 15, 20 + exposed_ms, size=100_000, host_kind="pinned")
    report = analyzed(tmp_path, trace)
    found = [row for row in report.findings if row.code.startswith(("h2d", "d2"))]
    assert [(row.code, row.severity) for row in found] == [(code, severity)] * bool(severity)
    for row in found:
        assert row.devices == ("GPU:0",)
        assert loss_of(row).gpu_time_ps == 4 * ms(exposed_ms)
        assert loss_of(row).states == (way.lower(),)
        assert row.confidence == "high"
        assert severity != "critical" or row.title.startswith(
            f"GPU:0 {verb} 10.0 of 50.0 ms (20%) "
        )


# Whole traces


def test_xla_copies_to_devices_of_the_cpu(tmp_path: Path) -> None:
    """Of each 50 ms a thread of XLA copies for 29, after the call that asked for it has returned."""
    trace = new_trace()
    client, device = trace.thread("client", 70), trace.thread("device0", 71)
    for step in marked_steps(trace):
        step.host("DevicePutWithSharding", 0.1, 0.5)
        step.host("H2D Dispatch", 1, 30, thread=client)
        step.host("PjitFunction(step)", 0.5, 0.9)
        stats = {"device_ordinal": 0, "hlo_module": "jit_step", "program_id": 1}
        step.host("dot.1", 30, 45, stats, thread=device)
    findings = {finding.code: finding for finding in analyzed(tmp_path, trace).findings}
    assert findings["h2d-exposed"].title == "CPU:0 waits 29.0 of 50.0 ms (58%) for HtoD copies"
    assert findings["h2d-exposed"].action.startswith(
        "Keep on the devices what later steps need again"
    )


@pytest.mark.parametrize(
    ("is_read_beside", "read_ms", "title"),
    [
        (False, 10, "CPU:0 waits 20.0 of 50.0 ms (40%) for HtoD copies"),
        (False, 25, ""),
        (True, 10, ""),
    ],
)
def test_arrays_that_get_another_sharding_by_way_of_the_host(
    is_read_beside: bool, read_ms: float, title: str, tmp_path: Path
) -> None:
    """A call of 20 ms that puts arrays on the devices reads them first; not so a read after it, or of another thread."""
    trace = new_trace()
    other, device = trace.thread("other", 70), trace.thread("device0", 71)
    for step in marked_steps(trace):
        step.host("shard_args", 0, 20)
        step.host(
            "np.asarray(jax.Array)", read_ms, read_ms + 2, thread=other if is_read_beside else None
        )
        step.host("PjitFunction(step)", 28, 30)
        stats = {"device_ordinal": 0, "hlo_module": "jit_step", "program_id": 1}
        step.host("dot.1", 30, 50, stats, thread=device)
    found = next(
        (row for row in analyzed(tmp_path, trace).findings if row.code == "h2d-exposed"), None
    )
    assert (found is not None) == bool(title)
    if found is not None:
        assert found.title == title
        assert found.action.startswith("Keep the sharding that arrays have")
