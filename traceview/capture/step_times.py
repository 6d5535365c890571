"""Compares step times with and without the profiler, and says whether the difference exceeds their spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any, Final

_FEWEST: Final = 3
"""Fewer steps have no meaningful median or quartiles."""

_LEAST_SPREAD: Final = 0.02
"""Where step times vary by less than this, an overhead within their spread is small."""


@dataclass(frozen=True)
class StepTimes:
    """Median and quartiles of the time per step without and with the profiler, and how many calls they are from.

    A median of no call is None, and so are quartiles of fewer than three.
    """

    unprofiled_ns: int | None
    unprofiled_count: int
    unprofiled_quartiles_ns: tuple[int, int] | None
    profiled_ns: int | None
    profiled_count: int
    profiled_quartiles_ns: tuple[int, int] | None

    @classmethod
    def of(cls, unprofiled: Sequence[float], profiled: Sequence[float]) -> StepTimes:
        """Take the nanoseconds per step of single calls."""
        return cls(
            int(median(unprofiled)) if unprofiled else None,
            len(unprofiled),
            _quartiles(unprofiled),
            int(median(profiled)) if profiled else None,
            len(profiled),
            _quartiles(profiled),
        )

    @property
    def overhead_ratio(self) -> float | None:
        """What profiling adds to a step, as a share of the unprofiled step; None with too few steps."""
        if not self.unprofiled_ns or self.profiled_ns is None or self.spread_ratio is None:
            return None
        return self.profiled_ns / self.unprofiled_ns - 1

    @property
    def spread_ratio(self) -> float | None:
        """The spread of step times, as a share of the unprofiled step: the mean of both interquartile ranges.

        A difference of the medians within it may be chance.
        """
        before, after = self.unprofiled_quartiles_ns, self.profiled_quartiles_ns
        if not self.unprofiled_ns or before is None or after is None:
            return None
        return (before[1] - before[0] + after[1] - after[0]) / 2 / self.unprofiled_ns

    def as_json(self) -> dict[str, Any]:
        """The group `overhead` of the sidecar."""
        return {**asdict(self), "ratio": self.overhead_ratio, "spread_ratio": self.spread_ratio}

    def __str__(self) -> str:
        """The overhead in one line, or why there is none."""
        ratio, spread = self.overhead_ratio, self.spread_ratio
        if ratio is None or spread is None:
            return "note: too few steps to measure the overhead of the profiler"
        start = f"overhead: {ratio:+.0%} per step"
        if ratio <= max(spread, 0):
            start = (
                f"overhead: not measurable, step times vary too much (±{spread:.0%})"
                if spread >= _LEAST_SPREAD
                else "overhead: too small to measure"
            )
        before = _described(self.unprofiled_ns, self.unprofiled_quartiles_ns, self.unprofiled_count)
        after = _described(self.profiled_ns, self.profiled_quartiles_ns, self.profiled_count)
        return f"{start}. Median step: {before} without the profiler, {after} with it"


def _quartiles(times: Sequence[float]) -> tuple[int, int] | None:
    if len(times) < _FEWEST:
        return None
    lower, _, upper = quantiles(times, n=4, method="inclusive")
    return int(lower), int(upper)


def _described(median_ns: int | None, quartiles_ns: tuple[int, int] | None, count: int) -> str:
    low, high = quartiles_ns or (0, 0)
    spread = f"quartiles {low / 1e6:.2f} to {high / 1e6:.2f}, {count} calls"
    return f"{(median_ns or 0) / 1e6:.2f} ms ({spread})"
