"""Holds the captures of a side: each run once, with its used steps, exactly as long and by state as they were."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import Final, TypeVar

import numpy as np
from msgspec import Struct

from traceview.base.stats import Float64Array
from traceview.document import numbers
from traceview.report.model import Report, traces_of

SIDES: Final = ("before", "after")

K = TypeVar("K")


class CaptureSteps(Struct, frozen=True, eq=False):
    """The used steps of one capture, in their order; steps of the same number on several hosts are one, their mean.

    `lengths_ps`: float64 `[steps]`. `states`: by state its exact mean over devices and steps, which sum to `mean_ps`;
    empty without a ledger. `state_lengths_ps`: by the same key float64 `[steps]`.
    """

    lengths_ps: Float64Array
    mean_ps: Fraction
    states: Mapping[str, Fraction]
    state_lengths_ps: Mapping[str, Float64Array]


def capture_steps(report: Report) -> CaptureSteps | None:
    """The used steps of a report; None without any."""
    by_number: dict[int, list[Mapping[str, int]]] = {}
    ledger, found = report.results.ledger, report.results.steps
    if ledger is not None and ledger.steps:
        for step in ledger.steps:
            by_number.setdefault(step.step, []).append(step.states)
    else:
        for row in found.steps if found else ():
            if row.used:
                by_number.setdefault(row.number, []).append({_WHOLE: row.duration_ps})
    if not by_number:
        return None
    steps = [_mean_of_hosts(by_number[number]) for number in sorted(by_number)]
    states = mean_of(steps)
    lengths = [sum(step.values(), Fraction(0)) for step in steps]
    return CaptureSteps(
        lengths_ps=_series(lengths),
        mean_ps=mean(lengths),
        states={} if _WHOLE in states else states,
        state_lengths_ps={
            key: _series(step.get(key, Fraction(0)) for step in steps)
            for key in states
            if key != _WHOLE
        },
    )


_WHOLE: Final = "step"


def step_time_ps(report: Report) -> int | None:
    """The mean step of a report, rounded down, as comparisons count it; None without a used step."""
    steps = capture_steps(report)
    return None if steps is None else floor(steps.mean_ps)


def _mean_of_hosts(hosts: Sequence[Mapping[str, int]]) -> dict[str, Fraction]:
    return mean_of([{key: Fraction(ps) for key, ps in host.items()} for host in hosts])


def _series(values: Iterable[Fraction]) -> Float64Array:
    return np.array([float(value) for value in values], dtype=np.float64)


def mean(values: Sequence[Fraction]) -> Fraction:
    """The exact mean."""
    return sum(values, Fraction(0)) / len(values)


def mean_of(parts: Sequence[Mapping[K, Fraction]]) -> dict[K, Fraction]:
    """The exact mean by key; where a key is missing it is 0."""
    keys = dict.fromkeys(key for of in parts for key in of)
    return {key: mean([of.get(key, Fraction(0)) for of in parts]) for key in keys}


def whole(parts: Mapping[K, Fraction]) -> dict[K, int]:
    """The parts as whole numbers that sum to their sum, rounded down."""
    rounded: dict[K, int] = {}
    total, below = Fraction(0), 0
    for key, part in parts.items():
        total += part
        rounded[key] = floor(total) - below
        below = floor(total)
    return rounded


# Captures that are given more than once are no further evidence


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
