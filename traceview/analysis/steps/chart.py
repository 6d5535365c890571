"""Makes the chart of step times: which steps are slow, and what they have more of than the median step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from traceview.analysis import path
from traceview.analysis.context import View
from traceview.analysis.path.result import CriticalPath
from traceview.analysis.steps.result import StepRow, Steps
from traceview.document import numbers
from traceview.document.figures import Span, StepBar, StepTimes
from traceview.document.vocabulary import PATH_PARTS, STEP_KINDS, Look, look_of

SLOW_RATIO: Final = 0.1
"""Of the median step: what a slow step takes longer at least; a choice of ours."""
SLOW_SPREADS: Final = 1.5
"""Of the interquartile range: the same, so that steps that vary anyway are not marked; Tukey's fence."""
_NAMED_STEPS: Final = 8
"""Slow steps that the sentence below the chart names; the chart marks all."""


def step_times(view: View, steps: Steps) -> StepTimes | None:
    """A bar per step, of several hosts the longest; None where no step counts."""
    if steps.median_ps is None:
        return None
    median_ps = steps.median_ps
    limit_ps = max(SLOW_RATIO * median_ps, SLOW_SPREADS * (steps.iqr_ps or 0))
    longest: dict[int, StepRow] = {}
    for row in steps.steps:
        known = longest.get(row.number)
        if known is None or row.duration_ps > known.duration_ps:
            longest[row.number] = row
    result = view.result(path.ANALYSIS)
    bars = []
    for row in sorted(longest.values(), key=lambda row: row.number):
        excess_ps = row.duration_ps - median_ps
        is_slow = row.used and excess_ps >= max(limit_ps, 1)
        bars.append(
            StepBar(
                number=row.number,
                duration_ps=row.duration_ps,
                look=STEP_KINDS[row.kind if row.used else "excluded"],
                excess_ps=excess_ps if is_slow else 0,
                cause=_cause(result, row) if is_slow and result else None,
                span=_span(view, row),
            )
        )
    used = [row.duration_ps for row in longest.values() if row.used]
    return StepTimes(tuple(bars), median_ps, _lead(bars, median_ps, used))


def _cause(result: CriticalPath, row: StepRow) -> Look | None:
    """What the path of the step has most more of than the median of all steps; None where it has more of nothing."""
    paths = (path for path in result.steps if path.host == row.host and path.step == row.number)
    by_cause = next((path.by_cause for path in paths), {})
    more = {cause: ps - result.by_cause.get(cause, 0) for cause, ps in by_cause.items()}
    cause = max(more, key=lambda cause: more[cause], default=None)
    return look_of(PATH_PARTS, cause) if cause is not None and more[cause] > 0 else None


def _span(view: View, row: StepRow) -> Span | None:
    """The step on the devices of its host."""
    if not row.devices or row.host not in view.window_start_ps:
        return None
    begin_ps = row.start_ps - view.window_start_ps[row.host]
    devices = tuple(part.device for part in row.devices)
    return Span(devices[0], begin_ps, begin_ps + row.duration_ps, devices[1:])


def _lead(bars: Sequence[StepBar], median_ps: int, used_ps: Sequence[int]) -> str:
    slow = [bar for bar in bars if bar.excess_ps]
    median = numbers.time(median_ps)
    if not slow and max(used_ps, default=0) - median_ps >= SLOW_RATIO * median_ps:
        return f"Steps take {numbers.time_range(used_ps)} (median {median}); none stands out."
    if not slow:
        return f"No slow step: the median is {median}."
    times = numbers.time_range(bar.duration_ps for bar in slow)
    named = numbers.beginning([str(bar.number) for bar in slow], _NAMED_STEPS)
    which = "Step" if len(slow) == 1 else "Steps"
    takes = "takes" if len(slow) == 1 else "take"
    lead = f"{which} {named} {takes} {times} instead of {median}{_every(slow)}."
    causes = Counter(bar.cause.words for bar in slow if bar.cause)
    if not causes:
        return lead
    words, count = causes.most_common(1)[0]
    of = "" if count == len(slow) else f" in {count} of {len(slow)}"
    return f"{lead} Most of the extra time{of}: {words}."


def _every(slow: Sequence[StepBar]) -> str:
    """That slow steps come at one distance, which is what a callback or a checkpoint does."""
    distances = {later.number - bar.number for bar, later in pairwise(slow)}
    if len(slow) < 3 or len(distances) > 1:
        return ""
    distance = distances.pop()
    return f", one in {distance} steps" if distance > 1 else ""
