"""Compares the parts of the step: states, devices, ops and findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final, Literal, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.gpu_time.device_states import DeviceStates
from traceview.analysis.gpu_time.op_steps import OpInSteps, OpSteps
from traceview.analysis.rules.finding import EXPLAINS, Finding
from traceview.analysis.rules.words import Line
from traceview.base.stats import Float64Array
from traceview.comparison.model import (
    DeviceDifference,
    DeviceState,
    FindingDifference,
    OpDifference,
    StateDifference,
)
from traceview.comparison.noise import (
    Difference,
    Direction,
    Level,
    RunSpread,
    mean_level,
    most_chance,
    part_difference,
)
from traceview.comparison.sides import CaptureSteps, Side, mean_of, whole
from traceview.ledger.states import KEYS
from traceview.report.model import Report


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
            if _is_apart(*series):
                # What is longer in every step needs no estimate of how steps vary.
                old, new = ([replace(level, variance=0.0) for level in side] for side in (old, new))
            noise[key] = part_difference(old, new, spread)
    return noise


def _is_apart(before: Sequence[Float64Array], after: Sequence[Float64Array]) -> bool:
    """Whether every step of one side is longer than every step of the other."""
    old, new = np.concatenate(before), np.concatenate(after)
    is_enough = min(old.size, new.size) >= _FEWEST_STEPS
    return is_enough and bool(old.max() < new.min() or new.max() < old.min())


_FEWEST_STEPS: Final = 5


def _line_of(state: str, reports: Sequence[Report]) -> str | None:
    """The line of Python that the costliest finding on a state names."""
    lines = [
        (finding.loss.gpu_time_ratio, argument.line)
        for report in reports
        for finding in report.findings
        if finding.loss is not None and state in finding.loss.states
        for argument in finding.arguments.values()
        if isinstance(argument, Line)
    ]
    return max(lines)[1] if lines else None


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


Status = Literal["slower", "faster", "new", "gone", "same"]


class _Key(NamedTuple):
    """Identity of an op across runs."""

    class_: str
    op: str | None
    kernel: str | None


class _Op(Struct, frozen=True):
    """An op of one side; of a capture in which it does not run it is 0.

    `levels`: its time per step and device, by capture. `calls`: events per step
    and device; `path_ps`: per step.
    """

    levels: tuple[Level, ...] = ()
    calls: float = 0.0
    path_ps: float = 0.0

    @property
    def ps(self) -> float:
        """Time per step and device."""
        levels = self.levels
        return sum(level.value for level in levels) / len(levels) if levels else 0.0


_SURE: Final = 1000.0
"""Degrees of freedom of what is no estimate."""


def op_differences(
    before: Sequence[Report], after: Sequence[Report], spread: RunSpread
) -> tuple[OpDifference, ...]:
    """All ops of both sides, the largest difference on the path first; empty where a side does not have them.

    An op that a side does not list is new or gone if it is longer than what that side leaves out, beyond noise.
    """
    tables = [_tables(side) for side in (before, after)]
    old, new = map(_by_key, tables)
    if not old or not new:
        return ()
    _match_kernels(old, new)
    most_ps = [max(table.left_out_ps_per_step for table in side) for side in tables]
    pairs = []
    for key in {**new, **old}:
        first, second = old.get(key), new.get(key)
        left_out_ps = most_ps[0] if first is None else most_ps[1] if second is None else 0
        # It runs there as long as the longest that is left out, at most.
        unlisted = (Level(float(left_out_ps), 0.0, _SURE),) if left_out_ps else ()
        before_levels, after_levels = (op.levels if op else unlisted for op in (first, second))
        noise = Difference(0.0)
        if before_levels and after_levels:
            noise = part_difference(before_levels, after_levels, spread)
        pairs.append((key, first, second, left_out_ps, noise))
    shown = most_chance(noise for *_, noise in pairs)
    rows = [_difference(*pair, shown) for pair in pairs]
    return tuple(sorted(rows, key=lambda row: (-abs(row.path_ps), -abs(row.difference_ps))))


def _tables(side: Sequence[Report]) -> list[OpSteps]:
    """The ops of each capture; none where one of them has none."""
    tables = [table for report in side if (table := report.results.op_steps)]
    return tables if len(tables) == len(side) else []


def _by_key(tables: Sequence[OpSteps]) -> dict[_Key, _Op]:
    rows: dict[_Key, list[tuple[OpSteps, OpInSteps]]] = {}
    for table in tables:
        for row in table.rows:
            rows.setdefault(_Key(row.class_, row.op, row.kernel), []).append((table, row))
    return {
        key: _Op(
            levels=tuple(_level(row) for _, row in of_key),
            calls=sum(
                row.count / (max(row.device_count, 1) * max(table.step_count, 1))
                for table, row in of_key
            )
            / len(tables),
            path_ps=sum(row.path_ps / max(table.walked_count, 1) for table, row in of_key)
            / len(tables),
        )
        for key, of_key in rows.items()
    }


def _level(row: OpInSteps) -> Level:
    devices, error_ps, degrees = max(row.device_count, 1), row.error_ps, row.error_degrees
    if error_ps is None or degrees is None:
        return Level(row.ps_per_step / devices)
    return Level(row.ps_per_step / devices, (error_ps / devices) ** 2, degrees)


def _match_kernels(old: dict[_Key, _Op], new: dict[_Key, _Op]) -> None:
    """Give an op with one kernel on each side the key after: it is the same op, whichever kernel the library chose for it."""
    gone, came = _only_kernels(old.keys() - new), _only_kernels(new.keys() - old)
    for op in gone.keys() & came:
        old[came[op]] = old.pop(gone[op])


def _only_kernels(keys: Iterable[_Key]) -> dict[tuple[str, str], _Key]:
    """By class and op the key, where the op has one kernel alone."""
    kernels: dict[tuple[str, str], list[_Key]] = {}
    for key in keys:
        if key.op is not None and key.kernel is not None:
            kernels.setdefault((key.class_, key.op), []).append(key)
    return {op: of_op[0] for op, of_op in kernels.items() if len(of_op) == 1}


def _status(old: _Op | None, new: _Op | None, left_out_ps: int, direction: Direction) -> Status:
    """How an op changed. `direction`: how its time did, as far as that is shown among all ops."""
    if old and new:
        return "same" if direction == "none" or direction == "unknown" else direction
    # What the other side left out may have run there as long as the longest that it left out.
    if left_out_ps and direction != ("slower" if new else "faster"):
        return "same"
    return "new" if new else "gone"


def _difference(
    key: _Key,
    old: _Op | None,
    new: _Op | None,
    left_out_ps: int,
    noise: Difference,
    shown: float,
) -> OpDifference:
    first, second = old or _Op(), new or _Op()
    is_shown = noise.chance is None or noise.chance <= shown
    return OpDifference(
        class_=key.class_,
        op=key.op,
        kernel=key.kernel,
        status=_status(old, new, left_out_ps, noise.direction if is_shown else "none"),
        before_ps=round(first.ps),
        after_ps=round(second.ps),
        before_calls=round(first.calls, 3),
        after_calls=round(second.calls, 3),
        difference_ps=round(second.ps) - round(first.ps),
        left_out_ps=left_out_ps,
        path_ps=round(second.path_ps - first.path_ps),
    )


LEAST_CHANGE_RATIO: Final = 0.02
"""Of the step before: a cost that differs by less has not changed; a choice of ours."""

_ORDER: Final = ("came", "went", "changed")


def finding_differences(
    before: Sequence[Report],
    after: Sequence[Report],
    step_ps: int,
    states: Sequence[StateDifference],
) -> tuple[FindingDifference, ...]:
    """New findings, then gone ones, then those of another cost, each by its share of the GPU time.

    A side has a finding that most of its captures have. Findings of one code are one: the costliest stands for them. A
    finding whose states did not change beyond noise did not either: the step around it did. What the other side has inside
    the finding that explains it, or left out on request, is neither new nor gone.
    """
    old, new = _findings(before), _findings(after)
    by_state = {row.state: row for row in states}
    unlisted = _unlisted_codes(before), _unlisted_codes(after)
    rows = []
    for code in {**new, **old}:
        first, second = old.get(code), new.get(code)
        if (first is None and code in unlisted[0]) or (second is None and code in unlisted[1]):
            continue
        if (
            first
            and second
            and abs(_cost_ps(second) - _cost_ps(first)) <= LEAST_CHANGE_RATIO * step_ps
        ):
            continue
        if _is_changed([row for row in (first, second) if row], by_state, step_ps):
            rows.append(_row(code, first, second))
    return tuple(
        sorted(
            rows,
            key=lambda row: (
                _ORDER.index(row.status),
                -abs((row.after_ratio or 0.0) - (row.before_ratio or 0.0)),
                row.code,
            ),
        )
    )


def _row(code: str, old: Finding | None, new: Finding | None) -> FindingDifference:
    before, after = (row.loss if row else None for row in (old, new))
    shown = new or old
    assert shown is not None
    return FindingDifference(
        code=code,
        status="changed" if old and new else "came" if new else "went",
        title=shown.title,
        before_ps=before.ps_per_step if before else None,
        after_ps=after.ps_per_step if after else None,
        before_ratio=before.gpu_time_ratio if before else None,
        after_ratio=after.gpu_time_ratio if after else None,
    )


def _cost_ps(finding: Finding) -> int:
    return finding.loss.ps_per_step if finding.loss else 0


def _is_changed(
    sides: Sequence[Finding], states: Mapping[str, StateDifference], step_ps: int
) -> bool:
    """Whether the states of a finding changed; of one that is about no time whether it is more than information."""
    keys = {key for finding in sides if finding.loss for key in finding.loss.states}
    about = [states[key] for key in keys if key in states]
    if not about:
        return any(finding.severity != "info" for finding in sides)
    is_large = abs(sum(row.difference_ps for row in about)) >= LEAST_CHANGE_RATIO * step_ps
    return is_large and any(row.direction != "none" for row in about)


def _unlisted_codes(reports: Sequence[Report]) -> set[str]:
    """The codes that some report has without listing a finding of them."""
    evidence = [row for report in reports for of in report.findings for row in of.evidence]
    return {str(row.value) for row in evidence if row.metric == EXPLAINS}


def _findings(reports: Sequence[Report]) -> dict[str, Finding]:
    """By code the costliest finding, of those that more than half of the captures have."""
    of_code: dict[str, list[Finding]] = {}
    for report in reports:
        for code in {finding.code for finding in report.findings}:
            same = (finding for finding in report.findings if finding.code == code)
            of_code.setdefault(code, []).append(max(same, key=_cost_ps))
    return {
        code: made[len(made) // 2] for code, made in of_code.items() if 2 * len(made) > len(reports)
    }
