"""Time in which a thread records nothing has the cause that the events around it show, on both sides of each rule.

Times are milliseconds. GPU:0 runs a kernel from 0 to 1 and one from 11 to 12; the gap between them is 10 long.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.cuda_trace import MS, CudaTrace, Line, Stats
from tests.gap_causes import causes_of_gaps
from traceview.analysis.facts.run import Run
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.idle_report import Gap, gap_rows, gap_table
from traceview.trace.host.cause import Cause
from traceview.trace.reading.load import load


class Recording:
    def __init__(self) -> None:
        self.trace = CudaTrace()
        self.trace.kernel(0, 0, MS)

    def event(
        self,
        name: str,
        start: float,
        end: float,
        stats: Stats | None = None,
        *,
        thread: Line | None = None,
    ) -> None:
        self.trace.host_event(name, round(start * MS), round(end * MS), stats, thread=thread)

    def launched(self, at: float, *, thread: Line | None = None) -> None:
        """The kernel that ends the gap, launched by a call of 5 µs."""
        number = self.trace.kernel(0, 11 * MS, 12 * MS)
        at_ps = round(at * MS)
        self.trace.launch("cuLaunchKernel", at_ps, number, duration_ps=5_000_000, thread=thread)

    def causes(self, folder: Path) -> dict[str, float]:
        """All idle time by cause, rounded to 100 µs."""
        self.trace.write(folder)
        trace = load(folder)
        gaps = Run(trace, select(trace)).idle.gaps[0]
        total = causes_of_gaps(gaps).sum(axis=1)
        return {cause.key: round(total[cause] / MS, 1) for cause in Cause if total[cause] >= MS / 9}


@pytest.mark.parametrize(("silent", "cause"), [(1.0, "launch"), (1.001, "unknown")])
def test_executors_are_woken_up_within_a_millisecond(
    silent: float, cause: str, tmp_path: Path
) -> None:
    recording = Recording()
    executor = recording.trace.thread("tf_Compute", 8)
    recording.event("FunctionRun", 0.5, 11, {"id": 5, "_pt": 2, "_p": 5})
    begun = 4 + silent
    recording.event("ExecutorState::Process", 0.5, 4, {"_ct": 2, "_c": 5}, thread=executor)
    recording.event("ExecutorState::Process", begun, 11, {"_ct": 2, "_c": 5}, thread=executor)
    recording.launched(10.99, thread=executor)
    found = recording.causes(tmp_path)
    assert found.get("unknown", 0) == (1 if cause == "unknown" else 0)
    assert found["launch"] == (10 if cause == "launch" else 9)


def test_a_gap_of_python_names_the_events_around_it(tmp_path: Path) -> None:
    recording = Recording()
    recording.event("EagerExecute", 0, 2)
    recording.event("augment", 4, 6)
    recording.event("convert_to_tensor", 9, 11)
    recording.launched(10.99)
    scope = first_gap(recording, tmp_path)
    assert (scope.state, scope.thread, scope.host_event) == ("between_calls", "python3", "augment")
    assert (scope.previous_event, scope.next_event) == (None, None)

    without = Recording()
    without.event("EagerExecute", 0, 2)
    without.event("convert_to_tensor", 9, 11)
    without.launched(10.99)
    bare = first_gap(without, tmp_path / "without")
    assert (bare.state, bare.thread, bare.host_event) == ("between_calls", "python3", None)
    assert (bare.previous_event, bare.next_event) == ("EagerExecute", "convert_to_tensor")


def first_gap(recording: Recording, folder: Path) -> Gap:
    recording.trace.write(folder)
    trace = load(folder)
    context = Context(trace, select(trace))
    rows, _ = gap_table(context, devices=("GPU:0",))
    return min(gap_rows(rows), key=lambda gap: gap.start_ps)
