"""Finds captures that are given more than once: they are no further evidence, so each counts once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from traceview.comparison.limits import SIDES
from traceview.comparison.mean_step import capture_steps
from traceview.document import numbers
from traceview.report.identity import traces_of
from traceview.report.model import Report


def distinct(side: Sequence[Report]) -> list[Report]:
    """The captures of a side, each once: a saved report and its own trace are one, and the first given is kept."""
    known: set[frozenset[str]] = set()
    kept = []
    for report in side:
        traces = traces_of(report)
        if not traces or traces not in known:
            kept.append(report)
        known.add(traces)
    return kept


def is_one_run(before: Sequence[Report], after: Sequence[Report]) -> bool:
    """Whether both sides, each without repeats, are the same steps of the same runs."""
    return len(before) == len(after) == len(_on_both(before, after))


def repeats_of(before: Sequence[Report], after: Sequence[Report]) -> Iterator[str]:
    """Remarks on the captures as they were given: sentences without a full stop, at most one a side and one of both."""
    for name, side in zip(SIDES, (before, after), strict=True):
        words = repeat_words(side, f"captures {name}")
        if words:
            yield words
    sides = distinct(before), distinct(after)
    shared = _on_both(*sides)
    if shared and not is_one_run(*sides):
        verb = "is" if len(shared) == 1 else "are"
        yield f"{numbers.listed(shared)} {verb} on both sides, which hides a difference"


def repeat_words(side: Sequence[Report], captures: str = "captures") -> str:
    """How many runs the captures are of, where some are given again; else nothing. Without a full stop."""
    kept = distinct(side)
    if len(kept) == len(side):
        return ""
    runs = numbers.plural(len(kept), "run")
    each = "which counts" if len(kept) == 1 else "each of which counts"
    return f"{len(side)} {captures} are of {runs}, {each} once"


def _on_both(before: Sequence[Report], after: Sequence[Report]) -> list[str]:
    """The names of the runs after of which the other side has the same steps, too."""
    return [
        new.source.run
        for new in after
        if any(
            traces_of(new) and traces_of(new) == traces_of(old) and _have_same_steps(old, new)
            for old in before
        )
    ]


def _have_same_steps(old: Report, new: Report) -> bool:
    """Reports on other steps of one trace can be compared with each other."""
    steps = [capture_steps(report) for report in (old, new)]
    first, second = (of.lengths_ps if of else np.empty(0) for of in steps)
    return np.array_equal(first, second)
