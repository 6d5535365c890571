"""Estimates how much the mean of a series of steps differs between two sides, with an interval that respects noise.

docs/method.md, "Difference of step times", derives the rules and states what they assume.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceview.comparison.typical_step import TypicalChange, typical_change
from traceview.mean_variance import variance_of_mean

Direction: TypeAlias = Literal["slower", "faster", "none", "unknown"]

CONFIDENCE: Final = 0.95
"""Share of intervals that hold the true difference."""
POWER: Final = 0.9
"""Share of the runs with a change of `least_shown_ratio` in which it is shown."""
ASKED_RATIO: Final = 0.08
"""The change for which the verdict says how many steps or captures would show it; a choice of ours."""
MOST_NEEDED: Final = 1000
"""Steps or captures: more are no advice."""
_FURTHER_NEIGHBOURS: Final = 1.25
"""Variance of a mean of steps over that by blocks, which are too short to hold all steps that are alike; measured."""
_BESIDE_TYPICAL: Final = 0.99
"""Share of the intervals of the mean that hold the true difference where the typical step is judged, too."""
_OF_FEW: Final = 1.5
"""Times what the mean would show by its error: of two errors, each known from few steps, the smaller is too small."""
_GRID: Final = np.linspace(0.0, 1.0, 513)
_SIMPSON: Final = np.r_[1.0, np.tile([4.0, 2.0], 256)[:-1], 1.0] / (3 * 512)


class RunSpread(Struct, frozen=True):
    """What is known beforehand of how much runs of one program differ without a change.

    `ratio`: standard deviation of their mean steps, as a share of the step. `degrees`: degrees of freedom that this
    knowledge is worth.
    """

    ratio: float
    degrees: float


REPLICA_RUN_SPREAD: Final = RunSpread(ratio=0.065, degrees=1.65)
"""Of replicas that share the cores of a CPU; `scripts.step_noise` estimates it from recorded runs."""


class Difference(Struct, frozen=True):
    """How much the mean step differs between two sides.

    A side without a step has a mean of None, and nothing else is known then. Without an interval (a single step on a
    side) all but the means and the difference are None, and the direction is unknown.

    Attributes:
        before: Mean over the captures of the mean over their steps, in the unit of the series.
        after: The same of the other side.
        difference: after − before.
        ratio: difference ÷ before.
        low: Lower end of the 95% interval of the difference.
        high: Upper end of it.
        low_ratio: Lower end of the 95% interval of the ratio; null where before may be zero.
        high_ratio: Upper end of it.
        least_shown_ratio: A change of this share of before, in either direction, is shown by 90% of runs as these.
        direction: slower or faster where the interval excludes zero; none where it holds zero; unknown without one.
        before_step_counts: Steps by capture.
        after_step_counts: The same of the other side.
        degrees: Degrees of freedom of the interval.
        chance: How often the means of runs without a change differ as much by chance.
        is_over_runs: Whether the interval covers how much runs differ without a change; else it covers steps alone.
        typical: By how much the typical step differs; only of whole steps of one capture of each side.
        needed_steps: Steps of each side with which such runs would show a change of 8%; None where these do.
        needed_captures: Captures of each side with which runs would show this change, or 8% where it is smaller; None
            where these do, or the interval is not over runs.
    """

    before: float | None
    after: float | None
    difference: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    low_ratio: float | None = None
    high_ratio: float | None = None
    least_shown_ratio: float | None = None
    direction: Direction = "unknown"
    before_step_counts: tuple[int, ...] = ()
    after_step_counts: tuple[int, ...] = ()
    degrees: float | None = None
    chance: float | None = None
    is_over_runs: bool = False
    typical: TypicalChange | None = None
    needed_steps: int | None = None
    needed_captures: int | None = None


class Mean(Struct, frozen=True):
    """The mean of the steps of one capture.

    `variance`: of the mean, as the noise of the steps shows it, with its degrees of freedom; None for a single step.
    """

    value: float
    step_count: int
    variance: float | None = None
    degrees: float = 0.0


class _Variance(Struct, frozen=True):
    """Estimated variances of both means, and the degrees of freedom of the estimate."""

    before: float
    after: float
    degrees: float

    @property
    def both(self) -> float:
        """Variance of the difference."""
        return self.before + self.after


def difference(
    before: Sequence[npt.ArrayLike],
    after: Sequence[npt.ArrayLike],
    spread: RunSpread | None = None,
) -> Difference:
    """The difference of the mean step of two sides; each side is one array per capture, its steps in their order.

    `spread`: what is known of the differences of runs; without it a single capture of each side says nothing of them.
    Values are of any unit, one per step, not negative. Captures without a step are left out.
    """
    return difference_of_means(_means(before), _means(after), spread)


def step_difference(
    before: Sequence[npt.ArrayLike],
    after: Sequence[npt.ArrayLike],
    spread: RunSpread | None = None,
) -> Difference:
    """The same of whole steps: of one capture of each side alone, it is shown by the typical step or by the mean."""
    result = difference(before, after, spread)
    if result.is_over_runs or result.direction == "unknown":
        return result
    old, new = (
        next(array for values in side if (array := np.asarray(values, dtype=np.float64)).size)
        for side in (before, after)
    )
    typical = typical_change(old, new)
    direction, least = result.direction, result.least_shown_ratio
    if typical is not None:
        is_mean_shown = result.chance is not None and result.chance < 1 - _BESIDE_TYPICAL
        direction = direction if is_mean_shown else typical.direction
        if least is not None and result.degrees is not None:
            least *= (
                _OF_FEW * _quantiles(result.degrees, _BESIDE_TYPICAL) / _quantiles(result.degrees)
            )
            least = min(least, typical.least_shown_ratio)
    return replace(
        result,
        typical=typical,
        direction=direction,
        least_shown_ratio=least,
        needed_steps=None if least is None else _needed_steps(least, min(old.size, new.size)),
    )


def _needed_steps(least_ratio: float, count: int) -> int | None:
    """The error of a mean falls with the root of the number of steps; to a multiple of five."""
    needed = math.ceil(count * (least_ratio / ASKED_RATIO) ** 2 / 5) * 5
    return needed if least_ratio > ASKED_RATIO and needed <= MOST_NEEDED else None


def difference_of_means(
    before: Sequence[Mean], after: Sequence[Mean], spread: RunSpread | None = None
) -> Difference:
    """The same of means that are known already; each side is one mean per capture."""
    counts = [tuple(mean.step_count for mean in side) for side in (before, after)]
    if not before or not after:
        return Difference(
            _value(before), _value(after), before_step_counts=counts[0], after_step_counts=counts[1]
        )
    old, new = _value(before) or 0.0, _value(after) or 0.0
    change = new - old
    ratio = change / old if old else None
    of_steps = _variance_of_steps(before, after)
    of_runs = _variance_of_runs(before, after, spread)
    known = [variance for variance in (of_steps, of_runs) if variance is not None]
    if not known:
        return Difference(
            old, new, change, ratio, before_step_counts=counts[0], after_step_counts=counts[1]
        )
    variance = max(known, key=lambda known: student(CONFIDENCE, known.degrees) ** 2 * known.both)
    factor, error = student(CONFIDENCE, variance.degrees), math.sqrt(variance.both)
    low, high = change - factor * error, change + factor * error
    ratios = _interval_of_ratio(old, new, variance, factor)
    shown = _quantiles(variance.degrees) * error
    return Difference(
        before=old,
        after=new,
        difference=change,
        ratio=ratio,
        low=low,
        high=high,
        low_ratio=ratios[0] if ratios else None,
        high_ratio=ratios[1] if ratios else None,
        least_shown_ratio=shown / old if old else None,
        direction="slower" if low > 0 else "faster" if high < 0 else "none",
        before_step_counts=counts[0],
        after_step_counts=counts[1],
        degrees=variance.degrees,
        chance=_chance(change, error, variance.degrees),
        is_over_runs=of_runs is not None,
        needed_captures=_needed_captures(of_runs, shown, change, old, len(before), len(after)),
    )


def _quantiles(degrees: float, confidence: float = CONFIDENCE) -> float:
    """Standard errors of a change that is shown by `POWER` of runs."""
    return student(confidence, degrees) + student(2 * POWER - 1, degrees)


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


def _means(side: Sequence[npt.ArrayLike]) -> list[Mean]:
    means = []
    for values in (np.asarray(values, dtype=np.float64) for values in side):
        if values.size > 1:
            means.append(Mean(float(values.mean()), int(values.size), *variance_of_mean(values)))
        elif values.size:
            means.append(Mean(float(values[0]), 1))
    return means


def _value(side: Sequence[Mean]) -> float | None:
    return sum(mean.value for mean in side) / len(side) if side else None


@cache
def student(inside: float, degrees: float) -> float:
    """How far from zero a value of Student's distribution stays with probability `inside`; one degree at least."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if _inside(angle, degrees) < inside else (low, angle)
    return math.sqrt(degrees) * math.tan(low)


