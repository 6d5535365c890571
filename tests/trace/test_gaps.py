"""Every gap is attributed to the cause that was written into it. Times are microseconds; the gap is 100 to 200."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.cuda_trace import US, CudaTrace
from tests.gap_causes import causes_of_gaps
from traceview.analysis.facts.run import Run
from traceview.analysis.facts.selection import select
from traceview.trace.reading.load import load
from traceview.trace.state import State


@pytest.mark.parametrize(
    ("launch", "call", "launched_before", "takes_input", "expected"),
    [
        # Less than 20 µs in the queue is latency.
        (180, 5, None, True, {"input": 80, "dependency": 20}),
        (180.000001, 5, None, True, {"input": 80.000001, "latency": 19.999999}),
        # A launch call that blocks is the host's time.
        (50, 120, None, False, {"launch": 70, "dependency": 30}),
        (50, 19.9, None, False, {"dependency": 100}),
        # Holes of 100 µs between launches are launching.
        (190, 5, 85, False, {"launch": 100}),
        (190, 5, 84, False, {"unknown": 90, "latency": 10}),
    ],
)
def test_what_a_gap_is_for(
    launch: float,
    call: float,
    launched_before: float | None,
    takes_input: bool,
    expected: dict[str, float],
    tmp_path: Path,
) -> None:
    """Kernels on GPU:0 run from 0 to 100, and from 200 to 300 after a launch that takes `call`."""
    trace = CudaTrace()
    trace.kernel(0, 0, 100 * US)
    launches = [(launch, trace.kernel(0, 200 * US, 300 * US), call)]
    if launched_before is not None:
        launches.append((launched_before, trace.kernel(0, 90 * US, 91 * US), 5))
    for at, number, took in launches:
        trace.launch("cuLaunchKernel", round(at * US), number, duration_ps=round(took * US))
    if takes_input:
        trace.host_event("IteratorGetNext:IteratorGetNext", 100 * US, 200 * US)
    trace.write(tmp_path)
    loaded = load(tmp_path)
    gaps = Run(loaded, select(loaded)).idle.gaps[0]
    parts = causes_of_gaps(gaps)
    assert gaps.count == 1
    assert {cause.key: parts[cause, 0] / US for cause in State if parts[cause, 0]} == expected
