"""Reads what memory a compiled XLA program takes: arguments, results, constants, and temporaries with what is live at their peak.

A program says it in its buffer assignment (openxla/xla `xla/service/hlo.proto`, `BufferAssignmentProto`): allocations, the
buffers of instructions in each, and in what order a simulated heap gave out those of temporaries.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from traceview.xplane.columns import BUFFER_KINDS, LiveBuffers, Program, ProgramBuffers
from traceview.xplane.decode_reference import DamageError
from traceview.xplane.hlo_module import read_scopes
from traceview.xplane.message import Message
from traceview.xplane.planes import LARGEST_COPY

LOGICAL_BUFFERS: Final = 1
ALLOCATIONS: Final = 3
HEAP_TRACES: Final = 4
BUFFER_ID, BUFFER_SIZE, BUFFER_DEFINED_AT = 1, 2, 3
DEFINED_BY: Final = 4
ALLOCATION_SIZE: Final = 2
IS_THREAD_LOCAL: Final = 3
IS_ARGUMENT: Final = 5
MAY_LIVE_OUT: Final = 7
ASSIGNED: Final = 9
IS_CONSTANT: Final = 12
ASSIGNED_BUFFER: Final = 1
TRACE_EVENTS: Final = 1
EVENT_KIND, EVENT_BUFFER, EVENT_CANONICAL = 1, 2, 5
_ALLOC, _FREE, _SHARE = 0, 1, 2

MOST_LIVE: Final = 100
"""Of one program; those of most bytes."""


def read_buffers(program: Program, *, with_live: bool) -> ProgramBuffers:
    """The memory of a program; `with_live`: with what is live at the peak. Raises `DamageError` with the offset in the file."""
    try:
        data = program.buffers
        return _buffers(program, Message(data, 0, len(data)), with_live=with_live)
    except DamageError as error:
        raise error.moved(program.buffers_offset) from None


class _Allocation(Struct, frozen=True):
    """`assigned`: the ids of its buffers."""

    size: int
    kind: str
    assigned: list[int]


def _buffers(program: Program, assignment: Message, *, with_live: bool) -> ProgramBuffers:
    allocations = [
        each for each in map(_allocation, assignment.messages(ALLOCATIONS)) if each is not None
    ]
    sums = dict.fromkeys(BUFFER_KINDS, 0)
    for allocation in allocations:
        sums[allocation.kind] += allocation.size
    live: tuple[LiveBuffers, ...] = ()
    peak = sums["temporary"]
    if with_live:
        defined_by: dict[int, int] = {}
        sizes: dict[int, int] = {}
        for each in assignment.messages(LOGICAL_BUFFERS):
            number = each.number(BUFFER_ID)
            sizes[number] = each.number(BUFFER_SIZE)
            defined_by[number] = each.message(BUFFER_DEFINED_AT).number(DEFINED_BY)
        peak, rows = _live(assignment, allocations, sizes)
        live = _scoped(program, defined_by, rows)
    argument, result, constant, temporary = (sums[kind] for kind in BUFFER_KINDS)
    return ProgramBuffers(program.name, argument, result, constant, temporary, peak, live)


def _live(
    assignment: Message, allocations: list[_Allocation], sizes: dict[int, int]
) -> tuple[int, list[tuple[str, int, int]]]:
    """The most of temporaries that is live, and kind, buffer and bytes of all that is live then."""
    # The numbers that traces have for allocations may be those of before they were combined.
    every = map(_events, assignment.messages(HEAP_TRACES))
    traces = {events[0][1]: events for events in every if events}
    peak = 0
    rows = []
    for allocation in allocations:
        buffers, is_temporary = allocation.assigned, allocation.kind == "temporary"
        first = next((id_ for id_ in buffers if id_ in traces), None)
        if first is not None and is_temporary:
            # One heap is of one allocation.
            events = traces.pop(first)
            most, at = _peak(events, sizes)
            if most <= allocation.size:
                peak += most
                rows += [("temporary", id_, sizes.get(id_, 0)) for id_ in _live_after(events, at)]
                continue
            # Not what the program does.
            buffers = []
        peak += allocation.size if is_temporary else 0
        # Those that share it do not live at the same time.
        sized = [id_ for id_ in buffers if id_ in sizes]
        rows.append(
            (allocation.kind, max(sized, key=sizes.__getitem__, default=-1), allocation.size)
        )
    return peak, rows


def _allocation(of: Message) -> _Allocation | None:
    """An allocation; None for what lives on a stack."""
    size = of.number(ALLOCATION_SIZE)
    if of.number(IS_THREAD_LOCAL) or size > LARGEST_COPY:
        return None
    flags = zip(BUFFER_KINDS, (IS_ARGUMENT, MAY_LIVE_OUT, IS_CONSTANT), strict=False)
    kind = next((kind for kind, flag in flags if of.number(flag)), BUFFER_KINDS[-1])
    return _Allocation(size, kind, [each.number(ASSIGNED_BUFFER) for each in of.messages(ASSIGNED)])


def _events(trace: Message) -> list[tuple[int, int, int]]:
    """Kind, buffer and canonical buffer of the events of a simulated heap."""
    return [
        (of.number(EVENT_KIND, _ALLOC), of.number(EVENT_BUFFER), of.number(EVENT_CANONICAL))
        for of in trace.messages(TRACE_EVENTS)
    ]


class _Heap:
    """What is live after some events: by canonical buffer how many buffers share it."""

    def __init__(self) -> None:
        self._canonical: dict[int, int] = {}
        self.live: dict[int, int] = {}

    def run(self, kind: int, buffer: int, canonical: int) -> tuple[int, int]:
        """The canonical buffer whose memory an event gives out or takes back, and 1 or -1, 0 if it does neither."""
        if kind == _FREE:
            owner = self._canonical.pop(buffer, buffer)
            if owner not in self.live:
                return owner, 0
            self.live[owner] -= 1
            if self.live[owner]:
                return owner, 0
            del self.live[owner]
            return owner, -1
        owner = canonical if kind == _SHARE else buffer
        owner = self._canonical.get(owner, owner)
        self._canonical[buffer] = owner
        self.live[owner] = self.live.get(owner, 0) + 1
        return owner, 1 if self.live[owner] == 1 else 0


def _peak(events: Iterable[tuple[int, int, int]], sizes: dict[int, int]) -> tuple[int, int]:
    """The most bytes that are live, and the number of the event after which they are."""
    heap, now, most, at = _Heap(), 0, 0, -1
    for number, event in enumerate(events):
        owner, change = heap.run(*event)
        now += change * sizes.get(owner, 0)
        if now > most:
            most, at = now, number
    return most, at


def _live_after(events: list[tuple[int, int, int]], last: int) -> list[int]:
    heap = _Heap()
    for event in events[: last + 1]:
        heap.run(*event)
    return list(heap.live)


def _scoped(
    program: Program, defined_by: dict[int, int], rows: list[tuple[str, int, int]]
) -> tuple[LiveBuffers, ...]:
    """Live buffers by kind and scope, the most bytes first."""
    used = {id_: defined_by[id_] for _, id_, _ in rows if id_ in defined_by}
    scope_of = read_scopes(program, set(used.values()))
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for kind, id_, size in rows:
        key = kind, scope_of.get(used[id_], "") if id_ in used else ""
        known = sums.get(key, (0, 0))
        sums[key] = known[0] + size, known[1] + 1
    ranked = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    return tuple(LiveBuffers(*key, *of) for key, of in ranked[:MOST_LIVE])
