"""Estimates by how much a time changed between two sides of captures, with an interval that holds what steps cannot show.

Everything that compares runs asks here: `compare`, `gate`, `history`, `watch` and `--scaling`. Steps of one capture do not
show how the next run differs, so the interval is of runs: an assumption for their kind of device, with what captures of a
side and earlier runs of the same job show, and the noise of the steps (Smyth 2004). How often it is wrong: docs/runs.md,
"How often it is wrong"; definitions: docs/method.md, "Difference of step times".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceview.base.stats import Float64Array, inside_angle, student, variance_of_mean
from traceview.report.model import Report

Direction: TypeAlias = Literal["slower", "faster", "none", "unknown"]
Measure: TypeAlias = Literal["mean", "typical"]
"""The step that a change is of: the mean one, or the typical one, the mean without the slowest third."""
Basis: TypeAlias = Literal["captures", "earlier", "assumed", "none"]
"""Evidence of how much runs differ: the captures of the sides, earlier runs of the job, an assumption, or none."""

CONFIDENCE: Final = 0.95
"""Share of intervals that hold the true difference."""
_SURER: Final = (1 + CONFIDENCE) / 2
"""Of each of two intervals, of which either may show a change (Bonferroni)."""
_OF_OUTLIERS: Final = 0.99
"""Of the noise of steps where few long ones make the difference: it is looked for there only; a choice of ours."""
POWER: Final = 0.9
"""Share of the runs with a change of `least_shown` in which it is shown."""
TOO_NOISY: Final = 0.1
"""Of the step: runs that would miss a change of this size give no verdict where none is shown."""
SHOW_NOTHING: Final = 9.0
"""Runs that only show the step to be ten times as long show nothing."""
ENOUGH_RUNS: Final = 3
"""Captures of a side that show how much runs differ."""
ENOUGH: Final = f"give {ENOUGH_RUNS} captures of each side"
"""Advice where runs differ too much for a verdict."""
SLOWEST: Final = 3
"""One step in so many, the slowest, does not count for the typical step: what disturbs a machine makes steps longer."""
_ROUNDING: Final = 1e-9
"""Of a difference of logarithms: so equal steps do not differ."""
_MOST_LOGARITHM: Final = math.log(1e6)
"""Ends of intervals beyond a million times the step are that: nothing is known there."""


class RunSpread(Struct, frozen=True):
    """The assumed spread of runs of one program without a change.

    `ratio`: standard deviation of their steps, as a share of the step. `degrees`: degrees of freedom that this knowledge is
    worth; few make long intervals. `is_of_replicas`: it is measured, and stays part of what several captures show.
    """

    ratio: float
    degrees: float
    is_of_replicas: bool = False


REPLICA_SPREAD: Final = RunSpread(ratio=0.056, degrees=1.32, is_of_replicas=True)
"""Of replicas that share the cores of a CPU; `scripts.step_noise` estimates it from recorded runs."""
DEVICE_SPREAD: Final = RunSpread(ratio=0.04, degrees=4)
"""Of GPUs and other accelerators: a choice of ours, with which single captures of runs that differ by up to 5% hold."""


def run_spread_of(reports: Iterable[Report]) -> RunSpread:
    """The assumed spread of runs on such devices."""
    kinds = {device.kind for report in reports for device in report.device_times}
    return REPLICA_SPREAD if "replica" in kinds else DEVICE_SPREAD


class Level(Struct, frozen=True):
    """The estimate of a time from one capture. `variance`: of the value by the noise of its steps; None for a single step."""

    value: float
    variance: float | None = None
    degrees: float = 0.0


class Difference(Struct, frozen=True):
    """How much a time differs between two sides: in the unit of the levels, or as a share of the time before.

    Attributes:
        value: After − before.
        low: Lower end of the 95% interval; None, as all below, where nothing shows the noise: a single step on a side.
        high: Upper end of it.
        least_shown: A difference of this size, in either direction, is shown by 90% of runs as these.
        chance: How often runs without a change differ as much by chance; by the noise of their steps alone where the spread of
            runs is assumed, for that is one unknown of all parts.
        basis: What shows how much runs differ without a change.
        measure: Of a step, which one the value and its interval are of.
    """

    value: float
    low: float | None = None
    high: float | None = None
    least_shown: float | None = None
    chance: float | None = None
    basis: Basis = "none"
    measure: Measure = "mean"

    @property
    def direction(self) -> Direction:
        """Slower or faster where the interval excludes zero."""
        if self.low is None or self.high is None:
            return "unknown"
        return "slower" if self.low > 0 else "faster" if self.high < 0 else "none"


# Levels of one capture


class StepLevels(Struct, frozen=True):
    """The logarithms of the mean and of the typical step of one capture."""

    mean: Level
    typical: Level


Earlier: TypeAlias = Sequence[Sequence[StepLevels]]
"""Steps of earlier runs of the job, in groups without a change."""


def step_levels(lengths: npt.ArrayLike) -> StepLevels | None:
    """The levels of the step; None without steps, or with one of no length.

    The error of the typical one is Yuen's (1974) of a trimmed mean, from steps that are no longer than the longest that counts.
    """
    values = np.asarray(lengths, dtype=np.float64)
    if not values.size or values.min() <= 0:
        return None
    mean, typical = mean_level(values), _trimmed(np.log(values), values.size // SLOWEST)
    variance = None if mean.variance is None else mean.variance / mean.value**2
    return StepLevels(Level(math.log(mean.value), variance, mean.degrees), typical)


def mean_level(values: npt.ArrayLike) -> Level:
    """The mean of a part of the step, of one step or more: parts sum to the mean step."""
    return _trimmed(np.asarray(values, dtype=np.float64), 0)


def _trimmed(values: Float64Array, slowest: int) -> Level:
    kept = values.size - slowest
    ordered = np.sort(values)
    value = float(ordered[:kept].mean())
    if kept < 2:
        return Level(value)
    return Level(value, *variance_of_mean(np.minimum(values, ordered[kept - 1]), kept))


# Two sides


def difference(
    before: Sequence[Level],
    after: Sequence[Level],
    spread: RunSpread,
    earlier: Sequence[Sequence[Level]] = (),
    *,
    has_outliers: bool = False,
) -> Difference:
    """The difference of two sides, each with the level of one capture or more, in the unit of the levels, as is `spread`.

    `earlier`: runs in groups without a change. `has_outliers`: few captures do not show how much they differ.
    docs/method.md, "Difference of step times".
    """
    sides = (before, after)
    value, share = _mean(after) - _mean(before), sum(1 / len(side) for side in sides)
    squares, degrees = _within((*sides, *earlier))
    has_noise, is_own = (free >= ENOUGH_RUNS - 1 for free in (degrees, _within(sides)[1]))
    basis: Basis = "captures" if is_own else "earlier" if has_noise else "assumed"
    shown: tuple[float, float] = squares / max(degrees, 1) * share, degrees
    levels = [(level, len(side)) for side in sides for level in side]
    if any(level.variance is None for level, _ in levels):
        return _interval(value, basis, shown) if has_noise else Difference(value)
    of_steps = _sum_of([((of.variance or 0.0) / n**2, of.degrees) for of, n in levels])
    if min(map(len, sides)) >= ENOUGH_RUNS and not has_outliers:
        of_steps = 0.0, 1.0  # The captures show it.
    known = spread.degrees + degrees
    of_runs = (spread.degrees * spread.ratio**2 + squares) / known * share, known
    if has_outliers:
        return _interval(value, basis, of_runs, of_steps, of_each_step=_OF_OUTLIERS)
    made = _interval(value, basis, of_runs, of_steps)
    if not has_noise:
        return replace(made, chance=_chance(value, *of_steps))
    if spread.is_of_replicas:
        return made
    alone = _interval(value, basis, shown, confidence=_SURER)
    both = _interval(value, basis, of_runs, of_steps, _SURER)
    made = min(alone, both, key=lambda row: row.high or 0.0)
    return replace(made, chance=min(2 * (made.chance or 0.0), 1.0))


def step_change(
    before: Iterable[StepLevels | None],
    after: Iterable[StepLevels | None],
    spread: RunSpread,
    earlier: Earlier = (),
    ratio: float | None = None,
) -> Difference | None:
    """The change of the step as a share of the step before; None without one on a side.

    It is that of the mean step, `ratio` or else that of its levels: with the interval of the typical one if that has it in it,
    else with its own. Where this shows nothing, and the typical step does, it is that of the typical step.
    """
    sides = [[levels for levels in side if levels] for side in (before, after)]
    if not all(sides):
        return None
    old, new, *rest = ([of.typical for of in side] for side in (*sides, *earlier))
    typical = _in_shares(difference(old, new, spread, rest))
    old, new, *rest = ([of.mean for of in side] for side in (*sides, *earlier))
    mean = _in_shares(difference(old, new, spread, rest, has_outliers=True), ratio)
    if typical.low is None or typical.high is None:
        return typical
    if typical.low <= mean.value <= typical.high:
        return replace(typical, value=mean.value)
    is_clear = typical.direction != "none" or (typical.least_shown or 0.0) < TOO_NOISY
    return replace(typical, measure="typical") if is_clear and mean.direction == "none" else mean


def _in_shares(made: Difference, ratio: float | None = None) -> Difference:
    """The difference of logarithms, around `ratio` if that is known."""
    moved = 0.0 if ratio is None else math.log1p(ratio) - made.value
    return replace(
        made,
        value=math.expm1(made.value + moved),
        low=None if made.low is None else _share(made.low + moved - _ROUNDING),
        high=None if made.high is None else _share(made.high + moved + _ROUNDING),
        least_shown=None if made.least_shown is None else _share(made.least_shown),
    )


def part_difference(
    before: Sequence[Level], after: Sequence[Level], spread: RunSpread
) -> Difference:
    """The difference of a part of the step; runs are taken to differ by the same share in each part."""
    longest = max(_mean(before), _mean(after))
    return difference(before, after, RunSpread(spread.ratio * longest, spread.degrees))


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


def _mean(side: Sequence[Level]) -> float:
    return math.fsum(level.value for level in side) / len(side)


def _within(groups: Iterable[Sequence[Level]]) -> tuple[float, int]:
    """The squares of the levels around the mean of their group, and their degrees of freedom."""
    squares, degrees = 0.0, 0
    for group in groups:
        mean = _mean(group)
        squares += math.fsum((level.value - mean) ** 2 for level in group)
        degrees += len(group) - 1
    return squares, degrees


def _sum_of(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The sum of independent variances, and its degrees of freedom (Satterthwaite)."""
    variance = math.fsum(part for part, _ in parts)
    squares = math.fsum(part**2 / degrees for part, degrees in parts)
    if not squares:
        return variance, math.fsum(degrees for _, degrees in parts)
    return variance, max(variance**2 / squares, 1.0)


