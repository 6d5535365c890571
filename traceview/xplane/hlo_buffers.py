"""Reads what memory a compiled XLA program takes: arguments, results, constants, and temporaries with what is live at their peak.

A program says it in its buffer assignment (openxla/xla `xla/service/hlo.proto`, `BufferAssignmentProto`): allocations, the
buffers of instructions in each, and in what order a simulated heap gave out those of temporaries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeAlias

from msgspec import Struct

from traceview.xplane.columns import BUFFER_KINDS, LiveBuffers, Program, ProgramBuffers
from traceview.xplane.hlo_module import located, opened
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
_FREE, _SHARE = 1, 2

MOST_LIVE: Final = 100
"""Of one program; those of most bytes."""


def read_buffers(program: Program, *, with_live: bool) -> ProgramBuffers:
    """The memory of a program; `with_live`: with what is live at the peak. Raises `DamageError` with the offset in the file."""
    with located(program.buffers_offset):
        assignment = Message(program.buffers, 0, len(program.buffers))
        allocations = [
            each for each in map(_allocation, assignment.messages(ALLOCATIONS)) if each is not None
        ]
        sums = dict.fromkeys(BUFFER_KINDS, 0)
        for allocation in allocations:
            sums[allocation.kind] += allocation.size
        peak, rows = sums["temporary"], list[_Row]()
        defined_by: dict[int, int] = {}
        if with_live:
            sizes: dict[int, int] = {}
            for each in assignment.messages(LOGICAL_BUFFERS):
                number = each.number(BUFFER_ID)
                sizes[number] = each.number(BUFFER_SIZE)
                defined_by[number] = each.message(BUFFER_DEFINED_AT).number(DEFINED_BY)
            peak, rows = _live(assignment, allocations, sizes)
    with located(program.offset):
        live = _scoped(program, defined_by, rows)
    argument, result, constant, temporary = (sums[kind] for kind in BUFFER_KINDS)
    return ProgramBuffers(program.name, argument, result, constant, temporary, peak, live)


_Row: TypeAlias = tuple[str, int, int]
"""Kind, buffer and bytes of what is live."""


class _Allocation(Struct, frozen=True):
    """`assigned`: the ids of its buffers."""

    size: int
    kind: str
    assigned: list[int]


def _live(
    assignment: Message, allocations: list[_Allocation], sizes: dict[int, int]
) -> tuple[int, list[_Row]]:
    """The most of temporaries that is live, and all that is live then."""
    # The numbers that traces have for allocations may be those of before they were combined.
    fields = (EVENT_KIND, EVENT_BUFFER, EVENT_CANONICAL)
    every = (
        [tuple(map(of.number, fields)) for of in trace.messages(TRACE_EVENTS)]
        for trace in assignment.messages(HEAP_TRACES)
    )
    traces = {events[0][1]: events for events in every if events}
    peak, rows = 0, list[_Row]()
    for allocation in allocations:
        buffers, is_temporary = allocation.assigned, allocation.kind == "temporary"
        first = next((id_ for id_ in buffers if id_ in traces), None)
        if first is not None and is_temporary:
            # One heap is of one allocation.
            most, live = _peak(traces.pop(first), sizes)
            if most <= allocation.size:
                peak += most
                rows += [("temporary", id_, sizes.get(id_, 0)) for id_ in live]
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


def _peak(events: Iterable[tuple[int, ...]], sizes: dict[int, int]) -> tuple[int, list[int]]:
    """The most bytes that are live, and the buffers that are live then; those that share memory count as one."""
    canonical_of: dict[int, int] = {}
    sharing = Counter[int]()
    changes = []
    for kind, buffer, canonical in events:
        if kind == _FREE:
            owner, change = canonical_of.pop(buffer, buffer), -1
            if owner not in sharing:
                continue
        else:
            owner, change = canonical if kind == _SHARE else buffer, 1
            owner = canonical_of[buffer] = canonical_of.get(owner, owner)
        was_live = owner in sharing
        sharing[owner] += change
        if not sharing[owner]:
            del sharing[owner]
        if was_live != (owner in sharing):
            changes.append((owner, change))
    now, most, count = 0, 0, 0
    for place, (owner, change) in enumerate(changes, start=1):
        now += change * sizes.get(owner, 0)
        if now > most:
            most, count = now, place
    live = Counter[int]()
    for owner, change in changes[:count]:
        live[owner] += change
    return most, list(+live)


def _scoped(
    program: Program, defined_by: dict[int, int], rows: list[_Row]
) -> tuple[LiveBuffers, ...]:
    """Live buffers by kind and scope, the most bytes first."""
    used = {id_: defined_by[id_] for _, id_, _ in rows if id_ in defined_by}
    scope_of = opened(program).scopes(set(used.values())) if used else {}
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for kind, id_, size in rows:
        key = kind, scope_of.get(used[id_], "") if id_ in used else ""
        known = sums.get(key, (0, 0))
        sums[key] = known[0] + size, known[1] + 1
    ranked = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    return tuple(LiveBuffers(*key, *of) for key, of in ranked[:MOST_LIVE])
