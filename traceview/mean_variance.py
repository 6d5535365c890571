"""Estimates how sure the mean of a series is whose neighbours are alike, as those of steps are."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Float64Array: TypeAlias = npt.NDArray[np.float64]

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
