"""Describes the calls that are in the profile, and compares step times with and without the profiler.

A step that takes its input from a full buffer is short whatever the profiler does, and buffers fill while the first
step is traced or the profile starts. So the wait for input is left out of what is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median, quantiles
from typing import Any, Final

_FEWEST: Final = 3
"""Fewer steps have no meaningful median or quartiles."""
_LEAST_SPREAD: Final = 0.02
"""Where step times vary by less than this, an overhead within their spread is small."""


@dataclass
class RecordedCall:
    """A call in the profile: `count` steps from `number` on; `begun_ns` by the monotonic clock.

    `input_ns`: from asking for the input to the call, 0 where the call itself asks. `is_edge`: it is no requested step, or
    no step followed it in time. `is_traced`: a `tf.function` was traced in it. `error`: the class of the exception by which it
    ended.
    """

    number: int
    count: int
    function: str
    begun_ns: int
    input_ns: int
    ended_ns: int
    is_edge: bool = False
    is_traced: bool = False
    error: str | None = None


@dataclass
class Evaluation:
    """What was evaluated in the profile after step `after`: calls by function, and when, by the monotonic clock."""

    after: int
    functions: dict[str, int]
    begun_ns: int
    ended_ns: int


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
    """Times without and with the profiler, waits for input left out. `step_ns`: median of a whole step without it."""

    step_ns: int | None
    unprofiled: Times
    profiled: Times

    @classmethod
    def of(cls, before: Sequence[RecordedCall], calls: Sequence[RecordedCall]) -> StepTimes:
        """Those of the newest calls without the profile, and of those in it.

        Calls that traced are left out, and so is the first recorded one, in which the profile starts.
        """
        unprofiled, profiled = _followed([*before, *calls[:1]]), _followed(calls[1:])
        whole = Times.of([ns / call.count for call, ns in unprofiled])
        own = (
            [(ns - call.input_ns) / call.count for call, ns in s] for s in (unprofiled, profiled)
        )
        return cls(whole.ns, *map(Times.of, own))

    @property
    def ratio(self) -> float | None:
        """What profiling adds to a step, as a share of the unprofiled step; None with too few steps."""
        before, after = self.unprofiled, self.profiled
        if not self.step_ns or before.quartiles_ns is None or after.quartiles_ns is None:
            return None
        return ((after.ns or 0) - (before.ns or 0)) / self.step_ns

    @property
    def spread_ratio(self) -> float | None:
        """The spread of step times, as a share of the unprofiled step: the mean of both interquartile ranges.

        A difference of the medians within it may be chance.
        """
        before, after = self.unprofiled.quartiles_ns, self.profiled.quartiles_ns
        if not self.step_ns or before is None or after is None:
            return None
        return (before[1] - before[0] + after[1] - after[0]) / 2 / self.step_ns

    def as_json(self) -> dict[str, Any]:
        """The group `overhead` of the sidecar."""
        return {**asdict(self), "ratio": self.ratio, "spread_ratio": self.spread_ratio}

    def __str__(self) -> str:
        """The overhead in one line, or why there is none."""
        ratio, spread = self.ratio, self.spread_ratio
        if ratio is None or spread is None:
            return "note: too few steps to measure the overhead of the profiler"
        if ratio > spread:
            start = f"{ratio:+.0%} per step"
        elif spread >= max(_LEAST_SPREAD, -ratio):
            iqr = f"(mean IQR {spread:.0%})"
            start = f"less than the spread of step times with and without it {iqr}"
        elif spread >= _LEAST_SPREAD:
            start = f"not measurable, because steps with the profiler were {-ratio:.0%} shorter"
        else:
            start = "too small to measure"
        return (
            f"overhead: {start}. Median step without its wait for input: {self.unprofiled} without the profiler, "
            f"{self.profiled} with it"
        )


def longest_ns(before: Sequence[RecordedCall], calls: Sequence[RecordedCall]) -> int:
    """The longest of the same steps, with the Python up to the next one."""
    followed = [*_followed([*before, *calls[:1]]), *_followed(calls[1:])]
    return max([ns for _, ns in followed] + [call.ended_ns - call.begun_ns for call in calls])


def _followed(calls: Sequence[RecordedCall]) -> list[tuple[RecordedCall, int]]:
    """The calls that another one follows, without those that traced, and the nanoseconds between their beginnings."""
    pairs = pairwise(calls)
    return [(call, after.begun_ns - call.begun_ns) for call, after in pairs if not call.is_traced]
