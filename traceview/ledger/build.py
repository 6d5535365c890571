"""Builds the ledger: cuts the window of each device into segments of one state each.

    device    ▕ kernel ▏···· idle ····▕ collective ──────────▏▕ copy ▏
    activity  │compute │ idle         │ collective           │ h2d   │
    state     │compute │ input        │ device_wait │ commun.│ h2d   │

What a device does at an instant is what comes first in the order of `ActivityClass`. Each instant of compute belongs to
the event that began first of those that run; to side work, such as `tf.print`, and to ops of CPUs whose own event has
ended, only where no op of the model runs. Time in a collective before the last device has come is a wait for that
device. Idle time has the state that the host shows (`trace/host/gaps.py`).

Changes the state of parts of a ledger, where more than the activity of a device and its host shows who caused them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict, astuple, replace

from traceview.base.ids import sorted_unique, unique_ids
from traceview.base.intervals import (
    BoolArray,
    Int32Array,
    Int64Array,
    IntervalSet,
    Nesting,
    nesting,
    union,
)
from traceview.base.sweeping import SWEEPS, made_of_each
from traceview.ledger.columns import DTYPES, IDLE, By, Columns
from traceview.ledger.states import OF_CLASS, State
from traceview.ledger.table import Ledger
from traceview.trace.columns import NONE, kept
from traceview.trace.device.op_names import side_work_of
from traceview.trace.host.gaps import Gaps
from traceview.trace.host.host_states import HostStates
from traceview.trace.model import Step, StepBounds, Trace, Window
from traceview.trace.strategy.collectives import Collectives
from traceview.xplane.columns import joined
from traceview.xplane.planes import ActivityClass

_LAYERS: Final = (ActivityClass.COMPUTE, *ActivityClass)
"""What a device does at an instant, the first first: compute of the model, side work and what goes on, and the other classes."""
_LAYER_OF_CLASS: Final = np.array([0, *range(2, len(_LAYERS))], dtype=np.uint8)
_NOBODYS: Final = (State.NO_WORK, State.UNKNOWN, State.LATENCY, State.DEPENDENCY)
_STATE_OF_CLASS: Final = np.array([OF_CLASS[class_] for class_ in ActivityClass], dtype=np.uint8)
_IS_NOBODYS: Final = np.array([state in _NOBODYS for state in State], dtype=np.bool_)
"""States that no thread of the host is known to be the reason for."""


class _Spans(Struct, frozen=True, eq=False):
    """Spans of a device before they are merged: columns as those of segments, with ends, and in no step yet."""

    start_ps: Int64Array
    end_ps: Int64Array
    state: npt.NDArray[np.uint8]
    activity: npt.NDArray[np.uint8]
    by_kind: npt.NDArray[np.uint8]
    by: Int32Array
    event: Int32Array

    def chosen(self, rows: Int64Array | slice) -> _Spans:
        """These rows."""
        return _Spans(*(column[rows] for column in astuple(self)))


class Segments(Struct, frozen=True, eq=False):
    """A ledger in the making: the segments of each device, ascending, and the steps of all hosts in their windows."""

    of_device: dict[int, Columns]
    steps: tuple[Step, ...]

    def ledger(self, trace: Trace, python: Sequence[str] = (), input_ratio: float = 0.0) -> Ledger:
        """The ledger of these segments, which are let go of, column by column. Other arguments: as of `Ledger`."""
        devices, parts = tuple(self.of_device), list(map(asdict, self.of_device.values()))
        self.of_device.clear()
        first = tuple(accumulate((part["state"].size for part in parts), initial=0))
        columns = {
            name: joined([part.pop(name) for part in parts], dtype)
            for name, dtype in DTYPES.items()
        }
        return Ledger(
            trace, Columns(**columns), devices, first, self.steps, tuple(python), input_ratio
        )


def build_segments(
    trace: Trace,
    windows: Mapping[int, Window],
    steps: Mapping[int, Sequence[Step]],
    gaps: Mapping[int, Gaps],
    states: Mapping[int, HostStates],
    collectives: Collectives,
) -> Segments:
    """The segments of a run. `windows`, `steps`, `states`: by host; `gaps`: the idle time by device."""
    every: list[Step] = []
    bounds: dict[int, StepBounds] = {}
    for host in windows:
        of_host = StepBounds.of(steps.get(host, ()))
        # Steps are numbered over all hosts.
        number = np.where(of_host.step == NONE, NONE, of_host.step + len(every)).astype(np.int32)
        bounds[host] = StepBounds(of_host.time, number)
        every += steps.get(host, ())
    waits = _Waits(trace, collectives)

    def segments_of(device: int) -> Columns:
        host = trace.device_list[device].host
        busy, begin = _busy(trace, device, waits, states[host])
        idle = _idle(gaps[device], states[host], waits)
        columns = _merged([*busy, idle], begin, windows[host], bounds[host])
        waits.name(device, columns)
        return _named_by_ops(trace, columns, gaps[device], states[host])

    of_device = made_of_each(segments_of, tuple(gaps), trace.threads_beside)
    return Segments(of_device, tuple(every))


def _merged(
    parts: Sequence[_Spans], begin: Int64Array, window: Window, bounds: StepBounds
) -> Columns:
    """The spans in time order, of several the one of the first layer, cut to the window and at the bounds of steps.

    `begin`: where the layers of busy spans begin, and their number. The last part is the layer of idle ones.
    """
    start_ps, end_ps, *shown = map(np.concatenate, zip(*map(astuple, parts), strict=True))
    start, duration, number, place = SWEEPS.layered(
        start_ps,
        end_ps,
        np.append(begin, start_ps.size),
        bounds.time,
        window.start_ps,
        window.end_ps,
    )
    # Indices of another type would be converted for every column.
    row = number.astype(np.int64)
    state, activity, by_kind, by, event = (column.take(row) for column in shown)
    # Copies, for what is a part of a longer array keeps all of it.
    times = start.copy(), duration.copy()
    return Columns(*times, bounds.step.take(place), state, activity, by_kind, by, event)


# What a device does


def _busy(
    trace: Trace, device: int, waits: _Waits, states: HostStates
) -> tuple[list[_Spans], Int64Array]:
    """What a device does, by layer, in parts; where each layer begins, and how many spans there are.

    Of several events of one activity the one that began first has an instant.
    """
    columns, own = trace.device_columns, trace.device_columns.rows_of(device)
    place, start, duration, layer = _in_layers(trace, device, states)
    start, end, number, begin = _exclusive(start, duration, layer)
    activity = np.repeat(np.array(_LAYERS, dtype=np.uint8), np.diff(begin))
    row = place[number] + own.start
    op = columns.op.take(row)
    spans = _Spans(
        start,
        end,
        _STATE_OF_CLASS.take(activity),
        activity,
        np.full(row.size, By.OP, dtype=np.uint8),
        np.where(op == NONE, columns.name[row], op),
        row.astype(np.int32),
    )
    exchanges = int(_LAYER_OF_CLASS[ActivityClass.COLLECTIVE])
    low, high = begin[exchanges : exchanges + 2].tolist()
    if low == high:
        return [spans], begin
    split = waits.split(device, spans.chosen(slice(low, high)))
    begin[exchanges + 1 :] += split.start_ps.size - (high - low)
    return [spans.chosen(slice(0, low)), split, spans.chosen(slice(high, None))], begin


def _exclusive(
    start: Int64Array, duration: Int64Array, layer: npt.NDArray[np.uint8]
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """The exclusive time of each event, by start, in its layer: start, end and number, by layer; and where each layer begins."""
    parts = []
    for each in range(len(_LAYERS)):
        rows = np.flatnonzero((layer == each) & (duration > 0))
        since, until = start[rows], start[rows] + duration[rows]
        since[1:] = np.maximum(since[1:], np.maximum.accumulate(until)[:-1])
        is_left = until > since
        parts.append((since[is_left], until[is_left], rows[is_left]))
    begin = np.append(0, np.cumsum([rows.size for _, _, rows in parts]))
    since, until, rows = (np.concatenate(column) for column in zip(*parts, strict=True))
    return since, until, rows, begin


def _in_layers(
    trace: Trace, device: int, states: HostStates
) -> tuple[Int64Array, Int64Array, Int64Array, npt.NDArray[np.uint8]]:
    """The events of a device, by start, in parts that are each in one of `_LAYERS`: number, start, length and layer.

    On a CPU an op is in the second where it goes on when its own event has ended: other threads may work for it, or wait for a core.
    """
    columns, own = trace.device_columns, trace.device_columns.rows_of(device)
    start, duration = columns.start_ps[own], columns.duration_ps[own]
    layer: npt.NDArray[np.uint8] = _LAYER_OF_CLASS.take(columns.class_[own])
    place = np.arange(start.size)
    if trace.device_list[device].kind != "replica":
        return place, start, duration, layer
    layer[is_side_work(trace, device)] = 1
    for guests in states.guests.values():
        layer[guests[trace.device_columns.device[guests] == device] - own.start] = 1
    until, launch = start + duration, columns.launch[own]
    until[launch != NONE] = trace.host_columns.end_ps[launch[launch != NONE]]
    longer = np.flatnonzero((layer == 0) & (until > start) & (until < start + duration))
    if not longer.size:
        return place, start, duration, layer
    rest = start[longer] + duration[longer] - until[longer]
    duration = duration.copy()
    duration[longer] -= rest
    place = np.concatenate((place, longer))
    start = np.concatenate((start, until[longer]))
    order = np.argsort(start, kind="stable")
    duration = np.concatenate((duration, rest))
    layer = np.concatenate((layer, np.ones(longer.size, dtype=np.uint8)))
    return place[order], start[order], duration[order], layer[order]


def is_side_work(trace: Trace, device: int, *, is_shown: bool = False) -> BoolArray:
    """Which events of a CPU device compute nothing of the model: as their names show or, unless that has to be, as graphs do."""
    columns, own = trace.device_columns, trace.device_columns.rows_of(device)
    graphs = trace.hosts[trace.device_list[device].host].captured.graphs
    known = () if is_shown else graphs.untrained_ops
    untrained = frozenset(name.encode("utf-8", "replace") for name in known)

    def is_side(name: bytes) -> bool:
        return side_work_of(name) is not None or name.rpartition(b":")[0] in untrained

    result = trace.names.where(columns.op[own], is_side)
    result &= columns.class_[own] == ActivityClass.COMPUTE
    return result


class _Waits:
    """Who waits for whom: in collectives, and before work that another device holds up."""

    def __init__(self, trace: Trace, collectives: Collectives) -> None:
        self._trace = trace
        self._collectives = collectives
        order = np.lexsort((-collectives.start_ps, collectives.duration_ps, collectives.collective))
        # The device that was in a collective for the shortest time came last.
        last = collectives.device[order[collectives.first]][collectives.collective]
        complete = collectives.is_complete[collectives.collective]
        self._last = np.where(complete, last, NONE).astype(np.int64)
        columns, rows = trace.device_columns, collectives.row
        self._start, self._end = columns.start_ps[rows], columns.end_ps[rows]
        transfer_ps = collectives.transfer_ps[collectives.collective]
        from_ps = self._end - transfer_ps
        self._transfer_from = np.where(complete, np.maximum(self._start, from_ps), self._start)
        self._follow_sources()

    def _follow_sources(self) -> None:
        """In a permutation a device depends on its source alone, where that comes later than itself."""
        collectives, count = self._collectives, len(self._trace.device_list)
        given = np.flatnonzero((collectives.source != NONE) & (self._last != NONE))
        if given.size:
            source = collectives.source[given]
            key = collectives.collective * count + collectives.device
            wanted = collectives.collective[given] * count + source
            place = np.minimum(np.searchsorted(key, wanted), key.size - 1)
            is_late = collectives.start_ps[place] > collectives.start_ps[given]
            is_late &= key[place] == wanted
            self._last[given[is_late]] = source[is_late]

    def _rows_of(self, device: int) -> Int64Array:
        """The rows of the collectives of a device."""
        return np.flatnonzero(self._collectives.device == device)

    def split(self, device: int, spans: _Spans) -> _Spans:
        """The time in collectives of a device, as waits for the last device and as transfers."""
        of_device = self._rows_of(device)
        transfers = union(self._transfer_from[of_device], self._end[of_device])
        bounds = sorted_unique(np.concatenate((transfers.start, transfers.end)))
        start, end, number, _ = SWEEPS.cut(spans.start_ps, spans.end_ps, bounds)
        cut = replace(spans.chosen(number.astype(np.int64)), start_ps=start, end_ps=end)
        cut.state[transfers.within(start, end) == 0] = State.DEVICE_WAIT
        return cut

    def name(self, device: int, columns: Columns) -> None:
        """Enter the device that came last in the segments of a device that wait in collectives.

        Of several collectives that run at an instant it is that of the one that began last.
        """
        rows = np.flatnonzero((columns.state == State.DEVICE_WAIT) & (columns.activity != IDLE))
        if not rows.size:
            return
        own = self._rows_of(device)
        running = nesting(self._start[own], self._end[own]).innermost(columns.start_ps[rows])
        last = np.append(self._last[own], NONE)[running]
        known = last != NONE
        columns.by_kind[rows[known]] = By.DEVICE
        columns.by[rows[known]] = last[known]

    def before_work(self, device: int, start: Int64Array, end: Int64Array) -> Int64Array:
        """The device that each of some idle spans of a device waits for; `NONE` where that is not known."""
        entry = self._trace.device_list[device]
        if entry.kind == "replica":
            return self._replica_at_work(device, start, end)
        # In a gap it is in no collective itself.
        running = self._nesting.innermost(end - 1)
        last, of_device = (
            np.append(column, NONE)[running] for column in (self._last, self._collectives.device)
        )
        holder = np.where(last == NONE, of_device, last)
        result: Int64Array = np.where(holder != device, holder, NONE).astype(np.int64)
        return result

    @cached_property
    def _nesting(self) -> Nesting:
        return nesting(self._start, self._end)

    def _replica_at_work(self, device: int, start: Int64Array, end: Int64Array) -> Int64Array:
        """The replica of the same host that was at work at the end of each span, of several the first to pause."""
        trace = self._trace
        host = trace.device_list[device].host
        until = np.full(end.size, np.iinfo(np.int64).max, dtype=np.int64)
        result = np.full(end.size, NONE, dtype=np.int64)
        for other, entry in enumerate(trace.device_list):
            if other == device or entry.host != host or entry.kind != "replica":
                continue
            busy = self._busy_of(other)
            place = np.searchsorted(busy.start, end) - 1
            ends = busy.end
            pause = np.where(place >= 0, np.append(ends, 0)[place], 0)
            is_first = (pause >= end) & (pause < until)
            until[is_first], result[is_first] = pause[is_first], other
        return result

    @kept
    def _busy_of(self, device: int) -> IntervalSet:
        columns, own = self._trace.device_columns, self._trace.device_columns.rows_of(device)
        return union(columns.start_ps[own], columns.end_ps[own])


# What it is idle for


def _idle(gaps: Gaps, states: HostStates, waits: _Waits) -> _Spans:
    spans = gaps.idle_spans
    by = _late_threads(gaps, states)
    by_kind = np.where(by == NONE, np.uint8(By.NONE), np.uint8(By.THREAD))
    of_device = np.flatnonzero(spans.state == State.DEVICE_WAIT)
    if of_device.size:
        holder = waits.before_work(gaps.device, spans.start_ps[of_device], spans.end_ps[of_device])
        by_kind[of_device] = np.where(holder == NONE, np.uint8(By.NONE), np.uint8(By.DEVICE))
        by[of_device] = holder
    nobody = _IS_NOBODYS.take(spans.state)
    by_kind[nobody], by[nobody] = By.NONE, NONE
    return _Spans(
        spans.start_ps,
        spans.end_ps,
        spans.state,
        np.full(by.size, IDLE, dtype=np.uint8),
        by_kind,
        by,
        gaps.after.take(spans.gap),
    )


def _named_by_ops(trace: Trace, columns: Columns, gaps: Gaps, states: HostStates) -> Columns:
    """The segments of a device, those idle for host ops cut where another op begins, which causes them.

    Of several ops that compute on the host the one that began last counts, and without any the event of no known kind on a
    thread that was late. The ops of replicas are their work.
    """
    waits = (columns.state == State.HOST_OPS) & (columns.activity == IDLE)
    if trace.device_list[gaps.device].kind == "replica" or not waits.any():
        return columns
    host = trace.host_columns
    late = unique_ids(np.append(gaps.thread[gaps.is_handed], states.caller)).tolist()
    unlisted = joined([states.unlisted_rows(thread) for thread in late], np.int64)
    both = states.computing_rows, unlisted
    moments = [moment[rows] for rows in both for moment in (host.start_ps, host.end_ps)]
    bounds = sorted_unique(np.concatenate(moments))
    op, event = (
        np.append(host.name[rows], NONE)[
            nesting(host.start_ps[rows], host.end_ps[rows]).innermost(bounds)
        ]
        for rows in both
    )
    name = np.where(op == NONE, event, op).astype(np.int32)
    changes = np.diff(name, prepend=NONE) != 0
    cut, number, passed = cut_at(columns, bounds[changes], waits)
    by_op = np.where(waits[number], np.append(name[changes], NONE)[passed - 1], NONE)
    known = by_op != NONE
    return replace(
        cut,
        by_kind=np.where(known, np.uint8(By.OP), cut.by_kind),
        by=np.where(known, by_op, cut.by),
    )


def _late_threads(gaps: Gaps, states: HostStates) -> Int32Array:
    """The line of the thread that was late at the start of each span of a gap; `NONE` where it is not known."""
    start, gap = gaps.idle_spans.start_ps, gaps.idle_spans.gap
    # Until it handed the work over, the thread that calls graphs was late; a thread has the number of its first line.
    is_handed = gaps.is_handed.take(gap) & (start >= gaps.handed_over_ps.take(gap))
    return np.where(is_handed, gaps.thread.take(gap), np.int32(states.caller))


def recast(
    columns: Columns,
    spans: IntervalSet,
    among: Collection[State],
    state: State,
    by: tuple[By, int] | None = None,
) -> Columns:
    """The segments of a device, where those of states `among` have another state inside of `spans`.

    `by`: who causes it, if that changes as well. Segments of these states are cut at the bounds of the spans.
    """
    if not spans.start.size:
        return columns
    return recast_rows(*cut_at_spans(columns, spans, is_among(columns, among)), state, by)


def cut_at_spans(
    columns: Columns, spans: IntervalSet, is_one: BoolArray
) -> tuple[Columns, Int64Array]:
    """The same segments, some of them cut at the bounds of spans, and the numbers of those inside of them."""
    rows = np.flatnonzero(is_one)
    # Up to an instant inside of a span lies an odd number of these.
    bounds = np.stack((spans.start, spans.end), axis=1).reshape(-1)
    start = columns.start_ps[rows]
    _, _, number, passed = SWEEPS.cut(start, start + columns.duration_ps[rows], bounds)
    if number.size == rows.size:
        # Few segments are chosen, and mostly none of them is cut.
        return columns, rows[passed % 2 == 1]
    cut, number, passed = cut_at(columns, bounds, is_one)
    return cut, np.flatnonzero(is_one[number] & (passed % 2 == 1))


def recast_ends(
    columns: Columns, length_ps: Int64Array, state: State, by: tuple[By, int] | None = None
) -> Columns:
    """The segments of a device, where the last `length_ps` of each row have another state."""
    rows = np.flatnonzero(length_ps > 0)
    duration = columns.duration_ps[rows]
    length = np.minimum(length_ps[rows], duration)
    is_cut = np.zeros(columns.count, dtype=np.bool_)
    is_cut[rows] = inside = length < duration
    from_ps = columns.start_ps[rows] + duration - length
    cut, _, _ = cut_at(columns, from_ps[inside], is_cut)
    # The second piece of each row that is cut comes after the first.
    return recast_rows(cut, rows + np.cumsum(inside), state, by)


def cut_at(
    columns: Columns, bounds: Int64Array, rows: BoolArray
) -> tuple[Columns, Int32Array, Int32Array]:
    """The same segments, some of them cut where one of the sorted, distinct `bounds` lies inside.

    Also, of each, the number of the segment that it is a part of, and how many bounds lie before its start or at it.
    """
    start, end, number, passed = SWEEPS.cut(
        columns.start_ps, columns.end_ps, bounds, rows.view(np.uint8)
    )
    if start.size == columns.count:
        return columns, number, passed
    # Indices of another type would be converted for every column.
    place = number.astype(np.int64)
    others = {name: getattr(columns, name).take(place) for name in Columns.__struct_fields__[2:]}
    return Columns(start, end - start, **others), number, passed


def is_among(columns: Columns, states: Collection[State]) -> BoolArray:
    """Which rows are in one of these states."""
    wanted = np.zeros(len(State), dtype=np.bool_)
    wanted[[int(state) for state in states]] = True
    result: BoolArray = wanted.take(columns.state)
    return result


_TAKEN: Final = (State.NO_CORE, State.PYTHON_THREAD, State.GARBAGE_COLLECTION)
"""What others take of what a thread does."""


def with_taken(columns: Columns, rows: BoolArray) -> BoolArray:
    """These rows, and those after each that others have taken of it."""
    taken = is_among(columns, _TAKEN) & (columns.activity == IDLE)
    last = np.maximum.accumulate(np.where(taken, 0, np.arange(columns.count)))
    # Those of the next device begin anew.
    follows = taken & rows[last] & (columns.start_ps >= columns.start_ps[last])
    result: BoolArray = rows | follows
    return result


def recast_rows(
    columns: Columns,
    rows: BoolArray | Int64Array,
    state: State,
    by: tuple[By, int] | None = None,
) -> Columns:
    """The segments of a device with another state for some whole rows."""
    chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    if not chosen.size:
        return columns
    values = (
        {"state": int(state)}
        if by is None
        else {"state": int(state), "by_kind": int(by[0]), "by": by[1]}
    )
    changed = {name: getattr(columns, name).copy() for name in values}
    for name, value in values.items():
        changed[name][chosen] = value
    return replace(columns, **changed)
