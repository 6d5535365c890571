"""Estimates whether a time changed between two sides of captures, and by how much: an interval that respects noise.

Everything that compares runs asks here: `compare`, `gate`, `history`, `watch` and `--scaling`. A capture has a level with
its error; two sides of levels have a difference with an interval of Welch's test. What is assumed, and how often it is
wrong: docs/method.md, "Difference of step times".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.stats import (
    Float64Array,
    block_length,
    inside_angle,
    student,
    variance_of_mean,
)

Direction: TypeAlias = Literal["slower", "faster", "none", "unknown"]

CONFIDENCE: Final = 0.95
"""Share of intervals that hold the true difference."""
POWER: Final = 0.9
"""Share of the runs with a change of `least_shown` in which it is shown."""
SHOW_NOTHING: Final = 9.0
"""Runs that only show the step to be ten times as long show nothing."""
SLOWEST: Final = 3
"""One step in so many, the slowest, does not count for the typical step: what disturbs a machine makes steps longer."""
_BETWEEN_BLOCKS: Final = 1.4
"""The variance of a mean of steps is this over the length of a block longer than by blocks, which miss steps further apart
that are alike: a bias of this order (Künsch 1989), whose size is measured."""
_ROUNDING: Final = 1e-9
"""Of a difference of logarithms: so equal steps do not differ."""


class RunSpread(Struct, frozen=True):
    """What is known beforehand of how much runs of one program differ without a change.

    `ratio`: standard deviation of their steps, as a share of the step. `degrees`: degrees of freedom that this knowledge is
    worth.
    """

    ratio: float
    degrees: float


REPLICA_RUN_SPREAD: Final = RunSpread(ratio=0.052, degrees=1.38)
"""Of replicas that share the cores of a CPU; `scripts.step_noise` estimates it from recorded runs."""


class Level(Struct, frozen=True):
    """What one capture says of a time. `variance`: of the value by the noise of its steps; None for a single step."""

    value: float
    variance: float | None = None
    degrees: float = 0.0


class Difference(Struct, frozen=True):
    """How much the level of a time differs between two sides, in the unit of the levels.

    Attributes:
        value: Mean level after − mean level before.
        low: Lower end of the 95% interval; None, as all below, where nothing shows the noise: a single step on a side.
        high: Upper end of it.
        least_shown: A difference of this size, in either direction, is shown by 90% of runs as these.
        chance: How often runs without a change differ as much by chance.
        is_over_runs: Whether the interval covers how much runs differ without a change; else it covers steps alone.
    """

    value: float
    low: float | None = None
    high: float | None = None
    least_shown: float | None = None
    chance: float | None = None
    is_over_runs: bool = False

    @property
    def direction(self) -> Direction:
        """Slower or faster where the interval excludes zero."""
        if self.low is None or self.high is None:
            return "unknown"
        return "slower" if self.low > 0 else "faster" if self.high < 0 else "none"


class StepChange(Struct, frozen=True):
    """By which share of the step before the typical step differs; as a `Difference` otherwise.

    `noise_ratio`: how much longer a step says nothing, half of the interval.
    """

    ratio: float
    low_ratio: float | None
    high_ratio: float | None
    least_shown_ratio: float | None
    direction: Direction
    is_over_runs: bool
    chance: float | None
    noise_ratio: float | None


# Levels of one capture


def step_level(lengths: npt.ArrayLike) -> Level | None:
    """The logarithm of the typical step: the mean without the slowest third; None without steps, or with one of no length.

    The error is Yuen's (1974) of a trimmed mean, from steps that are no longer than the longest that counts, in blocks of
    neighbours, which are alike.
    """
    values = np.asarray(lengths, dtype=np.float64)
    if not values.size or values.min() <= 0:
        return None
    return _trimmed(np.log(values), values.size // SLOWEST)


def mean_level(values: npt.ArrayLike) -> Level | None:
    """The mean of a part of the step: parts sum to the mean step; None without steps."""
    series = np.asarray(values, dtype=np.float64)
    return _trimmed(series, 0) if series.size else None


def level_of(value: float, error: float | None, degrees: float | None, step_count: int) -> Level:
    """The level of a mean of so many steps whose error by blocks is known; None for a single step."""
    if error is None or degrees is None:
        return Level(value)
    return Level(value, error**2 * _beyond_blocks(step_count), degrees)


def _trimmed(values: Float64Array, slowest: int) -> Level:
    count, kept = values.size, values.size - slowest
    ordered = np.sort(values)
    value = float(ordered[:kept].mean())
    if kept < 2:
        return Level(value)
    variance, _ = variance_of_mean(np.minimum(values, ordered[kept - 1]))
    variance *= count * (count - 1) / (kept * (kept - 1))
    return Level(value, variance * _beyond_blocks(count), kept - 1)


def _beyond_blocks(step_count: int) -> float:
    return 1 + _BETWEEN_BLOCKS / block_length(step_count)


# Two sides


def difference(
    before: Sequence[Level], after: Sequence[Level], spread: float = 0.0, degrees: float = 0.0
) -> Difference:
    """The difference of two sides, each with the level of one capture or more.

    The interval is the wider of two: of the steps, as if every capture met the same conditions (Welch), and of the runs,
    by how much captures of a side differ. `spread`, `degrees`: what is known of that beforehand, a standard deviation and
    its degrees of freedom; it counts as if so many captures had shown it (Smyth 2004).
    """
    old, new = ([level.value for level in side] for side in (before, after))
    value = math.fsum(new) / len(new) - math.fsum(old) / len(old)
    of_runs = _variance_of_runs(old, new, spread, degrees)
    known = [known for known in (_variance_of_steps(before, after), of_runs) if known is not None]
    if not known:
        return Difference(value)
    half, least, error, free = max(_widths(*variance) for variance in known)
    return Difference(
        value=value,
        low=value - half,
        high=value + half,
        least_shown=least,
        chance=_chance(value, error, free),
        is_over_runs=of_runs is not None,
    )


def step_change(
    before: Iterable[Level | None],
    after: Iterable[Level | None],
    spread: RunSpread | None = None,
) -> StepChange | None:
    """The same of typical steps, whose levels are logarithms, as shares of the step before; None without one on a side."""
    old, new = ([level for level in side if level is not None] for side in (before, after))
    if not old or not new:
        return None
    known = spread or RunSpread(0.0, 0.0)
    of_logarithms = difference(old, new, known.ratio, known.degrees)
    low, high = of_logarithms.low, of_logarithms.high
    if low is not None and high is not None:
        low, high = low - _ROUNDING, high + _ROUNDING
    return StepChange(
        ratio=math.expm1(of_logarithms.value),
        low_ratio=_share(low),
        high_ratio=_share(high),
        least_shown_ratio=_share(of_logarithms.least_shown),
        direction=Difference(of_logarithms.value, low, high).direction,
        is_over_runs=of_logarithms.is_over_runs,
        chance=of_logarithms.chance,
        noise_ratio=None if high is None else _share(high - of_logarithms.value),
    )


def part_difference(
    before: Sequence[Level], after: Sequence[Level], spread: RunSpread | None = None
) -> Difference:
    """The same of a part of the step; runs are taken to differ by the same share in each part."""
    if spread is None:
        return difference(before, after)
    longest = max(math.fsum(level.value for level in side) / len(side) for side in (before, after))
    return difference(before, after, spread.ratio * longest, spread.degrees)


def most_chance(differences: Iterable[Difference]) -> float:
    """The largest chance with which one of several differences counts as shown; -1 where none does.

    Among many differences without a change some intervals exclude zero. Of those with this chance or less one in twenty
    is no change (Benjamini and Hochberg 1995).
    """
    most = -1.0
    ordered = sorted(row.chance for row in differences if row.chance is not None)
    for rank, chance in enumerate(ordered, 1):
        if chance <= (1 - CONFIDENCE) * rank / len(ordered):
            most = chance
    return most


def _variance_of_steps(
    before: Sequence[Level], after: Sequence[Level]
) -> tuple[float, float] | None:
    """Of the difference, with its degrees of freedom (Welch and Satterthwaite); None where a capture has a single step."""
    parts = []
    for side in (before, after):
        for level in side:
            if level.variance is None:
                return None
            parts.append((level.variance / len(side) ** 2, level.degrees))
    whole = math.fsum(variance for variance, _ in parts)
    if not whole:
        return 0.0, math.fsum(degrees for _, degrees in parts)
    squares = math.fsum(variance**2 / degrees for variance, degrees in parts)
    return whole, max(whole**2 / squares, 1.0) if squares else 1.0


def _variance_of_runs(
    before: Sequence[float], after: Sequence[float], spread: float, degrees: float
) -> tuple[float, float] | None:
    """Of the difference, pooled over both sides, with its degrees of freedom; None where nothing shows how runs differ."""
    total = degrees * spread**2
    for side in (before, after):
        mean = math.fsum(side) / len(side)
        degrees += len(side) - 1
        total += math.fsum((value - mean) ** 2 for value in side)
    if degrees < 1:
        return None
    return total / degrees * (1 / len(before) + 1 / len(after)), degrees


def _widths(variance: float, degrees: float) -> tuple[float, float, float, float]:
    """Half of the interval, what it shows, the standard error and its degrees of freedom."""
    error, inside = math.sqrt(variance), student(CONFIDENCE, degrees)
    return inside * error, (inside + student(2 * POWER - 1, degrees)) * error, error, degrees


def _chance(value: float, error: float, degrees: float) -> float:
    if not error:
        return 0.0 if value else 1.0
    angle = math.atan(abs(value) / error / math.sqrt(degrees))
    return max(1 - inside_angle(angle, degrees), 0.0)


def _share(logarithm: float | None) -> float | None:
    return None if logarithm is None else math.expm1(min(logarithm, _MOST_LOGARITHM))


_MOST_LOGARITHM: Final = math.log(1e6)
"""Ends of intervals beyond a million times the step are that: nothing is known there."""
