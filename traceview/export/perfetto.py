"""Writes a scene as a protobuf trace of Perfetto, which keeps nanoseconds, and each text once.

Field numbers are those of Perfetto's `perfetto_trace.proto` (release 59). Every event is a packet of one sequence: a
slice begins with one and ends with another. Packets are written track by track; Perfetto sorts them by time and keeps
the order of those of equal times, so that an end comes before a beginning, unless the slice has no length.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from traceview.base.ids import unique_ids
from traceview.base.intervals import BoolArray, Int64Array
from traceview.document.sanitize import sanitize
from traceview.export import wire
from traceview.export.scene import Argument, Arrows, Counter, Labels, Scene, Slices
from traceview.trace.columns import NONE

_PACKET: Final = 1
# TracePacket
_TIMESTAMP: Final = 8
_SEQUENCE_ID: Final = 10
_TRACK_EVENT: Final = 11
_INTERNED_DATA: Final = 12
_SEQUENCE_FLAGS: Final = 13
_TRACK_DESCRIPTOR: Final = 60
# TrackEvent
_CATEGORY_IIDS: Final = 3
_DEBUG_ANNOTATIONS: Final = 4
_TYPE: Final = 9
_NAME_IID: Final = 10
_TRACK_UUID: Final = 11
_COUNTER_VALUE: Final = 30
_FLOW_IDS: Final = 47
_TERMINATING_FLOW_IDS: Final = 48
# DebugAnnotation
_ANNOTATION_NAME_IID: Final = 1
_INT_VALUE: Final = 4
_STRING_VALUE_IID: Final = 17
# InternedData, and its entries
_EVENT_CATEGORIES: Final = 1
_EVENT_NAMES: Final = 2
_ANNOTATION_NAMES: Final = 3
_ANNOTATION_STRINGS: Final = 29
_IID: Final = 1
_INTERNED: Final = 2
# TrackDescriptor, ProcessDescriptor, ThreadDescriptor, CounterDescriptor
_UUID: Final = 1
_TRACK_NAME: Final = 2
_PROCESS: Final = 3
_THREAD: Final = 4
_PARENT_UUID: Final = 5
_COUNTER: Final = 8
_CHILD_ORDERING: Final = 11
_SIBLING_ORDER_RANK: Final = 12
_PID: Final = 1
_TID: Final = 2
_SORT_INDEX: Final = 3
_THREAD_NAME: Final = 5
_PROCESS_NAME: Final = 6
_UNIT_NAME: Final = 6

_SLICE_BEGIN: Final = 1
_SLICE_END: Final = 2
_COUNTER_EVENT: Final = 4
_STATE_CLEARED: Final = 1
_NEEDS_STATE: Final = 2
_EXPLICIT: Final = 3

_SEQUENCE: Final = wire.number(_SEQUENCE_ID, 1)
_EVENT_HEAD: Final = _SEQUENCE + wire.number(_SEQUENCE_FLAGS, _NEEDS_STATE)
_ROWS_AT_ONCE: Final = 1 << 15
_BYTES_AT_ONCE: Final = 1 << 23


_Part: TypeAlias = bytes | Callable[[], bytes]
"""A part of a trace, or what makes it."""

_MOST_AHEAD: Final = 4


def written(scene: Scene) -> Iterator[bytes]:
    """The trace in parts, to be written one after another; two threads make those that take long."""
    with ThreadPoolExecutor(2) as threads:
        ahead: deque[bytes | Future[bytes]] = deque()
        for part in _parts(scene):
            ahead.append(part if isinstance(part, bytes) else _begun(threads, part))
            while sum(isinstance(begun, Future) for begun in ahead) > _MOST_AHEAD:
                yield _ended(ahead.popleft())
        yield from map(_ended, ahead)


def _begun(threads: ThreadPoolExecutor, make: Callable[[], bytes]) -> bytes | Future[bytes]:
    try:
        return threads.submit(make)
    except RuntimeError:
        # No threads may be started, in a container for instance.
        return make()


def _ended(begun: bytes | Future[bytes]) -> bytes:
    return begun if isinstance(begun, bytes) else begun.result()


def _parts(scene: Scene) -> Iterator[_Part]:
    yield _packet(_SEQUENCE + wire.number(_SEQUENCE_FLAGS, _STATE_CLEARED | _NEEDS_STATE))
    interned = _Interned(scene.labels)
    uuid = 0
    tid = len(scene.processes)
    for pid, process in enumerate(scene.processes, start=1):
        uuid += 1
        parent = uuid
        info = (_PID, pid), (_SORT_INDEX, pid), (_PROCESS_NAME, sanitize(process.name))
        yield _descriptor(uuid, (_PROCESS, wire.message(*info)), (_CHILD_ORDERING, _EXPLICIT))
        for rank, counter in enumerate(process.counters):
            uuid += 1
            unit = wire.text(_UNIT_NAME, counter.unit)
            yield _child(uuid, parent, rank, counter.name, (_COUNTER, unit))
            yield _counted(scene, uuid, counter)
        for rank, track in enumerate(process.tracks, start=len(process.counters)):
            uuid += 1
            name = sanitize(track.name)
            if track.kind == "thread":
                tid += 1
                thread = (_PID, pid), (_TID, tid), (_SORT_INDEX, rank), (_THREAD_NAME, name)
                yield _descriptor(uuid, (_THREAD, wire.message(*thread)))
            else:
                yield _child(uuid, parent, rank, name)
            yield from _slices(scene, uuid, track.slices, interned)


def _packet(content: bytes) -> bytes:
    return wire.text(_PACKET, content)


def _descriptor(uuid: int, *fields: tuple[int, int | str | bytes]) -> bytes:
    return _packet(_SEQUENCE + wire.text(_TRACK_DESCRIPTOR, wire.message((_UUID, uuid), *fields)))


def _child(
    uuid: int, parent: int, rank: int, name: str, *fields: tuple[int, int | str | bytes]
) -> bytes:
    own = (_TRACK_NAME, name), (_PARENT_UUID, parent), (_SIBLING_ORDER_RANK, rank)
    return _descriptor(uuid, *own, *fields)


def _counted(scene: Scene, uuid: int, counter: Counter) -> bytes:
    count = counter.time_ps.size
    event = wire.joined(
        wire.constant(count, wire.number(_TYPE, _COUNTER_EVENT) + wire.number(_TRACK_UUID, uuid)),
        wire.numbers(_COUNTER_VALUE, counter.values),
    )
    return _events(scene.nanoseconds(counter.time_ps), event)


def _events(time_ns: Int64Array, event: wire.Rows) -> bytes:
    """Packets with a track event each."""
    packet = wire.joined(
        wire.constant(time_ns.size, _EVENT_HEAD),
        wire.numbers(_TIMESTAMP, time_ns),
        wire.messages(_TRACK_EVENT, event),
    )
    return wire.messages(_PACKET, packet).content()


class _Interned:
    """Which texts Perfetto knows already: names of events, categories, and those in arguments."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._known: dict[int, set[int]] = {}
        self._arguments: dict[str, int] = {}

    def labels(self, field: int, indices: Int64Array) -> bytes:
        """Packets with the texts at `indices` that are not known yet; their iids are the indices, from 1 on."""
        known = self._known.setdefault(field, set())
        fresh = [label for label in unique_ids(indices).tolist() if label not in known]
        known.update(fresh)
        return b"".join(self._entry(field, label + 1, self._labels.shown(label)) for label in fresh)

    def argument(self, name: str) -> tuple[int, bytes]:
        """The iid of the name of an argument, and the packet that declares it if it is new."""
        if name in self._arguments:
            return self._arguments[name], b""
        iid = self._arguments[name] = len(self._arguments) + 1
        return iid, self._entry(_ANNOTATION_NAMES, iid, name)

    @staticmethod
    def _entry(field: int, iid: int, text: str) -> bytes:
        entry = wire.message((_IID, iid), (_INTERNED, text))
        return _packet(_EVENT_HEAD + wire.text(_INTERNED_DATA, wire.text(field, entry)))


