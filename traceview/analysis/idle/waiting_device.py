"""Chooses the device of each host whose waiting makes steps longer: the one that is idle least, with what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.cost import Cost, mean_ps
from traceview.analysis.idle.between_markers import between_markers
from traceview.analysis.idle.result import Gap, Idle
from traceview.analysis.idle.rules import IdleRule
from traceview.analysis.idle_attribution import IdleAttribution
from traceview.analysis.idle_python import PythonShare
from traceview.analysis.selection import Selection
from traceview.document import numbers
from traceview.intervals import Int64Array
from traceview.trace.cause import Cause
from traceview.trace.model import Trace

AS_LONG_RATIO: Final = 0.8
"""A device that waits this share of the time of another waits as long."""

AFFECTED_RATIO: Final = 0.2
"""A step with this share of the most that a cause takes in any step is affected by it."""

_FEWEST_TO_COMPARE: Final = 3
"""Of fewer steps none counts as affected."""


class Affected(Struct, frozen=True):
    """The numbers of the steps that something makes longer, and their mean cost; `of_count`: of how many steps."""

    steps: tuple[int, ...]
    ps: int
    of_count: int

    @property
    def words(self) -> str:
        """What an affected step takes, for a mean says little of it: `; 16.3 ms in step 0`."""
        time, count = numbers.time(self.ps), len(self.steps)
        if count == 1:
            return f"; {time} in step {self.steps[0]}"
        return f"; {time} each in {count} of {self.of_count} steps"


class Waiting(Struct, frozen=True, eq=False):
    """The device of a host whose waiting makes steps longer: the one that is idle least.

    `idle_ps`: by cause and used step, int64 `[causes, steps]`; without steps one column for the whole window.
    `others`: the same of the other devices in use. `evaluation_ps`: by step, how long the host evaluates between
    markers. `step_numbers`: of the columns. `window_ps`: the length of the window. `gaps`: its longest gaps.
    `python`: the Python that ran in its idle time, by cause. `around_saves_ps`, `around_evaluations_ps`: by step, idle
    time of Python between steps that is around a save or in an evaluation; `idle_ps` has the first under checkpoints, the
    second not at all.
    """

    device: int
    key: str
    is_replica: bool
    idle_ps: Int64Array
    others: Mapping[str, Int64Array]
    step_numbers: tuple[int, ...]
    window_ps: int
    selection: Selection
    evaluation_ps: Int64Array
    gaps: tuple[Gap, ...]
    python: Mapping[str, PythonShare]
    around_saves_ps: Int64Array
    around_evaluations_ps: Int64Array

    @property
    def has_steps(self) -> bool:
        """Whether times are per step, not of the whole window."""
        return bool(self.step_numbers)

    def idle_of(self, rule: IdleRule) -> int:
        """The idle time by the cause of a rule, mean over the steps, without steps all of it."""
        return mean_ps(self.idle_ps[rule.cause])

    def cost(self, idle_ps: int) -> Cost:
        """What so much idle time per step costs."""
        if not self.has_steps:
            return Cost.of_window(idle_ps / self.window_ps)
        return self.selection.cost("mean", idle_ps)

    @property
    def has_other_python(self) -> bool:
        """Whether some of its Python between steps belongs to saves or evaluations, and costs as these."""
        return bool(self.around_saves_ps.any() or self.around_evaluations_ps.any())

    def longest_of_others(self, cause: Cause) -> int:
        """The longest wait of another device for a cause, mean over the steps; 0 without others."""
        return max((mean_ps(idle_ps[cause]) for idle_ps in self.others.values()), default=0)

    def waiting_as_long(self, cause: Cause) -> list[str]:
        """The other devices that wait nearly as long for the same cause, or longer."""
        least_ps = AS_LONG_RATIO * float(self.idle_ps[cause].sum())
        return [key for key, idle_ps in self.others.items() if idle_ps[cause].sum() >= least_ps]

    def affected(self, of_steps: Int64Array) -> Affected | None:
        """The steps that take a cost which most steps do not have; None where no step differs so."""
        return affected_steps(self.step_numbers, of_steps)


def affected_steps(step_numbers: Sequence[int], of_steps: Int64Array) -> Affected | None:
    """The steps, by number, that take a cost which most steps do not have; None where no step differs so."""
    is_affected = of_steps >= max(AFFECTED_RATIO * int(of_steps.max(initial=0)), 1)
    count = int(is_affected.sum())
    if len(step_numbers) < _FEWEST_TO_COMPARE or not 0 < 2 * count <= of_steps.size:
        return None
    chosen = zip(step_numbers, is_affected.tolist(), strict=True)
    return Affected(
        tuple(number for number, is_one in chosen if is_one),
        int(of_steps[is_affected].sum()) // count,
        len(step_numbers),
    )


def waiting_device(
    trace: Trace, result: Idle, attribution: IdleAttribution, selection: Selection, host: int
) -> Waiting | None:
    """The device of a host that is idle least; None without a device at work or without any time."""
    devices = [
        device
        for device, gaps in attribution.gaps.items()
        if trace.device_list[device].host == host and Cause.UNUSED not in gaps.by_cause
    ]
    if not devices:
        return None
    used = np.array([step.excluded is None for step in selection.steps[host]], dtype=np.bool_)
    idle_ps = {device: attribution.causes_of_steps[device][:, used] for device in devices}
    window_ps = selection.windows[host].length_ps
    if not used.any():
        idle_ps = {device: attribution.gaps[device].total_ps[:, np.newaxis] for device in devices}
    if window_ps == 0:
        return None
    between = between_markers(trace, attribution.states[host], selection, host)
    nothing = np.zeros(next(iter(idle_ps.values())).shape[1], dtype=np.int64)
    around_saves = dict.fromkeys(idle_ps, nothing)
    around_evaluations = dict.fromkeys(idle_ps, nothing)
    if used.any():
        # Python around a save or in an evaluation is a part of it.
        for number, causes in idle_ps.items():
            python = causes[Cause.CALLBACK].copy()
            around_saves[number] = np.where(between.is_saving, python, 0)
            evaluates = ~between.is_saving & (between.evaluation_ps > 0)
            in_evaluation = np.maximum(python - between.after_evaluation_ps, 0)
            around_evaluations[number] = np.where(evaluates, in_evaluation, 0)
            causes[Cause.CHECKPOINT] += around_saves[number]
            causes[Cause.CALLBACK] -= around_saves[number] + around_evaluations[number]
    device = min(devices, key=lambda device: int(idle_ps[device].sum()))
    key = trace.device_key(device)
    row = next(row for row in result.devices if row.device == key)
    return Waiting(
        device=device,
        key=key,
        is_replica=trace.device_list[device].kind == "replica",
        idle_ps=idle_ps.pop(device),
        others={trace.device_key(other): causes for other, causes in idle_ps.items()},
        step_numbers=tuple(step.number for step in selection.used_of(host)),
        window_ps=window_ps,
        selection=selection,
        evaluation_ps=between.evaluation_ps,
        gaps=row.gaps,
        python=row.python,
        around_saves_ps=around_saves[device],
        around_evaluations_ps=around_evaluations[device],
    )
