"""How much longer is a step with the profiler, and can that be told from how steps vary by themselves?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any, Final

_FEWEST: Final = 3
"""A median of fewer steps is not worth a sentence, nor are quartiles."""


@dataclass(frozen=True)
class StepTimes:
    """Median time per step without and with the profiler, from how many calls, and the quartiles around it.

    None for a median from no call, and for quartiles from fewer than three.
    """

    unprofiled_ns: int | None
    unprofiled_count: int
    unprofiled_quartiles_ns: tuple[int, int] | None
    profiled_ns: int | None
    profiled_count: int
    profiled_quartiles_ns: tuple[int, int] | None

    @classmethod
    def of(cls, unprofiled: Sequence[float], profiled: Sequence[float]) -> StepTimes:
        """From the nanoseconds per step of single calls."""
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
        """What profiling adds to a step, as a share of the unprofiled step; None from too few steps to tell."""
        if not self.unprofiled_ns or self.profiled_ns is None or self.spread_ratio is None:
            return None
        return self.profiled_ns / self.unprofiled_ns - 1

    @property
    def spread_ratio(self) -> float | None:
        """How far steps vary: half of what lies between the quartiles, of both kinds together, as such a share.

        A difference of the medians that is no larger may be chance.
        """
        before, after = self.unprofiled_quartiles_ns, self.profiled_quartiles_ns
        if not self.unprofiled_ns or before is None or after is None:
            return None
        return (before[1] - before[0] + after[1] - after[0]) / 2 / self.unprofiled_ns

    def as_json(self) -> dict[str, Any]:
        """As it stands in the sidecar."""
        return {**asdict(self), "ratio": self.overhead_ratio, "spread_ratio": self.spread_ratio}

    def __str__(self) -> str:
        """The overhead in one line, or why there is none."""
        ratio, spread = self.overhead_ratio, self.spread_ratio
        if ratio is None or spread is None:
            return "note: too few steps to compare their time with and without the profiler"
        if ratio <= max(spread, 0):
            start = f"overhead: not measurable: steps vary by ±{spread:.0%}"
        else:
            start = f"overhead: {ratio:+.0%} per step"
        before = _described(self.unprofiled_ns, self.unprofiled_quartiles_ns)
        after = _described(self.profiled_ns, self.profiled_quartiles_ns)
        return (
            f"{start} ({before} without the profiler, median and quartiles of {self.unprofiled_count}; "
            f"{after} with it, of {self.profiled_count})"
        )


def _quartiles(times: Sequence[float]) -> tuple[int, int] | None:
    if len(times) < _FEWEST:
        return None
    lower, _, upper = quantiles(times, n=4, method="inclusive")
    return int(lower), int(upper)


def _described(middle: int | None, quartiles: tuple[int, int] | None) -> str:
    text = f"{(middle or 0) / 1e6:.2f} ms"
    if quartiles is None:
        return text
    return f"{text} [{quartiles[0] / 1e6:.2f} to {quartiles[1] / 1e6:.2f}]"
