"""Finds how long devices wait for each other because of what some of them are in.

A device that waits for another one waits for what that one is in meanwhile. For the rest of its wait the other one is
late: it has lost more time before. With a function of Python in the step of two replicas, which the lock lets run one at a
time, the second replica waits for the first one's function, and so comes late to the all-reduce, where the first one waits
while the second does work that has nothing to do with Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from traceview.base.ids import unique_inverse
from traceview.base.intervals import BoolArray, Int64Array, IntervalSet, union
from traceview.base.sweeping import SWEEPS
from traceview.ledger.columns import By, Columns
from traceview.trace.model import Step


class _Wait(NamedTuple):
    """How long one device waits for another one, int64 picoseconds `[numbers of steps]`: while that is in the rows, and else."""

    device: int
    holder: int
    meanwhile_ps: Int64Array
    else_ps: Int64Array


def waits_for(
    columns: Columns,
    own: Mapping[int, slice],
    steps: Sequence[Step],
    waits: BoolArray,
    rows: BoolArray,
) -> dict[int, int]:
    """By device how long it waits for other devices because of some rows of theirs, picoseconds.

    `own`: the rows of each device; `waits`: those that wait for a device. While the other one is in the rows; for the rest
    as much, step by step, as the other one has lost to them more than the one that waits, by its own and by such waits.
    """
    by_number = _ByNumber(columns, steps)
    found = list(_waits(columns, own, waits & (columns.by_kind == By.DEVICE), rows, by_number))
    lost: dict[int, Int64Array] = {}
    for device, of_device in own.items():
        chosen = np.flatnonzero(rows[of_device]) + of_device.start
        lost[device] = by_number.sums(chosen, columns.duration_ps[chosen])
    for wait in found:
        lost[wait.device] = lost[wait.device] + wait.meanwhile_ps
    result = dict.fromkeys(own, 0)
    for wait in found:
        late_ps = np.clip(lost[wait.holder] - lost[wait.device], 0, wait.else_ps)
        result[wait.device] += int(wait.meanwhile_ps.sum() + late_ps.sum())
    return result


class _ByNumber:
    """Sums by the numbers of steps, which hosts share; the last one is of what lies outside of steps."""

    def __init__(self, columns: Columns, steps: Sequence[Step]) -> None:
        numbers = np.array([step.number for step in steps], dtype=np.int64)
        distinct, place = unique_inverse(numbers)
        self._columns = columns
        self._count = distinct.size + 1
        self._place = np.append(place, distinct.size)

    def sums(self, rows: Int64Array, values: Int64Array) -> Int64Array:
        """The sum of the values of some rows by number."""
        place = self._place[self._columns.step[rows]]
        total: Int64Array = SWEEPS.totals(place, values, self._count)
        return total


def _waits(
    columns: Columns,
    own: Mapping[int, slice],
    waits: BoolArray,
    rows: BoolArray,
    by_number: _ByNumber,
) -> list[_Wait]:
    spans: dict[int, IntervalSet] = {}
    found = []
    for device, of_device in own.items():
        waiting = np.flatnonzero(waits[of_device]) + of_device.start
        holders, place = unique_inverse(columns.by[waiting])
        for index, holder in enumerate(holders.tolist()):
            if holder not in own:
                # Its host has no window: nobody knows what it was in.
                continue
            if holder not in spans:
                chosen = np.flatnonzero(rows[own[holder]]) + own[holder].start
                begin = columns.start_ps[chosen]
                spans[holder] = union(begin, begin + columns.duration_ps[chosen])
            held = waiting[place == index]
            start, duration = columns.start_ps[held], columns.duration_ps[held]
            within = spans[holder].within(start, start + duration)
            meanwhile = by_number.sums(held, within)
            found.append(_Wait(device, holder, meanwhile, by_number.sums(held, duration - within)))
    return found
