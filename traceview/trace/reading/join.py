"""Joins the columns of the planes of one file to one set of columns.

Parts are collected plane by plane and released as they are joined, so that no more than one column exists twice at
a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import asdict

from traceview.base.ids import in_order
from traceview.trace.device.classify import Activity, final_classes
from traceview.trace.device.correlation import find_launches
from traceview.trace.model import DeviceColumns, HostColumns, HostStat, Names
from traceview.xplane.columns import joined, small
from traceview.xplane.planes import TEXT_STATS
from traceview.xplane.table import PlaneTable

_SMALL: Final = ("correlation_id", "group", "position")
"""Columns of activity whose values mostly fit into 32 bits."""

_DEVICE_TYPES: Final = {
    **dict.fromkeys(("device",), np.int16),
    **dict.fromkeys(("line", "name", "op", "module", "shape"), np.int32),
    **dict.fromkeys(("start_ps", "duration_ps", "bytes"), np.int64),
    **dict.fromkeys(("kind", "host_memory"), np.uint8),
    **dict.fromkeys(("has_correlation",), np.bool_),
    **dict.fromkeys(_SMALL, np.int32),
}
_HOST_TYPES: Final = {
    **dict.fromkeys(("line", "name", "position"), np.int32),
    **dict.fromkeys(("start_ps", "duration_ps"), np.int64),
}
"""The types of columns, of those with small values the shorter one."""

_OFTEN_ALIKE: Final = frozenset(
    (
        "module", "shape", "correlation_id", "has_correlation", "bytes", "host_memory", "group", "p2p", "opaque",
        "unknown_direction",
    )
)  # fmt: skip
"""Columns of device events that mostly hold one value in every row. Times and rows are swept, which takes whole columns."""

_OF_EVERY_LAUNCH: Final = ("correlation_id",)
"""Stats of most host events, whose rows and values mostly fit into 32 bits."""


class _Parts:
    def __init__(self) -> None:
        self._parts: list[dict[str, npt.NDArray[Any]]] = []

    def add(self, columns: dict[str, npt.NDArray[Any]]) -> None:
        self._parts.append(columns)

    def take(self, key: str, dtype: Any) -> npt.NDArray[Any]:
        """The whole column, in a longer type than `dtype` if a part has one; parts are released, so it can be taken once."""
        return joined_columns([part.pop(key) for part in self._parts], dtype)


def joined_columns(parts: Sequence[npt.NDArray[Any]], dtype: Any) -> npt.NDArray[Any]:
    """Parts of a column as one, in a longer type than `dtype` if a part has one."""
    return joined(parts, np.result_type(dtype, *parts).type)


class HostParts:
    """The events of host planes, to be joined to `HostColumns`."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._columns = _Parts()
        self._stats: dict[str, list[HostStat]] = {}
        self._count = 0

    def add(self, first_line: int, table: PlaneTable) -> None:
        """Add one plane, whose lines begin at `first_line` of the file."""
        name_of = self._names.add_all(table.names)
        self._columns.add(
            {
                "line": table.line + np.int32(first_line),
                "start_ps": table.start_ps,
                "duration_ps": table.duration_ps,
                "name": name_of[table.name],
                "position": small(table.position),
            }
        )
        for key in table.plane.spellings:
            stat = self._text(table, key) if key in TEXT_STATS else self._number(table, key)
            self._stats.setdefault(key, []).append(stat)
        self._count += table.count

    def _text(self, table: PlaneTable, key: str) -> HostStat:
        texts = table.texts(key)
        name_of = self._names.add_all(texts.texts).astype(np.int64)
        return HostStat(texts.event + self._count, name_of[texts.index])

    def _number(self, table: PlaneTable, key: str) -> HostStat:
        ints = table.ints(key)
        row = ints.event + self._count
        if key in _OF_EVERY_LAUNCH:
            return HostStat(small(row), small(ints.value))
        # A part of the column of all stats would keep all of it.
        return HostStat(row, ints.value.copy())

    def joined(self) -> HostColumns:
        """All host events of the file, as those of host 0."""
        return HostColumns(
            host=_without_repeats(np.zeros(self._count, dtype=np.int16)),
            **{key: self._columns.take(key, dtype) for key, dtype in _HOST_TYPES.items()},
            stats={
                key: HostStat(
                    joined_columns([piece.stored_row for piece in pieces], np.int32),
                    joined_columns([piece.stored_value for piece in pieces], np.int32),
                )
                for key, pieces in self._stats.items()
            },
        )


class DeviceParts:
    """The activity of device planes, to be joined to `DeviceColumns`."""

    def __init__(self) -> None:
        self._columns = _Parts()

    def add(self, device: int, first_line: int, activity: Activity) -> None:
        """Add one plane of a device, whose lines begin at `first_line` of the file."""
        count = activity.start_ps.size
        self._columns.add(
            asdict(activity)
            | {key: small(getattr(activity, key)) for key in _SMALL}
            | {
                "line": activity.line + np.int32(first_line),
                "device": np.full(count, device, dtype=np.int16),
            }
        )

    def joined(self, host_columns: HostColumns, names: Names) -> DeviceColumns:
        """All device events by device and start, with their launches and final classes."""
        own = {key: self._columns.take(key, dtype) for key, dtype in _DEVICE_TYPES.items()}
        launch = find_launches(own["correlation_id"], own["has_correlation"], host_columns)
        classes = final_classes(own.pop("kind"), launch, host_columns.name, names)
        columns = DeviceColumns(**own, **asdict(classes), launch=small(launch))
        # Events that begin together have an order of their own, whatever that of the file is.
        keys = columns.device, columns.start_ps, -columns.end_ps[:], columns.class_
        order = slice(None) if in_order(*keys) else np.lexsort(keys[::-1])
        return DeviceColumns(
            **{
                key: _without_repeats(column[order]) if key in _OFTEN_ALIKE else column[order]
                for key, column in asdict(columns).items()
            }
        )


def _without_repeats(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same column; one that holds the same value in every row, as most flags do, takes no memory."""
    if column.size and (column == column[0]).all():
        return np.broadcast_to(column[:1].copy(), column.shape)
    return column