def _chance(change: float, error: float, degrees: float) -> float:
    if not error:
        return 0.0 if change else 1.0
    angle = math.atan(abs(change) / error / math.sqrt(degrees))
    return max(1 - _inside(angle, degrees), 0.0)


def _inside(angle: float, degrees: float) -> float:
    """How often √ν·tan φ of Student's distribution is nearer to zero than this angle φ.

    In φ the density is proportional to cos φ to the power of ν − 1, whose integral is found by Simpson's rule.
    """
    whole = math.sqrt(math.pi) / 2
    whole *= math.exp(math.lgamma(degrees / 2) - math.lgamma((degrees + 1) / 2))
    return angle * float(_SIMPSON @ np.cos(angle * _GRID) ** (degrees - 1)) / whole


def _variance_of_steps(before: Sequence[Mean], after: Sequence[Mean]) -> _Variance | None:
    """As if every capture met the same conditions; None where a capture has a single step."""
    sides = []
    parts = []
    for side in (before, after):
        of_side = [
            (mean.variance / len(side) ** 2, mean.degrees)
            for mean in side
            if mean.variance is not None
        ]
        if len(of_side) < len(side):
            return None
        parts += of_side
        sides.append(sum(variance for variance, _ in of_side))
    old, new = (_FURTHER_NEIGHBOURS * variance for variance in sides)
    return _Variance(old, new, _joined_degrees(parts))


