"""Finds where the level of a series changes, by ranks: no outlier and no kind of noise makes a change of itself.

The series is split where the ranks before and after differ most, for their number; the split is kept if a series
without a change, in random order, has one as large in at most 5% of the cases. Both parts are then split in the same
way. docs/method.md, "Changes over many runs", says what this assumes.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from traceview.robust import median

FALSE_ALARM_RATIO: Final = 0.05
"""Share of series without a change in which one is found, at most."""
LEAST_CHANGE_RATIO: Final = 0.01
"""Levels that differ by less are one: nobody acts on it. A choice of ours."""
_SHUFFLES: Final = 1999
_Floats = npt.NDArray[np.float64]


def change_points(values: npt.ArrayLike) -> list[int]:
    """The places at which a new level begins, in order; empty where no change is shown.

    `values`: one per run, in the order of the runs, positive.
    """
    series = np.asarray(values, dtype=np.float64)
    return sorted(_splits(series, 0))


def _splits(series: _Floats, first: int) -> list[int]:
    place = _split(series)
    if place is None:
        return []
    return [
        first + place,
        *_splits(series[:place], first),
        *_splits(series[place:], first + place),
    ]


def _split(series: _Floats) -> int | None:
    """Where the largest change is; None where chance makes one as large too often."""
    if series.size < 2 or (series == series[0]).all():
        return None
    ranks = _ranks(series)
    statistic = _statistics(ranks)
    largest = float(statistic.max())
    by_chance = _chance(series.size) if np.unique(series).size == series.size else _shuffled(ranks)
    # The series itself is one of its orders.
    if (1 + int((by_chance >= largest - 1e-9).sum())) / (1 + by_chance.size) > FALSE_ALARM_RATIO:
        return None
    place = int(statistic.argmax()) + 1
    ratio = median(series[place:]) / median(series[:place]) - 1
    return place if abs(ratio) >= LEAST_CHANGE_RATIO else None


def _ranks(series: _Floats) -> _Floats:
    """Ranks around zero; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(series, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: _Floats = (last - (counts - 1) / 2)[inverse]
    ranks -= ranks.mean()
    return ranks


def _statistics(ranks: _Floats) -> _Floats:
    """By place of a split the difference of mean ranks over its standard error; `ranks`: one series, or one per row."""
    size = ranks.shape[-1]
    before = np.arange(1, size)
    sums = np.cumsum(ranks, axis=-1)[..., :-1]
    variance = before * (size - before) / size * ranks.var(axis=-1, ddof=1, keepdims=True)
    statistics: _Floats = np.abs(sums) / np.sqrt(variance)
    return statistics


@cache
def _chance(size: int) -> _Floats:
    """The largest statistic of each of many series of this length in random order, without equal values."""
    return _shuffled(np.arange(size, dtype=np.float64) - (size - 1) / 2)


def _shuffled(ranks: _Floats) -> _Floats:
    # The same series always gives the same answer.
    generator = np.random.default_rng(ranks.size)
    rows = np.tile(ranks, (_SHUFFLES, 1))
    largest: _Floats = _statistics(generator.permuted(rows, axis=1)).max(axis=1)
    return largest
