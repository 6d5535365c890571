"""The timeline: its lanes, a bounded number of slices for each device and the host threads that matter, and its strips.

A strip cuts the window of a device into equal slices, for formats that cannot draw lanes.

Where a lane has more slices than there is room for, those shorter than a resolution that begin in the same stretch of that
length are merged. A merged slice holds how many events it stands for and how much of it they cover, by class, so that sums
over a lane stay exact. Lanes are made only where a document asks for them, when the findings are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.selection import rows_in, step_bounds
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.idle_report import Idle, numbered_gaps
from traceview.analysis.rules.finding import Skipped
from traceview.base.ids import unique_inverse
from traceview.base.intervals import BoolArray, Int32Array, Int64Array, nesting, union
from traceview.document.figures import (
    DeviceLanes,
    HostLanes,
    Lane,
    LaneKind,
    Lanes,
    UtilizationStrip,
    UtilizationStrips,
)
from traceview.document.model import Section, Strips, Timeline
from traceview.document.sanitize import shortened
from traceview.document.vocabulary import STEP_KINDS
from traceview.ledger.columns import IDLE
from traceview.ledger.states import KEYS, State
from traceview.ledger.table import Ledger
from traceview.trace.columns import NONE
from traceview.trace.host.host_states import HostStates
from traceview.trace.model import Step, Trace, Window
from traceview.xplane.planes import ActivityClass

MOST_SLICES: Final = 32_000
"""Slices of all lanes together: some 450 kB on a page, where they are deflated, and four times that as JSON."""
MOST_DEVICES: Final = 128
"""A page with more is too long to scroll, and each has some 250 of the slices."""
MOST_THREADS: Final = 6
"""Threads of one host."""
MOST_NAME_BYTES: Final = 160_000
"""All names together, as JSON."""

_NAME_LENGTHS: Final = (160, 96, 64, 40, 24, 12)
_LAUNCHING_THREADS: Final = 3
"""Threads that launch most; the others are the one that runs the steps, and those that long gaps name."""
_ACTIVITIES: Final[tuple[tuple[LaneKind, tuple[ActivityClass, ...]], ...]] = (
    ("compute", (ActivityClass.COMPUTE,)),
    ("communication", (ActivityClass.COLLECTIVE,)),
    (
        "copies",
        (ActivityClass.H2D, ActivityClass.D2H, ActivityClass.D2D, ActivityClass.MEMSET),
    ),
)
_STEP_CLASSES: Final = tuple(STEP_KINDS)


class _Draft(Struct, frozen=True, eq=False):
    """A lane before its share of the slices is known."""

    kind: LaneKind
    thread: int
    event_count: int
    classes: tuple[str, ...]
    slices: Slices
    window: Window
    states: HostStates | None = None


def lanes_of(context: Context, idle: Idle | Skipped, detailed: Collection[int]) -> Lanes | Skipped:
    """The lanes of every device that could be recorded, and of its host.

    `idle`: whose longest gaps choose the threads. `detailed`: numbers of the steps in which short slices are not merged.
    """
    if isinstance(idle, Skipped):
        return Skipped(idle.reason)
    trace, selection = context.trace, context.selection
    devices = list(context.idle.gaps)[:MOST_DEVICES]
    hosts = sorted({trace.device_list[device].host for device in devices})
    drafts = [
        *(("host", host, draft) for host in hosts for draft in _of_host(context, idle, host)),
        *(("device", device, draft) for device in devices for draft in _of_device(context, device)),
    ]
    shares = fair_shares([draft.slices.size for *_, draft in drafts], MOST_SLICES)
    names = _Names()
    in_detail = {
        host: [step for step in selection.steps[host] if step.number in detailed] for host in hosts
    }
    lanes: dict[tuple[str, int], list[Lane]] = {}
    for (kind, number, draft), share in zip(drafts, shares, strict=True):
        edges = np.column_stack(step_bounds(in_detail[draft.window.host])).ravel()
        lane = _lane(trace, names, draft, share, edges)
        lanes.setdefault((kind, number), []).append(lane)
    host_lanes = [
        HostLanes(
            trace.hosts[host].name,
            selection.windows[host].start_ps,
            selection.windows[host].end_ps,
            tuple(lanes.get(("host", host), ())),
            tuple(sorted(step.number for step in in_detail[host])),
        )
        for host in hosts
    ]
    device_lanes = [
        DeviceLanes(
            trace.device_key(device),
            trace.hosts[trace.device_list[device].host].name,
            tuple(lanes.get(("device", device), ())),
        )
        for device in devices
    ]
    left_out_count = len(context.idle.gaps) - len(devices)
    return Lanes(tuple(host_lanes), tuple(device_lanes), left_out_count, names.cut(trace))


# The events of a lane


def _of_device(context: Context, device: int) -> Iterator[_Draft]:
    trace = context.trace
    window = context.selection.windows[trace.device_list[device].host]
    columns, rows = trace.device_columns, trace.device_columns.rows_of(device)
    inside = rows_in(columns.start_ps[rows], columns.end_ps[rows], window) + rows.start
    class_ = columns.class_[inside]
    for kind, classes in _ACTIVITIES:
        rows_of_kind = inside[(class_ >= classes[0]) & (class_ <= classes[-1])]
        op = columns.op[rows_of_kind]
        slices = slices_of(
            np.maximum(columns.start_ps[rows_of_kind], window.start_ps),
            np.minimum(columns.end_ps[rows_of_kind], window.end_ps),
            columns.class_[rows_of_kind].astype(np.int64) - classes[0],
            np.where(op == NONE, columns.name[rows_of_kind], op),
            len(classes),
        )
        if slices.size:
            keys = tuple(class_.name.lower() for class_ in classes)
            yield _Draft(kind, NONE, rows_of_kind.size, keys, slices, window)
    idle = _idle(context.ledger, device)
    if idle.size:
        yield _Draft("idle", NONE, idle.size, KEYS, idle, window)


def _idle(ledger: Ledger, device: int) -> Slices:
    """The idle segments of a device, each named after the event that ended it."""
    own = ledger.columns.chosen(ledger.rows_of(device))
    rows = np.flatnonzero(own.activity == IDLE)
    op, kernel = ledger.trace.device_columns.names_at(own.event[rows])
    start, state = own.start_ps[rows], own.state[rows].astype(np.int64)
    name = np.where(op == NONE, kernel, op)
    return slices_of(start, start + own.duration_ps[rows], state, name, len(KEYS))


def _of_host(context: Context, idle: Idle, host: int) -> Iterator[_Draft]:
    window, states = context.selection.windows[host], context.idle.states[host]
    steps = _steps(context.selection.steps[host], window)
    if steps.size:
        count = len(context.selection.steps[host])
        yield _Draft("steps", NONE, count, _STEP_CLASSES, steps, window)
    for thread in _chosen_threads(context.trace, states, idle, host):
        timeline = (
            states.timeline(thread) if thread == states.caller else states.own_timeline(thread)
        )
        start = np.clip(timeline.start, window.start_ps, window.end_ps)
        end = np.append(start[1:], window.end_ps)
        kept = np.flatnonzero((timeline.state != State.UNKNOWN) & (end > start))
        slices = slices_of(
            start[kept],
            end[kept],
            timeline.state[kept].astype(np.int64),
            np.full(kept.size, NONE, dtype=np.int32),
            len(KEYS),
        )
        if slices.size:
            yield _Draft("thread", thread, slices.size, KEYS, slices, window, states=states)


def _steps(steps: Sequence[Step], window: Window) -> Slices:
    start, end = step_bounds(steps)
    kinds = [_STEP_CLASSES[-1] if step.excluded else step.kind for step in steps]
    class_ = np.array([_STEP_CLASSES.index(kind) for kind in kinds], dtype=np.int64)
    number = np.array([step.number for step in steps], dtype=np.int64)
    # A number that no column of names can hold is left out.
    fits = (number >= 0) & (number < np.iinfo(np.int32).max)
    return slices_of(
        np.maximum(start, window.start_ps),
        np.minimum(end, window.end_ps),
        class_,
        np.where(fits, number, NONE).astype(np.int32),
        len(_STEP_CLASSES),
    )


def _chosen_threads(trace: Trace, states: HostStates, idle: Idle, host: int) -> list[int]:
    """The thread that runs the steps, those that launch most, and those that the longest gaps name."""
    launch = trace.device_columns.launch[trace.device_rows(host)]
    launching = Counter(states.thread[trace.host_columns.line[launch[launch != NONE]]].tolist())
    most = sorted(launching, key=lambda thread: (-launching[thread], thread))[:_LAUNCHING_THREADS]
    named: Counter[str] = Counter()
    for row in idle.devices:
        for gap in row.gaps if row.host == trace.hosts[host].name else ():
            if gap.thread is not None:
                named[gap.thread] += gap.duration_ps
    thread_of_name: dict[str, int] = {}
    for line in np.flatnonzero(trace.host_of_line == host).tolist():
        info = trace.lines[line]
        if info.device == NONE:
            thread_of_name.setdefault(info.name, int(states.thread[line]))
    chosen = [states.caller, *most, *(thread_of_name[name] for name, _ in named.most_common())]
    return [thread for thread in dict.fromkeys(chosen) if thread != NONE][:MOST_THREADS]


# The columns of a lane


class _Names:
    """The names of slices, once each, in the order in which they first occur."""

    def __init__(self) -> None:
        self._index: dict[int, int] = {}

    def indices(self, names: Int32Array) -> tuple[int, ...]:
        """The places of names of the trace in the list."""
        known, place = unique_inverse(names)
        index = [
            NONE if name == NONE else self._index.setdefault(name, len(self._index))
            for name in known.tolist()
        ]
        return tuple(np.array(index, dtype=np.int64)[place].tolist())

    def cut(self, trace: Trace) -> tuple[str, ...]:
        """The names, cut to the longest length with which all fit."""
        import json

        cut = texts = [trace.names.text(name) or "" for name in self._index]
        for length in _NAME_LENGTHS:
            # The end of a name says most: it is kept longer than its beginning.
            cut = [shortened(text, length, part=3) for text in texts]
            if sum(len(json.dumps(text)) for text in cut) <= MOST_NAME_BYTES:
                break
        return tuple(cut)


def _lane(trace: Trace, names: _Names, draft: _Draft, most: int, detailed_ps: Int64Array) -> Lane:
    """A lane of at most so many slices; `detailed_ps`: as of `Slices.in_detail`."""
    window = draft.window
    slices, resolution = draft.slices.in_detail(
        most, window.length_ps, window.start_ps, detailed_ps
    )
    length = slices.end_ps - slices.start_ps
    covered = slices.class_ps.sum(axis=0)
    main = slices.class_ps.argmax(axis=0)
    merged = np.flatnonzero(slices.count > 1)
    others = slices.class_ps.copy()
    others[main, np.arange(slices.size)] = 0
    other_slice, other_class = np.nonzero(others.T)
    used, class_ = unique_inverse(np.concatenate((main, other_class)))
    before = np.diff(slices.start_ps, prepend=window.start_ps)
    before[1:] -= length[:-1]
    name = slices.name
    if draft.states is not None:
        name = _running(trace, draft.states, draft.thread, (slices.start_ps + slices.end_ps) // 2)
    return Lane(
        kind=draft.kind,
        thread=None if draft.thread == NONE else trace.lines[draft.thread].name,
        event_count=draft.event_count,
        resolution_ps=resolution,
        classes=tuple(draft.classes[each] for each in used.tolist()),
        before_ps=_plain(before),
        length_ps=_plain(length),
        class_=_plain(class_[: main.size]),
        name=_plain(name) if draft.kind == "steps" else names.indices(name),
        merged=_plain(np.diff(merged, prepend=0)),
        merged_count=_plain(slices.count[merged]),
        merged_hole_ps=_plain((length - covered)[merged]),
        other_slice=_plain(np.diff(other_slice, prepend=0)),
        other_class=_plain(class_[main.size :]),
        other_ps=_plain(others[other_class, other_slice]),
    )


def _running(trace: Trace, states: HostStates, thread: int, moment: Int64Array) -> Int32Array:
    """The name of the innermost event of a thread at each moment; these ascend."""
    columns, rows = trace.host_columns, states.rows_of_thread(thread)
    start, end = columns.start_ps[rows], columns.end_ps[rows]
    # Only events that are open at one of the moments have to be nested.
    around = rows[np.searchsorted(moment, start) < np.searchsorted(moment, end)]
    inner = nesting(columns.start_ps[around], columns.end_ps[around]).innermost(moment)
    return np.append(columns.name[around], np.int32(NONE))[inner].astype(np.int32)


def _plain(values: Int64Array | Int32Array) -> tuple[int, ...]:
    return tuple(values.tolist())


class Slices(Struct, frozen=True, eq=False):
    """Sorted, disjoint, non-empty spans, all arrays `[n]`.

    int64 `start_ps`, `end_ps`; `class_ps`, int64 `[classes, n]`, what each class covers, at most the length of
    the span in all; int64 `count`, the events that it stands for; int32 `name`, of the longest event.
    """

    start_ps: Int64Array
    end_ps: Int64Array
    class_ps: Int64Array
    count: Int64Array
    name: Int32Array

    @property
    def size(self) -> int:
        """Number of slices."""
        return int(self.start_ps.size)

    def in_detail(
        self, most: int, window_ps: int, origin_ps: int, detailed_ps: Int64Array
    ) -> tuple[Slices, int]:
        """At most about `most` slices, and the coarsest resolution, whose stretches are counted from `origin_ps`.

        `detailed_ps`: ascending starts and ends of disjoint spans whose slices are merged only where three quarters of
        the room do not hold them; none is merged with one outside of its span.
        """
        if self.size <= most:
            return self, 0
        region = np.searchsorted(detailed_ps, self.start_ps, side="right")
        begins = np.diff(region, prepend=-1) != 0
        room, coarsest = most * 3 // 4, 0
        for part in (region % 2 == 1, region % 2 == 0):
            spans = self.start_ps[part] - origin_ps, self.end_ps[part] - origin_ps
            resolution = _resolution(*spans, max(room, 1), window_ps)
            begins[part] |= _begins(*spans, resolution)
            room = most - int(begins[part].sum())
            coarsest = max(coarsest, resolution)
        first = np.flatnonzero(begins)
        # The longest slice of each group comes first, of several the earliest.
        ranked = np.lexsort((self.start_ps - self.end_ps, np.cumsum(begins)))
        merged = Slices(
            self.start_ps[first],
            self.end_ps[np.append(first[1:], self.size) - 1],
            np.add.reduceat(self.class_ps, first, axis=1),
            np.add.reduceat(self.count, first),
            self.name[ranked[first]],
        )
        return merged, coarsest


def slices_of(
    start: Int64Array, end: Int64Array, class_: Int64Array, name: Int32Array, class_count: int
) -> Slices:
    """Events in the order of their starts, each cut to where no earlier event still runs.

    An event that is hidden as a whole counts with the slice before it. The slices cover what the events cover.
    """
    reach = np.maximum.accumulate(end)
    begin = start.copy()
    np.maximum(begin[1:], reach[:-1], out=begin[1:])
    kept = np.flatnonzero(end > begin)
    class_ps = np.zeros((class_count, kept.size), dtype=np.int64)
    class_ps[class_[kept], np.arange(kept.size)] = end[kept] - begin[kept]
    # Empty events before the first slice count with it.
    edges = kept.copy()
    edges[:1] = 0
    count = np.diff(np.append(edges, start.size))
    return Slices(begin[kept], end[kept], class_ps, count, name[kept])


def fair_shares(wanted: Sequence[int], most: int) -> list[int]:
    """Room for each lane: what a lane leaves of its equal share goes to lanes that want more."""
    shares = [0] * len(wanted)
    left = most
    for rank, lane in enumerate(sorted(range(len(wanted)), key=lambda place: wanted[place])):
        shares[lane] = min(wanted[lane], left // (len(wanted) - rank))
        left -= shares[lane]
    return shares


def _resolution(start: Int64Array, end: Int64Array, most: int, window_ps: int) -> int:
    """The finest resolution, in steps of a fifth, at which at most `most` slices are left; 0 if all fit."""
    if start.size <= most:
        return 0
    # At this resolution long slices take half of the room at most, and so do stretches with short slices.
    resolution = 2 * window_ps // most + 1
    while resolution > 1:
        finer = resolution * 4 // 5
        if np.count_nonzero(_begins(start, end, finer)) > most:
            break
        resolution = finer
    return resolution


def _begins(start: Int64Array, end: Int64Array, resolution_ps: int) -> BoolArray:
    """Which slices are not merged with the slice before them."""
    begins = np.ones(start.size, dtype=np.bool_)
    if resolution_ps:
        is_short, stretch = end - start < resolution_ps, start // resolution_ps
        begins[1:] = ~(is_short[1:] & is_short[:-1] & (stretch[1:] == stretch[:-1]))
    return begins


# Strips

SLICES: Final = 240
"""Slices of a strip: divides evenly into the widths of terminals from 20 characters on."""


def strips_of(context: Context) -> UtilizationStrips | Skipped:
    """The strip of every device."""
    trace, ledger, strips = context.trace, context.ledger, []
    for device in range(len(trace.device_list)):
        window = context.selection.window_of_device(trace, device)
        if window is None:
            continue
        # In Python integers: the product may exceed 63 bits.
        edges = [window.start_ps + window.length_ps * i // SLICES for i in range(SLICES + 1)]
        bounds = np.array(edges, dtype=np.int64)
        own = ledger.columns.chosen(ledger.rows_of(device))
        end_ps = own.start_ps + own.duration_ps
        parts = []
        for _, classes in _ACTIVITIES:
            rows = (own.activity >= classes[0]) & (own.activity <= classes[-1])
            parts.append(union(own.start_ps[rows], end_ps[rows]).within(bounds[:-1], bounds[1:]))
        idle = np.diff(bounds) - sum(parts)
        lengths = (tuple(part.tolist()) for part in (*parts, idle))
        key = trace.device_key(device)
        strips.append(UtilizationStrip(key, window.start_ps, window.end_ps, *lengths))
    return UtilizationStrips(SLICES, tuple(strips)) if strips else Skipped("no devices")


def timeline_section(view: View, result: UtilizationStrips) -> Section | None:
    """The lanes of all devices where the report holds them, and a strip for each device that did anything."""
    shown = tuple(
        strip.device
        for strip in result.devices
        if any(map(any, (strip.compute_ps, strip.collective_ps, strip.copy_ps)))
        and strip.device not in view.others
    )
    gaps = list(numbered_gaps(view))
    timeline = Timeline(
        view.record("lanes", Lanes),
        folded=view.others,
        gaps=tuple((each.number, each.span) for each in gaps),
        lines={each.number: each.gap.python for each in gaps if each.gap.python},
    )
    strips = (Strips(result, shown),) if shown else ()
    return Section("timeline", "Timeline", (timeline, *strips), is_folded=False)


ANALYSIS: Final = Analysis[Lanes]("lanes", compute=lambda _: Skipped(""))

STRIPS: Final = Analysis[UtilizationStrips](
    "timeline",
    compute=strips_of,
    sections=(timeline_section,),
)
