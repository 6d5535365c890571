"""Robust statistics, which a few outliers do not change, of int64 values such as picoseconds and counts."""

from __future__ import annotations

from typing import Any, Final

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


def p95_ps(values: npt.NDArray[np.integer]) -> int | None:
    """The 95th percentile by nearest rank; None without values."""
    if values.size == 0:
        return None
    rank = (19 * values.size + 19) // 20 - 1
    return int(np.partition(values, rank)[rank])


def quartile_range(values: npt.NDArray[Any]) -> float:
    """The interquartile range, with quartiles interpolated between values."""
    ordered = np.sort(values, axis=None)
    return _quantile(ordered, 0.75) - _quantile(ordered, 0.25)


def _quantile(ordered: npt.NDArray[Any], share: float) -> float:
    """As `np.percentile` interpolates; that would import `numpy.ma` too."""
    place = (ordered.size - 1) * share
    below = int(place)
    low, high = ordered[below], ordered[min(below + 1, ordered.size - 1)]
    part = place - below
    return float(low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part))