def _interval(
    value: float,
    basis: Basis,
    runs: tuple[float, float],
    steps: tuple[float, float] = (0.0, 1.0),
    confidence: float = CONFIDENCE,
    of_each_step: float = CONFIDENCE,
) -> Difference:
    """The interval with the squares of both intervals together, each of a variance with its degrees of freedom.

    Satterthwaite's interval of a sum would be shorter than that of what is known by few degrees of freedom alone.
    """
    # Rounded, for the cache.
    of_runs, of_steps = round(runs[1], 2), round(steps[1], 2)
    squares = (
        student(confidence, of_runs) ** 2 * runs[0],
        student(of_each_step, of_steps) ** 2 * steps[0],
    )
    degrees = of_runs if squares[0] >= squares[1] else of_steps
    half = math.sqrt(sum(squares))
    error = half / student(confidence, degrees)
    return Difference(
        value=value,
        low=value - half,
        high=value + half,
        least_shown=half + student(2 * POWER - 1, degrees) * error,
        chance=_chance(value, error**2, degrees),
        basis=basis,
    )


def _chance(value: float, variance: float, degrees: float) -> float:
    if not variance:
        return 0.0 if value else 1.0
    angle = math.atan(abs(value) / math.sqrt(variance * degrees))
    return max(1 - inside_angle(angle, degrees), 0.0)


def _share(logarithm: float) -> float:
    return math.expm1(min(logarithm, _MOST_LOGARITHM))