def _slices(scene: Scene, uuid: int, slices: Slices, interned: _Interned) -> Iterator[_Part]:
    yield interned.labels(_EVENT_NAMES, slices.name)
    yield interned.labels(_EVENT_CATEGORIES, slices.category)
    arguments = []
    for argument in (*slices.arguments, *slices.exact):
        if not argument.known.any():
            continue
        if argument.is_text:
            yield interned.labels(_ANNOTATION_STRINGS, argument.values[argument.known])
        iid, entry = interned.argument(argument.name)
        yield entry
        arguments.append((iid, argument))
    start, end = scene.nanoseconds(slices.start_ps), scene.nanoseconds(slices.end_ps)
    index, is_begin = begins_and_ends(start, end)
    time = np.where(is_begin, start[index], end[index])
    for rows in _pieces(index, slices.launches):
        chosen, begins = index[rows], is_begin[rows]
        yield partial(_piece, uuid, slices, arguments, time[rows], chosen, begins)


def _piece(
    uuid: int,
    slices: Slices,
    arguments: Sequence[tuple[int, Argument]],
    time: Int64Array,
    chosen: Int64Array,
    begins: BoolArray,
) -> bytes:
    """Some beginnings and ends of slices of a track."""
    parts = [
        wire.numbers(_TYPE, np.where(begins, _SLICE_BEGIN, _SLICE_END)),
        wire.constant(chosen.size, wire.number(_TRACK_UUID, uuid)),
        wire.numbers(_NAME_IID, slices.name[chosen] + 1).where(begins),
        wire.numbers(_CATEGORY_IIDS, slices.category[chosen] + 1).where(begins),
        *(_annotation(iid, argument.at(chosen), begins) for iid, argument in arguments),
    ]
    if slices.launched is not None:
        number = slices.launched[chosen]
        ends = wire.fixed64(_TERMINATING_FLOW_IDS, number + 1)
        parts.append(ends.where(begins & (number != NONE)))
    if slices.launches is not None:
        parts += _launches(slices.launches.at(chosen), begins)
    return _events(time, wire.joined(*parts))


