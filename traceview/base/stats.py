"""Statistics of series of steps: robust ones of int64 values, and how sure a mean is whose neighbours are alike."""

from __future__ import annotations

import math
from functools import cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

MAD_TO_SIGMA: Final = 1.4826
"""The standard deviation over the median absolute deviation, for normally distributed values."""


def median(values: npt.ArrayLike) -> float:
    """The median of numbers. `np.median` of fractions would import `numpy.ma`, which takes longer than a small trace."""
    ordered = np.sort(values, axis=None)
    return float(ordered[(ordered.size - 1) // 2 : ordered.size // 2 + 1].mean())


def median_ps(values: npt.ArrayLike) -> int | None:
    """The median of integers, rounded down; None without values."""
    known = np.ravel(values)
    if known.size == 0:
        return None
    middle = [(known.size - 1) // 2, known.size // 2]
    low, high = np.partition(known, middle)[middle].tolist()
    return int(low + (high - low) // 2)


def low_median(values: npt.ArrayLike) -> int | None:
    """The median of integers; of two middle values the lower one, so that it is a measured value. None without values."""
    known = np.ravel(values)
    if known.size == 0:
        return None
    middle = (known.size - 1) // 2
    return int(np.partition(known, middle)[middle])


Float64Array: TypeAlias = npt.NDArray[np.float64]

_MOST_ALIKE: Final = 0.9
"""Correlation of neighbouring steps; more cannot be told from a drift."""


def variance_of_mean(values: Float64Array, count: int | None = None) -> tuple[float, float]:
    """The variance of the mean of two or more values in order, neighbours of which may be alike, and its degrees of freedom.

    `count`: of a trimmed mean, so many values count, and the others are as large as the largest of these (Yuen 1974).
    docs/method.md, "Difference of step times".
    """
    count = values.size if count is None else count
    around = values - values.mean()
    independent = max(count / block_length(around), 2.0)
    return float(around @ around) / count / (independent - 1), independent - 1


def block_length(around: Float64Array) -> float:
    """How many neighbouring steps say as much as one independent step; `around`: steps less their mean, in order.

    It is (1 + ρ) ÷ (1 − ρ) of neighbours correlated by ρ. What the steps show of ρ is too little by (1 + 4ρ) ÷ n in short
    series (Marriott and Pope 1954), which is put back.
    """
    squares = float(around @ around)
    if not squares:
        return 1.0
    shown = float(around[:-1] @ around[1:]) / squares
    alike = min(max(shown + (1 + 4 * max(shown, 0.0)) / around.size, 0.0), _MOST_ALIKE)
    return (1 + alike) / (1 - alike)


@cache
def student(inside: float, degrees: float) -> float:
    """How far from zero a value of Student's distribution stays with probability `inside`; one degree at least."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if inside_angle(angle, degrees) < inside else (low, angle)
    return math.sqrt(degrees) * math.tan(low)


def inside_angle(angle: float, degrees: float) -> float:
    """How often √ν·tan φ of Student's distribution is nearer to zero than this angle φ.

    In φ the density is proportional to cos φ to the power of ν − 1, whose integral is found by Simpson's rule.
    """
    whole = math.sqrt(math.pi) / 2
    whole *= math.exp(math.lgamma(degrees / 2) - math.lgamma((degrees + 1) / 2))
    place, weight = _simpson()
    return angle * float(weight @ np.cos(angle * place) ** (degrees - 1)) / whole


@cache
def _simpson() -> tuple[Float64Array, Float64Array]:
    """Places from 0 to 1, and how much each counts in an integral."""
    return np.linspace(0.0, 1.0, 513), np.r_[1.0, np.tile([4.0, 2.0], 256)[:-1], 1.0] / (3 * 512)
