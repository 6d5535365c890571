"""Compares the step time of a run with the runs before it, and tells a change from noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

from traceview.document import numbers
from traceview.robust import MAD_TO_SIGMA, median

_SIGMAS: Final = 2.0
_MEDIAN_ERROR_OVER_IQR: Final = 0.929
"""The standard error of the median of n normally distributed values is 1.2533 standard deviations over the square root
of n, and a standard deviation is their interquartile range over 1.349."""

LEAST_RATIO: Final = 0.02
LEAST_RATIO_OF_FEW: Final = 0.05
FEW_RUNS: Final = 3
"""Fewer runs do not show how much runs differ. These limits are choices of ours."""


class StepTimes(Protocol):
    """The step time of one run: a median, how many steps it is of, and their interquartile range."""

    @property
    def step_ps(self) -> int | None:
        """Picoseconds."""

    @property
    def step_iqr_ps(self) -> int | None:
        """Picoseconds."""

    @property
    def step_count(self) -> int:
        """How many."""


class StepChange(Struct, frozen=True):
    """The step time against the median of `run_count` runs before: `ratio` more, of which `noise_ratio` says nothing."""

    ratio: float
    noise_ratio: float
    run_count: int

    @property
    def is_beyond_noise(self) -> bool:
        """Whether the run is slower or faster than those before."""
        return abs(self.ratio) > self.noise_ratio

    @property
    def text(self) -> str:
        """The change in words."""
        before = "the run before" if self.run_count == 1 else f"the last {self.run_count} runs"
        if not self.is_beyond_noise:
            return f"as {before} (within {numbers.share(self.noise_ratio)})"
        return f"{numbers.share(abs(self.ratio))} {'slower' if self.ratio > 0 else 'faster'} than {before}"


def step_change(run: StepTimes, before: Sequence[StepTimes]) -> StepChange | None:
    """How the step time of `run` differs from that of the runs `before`; None without both.

    Noise is twice the root of the squared errors: that of the run's own median, that of the others' medians, and how
    much those differ among each other, by their median absolute deviation. It is taken for at least 2 % of the step, of
    fewer than three runs for at least 5 %.
    """
    known = [other for other in before if other.step_ps]
    if not run.step_ps or not known:
        return None
    medians = [float(other.step_ps or 0) for other in known]
    expected = median(medians)
    between = MAD_TO_SIGMA * median([abs(value - expected) for value in medians])
    error = math.hypot(_error(run), median([_error(other) for other in known]), between)
    least = LEAST_RATIO if len(known) >= FEW_RUNS else LEAST_RATIO_OF_FEW
    noise = max(_SIGMAS * error / expected, least)
    return StepChange(run.step_ps / expected - 1, noise, len(known))


def _error(run: StepTimes) -> float:
    """The standard error of the median step time, picoseconds."""
    return _MEDIAN_ERROR_OVER_IQR * (run.step_iqr_ps or 0) / math.sqrt(max(run.step_count, 1))
