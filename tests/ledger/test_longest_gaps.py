"""Gaps among the ten longest of each real recording say what was recounted by hand from the bytes of the files.

For each gap the next event of the device was looked up, the driver call with its correlation id, the thread of that call
(or whose events hold all calls of that line), and what the thread, and the one that hands work to it, had open meanwhile.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import traceview
from traceview.analysis.measures.idle_report import Gap
from traceview.report.model import Report

pytestmark = pytest.mark.shared


class Said(NamedTuple):
    """A gap, its bounds in milliseconds, its main state with the least share of it, and the event that has to be named.

    `event`: of the thread that was late: open in the gap, or the last before it if nothing was.
    """

    device: str
    start_ms: float
    length_ms: float
    state: str
    ratio: float
    event: str


# The main thread waits in `try_to_block` until 137.5 ms, while `BufferSequencingEvent::Execute` is open on the pool.
_BLOCKED = "$api.py:3154 block_until_ready"
_ALLOCATES = "Build buffer allocations"
_COPY = "MemcpyH2D"
GAPS = {
    "jax-8xMI300X": (
        Said("GPU:5", 93.691, 45.342, "sync", 0.96, _BLOCKED),
        Said("GPU:0", 93.415, 44.541, "sync", 0.98, _BLOCKED),
        Said("GPU:7", 94.016, 44.258, "sync", 0.98, _BLOCKED),
        # All calls of `Host Threads/583` lie in events of `py_xla_execute/-1472…`, which allocates for 34.5 ms.
        Said("GPU:0", 2.076, 43.281, "host_ops", 0.99, _ALLOCATES),
        Said(
            "GPU:1", 28.128, 34.223, "host_ops", 0.59, "PjRtStreamExecutorLoadedExecutable::Execute"
        ),
    ),
    # `run_gemms` makes arrays between two calls: in Python of the script, and in small calls of JAX.
    "jax-gemm-1of8": (
        Said("GPU:0", 6.922, 0.274, "python", 0.6, "$array_creation.py:98 ones"),
        Said("GPU:0", 7.459, 0.234, "python", 0.5, "$array_creation.py:98 ones"),
        Said("GPU:0", 9.529, 0.224, "launch", 0.9, "$lax.py:3378 full"),
        Said("GPU:0", 2.280, 0.155, "launch", 0.9, "$lax.py:3378 full"),
        Said("GPU:0", 3.215, 0.153, "launch", 0.9, "$array_creation.py:98 ones"),
    ),
    # `python3` copies constants of the graph (op MakeTensorFromProto) and records nothing in between.
    "bert-8xV100": (
        Said("GPU:6", 2113.092, 368.332, "compile", 0.99, _COPY),
        Said("GPU:4", 1909.439, 11.861, "compile", 0.6, _COPY),
        Said("GPU:1", 2763.464, 11.615, "no_work", 1.0, ""),
        Said("GPU:4", 1889.148, 10.958, "compile", 0.99, _COPY),
        # The same, until the executor of replica 6 begins; its call was recorded 642 ms before.
        Said("GPU:6", 2558.255, 10.600, "compile", 0.6, ""),
        Said("GPU:6", 2527.879, 10.117, "compile", 0.99, _COPY),
    ),
}


@cache
def analyzed(folder: Path) -> Report:
    return traceview.analyze(folder, window="devices")


@pytest.mark.parametrize(
    ("name", "said"), [pytest.param(name, row) for name, rows in GAPS.items() for row in rows]
)
def test_what_is_said_of_a_gap(name: str, said: Said, shared_traces: Path) -> None:
    gap = gap_of(analyzed(shared_traces / name), said)
    assert gap.duration_ps == pytest.approx(said.length_ms * 1e9, abs=1e6)
    assert gap.state == said.state
    assert gap.states[said.state] >= said.ratio * gap.duration_ps
    if said.event:
        assert said.event in (gap.host_event, gap.previous_event)


def gap_of(report: Report, said: Said) -> Gap:
    assert report.results.idle is not None
    (gap,) = (
        gap
        for row in report.results.idle.devices
        for gap in row.gaps
        if row.device == said.device and round(gap.start_ps / 1e9, 3) == said.start_ms
    )
    return gap


def test_what_the_host_waits_for_is_named(shared_traces: Path) -> None:
    """The GPUs had finished 44 ms before the wait ended; then the sentence does not say that it waits for them."""
    report = analyzed(shared_traces / "jax-8xMI300X")
    assert report.verdict.headline.endswith("the host stays blocked after they are done.")


def test_lines_of_python_are_of_the_script(shared_traces: Path) -> None:
    """Frames of JAX alone name no line of the user; where the script was recorded, its function does."""
    for name, line in (
        ("jax-8xMI300X", None),
        ("jax-gemm-1of8", "generate_gemm_trace.py:31 in run_gemms"),
    ):
        gap = gap_of(analyzed(shared_traces / name), GAPS[name][0])
        assert gap.python == line
