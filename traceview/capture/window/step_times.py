"""Compares step times with and without the profiler, and says whether the difference exceeds their spread.

A step that takes its input from a full buffer is short whatever the profiler does, and buffers fill while the first
step is traced or the profile starts. So steps that wait for input are compared with such steps only, and the others
with the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median, quantiles
from typing import Any, Final, NamedTuple

from traceview.capture.window.recorded_calls import RecordedCall

_FEWEST: Final = 3
"""Fewer steps have no meaningful median or quartiles."""

_LEAST_SPREAD: Final = 0.02
"""Where step times vary by less than this, an overhead within their spread is small."""

_WAITING_RATIO: Final = 0.1
"""From this share of its time on, a step waits for input."""
_ALIKE_WAITS: Final = 2
"""Steps that wait for input are compared if one side waits at most so many times as long as the other; a choice of ours."""
_LEAST_WAIT_NS: Final = 50_000
"""A call for input that takes less found it ready; XProf draws the line there, too."""


class TimedStep(NamedTuple):
    """A step of `ns` nanoseconds, of which it waited `input_ns` for its input."""

    ns: float
    input_ns: float = 0

    @property
    def is_waiting(self) -> bool:
        """Whether its input was not ready."""
        return self.input_ns >= max(_WAITING_RATIO * self.ns, _LEAST_WAIT_NS)


@dataclass(frozen=True)
class Times:
    """Median and quartiles of the time per step, and how many calls they are from; None for too few of them."""

    ns: int | None
    count: int
    quartiles_ns: tuple[int, int] | None

    @classmethod
    def of(cls, times: Sequence[float]) -> Times:
        """Those of these nanoseconds."""
        if len(times) < _FEWEST:
            return cls(int(median(times)) if times else None, len(times), None)
        lower, middle, upper = quantiles(times, n=4, method="inclusive")
        return cls(int(middle), len(times), (int(lower), int(upper)))

    def __str__(self) -> str:
        low, high = self.quartiles_ns or (0, 0)
        spread = f"quartiles {low / 1e6:.2f} to {high / 1e6:.2f}, {self.count} calls"
        return f"{(self.ns or 0) / 1e6:.2f} ms ({spread})"


@dataclass(frozen=True)
class StepTimes:
    """Times without and with the profiler. `is_comparable`: in both, steps waited for input, or in both they had it ready."""

    is_comparable: bool
    unprofiled: Times
    profiled: Times

    @classmethod
    def of(cls, unprofiled: Sequence[TimedStep], profiled: Sequence[TimedStep]) -> StepTimes:
        """Take the steps that can be compared, or all where there are too few of them on one side."""
        alike = [
            [
                [step.ns for step in steps if step.is_waiting is is_waiting]
                for steps in (unprofiled, profiled)
            ]
            for is_waiting in (False, True)
        ]
        before, after = max(alike, key=lambda times: min(map(len, times)))
        is_comparable = min(len(before), len(after)) >= _FEWEST
        if is_comparable and (before, after) == (alike[True][0], alike[True][1]):
            # A full buffer delays a step less than a slow pipeline; that is not the profiler.
            waits = [
                median(step.input_ns for step in steps if step.is_waiting)
                for steps in (unprofiled, profiled)
            ]
            is_comparable = max(waits) <= _ALIKE_WAITS * min(waits)
        if not is_comparable:
            before, after = [step.ns for step in unprofiled], [step.ns for step in profiled]
        return cls(is_comparable, Times.of(before), Times.of(after))

    @property
    def overhead_ratio(self) -> float | None:
        """What profiling adds to a step, as a share of the unprofiled step; None with too few steps that compare."""
        before, after = self.unprofiled.ns, self.profiled.ns
        if not self.is_comparable or not before or after is None:
            return None
        return after / before - 1

    @property
    def spread_ratio(self) -> float | None:
        """The spread of step times, as a share of the unprofiled step: the mean of both interquartile ranges.

        A difference of the medians within it may be chance.
        """
        before, after = self.unprofiled.quartiles_ns, self.profiled.quartiles_ns
        if not self.unprofiled.ns or before is None or after is None:
            return None
        return (before[1] - before[0] + after[1] - after[0]) / 2 / self.unprofiled.ns

    def as_json(self) -> dict[str, Any]:
        """The group `overhead` of the sidecar."""
        return {**asdict(self), "ratio": self.overhead_ratio, "spread_ratio": self.spread_ratio}

    def __str__(self) -> str:
        """The overhead in one line, or why there is none."""
        ratio, spread = self.overhead_ratio, self.spread_ratio
        if spread is None:
            return "note: too few steps to measure the overhead of the profiler"
        if ratio is None:
            start = "overhead: not measurable, steps waited for input only before the profile or only in it"
        elif ratio > spread:
            start = f"overhead: {ratio:+.0%} per step"
        elif spread >= max(_LEAST_SPREAD, -ratio):
            start = f"overhead: less than the spread of step times with and without it (mean IQR {spread:.0%})"
        elif spread >= _LEAST_SPREAD:
            start = f"overhead: not measurable, because steps with the profiler were {-ratio:.0%} shorter"
        else:
            start = "overhead: too small to measure"
        return (
            f"{start}. Median step: {self.unprofiled} without the profiler, {self.profiled} with it"
        )


def step_times(before: Sequence[RecordedCall], calls: Sequence[RecordedCall]) -> StepTimes:
    """Step times of the newest calls without the profile, and of those in it.

    Calls that traced are left out, and so is the first recorded one, in which the profile starts.
    """
    return StepTimes.of(_timed_steps([*before, *calls[:1]]), _timed_steps(calls[1:]))


def longest_ns(before: Sequence[RecordedCall], calls: Sequence[RecordedCall]) -> int:
    """The longest of the same steps, with the Python up to the next one."""
    between = [
        after.begun_ns - call.begun_ns
        for followed in ([*before, *calls[:1]], calls[1:])
        for call, after in pairwise(followed)
        if not call.is_traced
    ]
    return max([*between, *(call.ended_ns - call.begun_ns for call in calls)])


def _timed_steps(calls: Sequence[RecordedCall]) -> list[TimedStep]:
    """Nanoseconds per step between calls that follow each other."""
    return [
        TimedStep((after.begun_ns - call.begun_ns) / call.count, call.input_ns / call.count)
        for call, after in pairwise(calls)
        if not call.is_traced
    ]
