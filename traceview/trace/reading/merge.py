"""Joins the parts of a run to one recording: one table of names, devices and rows numbered over all hosts.

The parts are in the order of their hosts, whatever the order in which they were read; nothing depends on that. A
column of a part is let go of as it is joined, so that no more than one column exists twice at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec.structs import asdict, replace

from traceview.trace.model import (
    NONE,
    CollectiveCalls,
    DeviceColumns,
    Host,
    HostColumns,
    HostStat,
    HostSteps,
    Names,
    Recording,
)
from traceview.trace.reading.part import Part
from traceview.trace.strategy.clocks import shifted_steps
from traceview.xplane.planes import TEXT_STATS
from traceview.xplane.space import Instruction

_Scalar = TypeVar("_Scalar", bound=np.generic)
_Column = npt.NDArray[Any]
_Change = Callable[[int, _Column], _Column]
"""Makes of a column of the part of this number what it is in the whole recording."""

_NAMED: Final = ("name", "op", "details")


def merged(parts: list[Part], hosts: tuple[Host, ...]) -> tuple[Recording, tuple[HostSteps, ...]]:
    """The recording of all hosts and the steps of each, on the clock set by the starts of the profiles.

    `parts`: one per host, in the order of hosts; the list is emptied. `hosts`: the same with their starts.
    """
    merger = _Merger(parts, hosts)
    parts.clear()
    return merger.recording(), merger.steps


class _Merger:
    def __init__(self, parts: Sequence[Part], hosts: tuple[Host, ...]) -> None:
        recordings = [part.recording for part in parts]
        self._hosts = hosts
        self._offset_ps = [host.start_ps for host in hosts]
        self._names = Names()
        # `NONE` is the last place.
        last = np.array([NONE], dtype=np.int32)
        self._name_of = [
            np.concatenate((self._names.add_all(recording.names), last)) for recording in recordings
        ]
        # Hosts run the same programs.
        self._instructions: dict[Instruction, int] = {}
        place = self._instructions.setdefault
        self._instruction_of = [
            np.array(
                [
                    *(place(each, len(self._instructions)) for each in recording.instructions),
                    NONE,
                ],
                dtype=np.int32,
            )
            for recording in recordings
        ]
        # Of one that several hosts run the first that is known.
        self._buffers = {
            each.program: each
            for recording in reversed(recordings)
            for each in recording.program_buffers
        }
        self._events = [asdict(recording.host_columns) for recording in recordings]
        self._calls = [asdict(recording.collective_calls) for recording in recordings]
        self._stats = [dict(columns.pop("stats")) for columns in self._events]
        self._devices = [asdict(recording.device_columns) for recording in recordings]
        self._first_row = _before(columns["line"].size for columns in self._events)
        first_line = _before(len(recording.lines) for recording in recordings)
        # Devices with a plane come first, then the replicas of other hosts, each by host.
        self._order = sorted(
            range(len(recordings)),
            key=lambda host: any(d.kind == "replica" for d in recordings[host].device_list),
        )
        counts = [len(recordings[host].device_list) for host in self._order]
        self._first_device = dict(zip(self._order, _before(counts), strict=False))
        self._first_line = first_line
        self._device_list = tuple(
            replace(device, host=host)
            for host in self._order
            for device in recordings[host].device_list
        )
        self._lines = tuple(
            replace(
                line,
                host=host,
                device=NONE if line.is_thread else line.device + self._first_device[host],
            )
            for host, recording in enumerate(recordings)
            for line in recording.lines
        )
        self._shared_rows = np.concatenate(
            [
                recording.shared_rows + first
                for recording, first in zip(recordings, self._first_row, strict=False)
            ]
        )
        self.steps = tuple(
            _steps_of(part.steps, host, first_line[host], self._offset_ps[host])
            for host, part in enumerate(parts)
        )

    def recording(self) -> Recording:
        return Recording(
            hosts=self._hosts,
            device_list=self._device_list,
            lines=self._lines,
            names=self._names,
            device_columns=self._device_columns(),
            host_columns=self._host_columns(),
            shared_rows=self._shared_rows,
            collective_calls=self._collective_calls(),
            instructions=tuple(self._instructions),
            program_buffers=tuple(self._buffers.values()),
        )

    def _host_columns(self) -> HostColumns:
        hosts = range(len(self._hosts))
        changes: dict[str, _Change] = {
            "host": _plus(list(hosts)),
            "line": _plus(self._first_line),
            "start_ps": _plus(self._offset_ps),
            "name": self._named,
        }
        keys = dict.fromkeys(chain.from_iterable(self._stats))
        stats = {key: self._stat(key) for key in keys}
        return HostColumns(**_all_joined(hosts, self._events, changes), stats=stats)

    def _stat(self, key: str) -> HostStat:
        having = [host for host, stats in enumerate(self._stats) if key in stats]
        pieces = {host: asdict(self._stats[host].pop(key)) for host in having}
        change = self._named if key in TEXT_STATS else _as_it_is
        return HostStat(
            _joined(having, pieces, "row", self._rows),
            _joined(having, pieces, "value", change),
        )

    def _device_columns(self) -> DeviceColumns:
        changes: dict[str, _Change] = {
            "device": _plus(self._first_device),
            "line": _plus(self._first_line),
            "start_ps": _plus(self._offset_ps),
            "launch": self._rows,
            "instruction": self._instruction,
        } | dict.fromkeys(_NAMED, self._named)
        return DeviceColumns(**_all_joined(self._order, self._devices, changes))

    def _collective_calls(self) -> CollectiveCalls:
        changes: dict[str, _Change] = dict.fromkeys(("op", "call", "arrival"), self._rows)
        return CollectiveCalls(**_all_joined(self._order, self._calls, changes))

    def _named(self, host: int, names: _Column) -> _Column:
        """Names by their indices in the table of all hosts."""
        if host == 0:
            # The first part gives the table its first names.
            return names
        return self._name_of[host][names].astype(names.dtype, copy=False)

    def _instruction(self, host: int, numbers: _Column) -> _Column:
        """Instructions by their places among those of all hosts."""
        known = self._instruction_of[host]
        return known[numbers] if known.size > 1 else numbers

    def _rows(self, host: int, rows: _Column) -> _Column:
        """Rows of the host columns, or `NONE`."""
        first = self._first_row[host]
        return np.where(rows == NONE, NONE, rows + first) if first else rows


def _before(counts: Any) -> list[int]:
    """How many there are before each part, and in all."""
    return list(accumulate(counts, initial=0))


def _as_it_is(_: int, column: _Column) -> _Column:
    return column


def _plus(added: Any) -> _Change:
    """Adds the number of each part; one that is 0 makes no copy."""

    def change(host: int, column: _Column) -> _Column:
        number = added[host]
        return column + column.dtype.type(number) if number else column

    return change


def _all_joined(
    hosts: Sequence[int], pieces: Sequence[dict[str, _Column]], changes: dict[str, _Change]
) -> dict[str, _Column]:
    """All columns over all parts; those without a change as they are."""
    return {
        key: _joined(hosts, pieces, key, changes.get(key, _as_it_is)) for key in tuple(pieces[0])
    }


def _joined(hosts: Sequence[int], pieces: Any, key: str, change: _Change) -> _Column:
    """A column over all parts, in the order of `hosts`; the pieces lose theirs."""
    if len(hosts) == 1:
        return change(hosts[0], pieces[hosts[0]].pop(key))
    return np.concatenate([change(host, pieces[host].pop(key)) for host in hosts])


def _steps_of(steps: HostSteps, host: int, first_line: int, offset_ps: int) -> HostSteps:
    """The steps of a part as those of a host of the run."""
    line = NONE if steps.marker_line == NONE else steps.marker_line + first_line
    moved = shifted_steps(steps, offset_ps) if offset_ps else steps
    return replace(
        moved,
        host=host,
        marker_line=line,
        steps=tuple(replace(step, host=host) for step in moved.steps),
    )
