"""The clocks of several hosts are aligned by shared collectives, and stay as recorded without clear evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
    instance: int = 100,
) -> CudaTrace:
    """One GPU and one all-reduce per step, which ends `late_us` later than 45 ms into the step."""
    trace = CudaTrace(host, start_ns=start_ns)
    steps = marked_steps(trace, count=len(late_us), first_ms=20 + ahead_ms)
    for index, (step, late) in enumerate(zip(steps, late_us, strict=True)):
        step.kernel(0, 0.1, 30)
        all_reduce(step, [(38, 45 + late / 1000)], instance=instance + index, asked_ms=0.5)
    return trace


def step_starts(trace: Trace) -> list[int]:
    return [found.steps[0].start_ps for found in trace.steps_by_host]


def test_what_the_spread_does_not_exceed_moves_nothing(tmp_path: Path) -> None:
    """Ends 200 µs apart in the middle that spread by 148 µs: noted late, not another time."""
    trace = loaded(
        tmp_path, worker("a", late_us=(0,) * 5), worker("b", late_us=(100, 300, 200, 100, 300))
    )
    clock = trace.hosts[1].clock
    assert clock is not None
    assert (clock.method, clock.offset_ps, clock.collective_count) == ("profile_start", 0, 5)
    assert clock.residual_ps == 148_260_000
    assert step_starts(trace)[0] == step_starts(trace)[1]


def test_without_profile_starts_collectives_alone_set_the_clocks(tmp_path: Path) -> None:
    trace = loaded(tmp_path, worker("a", start_ns=None), worker("b", ahead_ms=9, start_ns=None))
    assert [host.clock.method for host in trace.hosts if host.clock] == ["collectives"] * 2
    assert trace.problems == ()
    assert step_starts(trace)[0] == step_starts(trace)[1]


def test_hosts_that_are_linked_through_others(tmp_path: Path) -> None:
    """Host a shares with b, b with c, and c with d: one of the ends is set by a host that was moved itself."""
    ahead_ms = {"a": 0, "b": 7, "c": -3, "d": 2}
    keys = {"a": 100, "b": 100, "c": 300, "d": 500}
    traces = {host: worker(host, ahead_ms=ahead_ms[host], instance=keys[host]) for host in keys}
    for host, instance in (("b", 300), ("c", 500)):
        first_ms = 20 + ahead_ms[host]
        steps = marked_steps(traces[host], count=4, first_ms=first_ms, marker_ms=0)
        for index, step in enumerate(steps):
            all_reduce(step, [(38, 45)], instance=instance + index, asked_ms=1.5)
    clocks = [host.clock for host in loaded(tmp_path, *traces.values()).hosts]
    offsets = [clock.offset_ps for clock in clocks if clock]
    assert [offset - offsets[0] for offset in offsets] == [0, -7 * MS, 3 * MS, -2 * MS]
