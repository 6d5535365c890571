"""Holds the sides of a comparison, and compares their states, devices and findings.

A side is captures, each run once, with their steps exactly as long and by state as they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from math import exp, floor, fsum
from typing import Final, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.gpu_time.device_states import DeviceStates
from traceview.analysis.measures.step_report import StepRow
from traceview.analysis.rules.finding import EXPLAINS, Finding
from traceview.analysis.rules.words import Line
from traceview.base.stats import Float64Array
from traceview.comparison.model import (
    DeviceDifference,
    DeviceState,
    FindingDifference,
    StateDifference,
    StepDifference,
)
from traceview.comparison.noise import (
    Difference,
    Earlier,
    RunSpread,
    StepLevels,
    mean_level,
    part_difference,
    run_spread_of,
    step_change,
    step_levels,
)
from traceview.ledger.states import KEYS
from traceview.report.model import Report, devices_of, traces_of, why_absent

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
    def levels(self) -> StepLevels | None:
        """Their levels, for the estimate of a change."""
        return step_levels(self.lengths_ps)


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


def why_no_step(report: Report) -> str:
    """The reason why a report has no used step."""
    steps = report.results.steps
    if steps is None:
        return why_absent(report, "steps")
    excluded = ", ".join(dict.fromkeys(row.excluded for row in steps.steps if row.excluded))
    return f"no step is used: {excluded}" if excluded else "no step is used"


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


def setup_of(report: Report) -> tuple[str, int | None]:
    """The devices and the batch size: only step times of one set-up compare."""
    return devices_of(report), batch_size_of([report])


class Side(Struct, frozen=True, eq=False):
    """Captures of one program, each run once.

    `reports`: a saved report and its own trace are one run, of which the first given is kept. `steps`: of the captures that
    have any. `name`: the path or the name that they were given as.
    """

    reports: tuple[Report, ...]
    steps: tuple[CaptureSteps, ...]
    name: str

    @classmethod
    def of(cls, reports: Sequence[Report], name: str = "") -> Side:
        """The side that these captures make."""
        kept = tuple(each_run_once(reports))
        steps = tuple(filter(None, map(capture_steps, kept)))
        return cls(kept, steps, name)

    @property
    def mean_ps(self) -> Fraction:
        """The mean step over the captures."""
        return mean([capture.mean_ps for capture in self.steps])

    @property
    def typical_ps(self) -> float:
        """The typical step: of several captures the geometric mean."""
        levels = [levels.typical.value for of in self.steps if (levels := of.levels)]
        return exp(fsum(levels) / len(levels)) if levels else 0.0

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

    def change_to(self, after: Side, earlier: Earlier = ()) -> Difference | None:
        """By how much the step of another side differs; None without one on a side."""
        if not self.steps or not after.steps:
            return None
        old, new = ([capture.levels for capture in side.steps] for side in (self, after))
        spread = run_spread_of((*self.reports, *after.reports))
        ratio = float(after.mean_ps / self.mean_ps) - 1 if self.mean_ps else None
        return step_change(old, new, spread, earlier, ratio)


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


# Parts


def state_differences(before: Side, after: Side, spread: RunSpread) -> tuple[StateDifference, ...]:
    """The states that occur, the largest difference first; they sum to the mean steps and to their difference.

    Empty where a capture has no ledger: then states would not sum to the step.
    """
    old, new = before.states, after.states
    if not old or not new:
        return ()
    noise = state_noise(before.steps, after.steps, spread)
    rows = []
    for key, of_key in noise.items():
        first, second = old.get(key, 0), new.get(key, 0)
        rows.append(
            StateDifference(
                state=key,
                before_ps=first,
                after_ps=second,
                difference_ps=second - first,
                low_ps=None if of_key.low is None else round(of_key.low),
                high_ps=None if of_key.high is None else round(of_key.high),
                direction=of_key.direction,
                line=_line_of(key, (before if first > second else after).reports),
            )
        )
    return tuple(sorted(rows, key=lambda row: -abs(row.difference_ps)))


def state_noise(
    before: Sequence[CaptureSteps], after: Sequence[CaptureSteps], spread: RunSpread
) -> dict[str, Difference]:
    """By state that occurs how the mean over the steps differs, with its noise."""
    occur = {key for capture in (*before, *after) for key in capture.states}
    noise = {}
    for key in KEYS:
        if key in occur:
            series = [
                [of.state_lengths_ps.get(key, 0 * of.lengths_ps) for of in side]
                for side in (before, after)
            ]
            old, new = ([mean_level(steps) for steps in side] for side in series)
            first, second = map(np.concatenate, series)
            is_apart = first.max() < second.min() or second.max() < first.min()
            if is_apart and min(first.size, second.size) >= _FEWEST_STEPS:
                # What is longer in every step needs no estimate of how steps vary.
                old, new = ([replace(level, variance=0.0) for level in side] for side in (old, new))
            noise[key] = part_difference(old, new, spread)
    return noise


_FEWEST_STEPS: Final = 5


def _line_of(state: str, reports: Sequence[Report]) -> str | None:
    """The line of Python that the costliest finding on a state names."""
    lines = [
        (finding.loss.gpu_time_ratio, line)
        for report in reports
        for finding in report.findings
        if finding.loss is not None and state in finding.loss.states
        for line in _lines_in(finding)
    ]
    return max(lines)[1] if lines else None


def _lines_in(finding: Finding) -> list[str]:
    return [argument.line for argument in finding.arguments.values() if isinstance(argument, Line)]


def device_differences(
    before: Sequence[Report], after: Sequence[Report]
) -> tuple[DeviceDifference, ...]:
    """The devices of both sides in order, those that are gone last; empty where a side recorded none."""
    old, new = _devices(before), _devices(after)
    if not old or not new:
        return ()
    places = dict.fromkeys(
        (*(place for place in new if place in old), *new, *(place for place in old))
    )
    return tuple(_device_difference(old.get(place, []), new.get(place, [])) for place in places)


def _devices(reports: Sequence[Report]) -> dict[tuple[int, str], list[DeviceStates]]:
    """The mean step of each device in use, by the place of its host and its name there: hosts may have other names."""
    devices: dict[tuple[int, str], list[DeviceStates]] = {}
    for report in reports:
        hosts = [host.host for host in report.capture.hosts]
        for row in report.results.ledger.devices if report.results.ledger else ():
            place = hosts.index(row.host) if row.host in hosts else len(hosts)
            devices.setdefault((place, row.device.rpartition("/")[2]), []).append(row)
    return devices


def _device_difference(
    before: Sequence[DeviceStates], after: Sequence[DeviceStates]
) -> DeviceDifference:
    old, new = _mean_step(before), _mean_step(after)
    keys = sorted({*old, *new}, key=lambda key: (-abs(new.get(key, 0) - old.get(key, 0)), key))
    return DeviceDifference(
        device=(*after, *before)[0].device,
        status="both" if before and after else "new" if after else "gone",
        before_ps=sum(old.values()),
        after_ps=sum(new.values()),
        states=tuple(
            DeviceState(key, old.get(key, 0), new.get(key, 0), new.get(key, 0) - old.get(key, 0))
            for key in keys
        ),
    )


def _mean_step(captures: Sequence[DeviceStates]) -> dict[str, int]:
    """Whole picoseconds by state."""
    return whole(
        mean_of([{key: Fraction(ps) for key, ps in row.states.items()} for row in captures])
    )


CLEAR_PART: Final = 0.25
"""Of the change of a step: a part below this is no reason; a choice of ours."""
LEAST_CHANGE_RATIO: Final = 0.02
"""Of the step before: a cost that differs by less has not changed; a choice of ours."""


def finding_differences(
    before: Sequence[Report],
    after: Sequence[Report],
    step: StepDifference,
    states: Sequence[StateDifference],
) -> tuple[FindingDifference, ...]:
    """New findings, then gone ones, then those of another cost, each by its share of the GPU time.

    A side has a finding that most of its captures have. Findings of one code are one: the costliest stands for them. A
    finding whose states did not change beyond noise did not either, unless it is a part of a change of the step. What the
    other side has inside the finding that explains it, or left out on request, is neither new nor gone.
    """
    old, new = _findings(before), _findings(after)
    is_change = step.direction in ("slower", "faster") or step.is_probable
    whole_ps = step.difference_ps if is_change and step.measure == "mean" else 0
    difference_ps = {row.state: row.difference_ps for row in states}
    unlisted = _unlisted_codes(before), _unlisted_codes(after)
    rows = []
    for code in {**new, **old}:
        first, second = old.get(code), new.get(code)
        is_unlisted = (not first and code in unlisted[0]) or (not second and code in unlisted[1])
        least_ps = LEAST_CHANGE_RATIO * step.before_ps
        is_same = first and second and abs(_cost_ps(second) - _cost_ps(first)) <= least_ps
        made = [row for row in (first, second) if row]
        if is_unlisted or is_same:
            continue
        keys = {key for row in made if row.loss for key in row.loss.states} & difference_ps.keys()
        states_ps = sum(map(difference_ps.__getitem__, keys))
        is_beyond = any(row.direction != "none" for row in states if row.state in keys)
        parts_ps = states_ps, _cost_ps(second) - _cost_ps(first)
        is_part = whole_ps and all(ps / whole_ps >= CLEAR_PART for ps in parts_ps)
        # One that is about no time is told if it is more than information.
        is_told = any(row.severity != "info" for row in made)
        if (abs(states_ps) >= least_ps and (is_beyond or is_part)) if keys else is_told:
            rows.append(_row(code, first, second))
    return tuple(sorted(rows, key=_rank))


def _rank(row: FindingDifference) -> tuple[int, float, str]:
    share = (row.after_ratio or 0.0) - (row.before_ratio or 0.0)
    return ("came", "went", "changed").index(row.status), -abs(share), row.code


def _row(code: str, old: Finding | None, new: Finding | None) -> FindingDifference:
    before, after = (row.loss if row else None for row in (old, new))
    shown = new or old
    assert shown is not None
    lines = [_lines_in(row) if row else [] for row in (old, new)]
    return FindingDifference(
        code=code,
        status="changed" if old and new else "came" if new else "went",
        title=shown.title,
        before_ps=before.ps_per_step if before else None,
        after_ps=after.ps_per_step if after else None,
        before_ratio=before.gpu_time_ratio if before else None,
        after_ratio=after.gpu_time_ratio if after else None,
        line_before=lines[0][0] if new and lines[0] and lines[0][0] not in lines[1] else None,
    )


def _cost_ps(finding: Finding | None) -> int:
    return finding.loss.ps_per_step if finding and finding.loss else 0


def _unlisted_codes(reports: Sequence[Report]) -> set[str]:
    """The codes that some report has without listing a finding of them."""
    evidence = [row for report in reports for of in report.findings for row in of.evidence]
    return {str(row.value) for row in evidence if row.metric == EXPLAINS}


def _findings(reports: Sequence[Report]) -> dict[str, Finding]:
    of_code: dict[str, list[Finding]] = {}
    for report in reports:
        for code in {finding.code for finding in report.findings}:
            same = (finding for finding in report.findings if finding.code == code)
            of_code.setdefault(code, []).append(max(same, key=_cost_ps))
    return {
        code: made[len(made) // 2] for code, made in of_code.items() if 2 * len(made) > len(reports)
    }
