"""The events of one plane as one table: times on the profile's clock, names and stats by index."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict

from traceview.base.ids import is_in, unique_inverse
from traceview.base.intervals import BoolArray, Int32Array, Int64Array
from traceview.base.units import PS_PER_NS
from traceview.xplane.columns import (
    Line,
    LineHeader,
    Plane,
    Stat,
    StatsBySlot,
    StatValue,
    ValueKind,
    joined,
)
from traceview.xplane.message import DECODER
from traceview.xplane.planes import LARGEST_COUNT, MILLION, PlaneKind
from traceview.xplane.read import MAX_PS

MAX_STAMP_NS: Final = MAX_PS // PS_PER_NS

ABSOLUTE_STAMP_NS: Final = 10**15
"""Line stamps from here on are Unix times; smaller stamps are relative to the start of the profile."""

_NO_STATS: Final = (
    np.empty(0, dtype=np.int64),
    np.empty(0, dtype=np.uint8),
    np.empty(0, dtype=np.int64),
)
_Columns = TypeVar("_Columns", bound=tuple[npt.NDArray[Any], ...])
_DOUBLE: Final = int(ValueKind.DOUBLE)
_REF: Final = int(ValueKind.REF)
_WHOLE: Final = (ValueKind.INT64, ValueKind.UINT64)
_IS_WHOLE: Final = np.array([kind in _WHOLE for kind in range(_REF + 1)], dtype=np.bool_)
_IS_NUMBER: Final = np.array(
    [kind in (*_WHOLE, _DOUBLE) for kind in range(_REF + 1)], dtype=np.bool_
)
_IS_TEXT: Final = np.array([kind >= ValueKind.STR for kind in range(_REF + 1)], dtype=np.bool_)


class Ints(Struct, frozen=True, eq=False):
    """Integer stats of some events: `event` (sorted indices into the table) and `value`, both `[n]`."""

    event: Int64Array
    value: Int64Array

    def dense(self, count: int, default: int) -> Int64Array:
        """One value per event, `default` where an event has none."""
        column = np.full(count, default, dtype=np.int64)
        column[self.event] = self.value
        return column


class Texts(Struct, frozen=True, eq=False):
    """Text stats of some events: `texts[index[i]]` is the text of event `event[i]`."""

    event: Int64Array
    index: Int32Array
    texts: tuple[bytes, ...]


class PlaneTable(Struct, frozen=True, eq=False, dict=True):
    """The events of one plane, or of several that share a name, in file order.

    `start_ps`, `duration_ps`: int64, picoseconds since the start of the profile. `name`: int32 index into
    `names`. `line`: int32 index into `lines`.
    Left out are aggregated events, which have no time, and the `misplaced_line_count` lines
    that begin days before or after the start of the profile.
    """

    plane: Plane
    lines: tuple[LineHeader, ...]
    names: tuple[bytes, ...]
    start_ps: Int64Array
    duration_ps: Int64Array
    name: Int32Array
    line: Int32Array
    negative_duration_count: int
    misplaced_line_count: int
    _stats: StatsBySlot
    _metadata: Int64Array
    _texts: list[bytes]

    @property
    def count(self) -> int:
        """Number of events."""
        return int(self.start_ps.size)

    def _entries(
        self, key: str, is_wanted: BoolArray
    ) -> tuple[Int64Array, npt.NDArray[np.uint8], Int64Array]:
        """The events, kinds and values of the stats of this key, of the wanted kinds."""
        entries = self._every(key)
        return _chosen(is_wanted[entries[1]], entries)

    def _every(self, key: str) -> tuple[Int64Array, npt.NDArray[np.uint8], Int64Array]:
        slot = self._slot_of.get(key)
        return _NO_STATS if slot is None else self._stats.of_slot(slot)

    @cached_property
    def _slot_of(self) -> dict[str, int]:
        """The slot of each key that events have a stat of."""
        counts = np.diff(self._stats.bounds).tolist()
        slots = enumerate(zip(self.plane.stat_columns, counts, strict=True))
        return {key: slot for slot, (key, count) in slots if count}

    @property
    def keys(self) -> list[str]:
        """The keys of the stats that events have, of their own or in their metadata."""
        own = self._slot_of
        return [key for key in self.plane.stat_columns if key in own or self._metadata_stats(key)]

    def lacks(self, key: str) -> bool:
        """Whether no event has a stat of this key, and none has stats in its metadata."""
        return key not in self._slot_of and not self._stats_of_metadata

    def ints(self, key: str) -> Ints:
        """A stat that is a number: a whole one modulo 2**64, or a ratio in millionths. What its column cannot hold is left out."""
        column = self.plane.stat_columns[key]
        if column.kind == "ratio":
            return self._millionths(key)
        event, _, values = self._entries(key, _IS_WHOLE)
        event, values = self._with_metadata(key, event, values)
        if column.kind == "count":
            is_count = (values >= 0) & (values <= LARGEST_COUNT)
            event, values = _chosen(is_count, (event, values))
        return Ints(event, values)

    def _millionths(self, key: str) -> Ints:
        event, kind, values = self._entries(key, _IS_NUMBER)
        with np.errstate(invalid="ignore"):
            # The bits of an integer may look like a NaN.
            share = np.where(kind == _DOUBLE, values.view(np.float64), values)
            is_share = (share >= 0) & (share <= 1)
        shown = np.rint(share[is_share] * MILLION).astype(np.int64)
        return Ints(*_last_per_event(event[is_share], shown))

    def has(self, key: str) -> BoolArray:
        """Which events have a stat of this key, of any kind, of their own or in their metadata."""
        found = np.zeros(self.count, dtype=np.bool_)
        found[self._every(key)[0]] = True
        shared = self._metadata_stats(key)
        if shared:
            found |= is_in(self._metadata, list(shared))
        return found

    def _with_metadata(
        self, key: str, row: Int64Array, value: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Add the stats in the metadata, for events without a stat of their own."""
        shared = self._metadata_stats(key)
        numbers = {i: n for i, v in shared.items() if (n := _as_int64(v)) is not None}
        if numbers:
            rows = np.flatnonzero(is_in(self._metadata, list(numbers)))
            values = np.array([numbers[int(i)] for i in self._metadata[rows]], dtype=np.int64)
            row, value = np.concatenate((rows, row)), np.concatenate((values, value))
        return _last_per_event(row, value)

    def texts(self, key: str) -> Texts:
        """A text stat, recorded as a string or as a reference to one."""
        of, kind, value = self._entries(key, _IS_TEXT)
        shared = {i: v for i, v in self._metadata_stats(key).items() if isinstance(v, bytes)}
        texts: list[bytes] = []
        rows: list[Int64Array] = []
        indices: list[Int64Array] = []
        is_ref, names = kind == _REF, self.plane.stat_names
        # The stats in the metadata are for events without one of their own.
        shared_rows = np.flatnonzero(is_in(self._metadata, list(shared)))
        every: tuple[tuple[Int64Array, Int64Array, Callable[[int], bytes]], ...] = (
            (shared_rows, self._metadata[shared_rows], shared.__getitem__),
            (*_chosen(is_ref, (of, value)), lambda id_: names.get(id_, b"")),
            (*_chosen(~is_ref, (of, value)), self._texts.__getitem__),
        )
        for rows_of, number, text_of in every:
            used, index = unique_inverse(number)
            rows.append(rows_of)
            indices.append(index + len(texts))
            texts += map(text_of, used.tolist())
        event, index = _last_per_event(joined(rows, np.int64), joined(indices, np.int64))
        return Texts(event, index.astype(np.int32), tuple(texts))

    @cached_property
    def _stats_of_metadata(self) -> dict[int, tuple[Stat, ...]]:
        return {i: event.stats for i, event in self.plane.event_metadata.items() if event.stats}

    def _metadata_stats(self, key: str) -> dict[int, int | float | bytes]:
        if not self._stats_of_metadata:
            return {}
        column = self.plane.stat_columns.get(key)
        return {
            metadata_id: stat.value
            for metadata_id, stats in self._stats_of_metadata.items()
            for stat in stats
            if column and stat.name in column.spellings
        }


