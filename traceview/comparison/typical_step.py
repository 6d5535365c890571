"""Estimates by which factor the typical step differs, from ranks: fast steps count most, long ones hardly.

What disturbs a program only ever makes its steps longer. docs/method.md, "Difference of step times".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Literal

import numpy as np
from msgspec import Struct

from traceview.mean_variance import Float64Array

VARIANCE_FACTOR: Final = 1.5
"""Variance of the statistic over that of steps in random order, because neighbours are alike; measured."""
_QUANTILE: Final = 1.96
_POWER_QUANTILE: Final = 1.2816
"""Of the normal distribution: 95% of it in the middle, 90% below."""
_ROUNDING: Final = 1e-9
"""Of a logarithm: so equal steps are not shown to differ."""


class TypicalChange(Struct, frozen=True):
    """By which share of the step before the typical step differs.

    Attributes:
        ratio: The share; negative where it became faster.
        low_ratio: Lower end of its 95% interval.
        high_ratio: Upper end of it.
        least_shown_ratio: A change of this share is shown by 90% of runs as these.
    """

    ratio: float
    low_ratio: float
    high_ratio: float
    least_shown_ratio: float

    @property
    def direction(self) -> Literal["slower", "faster", "none"]:
        """Slower or faster where the interval excludes zero."""
        return "slower" if self.low_ratio > 0 else "faster" if self.high_ratio < 0 else "none"


def typical_change(before: Float64Array, after: Float64Array) -> TypicalChange | None:
    """The change between two series of steps; None where they are too short, or a step takes no time."""
    if min(before.size, after.size) < 2 or min(before.min(), after.min()) <= 0:
        return None
    old, new = np.sort(np.log(before)), np.sort(np.log(after))
    score = _standard_score(old, new)
    most, least = float(new[-1] - old[0]) + 1, float(new[0] - old[-1]) - 1
    if score(least) <= _QUANTILE:
        return None
    low = _last_where(lambda shift: score(shift) > _QUANTILE, least, most)
    high = _last_where(lambda shift: score(shift) < -_QUANTILE, most, least)
    middle = [
        _last_where(lambda shift: score(shift) > 0, least, most),
        _last_where(lambda shift: score(shift) < 0, most, least),
    ]
    low, high = low - _ROUNDING, high + _ROUNDING
    half = (high - low) / 2
    return TypicalChange(
        ratio=math.expm1(sum(middle) / 2),
        low_ratio=math.expm1(low),
        high_ratio=math.expm1(high),
        least_shown_ratio=math.expm1(half * (1 + _POWER_QUANTILE / _QUANTILE)),
    )


def _standard_score(old: Float64Array, new: Float64Array) -> Callable[[float], float]:
    """How much slower `new`, less a shift, is than `old`, in standard errors; falls as the shift grows.

    The scores of Savage (1956) for the faster half of all steps, the fastest first; the slower half counts alike.
    """
    count = old.size + new.size
    scores = np.cumsum(1 / np.arange(count, 0, -1))[::-1]
    scores = np.maximum(scores, scores[(count - 1) // 2])
    scores -= scores.mean()
    scale = (1 / old.size + 1 / new.size) * VARIANCE_FACTOR
    error = math.sqrt(float(scores @ scores) / (count - 1) * scale)
    weight = (1 / old.size + 1 / new.size) / error
    places = np.arange(new.size)

    def score(shift: float) -> float:
        ranks = places + np.searchsorted(old, new - shift)
        return -weight * float(scores[ranks].sum())

    return score


def _last_where(holds: Callable[[float], bool], inside: float, outside: float) -> float:
    """The place from `inside`, where it holds, towards `outside`, where it does not, up to which it holds."""
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside
