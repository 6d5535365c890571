"""Holds the sides of a comparison: captures, each run once, with their steps exactly as long and by state as they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from math import floor
from typing import Final, TypeVar

import numpy as np
from msgspec import Struct

from traceview.analysis.measures.step_report import StepRow
from traceview.base.stats import Float64Array
from traceview.comparison.noise import (
    Difference,
    Level,
    run_spread_of,
    step_change,
    step_level,
)
from traceview.ledger.states import KEYS
from traceview.report.model import Report, traces_of

SIDES: Final = ("before", "after")

K = TypeVar("K")


class CaptureSteps(Struct, frozen=True, eq=False):
    """The used steps of one capture, in their order; steps of the same number on several hosts are one, their mean.

    `lengths_ps`: float64 `[steps]`. `states`: by state its exact mean over devices and steps, which sum to `mean_ps`;
    empty without devices. `state_lengths_ps`: by the same key float64 `[steps]`.
    """

    lengths_ps: Float64Array
    mean_ps: Fraction
    states: Mapping[str, Fraction]
    state_lengths_ps: Mapping[str, Float64Array]

    @property
    def level(self) -> Level | None:
        """Their level, for the estimate of a change."""
        return step_level(self.lengths_ps)


def capture_steps(report: Report) -> CaptureSteps | None:
    """The used steps of a report; None without any."""
    found = report.results.steps
    used = [row for row in (found.steps if found else ()) if row.used]
    by_number: dict[int, list[Mapping[str, Fraction]]] = {}
    for row in [row for row in used if row.devices] or used:
        by_number.setdefault(row.number, []).append(_mean_of_devices(row))
    if not by_number:
        return None
    steps = [mean_of(by_number[number]) for number in sorted(by_number)]
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


def _mean_of_devices(row: StepRow) -> dict[str, Fraction]:
    """By state the mean of the devices of the host; of a step without devices its length."""
    if not row.devices:
        return {_WHOLE: Fraction(row.duration_ps)}
    total: Counter[str] = Counter()
    for device in row.devices:
        total.update(device.states)
    return {key: Fraction(ps, len(row.devices)) for key, ps in total.items()}


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
    sums = [0, *map(floor, accumulate(parts.values()))]
    return {key: end - begin for key, (begin, end) in zip(parts, pairwise(sums), strict=True)}


def batch_size_of(group: Sequence[Report]) -> int | None:
    """Examples of one step; None where not known, and where the runs differ."""
    balances = [report.results.balance for report in group]
    sizes = {balance.throughput.batch_size if balance else None for balance in balances}
    return sizes.pop() if len(sizes) == 1 else None


class Side(Struct, frozen=True, eq=False):
    """Captures of one program, each run once.

    `reports`: a saved report and its own trace are one run, of which the first given is kept. `steps`: of the captures that
    have any. `name`: the path or the name that they were given as. `remarks`: that a capture was given again, which is no
    further evidence.
    """

    reports: tuple[Report, ...]
    steps: tuple[CaptureSteps, ...]
    name: str
    remarks: tuple[str, ...]

    @classmethod
    def of(cls, reports: Sequence[Report], name: str = "") -> Side:
        """The side that these captures make."""
        kept = tuple(each_run_once(reports))
        steps = tuple(filter(None, map(capture_steps, kept)))
        is_again = len(kept) < len(reports)
        return cls(
            kept, steps, name, ("A capture that is given again counts once",) if is_again else ()
        )

    @property
    def mean_ps(self) -> Fraction:
        """The mean step over the captures."""
        return mean([capture.mean_ps for capture in self.steps])

    @property
    def states(self) -> dict[str, int]:
        """The mean step by state, whole picoseconds; empty where a capture has no ledger."""
        if not all(capture.states for capture in self.steps):
            return {}
        means = mean_of([capture.states for capture in self.steps])
        return whole({key: means[key] for key in KEYS if key in means})

    def runs_on(self, other: Side) -> list[str]:
        """The names of the runs of which the other side has the same steps, too."""
        known = set(map(_identity, other.reports))
        return [
            own.source.run for own in self.reports if traces_of(own) and _identity(own) in known
        ]

    def is_same_as(self, other: Side) -> bool:
        """Whether both sides are the same steps of the same runs."""
        return len(self.reports) == len(other.reports) == len(self.runs_on(other))

    def change_to(self, after: Side, earlier: Sequence[Sequence[Level]] = ()) -> Difference | None:
        """By how much the typical step of another side differs; None without one on a side.

        `earlier`: steps of earlier runs of the job, in groups without a change.
        """
        levels = [[capture.level for capture in side.steps] for side in (self, after)]
        spread = run_spread_of((*self.reports, *after.reports))
        return step_change(levels[0], levels[1], spread, earlier)


def each_run_once(reports: Iterable[Report]) -> Iterator[Report]:
    """The first report on each run."""
    known: set[frozenset[str]] = set()
    for report in reports:
        traces = traces_of(report)
        if not traces or traces not in known:
            yield report
        known.add(traces)


def _identity(report: Report) -> tuple[frozenset[str], bytes]:
    """The run and its steps: reports on other steps of one trace can be compared with each other."""
    steps = capture_steps(report)
    return traces_of(report), steps.lengths_ps.tobytes() if steps else b""