def _chosen(rows: BoolArray, columns: _Columns) -> _Columns:
    """The chosen rows of some columns, which mostly are all."""
    return columns if rows.all() else cast("_Columns", tuple(column[rows] for column in columns))


def _as_int64(value: StatValue) -> int | None:
    """A value in the metadata as `PlaneTable.ints` returns it; None for text and for doubles."""
    if not isinstance(value, int):
        return None
    return value - (1 << 64) if value >= 1 << 63 else value


def _last_per_event(event: Int64Array, value: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The values sorted by event; of several values of an event the last."""
    if event.size and (event[1:] <= event[:-1]).any():
        order = np.argsort(event, kind="stable")
        event, value = event[order], value[order]
        last = np.append(event[1:] != event[:-1], True)
        event, value = event[last], value[last]
    return event, value


def stat_of(stats: Iterable[Stat], name: bytes) -> int | float | bytes | None:
    """The value of the last stat with that name; None if there is none."""
    value = None
    for stat in stats:
        if stat.name == name:
            value = stat.value
    return value


def build_table(plane: Plane, lines: list[Line], absolute_origin_ns: int) -> PlaneTable:
    """One table from `lines` of `plane`, which are taken out of the list: no column exists twice for long.

    `absolute_origin_ns` is subtracted from stamps that are Unix times.
    """
    stamp_of = [_stamp(line, absolute_origin_ns) for line in lines]
    placed = [line for line, stamp in zip(lines, stamp_of, strict=True) if _is_placed(stamp)]
    stamps_ps = [stamp * PS_PER_NS for stamp in stamp_of if _is_placed(stamp)]
    misplaced_count = len(lines) - len(placed)
    lines.clear()
    headers = tuple(line.header for line in placed)
    texts = [line.columns.contents for line in placed]
    counts = [line.columns.metadata_id.size for line in placed]
    parts = [asdict(line.columns) for line in placed]
    placed.clear()

    def take(key: str) -> list[Any]:
        """The parts of a column, which nothing else holds from now on."""
        return [part.pop(key) for part in parts]

    metadata = joined(take("metadata_id"), np.int64)
    start = joined(take("time"), np.int64) + np.repeat(np.array(stamps_ps, dtype=np.int64), counts)
    duration = joined(take("duration_ps"), np.int64)
    aggregated = joined(take("aggregated"), np.bool_)
    line = np.repeat(np.arange(len(headers), dtype=np.int32), counts)
    stat_keys = ("stat_event", "stat_slot", "stat_kind", "stat_value")
    stats: StatsBySlot = DECODER.stats_by_slot(
        list(zip(*map(take, stat_keys), strict=True)),
        _before(counts),
        _before(map(len, texts)),
        len(plane.stat_columns),
    )
    if aggregated.any():
        kept = ~aggregated
        stats = stats.of_events(kept)
        metadata, start, duration = metadata[kept], start[kept], duration[kept]
        line = line[kept]
    negative = duration < 0
    name, names = _names(plane, metadata)
    return PlaneTable(
        plane=plane,
        lines=headers,
        names=names,
        start_ps=start,
        duration_ps=np.where(negative, 0, duration) if negative.any() else duration,
        name=name,
        line=line,
        negative_duration_count=int(negative.sum()),
        misplaced_line_count=misplaced_count,
        _stats=stats,
        _metadata=metadata,
        _texts=list(chain.from_iterable(texts)),
    )


def _before(counts: Iterable[int]) -> list[int]:
    """How many come before each of several parts."""
    return [0, *accumulate(counts)][:-1]


def _is_placed(stamp_ns: int) -> bool:
    return abs(stamp_ns) <= MAX_STAMP_NS


def _stamp(line: Line, absolute_origin_ns: int) -> int:
    """Nanoseconds from the start of the profile to the start of the line."""
    stamp = line.header.timestamp_ns
    return stamp - absolute_origin_ns if stamp >= ABSOLUTE_STAMP_NS else stamp


def _names(plane: Plane, metadata: Int64Array) -> tuple[Int32Array, tuple[bytes, ...]]:
    """Index of each event's name, and the names; events without metadata are named `<unknown>`."""
    used, index = unique_inverse(metadata)
    known = map(plane.event_metadata.get, used.tolist())
    # On TPU planes the name is a whole HLO expression and the display name its op.
    is_tpu = plane.kind is PlaneKind.TPU
    names = (b"<unknown>" if e is None else (is_tpu and e.display_name) or e.name for e in known)
    return index.astype(np.int32), tuple(names)
