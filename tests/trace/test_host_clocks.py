"""The clocks of several hosts are aligned by shared collectives, and stay as recorded without clear evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.cuda_trace import PROFILE_START_NS, CudaTrace
from scripts.scenarios.collectives import all_reduce
from scripts.scenarios.model import marked_steps
from tests.trace.recordings import loaded
from traceview.api import Trace

MS = 10**9


def worker(
    host: str,
    *,
    ahead_ms: float = 0,
    late_us: Sequence[float] = (0, 0, 0, 0),
    start_ns: int | None = PROFILE_START_NS,
) -> CudaTrace:
    """One GPU and one all-reduce per step, which ends `late_us` later than 45 ms into the step."""
    trace = CudaTrace(host, start_ns=start_ns)
    steps = marked_steps(trace, count=len(late_us), first_ms=20 + ahead_ms)
    for index, (step, late) in enumerate(zip(steps, late_us, strict=True)):
        step.kernel(0, 0.1, 30)
        all_reduce(step, [(38, 45 + late / 1000)], instance=100 + index, asked_ms=0.5)
    return trace


def step_starts(trace: Trace) -> list[int]:
    return [found.steps[0].start_ps for found in trace.steps_by_host]


@pytest.mark.parametrize(
    ("late_us", "offset_ps"),
    [((100, 300, 200, 100, 300), 0), ((500, 700, 600, 500, 700), -600_000_000)],
)
def test_a_difference_beyond_three_times_the_spread_moves_the_other_clock(
    late_us: tuple[float, ...], offset_ps: int, tmp_path: Path
) -> None:
    """Ends that spread by 148 µs: 200 µs apart in the middle they are noted late, not another time."""
    trace = loaded(tmp_path, worker("a", late_us=(0,) * 5), worker("b", late_us=late_us))
    first, second = (host.clock for host in trace.hosts)
    assert first is not None
    assert second is not None
    assert (first.method, first.offset_ps) == ("profile_start", 0)
    assert (second.method, second.reference) == (
        "collectives" if offset_ps else "profile_start",
        "a",
    )
    assert (second.offset_ps, second.collective_count) == (offset_ps, 5)
    assert second.residual_ps == 148_260_000
    assert (step_starts(trace)[0] == step_starts(trace)[1]) == (offset_ps == 0)


def test_without_profile_starts_collectives_alone_set_the_clocks(tmp_path: Path) -> None:
    trace = loaded(tmp_path, worker("a", start_ns=None), worker("b", ahead_ms=9, start_ns=None))
    assert [host.clock.method for host in trace.hosts if host.clock] == ["collectives"] * 2
    assert trace.problems == ()
    assert step_starts(trace)[0] == step_starts(trace)[1]