def _joined_degrees(parts: Sequence[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of variances (Welch and Satterthwaite)."""
    whole = sum(variance for variance, _ in parts)
    if not whole:
        return sum(degrees for _, degrees in parts)
    return max(whole**2 / sum(variance**2 / degrees for variance, degrees in parts), 1.0)


def _variance_of_runs(
    before: Sequence[Mean], after: Sequence[Mean], spread: RunSpread | None
) -> _Variance | None:
    """By how much captures of a side differ, with what is known beforehand; None where neither says anything.

    The variance of a share of the step, pooled over both sides, moderated as Smyth (2004) does for variances from few
    values each.
    """
    degrees, total = (spread.degrees, spread.degrees * spread.ratio**2) if spread else (0.0, 0.0)
    values = [np.array([mean.value for mean in side]) for side in (before, after)]
    for of_side in values:
        if of_side.size > 1 and of_side.mean() > 0:
            degrees += of_side.size - 1
            total += float(np.sum((of_side / of_side.mean() - 1) ** 2))
    if degrees < 1:
        return None
    share = total / degrees
    old, new = (share * float(of_side.mean()) ** 2 / of_side.size for of_side in values)
    return _Variance(old, new, degrees)


def _needed_captures(
    of_runs: _Variance | None,
    shown: float,
    change: float,
    old: float,
    before_count: int,
    after_count: int,
) -> int | None:
    """Captures of each side that show the change, or `ASKED_RATIO`, if further ones differ as is known by now."""
    asked = max(abs(change), ASKED_RATIO * old)
    if of_runs is None or not old or shown <= asked:
        return None
    share = of_runs.before * before_count / old**2
    others = of_runs.degrees - before_count - after_count

    def is_enough(count: int) -> bool:
        least = _quantiles(others + 2 * count) * math.sqrt(2 * share / count)
        return least * old <= asked

    counts = range(max(before_count, after_count) + 1, MOST_NEEDED + 1)
    place = bisect_left(counts, True, key=is_enough)
    return counts[place] if place < len(counts) else None


def _interval_of_ratio(
    old: float, new: float, variance: _Variance, factor: float
) -> tuple[float, float] | None:
    """The shares r of change for which old · (1 + r) − new is not shown to differ from zero (Fieller 1954).

    So it holds 0 exactly where the interval of the difference does. None where `old` may be zero.
    """
    squared = factor**2
    scale = old**2 - squared * variance.before
    if scale <= 0:
        return None
    root = (old * new) ** 2 - scale * (new**2 - squared * variance.after)
    half = math.sqrt(max(root, 0.0))
    return (old * new - half) / scale - 1, (old * new + half) / scale - 1
