"""Finds where the step time of a series of runs changes, by the estimate that compares any two sides of runs.

The series is split where runs without a change would least often differ as much; the split is kept if they would in at most
5% of series, however many places there are to split at (Bonferroni). Both parts are then split in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.comparison.difference import CONFIDENCE, Level, step_change

FEWEST_RUNS: Final = 3
"""Of a level: one or two slow runs may be outliers."""
LEAST_CHANGE_RATIO: Final = 0.01
"""Runs that differ by less are on one level: nobody acts on it. A choice of ours."""


def change_points(levels: Sequence[Level]) -> list[int]:
    """The places at which a new level begins, in order; empty where no change is shown. `levels`: of the step, by run."""
    places = range(FEWEST_RUNS, len(levels) - FEWEST_RUNS + 1)
    changes = [(step_change(levels[:place], levels[place:]), place) for place in places]
    chances = [
        (change.chance, place)
        for change, place in changes
        if change and change.chance is not None and abs(change.ratio) >= LEAST_CHANGE_RATIO
    ]
    chance, place = min(chances, default=(1.0, 0))
    if not chances or chance * len(places) > 1 - CONFIDENCE:
        return []
    behind = (place + later for later in change_points(levels[place:]))
    return [*change_points(levels[:place]), place, *behind]
