"""Estimates how sure the mean of a series is whose neighbours are alike, as those of steps are."""

from __future__ import annotations

import math
from functools import cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Float64Array: TypeAlias = npt.NDArray[np.float64]

_GRID: Final = np.linspace(0.0, 1.0, 513)
_SIMPSON: Final = np.r_[1.0, np.tile([4.0, 2.0], 256)[:-1], 1.0] / (3 * 512)

_OVERLAPPING_DEGREES: Final = 1.5
"""Degrees of freedom of the variance of overlapping blocks over those of separate ones (Meketon and Schmeiser 1984)."""


def block_length(step_count: int) -> int:
    """Steps in a block: the cube root of their number, rounded down, so that variances of long series converge."""
    return max(int(step_count ** (1 / 3) + 1e-9), 1)


def variance_of_mean(values: Float64Array) -> tuple[float, float]:
    """The variance of the mean of two or more values by circular block bootstrap, and its degrees of freedom.

    It is the limit of infinitely many draws, so nothing is drawn: blocks of b neighbours, the first step following the
    last; the variance of their means times b ÷ n, times n ÷ (n − b), which is what the bootstrap lacks in short series.
    docs/method.md, "Difference of step times".
    """
    count, length = values.size, block_length(values.size)
    around = np.concatenate([values, values[: length - 1]])
    sums = np.concatenate([[0.0], np.cumsum(around - values.mean())])
    block_means = (sums[length:] - sums[:-length]) / length
    variance = float(np.mean(block_means**2)) * length / (count - length)
    separate = count / length - 1
    return variance, separate if length == 1 else max(_OVERLAPPING_DEGREES * separate, 1.0)


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
    return angle * float(_SIMPSON @ np.cos(angle * _GRID) ** (degrees - 1)) / whole
