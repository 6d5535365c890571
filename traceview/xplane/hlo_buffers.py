"""Reads what memory a compiled XLA program takes: arguments, results, constants, and temporaries with what is live at their peak.

A program says it in its buffer assignment (openxla/xla `xla/service/hlo.proto`, `BufferAssignmentProto`): allocations, the
buffers of instructions in each, and in what order a simulated heap gave out those of temporaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from msgspec import Struct

from traceview.xplane.columns import Buffer
from traceview.xplane.decode_reference import DamageError, Field, read_fields
from traceview.xplane.hlo import read_instructions, read_scopes
from traceview.xplane.planes import LARGEST_COPY
from traceview.xplane.space import Program

LOGICAL_BUFFERS: Final = 1
ALLOCATIONS: Final = 3
HEAP_TRACES: Final = 4
BUFFER_ID, BUFFER_SIZE, BUFFER_DEFINED_AT = 1, 2, 3
DEFINED_BY_NAME, DEFINED_BY_ID = 2, 4
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

_VARINT, _CONTENT = 0, 2

KINDS: Final = ("argument", "result", "constant", "temporary")
MOST_LIVE: Final = 100
"""Of one program; those of most bytes."""


class LiveBuffers(Struct, frozen=True):
    """Buffers of one kind and scope that are live together: their `scope`, the path in the source or the name of an argument."""

    kind: str
    scope: str
    bytes: int
    count: int


class ProgramBuffers(Struct, frozen=True):
    """The memory of one `program`, `jit_step(5)`, in bytes.

    `temporary_bytes`: what a run allocates for temporaries, `peak_bytes` what of it is live at most. `live`: what is live
    then, with arguments, results and constants, the most first; empty for programs of which that was not asked.
    """

    program: bytes
    argument_bytes: int
    result_bytes: int
    constant_bytes: int
    temporary_bytes: int
    peak_bytes: int
    live: tuple[LiveBuffers, ...] = ()

    @property
    def whole_bytes(self) -> int:
        """What is taken while it runs."""
        return self.argument_bytes + self.result_bytes + self.constant_bytes + self.temporary_bytes


def read_buffers(program: Program, *, with_live: bool) -> ProgramBuffers:
    """The memory of a program; `with_live`: with what is live at the peak. Raises `DamageError` with the offset in the file."""
    try:
        return _Assignment(program.buffers).buffers(program, with_live=with_live)
    except DamageError as error:
        raise error.moved(program.buffers_offset) from None


class _Logical(NamedTuple):
    """A buffer of an instruction, which is named or numbered."""

    size: int
    name: bytes
    id: int


class _Allocation(NamedTuple):
    """`assigned`: where its buffers are named."""

    size: int
    kind: str
    assigned: tuple[Field, ...]


class _Assignment:
    """A buffer assignment while it is read."""

    def __init__(self, data: Buffer) -> None:
        self._data = data
        self._allocations: list[_Allocation] = []
        self._logical_at: list[Field] = []
        self._traces: list[Field] = []
        for field in read_fields(data, 0, len(data)):
            if field.wire_type != _CONTENT:
                continue
            if field.number == ALLOCATIONS:
                allocation = self._allocation(field)
                if allocation is not None:
                    self._allocations.append(allocation)
            elif field.number == LOGICAL_BUFFERS:
                self._logical_at.append(field)
            elif field.number == HEAP_TRACES:
                self._traces.append(field)

    def buffers(self, program: Program, *, with_live: bool) -> ProgramBuffers:
        sums = dict.fromkeys(KINDS, 0)
        for allocation in self._allocations:
            sums[allocation.kind] += allocation.size
        live: tuple[LiveBuffers, ...] = ()
        peak = sums["temporary"]
        if with_live:
            logical = dict(self._logical_buffers())
            peak, rows = self._live(logical)
            live = _scoped(program, logical, rows)
        argument, result, constant, temporary = (sums[kind] for kind in KINDS)
        return ProgramBuffers(program.name, argument, result, constant, temporary, peak, live)

    def _allocation(self, field: Field) -> _Allocation | None:
        """An allocation; None for what lives on a stack."""
        flags = dict.fromkeys((IS_THREAD_LOCAL, IS_ARGUMENT, MAY_LIVE_OUT, IS_CONSTANT), 0)
        size = 0
        assigned: list[Field] = []
        for inner in read_fields(self._data, field.begin, field.end):
            if inner.number == ASSIGNED and inner.wire_type == _CONTENT:
                assigned.append(inner)
            elif inner.wire_type == _VARINT:
                if inner.number == ALLOCATION_SIZE:
                    size = inner.value
                elif inner.number in flags:
                    flags[inner.number] = inner.value
        if flags[IS_THREAD_LOCAL] or size > LARGEST_COPY:
            return None
        kinds = (flags[IS_ARGUMENT], flags[MAY_LIVE_OUT], flags[IS_CONSTANT], True)
        kind = next(kind for kind, holds in zip(KINDS, kinds, strict=True) if holds)
        return _Allocation(size, kind, tuple(assigned))

    def _numbers(self, field: Field) -> dict[int, int]:
        inner = read_fields(self._data, field.begin, field.end)
        return {each.number: each.value for each in inner if each.wire_type == _VARINT}

    def _logical_buffers(self) -> Iterator[tuple[int, _Logical]]:
        for field in self._logical_at:
            numbers: dict[int, int] = {}
            name, id_ = b"", 0
            for inner in read_fields(self._data, field.begin, field.end):
                if inner.wire_type == _VARINT:
                    numbers[inner.number] = inner.value
                elif inner.number == BUFFER_DEFINED_AT and inner.wire_type == _CONTENT:
                    for place in read_fields(self._data, inner.begin, inner.end):
                        if place.number == DEFINED_BY_NAME and place.wire_type == _CONTENT:
                            name = bytes(self._data[place.begin : place.end])
                        elif place.number == DEFINED_BY_ID and place.wire_type == _VARINT:
                            id_ = place.value
            yield numbers.get(BUFFER_ID, 0), _Logical(numbers.get(BUFFER_SIZE, 0), name, id_)

    def _live(self, logical: dict[int, _Logical]) -> tuple[int, list[tuple[str, int, int]]]:
        """The most of temporaries that is live, and kind, buffer and bytes of all that is live then."""
        # The numbers that traces have for allocations may be those of before they were combined.
        traces = {events[0][1]: events for events in map(self._events, self._traces) if events}
        sizes = {id_: of.size for id_, of in logical.items()}
        peak = 0
        rows = []
        for allocation in self._allocations:
            buffers = [self._numbers(each).get(ASSIGNED_BUFFER, 0) for each in allocation.assigned]
            first = next((id_ for id_ in buffers if id_ in traces), None)
            if first is None or allocation.kind != "temporary":
                peak += allocation.size if allocation.kind == "temporary" else 0
                # Those that share it do not live at the same time.
                sized = [id_ for id_ in buffers if id_ in logical]
                largest = max(sized, key=lambda id_: logical[id_].size, default=-1)
                rows.append((allocation.kind, largest, allocation.size))
                continue
            # One heap is of one allocation.
            events = traces.pop(first)
            most, at = _peak(events, sizes)
            if most > allocation.size:
                # Not what the program does.
                rows.append(("temporary", -1, allocation.size))
                peak += allocation.size
                continue
            peak += most
            rows += [("temporary", id_, sizes.get(id_, 0)) for id_ in _live_after(events, at)]
        return peak, rows

    def _events(self, trace: Field) -> list[tuple[int, int, int]]:
        """Kind, buffer and canonical buffer of the events of a simulated heap."""
        events = []
        for field in read_fields(self._data, trace.begin, trace.end):
            if field.number == TRACE_EVENTS and field.wire_type == _CONTENT:
                of = self._numbers(field)
                kind, buffer = of.get(EVENT_KIND, _ALLOC), of.get(EVENT_BUFFER, 0)
                events.append((kind, buffer, of.get(EVENT_CANONICAL, 0)))
        return events


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
    program: Program, logical: dict[int, _Logical], rows: Iterable[tuple[str, int, int]]
) -> tuple[LiveBuffers, ...]:
    """Live buffers by kind and scope, the most bytes first."""
    rows = list(rows)
    used = {id_: logical[id_] for _, id_, _ in rows if id_ in logical}
    by_id = read_scopes(program, {of.id for of in used.values() if not of.name})
    names = {of.name for of in used.values() if of.name}
    named = read_instructions(program, names) if names else {}
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for kind, id_, size in rows:
        of = used.get(id_)
        if of is None:
            scope = ""
        elif of.name:
            instruction = named.get(of.name)
            scope = instruction.scope if instruction else ""
            scope = scope or of.name.decode("utf-8", "replace")
        else:
            scope = by_id.get(of.id, "")
        key = kind, scope
        known = sums.get(key, (0, 0))
        sums[key] = known[0] + size, known[1] + 1
    ranked = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    return tuple(LiveBuffers(*key, *of) for key, of in ranked[:MOST_LIVE])
