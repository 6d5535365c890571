"""Robust statistics, which a few outliers do not change, of int64 values such as picoseconds and counts."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

MAD_TO_SIGMA: Final = 1.4826
"""The standard deviation over the median absolute deviation, for normally distributed values."""


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


def p95_ps(values: npt.NDArray[np.integer]) -> int | None:
    """The 95th percentile by nearest rank; None without values."""
    if values.size == 0:
        return None
    rank = (19 * values.size + 19) // 20 - 1
    return int(np.partition(values, rank)[rank])


def quartile_range(values: npt.NDArray[Any]) -> float:
    """The interquartile range, with quartiles interpolated between values."""
    low, high = np.percentile(values, (25, 75))
    return float(high - low)
