"""Measures how long steps take, before the profile and in it, from the beginning of one call to that of the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from traceview.capture.recorded_calls import RecordedCall
from traceview.capture.step_times import StepTimes, TimedStep

_TIMED_STEPS: Final = 51
"""Unprofiled steps whose time is kept: the median of 50 is steady, and older ones are warm-up."""


class Start(NamedTuple):
    """Where a call began that ran `step_count` steps. `is_disturbed`: it took longer for a reason that is no step's."""

    begun_ns: int
    input_ns: int
    step_count: int
    is_disturbed: bool


class StepPace:
    """The newest calls before the profile, beside which those in the profile are held."""

    def __init__(self) -> None:
        self._starts: deque[Start] = deque(maxlen=_TIMED_STEPS)

    def add(self, start: Start) -> None:
        """A call without the profile has returned."""
        self._starts.append(start)

    def times(self, calls: Sequence[RecordedCall]) -> StepTimes:
        """Step times before and in the window.

        Calls that traced are left out, and so is the first recorded one, in which the profile starts.
        """
        recorded = [
            Start(call.begun_ns, call.input_ns, call.count, call.is_traced) for call in calls
        ]
        return StepTimes.of(
            _timed_steps([*self._starts, *recorded[:1]]), _timed_steps(recorded[1:])
        )

    def longest_ns(self, calls: Sequence[RecordedCall]) -> int:
        """The longest step, with the Python up to the next one.

        The first recorded call is left out, because the profile starts in it, and so are calls that traced.
        """
        starts = [(start.begun_ns, start.is_disturbed) for start in self._starts]
        starts.append((calls[0].begun_ns, False))
        recorded = [(call.begun_ns, call.is_traced) for call in calls[1:]]
        between = [
            after[0] - begun_ns
            for followed in (starts, recorded)
            for (begun_ns, is_traced), after in pairwise(followed)
            if not is_traced
        ]
        return max([*between, *(call.ended_ns - call.begun_ns for call in calls)])


def _timed_steps(starts: Sequence[Start]) -> list[TimedStep]:
    """Nanoseconds per step between starts that follow each other."""
    return [
        TimedStep(
            (after.begun_ns - start.begun_ns) / start.step_count, start.input_ns / start.step_count
        )
        for start, after in pairwise(starts)
        if not start.is_disturbed
    ]
