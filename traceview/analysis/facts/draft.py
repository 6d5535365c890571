"""Holds the ledger of one device in the making: its segments, which change, beside what its host shows."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from traceview.analysis.facts.run import Run
from traceview.base.intervals import BoolArray, Int64Array, IntervalSet, union
from traceview.ledger.build import Segments, is_among, recast, recast_ends, recast_rows
from traceview.ledger.columns import IDLE, By, Columns
from traceview.ledger.states import State
from traceview.trace.columns import NONE

Causer = tuple[By, int]
NOBODY: Causer = (By.NONE, NONE)


class Draft:
    """The segments of one device while they are changed. `lines`: the number of each line of Python that causes something."""

    def __init__(
        self, context: Run, segments: Segments, device: int, lines: dict[str, int]
    ) -> None:
        entry = context.trace.device_list[device]
        self.context = context
        self.trace = context.trace
        self.device, self.host, self.kind = device, entry.host, entry.kind
        self.gaps, self.states = context.idle.gaps[device], context.idle.states[entry.host]
        self.python = context.idle.python.get(entry.host)
        self.window = context.selection.windows[entry.host]
        self._segments = segments
        self._lines = lines

    @property
    def columns(self) -> Columns:
        """Its segments as they are now; of every device they exist once."""
        return self._segments.of_device[self.device]

    @columns.setter
    def columns(self, columns: Columns) -> None:
        self._segments.of_device[self.device] = columns

    @property
    def everywhen(self) -> IntervalSet:
        """The whole window."""
        return union(np.array([self.window.start_ps]), np.array([self.window.end_ps]))

    def by_line(self, line: str) -> Causer:
        """A line of Python as a cause."""
        return By.PYTHON, self._lines.setdefault(line, len(self._lines))

    def idle_in(self, states: Collection[State]) -> BoolArray:
        """Which segments are idle time in one of these states."""
        rows = is_among(self.columns, states)
        rows &= self.columns.activity == IDLE
        return rows

    def recast(
        self,
        spans: IntervalSet,
        among: Collection[State],
        state: State,
        by: Causer | None = None,
    ) -> None:
        """Give the time in states `among` inside of `spans` another state, and cause if that changes as well."""
        self.columns = recast(self.columns, spans, among, state, by)

    def recast_rows(self, rows: BoolArray, state: State, by: Causer | None = None) -> None:
        """Give some whole segments another state."""
        self.columns = recast_rows(self.columns, rows, state, by)

    def recast_ends(self, length_ps: Int64Array, state: State, by: Causer | None = None) -> None:
        """Give the last `length_ps` of each segment another state."""
        self.columns = recast_ends(self.columns, length_ps, state, by)
