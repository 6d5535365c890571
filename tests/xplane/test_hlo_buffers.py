"""The memory of a program is what its buffer assignment says, and what is live at the peak is a replay of its heap."""

from __future__ import annotations

from typing import Any

from tests.xplane.hlo_messages import HloProto, ModuleWriter
from traceview.xplane.columns import LiveBuffers, Program, ProgramBuffers
from traceview.xplane.decode_reference import DamageError
from traceview.xplane.hlo_buffers import read_buffers

ALLOC, FREE, SHARE = 0, 1, 2
OFFSET = 1000


class BufferWriter:
    """A program with buffers: instructions are added with their scope, and numbered from 1 as the buffers that they define."""

    def __init__(self) -> None:
        self.module = ModuleWriter()
        self.message = HloProto()
        self._assignment = self.message.buffer_assignment

    def buffer(self, name: str, size: int, scope: str = "") -> int:
        number = self.module.add(name, "fusion", scope=scope)
        written = self._assignment.logical_buffers.add(id=number, size=size)
        written.defined_at.instruction_id = number
        return number

    def allocation(self, size: int, *buffers: int, **flags: bool) -> None:
        number = len(self._assignment.buffer_allocations)
        written = self._assignment.buffer_allocations.add(index=number, size=size, **flags)
        for buffer in buffers:
            written.assigned.add(logical_buffer_id=buffer)

    def heap(self, *events: tuple[int, ...]) -> None:
        trace = self._assignment.heap_simulator_traces.add(buffer_allocation_index=99)
        for kind, buffer, *canonical in events:
            trace.events.add(kind=kind, buffer_id=buffer, share_with_canonical_id=sum(canonical))

    def program(self) -> Program:
        self.message.hlo_module.CopyFrom(self.module.message)
        return Program(
            b"jit_f(1)",
            self.module.message.SerializeToString(),
            OFFSET,
            self._assignment.SerializeToString(),
            2 * OFFSET,
        )


def written() -> BufferWriter:
    """Two arguments, a result, a constant, something on a stack, and a heap whose peak is after the third of four buffers."""
    writer = BufferWriter()
    weights = writer.buffer("p.0", 400, "weights[0]")
    batch = writer.buffer("p.1", 100, "batch")
    result = writer.buffer("out", 400, "jit(f)/sub")
    first = writer.buffer("a", 300, "jit(f)/jvp(Model)/dense/dot")
    second = writer.buffer("b", 200, "jit(f)/jvp(Model)/dense/dot")
    alias = writer.buffer("c", 200, "jit(f)/jvp(Model)/dense/max")
    third = writer.buffer("d", 250, "jit(f)/transpose(jvp(Model))/dense/dot")
    writer.allocation(400, weights, is_entry_computation_parameter=True, maybe_live_out=True)
    writer.allocation(100, batch, is_entry_computation_parameter=True)
    writer.allocation(400, result, maybe_live_out=True)
    writer.allocation(8, is_constant=True)
    writer.allocation(64, is_thread_local=True)
    writer.allocation(600, third, alias, second, first)
    # `second` stays as long as `alias` shares its memory.
    writer.heap(
        (ALLOC, first), (ALLOC, second), (SHARE, alias, second), (FREE, second), (FREE, first),
        (ALLOC, third), (FREE, alias), (FREE, third),
    )  # fmt: skip
    return writer


def test_sums_and_what_is_live_at_the_peak() -> None:
    read = read_buffers(written().program(), with_live=True)
    assert read == ProgramBuffers(
        b"jit_f(1)", 500, 400, 8, 600, 500,
        (
            LiveBuffers("temporary", "jit(f)/jvp(Model)/dense/dot", 500, 2),
            LiveBuffers("argument", "weights[0]", 400, 1),
            LiveBuffers("result", "jit(f)/sub", 400, 1),
            LiveBuffers("argument", "batch", 100, 1),
            LiveBuffers("constant", "", 8, 1),
        ),
    )  # fmt: skip
    assert read.whole_bytes == 1508
    sizes = read_buffers(written().program(), with_live=False)
    assert (sizes.temporary_bytes, sizes.peak_bytes, sizes.live) == (600, 600, ())


def test_memory_that_is_shared_is_live_until_all_free_it() -> None:
    writer = BufferWriter()
    first, alias, other = (writer.buffer(name, 100, name) for name in ("a", "b", "c"))
    writer.allocation(300, first, alias, other)
    writer.heap((ALLOC, first), (SHARE, alias, first), (FREE, first), (ALLOC, other))
    read = read_buffers(writer.program(), with_live=True)
    assert read.peak_bytes == 200
    assert {live.scope for live in read.live} == {"a", "c"}


def test_a_heap_that_is_not_that_of_the_program_is_not_believed() -> None:
    writer = BufferWriter()
    huge = writer.buffer("a", 1 << 60, "jit(f)/a")
    writer.allocation(100, huge)
    writer.heap((ALLOC, huge), (FREE, 7), (FREE, 7), (SHARE, 8, 9))
    read = read_buffers(writer.program(), with_live=True)
    assert read.peak_bytes == 100
    assert read.live == (LiveBuffers("temporary", "", 100, 1),)


def test_hostile_bytes_are_damage_at_their_place_or_are_read() -> None:
    program = written().program()
    sound = program.buffers
    faults = []
    for at in range(len(sound)):
        for value in (0, 0x7F, 0xFF):
            data = sound[:at] + bytes([value]) + sound[at + 1 :]
            damaged: Any = Program(program.name, program.data, OFFSET, data, 2 * OFFSET)
            try:
                read_buffers(damaged, with_live=True)
            except DamageError as error:
                faults.append(error.fault.offset - 2 * OFFSET)
    assert faults
    assert 0 <= min(faults) <= max(faults) <= len(sound)
