"""Holds the sides of a comparison, and compares their states, devices and findings.

A side is captures, each run once, with their steps exactly as long and by state as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from math import exp, fsum
from statistics import fmean
from typing import Final, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.gpu_time.device_states import DeviceStates
from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import EXPLAINS, Finding
from traceview.analysis.rules.words import Line, Quantity, filled
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
from traceview.document.phrase import plain
from traceview.ledger.states import KEYS
from traceview.report.model import Report, devices_of, traces_of, why_absent

SIDES: Final = ("before", "after")

K = TypeVar("K")


class CaptureSteps(Struct, frozen=True, eq=False):
    """The used steps of one capture, in their order; steps of the same number on several hosts are one, their mean.

    `lengths_ps`: float64 `[steps]`. `states_ps`: by state the same, mean over devices, which sum to `lengths_ps`; empty
    without devices.
    """

    lengths_ps: Float64Array
    states_ps: Mapping[str, Float64Array]

    @property
    def mean_ps(self) -> float:
        """Their mean."""
        return float(self.lengths_ps.mean())

    @property
    def levels(self) -> StepLevels | None:
        """Their levels, for the estimate of a change."""
        return step_levels(self.lengths_ps)


def capture_steps(report: Report) -> CaptureSteps | None:
    """The used steps of a report; None without any."""
    found = report.results.steps
    used = [row for row in (found.steps if found else ()) if row.used]
    by_number: dict[int, list[Mapping[str, float]]] = {}
    for row in [row for row in used if row.devices] or used:
        states = [device.states for device in row.devices] or [{_WHOLE: row.duration_ps}]
        by_number.setdefault(row.number, []).append(_mean_of(states))
    if not by_number:
        return None
    steps = [_mean_of(by_number[number]) for number in sorted(by_number)]
    states_ps = {
        key: np.array([step.get(key, 0.0) for step in steps])
        for key in dict.fromkeys(key for step in steps for key in step)
    }
    lengths_ps = np.sum([*states_ps.values()], axis=0)
    return CaptureSteps(lengths_ps, {} if _WHOLE in states_ps else states_ps)


_WHOLE: Final = "step"
"""Stands for the states of a step without devices."""


def step_time_ps(report: Report) -> int | None:
    """The mean step of a report, as comparisons count it; None without a used step."""
    steps = capture_steps(report)
    return None if steps is None else round(steps.mean_ps)


def why_no_step(report: Report) -> str:
    """The reason why a report has no used step."""
    steps = report.results.steps
    if steps is None:
        return why_absent(report, "steps")
    excluded = ", ".join(dict.fromkeys(row.excluded for row in steps.steps if row.excluded))
    return f"no step is used: {excluded}" if excluded else "no step is used"


def _mean_of(parts: Sequence[Mapping[K, float]]) -> dict[K, float]:
    """The mean by key; where a key is missing it is 0."""
    keys = dict.fromkeys(key for of in parts for key in of)
    return {key: fsum(of.get(key, 0) for of in parts) / len(parts) for key in keys}


def _rounded(parts: Mapping[K, float]) -> dict[K, int]:
    """The parts as whole numbers that sum to their rounded sum."""
    sums = [0, *map(round, accumulate(parts.values()))]
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
        once: dict[object, Report] = {}
        for place, report in enumerate(reports):
            once.setdefault(traces_of(report) or place, report)
        kept = tuple(once.values())
        return cls(kept, tuple(filter(None, map(capture_steps, kept))), name)

    @property
    def mean_ps(self) -> float:
        """The mean step over the captures."""
        return fmean(capture.mean_ps for capture in self.steps)

    @property
    def levels(self) -> list[StepLevels]:
        """The levels of the steps of each capture."""
        return [levels for of in self.steps if (levels := of.levels)]

    @property
    def typical_ps(self) -> float:
        """The typical step: of several captures the geometric mean."""
        return exp(fmean(of.typical.value for of in self.levels)) if self.levels else 0.0

    @property
    def states(self) -> dict[str, int]:
        """The mean step by state, whole picoseconds; empty where a capture has no ledger."""
        captures = [{key: of.mean() for key, of in steps.states_ps.items()} for steps in self.steps]
        means = _mean_of(captures) if all(captures) else {}
        return _rounded({key: means[key] for key in KEYS if key in means})

    @property
    def step_ps(self) -> int:
        """The mean step in whole picoseconds: its states sum to it."""
        return sum(self.states.values()) or round(self.mean_ps)

    def is_same_as(self, other: Side) -> bool:
        """Whether both sides are the same steps of the same runs."""
        own, others = (set(map(_identity, side.reports)) for side in (self, other))
        return own == others and all(map(traces_of, self.reports))

    def change_to(self, after: Side, earlier: Earlier = ()) -> Difference | None:
        """By how much the step of another side differs; None without one on a side."""
        spread = run_spread_of((*self.reports, *after.reports))
        if not self.levels or not after.levels:
            return None
        ratio = after.mean_ps / self.mean_ps - 1
        return step_change(self.levels, after.levels, spread, earlier, ratio)


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
    occur = {key for capture in (*before.steps, *after.steps) for key in capture.states_ps}
    rows = []
    for key in [key for key in KEYS if key in occur]:
        lengths = [
            [of.states_ps.get(key, 0 * of.lengths_ps) for of in side.steps]
            for side in (before, after)
        ]
        was, now = ([*map(mean_level, side)] for side in lengths)
        if _is_apart(*map(np.concatenate, lengths)):
            # What is longer in every step needs no estimate of how steps vary.
            was, now = ([replace(level, variance=0.0) for level in side] for side in (was, now))
        first, second = old.get(key, 0), new.get(key, 0)
        rows.append(
            StateDifference(
                state=key,
                before_ps=first,
                after_ps=second,
                difference_ps=second - first,
                direction=part_difference(was, now, spread).direction,
                line=_line_of(key, (before if first > second else after).reports),
            )
        )
    return tuple(sorted(rows, key=lambda row: -abs(row.difference_ps)))


_FEWEST_APART: Final = 5
"""Steps of each side from which on it is no chance that all of one are longer than all of the other; a choice of ours."""


def _is_apart(first: Float64Array, second: Float64Array) -> bool:
    is_longer = first.max() < second.min() or second.max() < first.min()
    return bool(is_longer) and min(first.size, second.size) >= _FEWEST_APART


def _line_of(state: str, reports: Sequence[Report]) -> str | None:
    """The line of Python that the costliest finding on a state names."""
    lines = [
        (finding.loss.gpu_time_ratio, line.line)
        for report in reports
        for finding in report.findings
        if finding.loss is not None and state in finding.loss.states
        for line in finding.arguments.values()
        if isinstance(line, Line)
    ]
    return max(lines)[1] if lines else None


def device_differences(
    before: Sequence[Report], after: Sequence[Report]
) -> tuple[DeviceDifference, ...]:
    """The devices of both sides in order, those that are gone last; empty where a side recorded none."""
    old, new = _devices(before), _devices(after)
    if not old or not new:
        return ()
    rows = []
    # Those of both sides first.
    for place in dict.fromkeys((*(place for place in new if place in old), *new, *old)):
        sides = old.get(place, []), new.get(place, [])
        was, now = (_rounded(_mean_of([row.states for row in side])) for side in sides)
        states = [
            DeviceState(key, was.get(key, 0), now.get(key, 0), now.get(key, 0) - was.get(key, 0))
            for key in sorted({*was, *now})
        ]
        rows.append(
            DeviceDifference(
                device=(*sides[1], *sides[0])[0].device,
                status="both" if all(sides) else "new" if sides[1] else "gone",
                states=tuple(sorted(states, key=lambda row: -abs(row.difference_ps))),
            )
        )
    return tuple(rows)


def _devices(reports: Sequence[Report]) -> dict[tuple[int, str], list[DeviceStates]]:
    """The mean step of each device in use, by the place of its host and its name there: hosts may have other names."""
    devices: dict[tuple[int, str], list[DeviceStates]] = {}
    for report in reports:
        hosts = [host.host for host in report.capture.hosts]
        for row in report.device_states:
            place = hosts.index(row.host) if row.host in hosts else len(hosts)
            devices.setdefault((place, row.device.rpartition("/")[2]), []).append(row)
    return devices


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
    """New findings, then gone ones, then those of another cost, the largest difference first.

    A side has a finding that most of its captures have. Findings of one code are one: the costliest stands for them. A
    finding whose states did not change beyond noise did not either, unless it is a part of a change of the step. What the
    other side has inside the finding that explains it, or left out on request, is neither new nor gone.
    """
    old, new = _findings(before), _findings(after)
    unlisted = _unlisted_codes(before), _unlisted_codes(after)
    least_ps = LEAST_CHANGE_RATIO * step.before_ps
    whole_ps = step.difference_ps if step.is_change else 0
    rows = []
    for code in {**new, **old}:
        first, second = old.get(code), new.get(code)
        made = [row for row in (second, first) if row]
        difference_ps = _cost_ps(second) - _cost_ps(first)
        if (not first and code in unlisted[0]) or (not second and code in unlisted[1]):
            continue
        if first and second and abs(difference_ps) <= least_ps:
            continue
        keys = {key for row in made if row.loss for key in row.loss.states}
        own = [row for row in states if row.state in keys]
        parts_ps = sum(row.difference_ps for row in own), difference_ps
        is_part = whole_ps and all(ps / whole_ps >= CLEAR_PART for ps in parts_ps)
        is_beyond = is_part or any(row.direction != "none" for row in own)
        is_large = abs(parts_ps[0]) >= least_ps
        # One that is about no time is told if it is more than information.
        if is_large and is_beyond if own else any(row.severity != "info" for row in made):
            shown = made[0]
            rows.append(
                FindingDifference(
                    code=code,
                    status="changed" if first and second else "came" if second else "went",
                    title=shown.title,
                    clause=_clause(shown, difference_ps),
                    states=shown.loss.states if shown.loss else (),
                    before_ps=first.loss.ps_per_step if first and first.loss else None,
                    after_ps=second.loss.ps_per_step if second and second.loss else None,
                )
            )
    order = ("came", "went", "changed")
    rows.sort(key=lambda row: (order.index(row.status), -abs(row.difference_ps), row.code))
    return tuple(rows)


def _clause(finding: Finding, difference_ps: int) -> str:
    """`both replicas wait 5.10 ms more for input`: the title of a finding, of a difference of what it costs."""
    rule = RULES[finding.code]
    template = rule.titles.get((*finding.sentences, "")[0], rule.title).removesuffix(".")
    if finding.loss is None or "{loss}" not in template:
        return ""
    arguments = finding.arguments | {"loss": Quantity(abs(difference_ps), "ps")}
    words = template.replace("{loss}", "{loss} more" if difference_ps > 0 else "{loss} less")
    return plain(filled(words, arguments, is_sentence=False))


def _cost_ps(finding: Finding | None) -> int:
    return finding.loss.ps_per_step if finding and finding.loss else 0


def _unlisted_codes(reports: Sequence[Report]) -> set[str]:
    """The codes that some report has without listing a finding of them."""
    evidence = [row for report in reports for of in report.findings for row in of.evidence]
    return {str(row.value) for row in evidence if row.metric == EXPLAINS}


def _findings(reports: Sequence[Report]) -> dict[str, Finding]:
    """By code the costliest of a capture, of those that most captures have."""
    of_code: dict[str, list[Finding]] = {}
    for report in reports:
        costliest: dict[str, Finding] = {}
        for finding in sorted(report.findings, key=lambda finding: -_cost_ps(finding)):
            costliest.setdefault(finding.code, finding)
        for code, finding in costliest.items():
            of_code.setdefault(code, []).append(finding)
    return {
        code: made[len(made) // 2] for code, made in of_code.items() if 2 * len(made) > len(reports)
    }