def begins_and_ends(start: Int64Array, end: Int64Array) -> tuple[Int64Array, BoolArray]:
    """The order in which nested slices begin and end, those in drawing order: index of the slice, and whether it begins.

    Both `[2n]`. What follows a slice without being in it begins no earlier than that ends.
    """
    count = start.size
    index = np.arange(count, dtype=np.int64)
    follower = np.maximum(np.searchsorted(start, end, side="left"), index + 1)
    # Of those that end before the same beginning, the innermost was begun last.
    ending = np.lexsort((-index, follower))
    ended_before = np.searchsorted(follower[ending], index, side="right")
    order = np.empty(2 * count, dtype=np.int64)
    is_begin = np.zeros(2 * count, dtype=np.bool_)
    begins_at = index + ended_before
    order[begins_at] = index
    is_begin[begins_at] = True
    order[follower[ending] + index] = ending
    return order, is_begin


def _pieces(index: Int64Array, launches: Arrows | None) -> Iterator[slice]:
    """Rows that are written at once: fewer where a launch started much."""
    wanted = [slice(at, at + _ROWS_AT_ONCE) for at in range(0, index.size, _ROWS_AT_ONCE)][::-1]
    while wanted:
        rows = wanted.pop()
        chosen = index[rows]
        most = int(launches.count[chosen].max(initial=0)) if launches else 0
        if chosen.size > 1 and most * chosen.size * 10 > _BYTES_AT_ONCE:
            middle = rows.start + chosen.size // 2
            wanted += [slice(middle, rows.start + chosen.size), slice(rows.start, middle)]
        else:
            yield rows


def _annotation(iid: int, argument: Argument, begins: BoolArray) -> wire.Rows:
    field, added = (_STRING_VALUE_IID, 1) if argument.is_text else (_INT_VALUE, 0)
    value = wire.numbers(field, np.where(argument.known, argument.values + added, 0))
    name = wire.constant(begins.size, wire.number(_ANNOTATION_NAME_IID, iid))
    inside = wire.joined(name, value)
    return wire.messages(_DEBUG_ANNOTATIONS, inside).where(begins & argument.known)


def _launches(arrows: Arrows, begins: BoolArray) -> Iterator[wire.Rows]:
    """Each arrow has a number of its own, which Perfetto forgets where it ends; 0 is none."""
    for nth in range(int(arrows.count[begins].max(initial=0))):
        yield wire.fixed64(_FLOW_IDS, arrows.first + nth + 1).where(begins & (arrows.count > nth))


_LEVEL: Final = 4
"""Traces repeat themselves: a higher level of compression hardly makes them smaller."""

_GZIP: Final = 16
"""Added to the size of the window: a gzip header, in which zlib writes no time, so that equal content has equal bytes."""


def compressed(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The parts as a gzip file."""
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP + zlib.MAX_WBITS)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()
