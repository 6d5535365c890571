"""Joins the events of XLA programs with the instructions that they run, by program and name.

Finds the instructions of XLA programs that the kernels of command buffers run.

XLA runs a part of a program as one CUDA graph, a command buffer. Tracers name the buffer, `command_buffer_1`, where a kernel has
its instruction otherwise. The kernels of a graph begin in the order in which the program was scheduled, so they are joined with a
stretch of a schedule. A fusion has one kernel, which is called like it or like a fusion of the same code; other instructions
have kernels of libraries. Where no stretch fits, or several do, nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from traceview.base.intervals import BoolArray, Int32Array, Int64Array
from traceview.base.sweeping import SWEEPS
from traceview.trace.columns import NONE, DeviceColumns, Names
from traceview.xplane.columns import Instruction, Program, ProgramBuffers
from traceview.xplane.decode_reference import DamageError
from traceview.xplane.planes import ActivityClass

if TYPE_CHECKING:
    from traceview.xplane.hlo_module import Scheduled

_MOST_WITH_LIVE: Final = 3
"""Programs of a host of which it is read what is live at their peak: those of most memory."""


def program_buffers(
    programs: Iterable[Program],
    instructions: Iterable[Instruction],
    damaged: Callable[[DamageError], None],
) -> tuple[ProgramBuffers, ...]:
    """The memory of the programs that events ran, the most first; what cannot be read is as if it was not there."""
    ran = {each.program for each in instructions}
    known = {each.name: each for each in programs if each.name in ran and each.buffers}
    if not known:
        return ()
    # Only runs of XLA programs need what reads them.
    from traceview.xplane.hlo_buffers import read_buffers

    try:
        sized = [read_buffers(each, with_live=False) for each in known.values()]
        ranked = sorted(sized, key=lambda of: (-of.whole_bytes, of.program))
        largest = (known[of.program] for of in ranked[:_MOST_WITH_LIVE])
        detailed = [read_buffers(program, with_live=True) for program in largest]
    except DamageError as error:
        damaged(error)
        return ()
    return (*detailed, *ranked[_MOST_WITH_LIVE:])


class InstructionNumbers:
    """Numbers the instructions of a file in the order in which events name them."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._place: dict[tuple[int, int, int], int] = {}
        self._keys: list[tuple[int, int, int]] = []

    def of(self, op: Int32Array, module: Int32Array, program_id: Int64Array) -> Int32Array:
        """The number of each event's instruction, `NONE` for events that name neither instruction nor program.

        `op`, `module`: names, `NONE` where not recorded; `program_id`: `NONE` likewise.
        """
        result = np.full(op.size, NONE, dtype=np.int32)
        rows = np.flatnonzero((op != NONE) | (module != NONE))
        if not rows.size:
            return result
        nothing = np.zeros(rows.size, dtype=np.uint8)
        ids, id_ = np.unique(program_id[rows], return_inverse=True)
        label, _ = SWEEPS.labelled(op[rows], module[rows], nothing)
        label, first = SWEEPS.labelled(label, id_.astype(np.int32), nothing)
        columns = (op[rows[first]], module[rows[first]], ids[id_[first]])
        keys = zip(*(column.tolist() for column in columns), strict=True)
        numbers = [self._number(key) for key in keys]
        result[rows] = np.array(numbers, dtype=np.int32)[label]
        return result

    def _number(self, key: tuple[int, int, int]) -> int:
        number = self._place.setdefault(key, len(self._keys))
        if number == len(self._keys):
            self._keys.append(key)
        return number

    def named(self, begin: bytes) -> dict[bytes, list[int]]:
        """By program the numbers of those whose names begin so."""
        found: dict[bytes, list[int]] = {}
        for key, number in self._place.items():
            program, name = self._key(*key)
            if name.startswith(begin):
                found.setdefault(program, []).append(number)
        return found

    def beside(self, number: int, ops: Int32Array) -> Int32Array:
        """The numbers of instructions of the program that another one is of, by their names."""
        _, module, program_id = self._keys[number]
        keys = ((op, module, program_id) for op in ops.tolist())
        return np.array([self._number(key) for key in keys], dtype=np.int32)

    def instructions(
        self, programs: Iterable[Program], damaged: Callable[[DamageError], None]
    ) -> tuple[Instruction, ...]:
        """All of them in order, with what the programs say of them; what cannot be read is as if it was not there."""
        wanted: dict[bytes, set[bytes]] = {}
        keys = [self._key(*key) for key in self._place]
        for of, name in keys:
            wanted.setdefault(of, set()).add(name)
        known: dict[tuple[bytes, bytes], Instruction] = {}
        for program in programs:
            if program.name not in wanted:
                continue
            from traceview.xplane.hlo import read_instructions

            try:
                read = read_instructions(program, wanted[program.name])
            except DamageError as error:
                damaged(error)
            else:
                known |= {(program.name, name): each for name, each in read.items()}
        return tuple(known.get(key, Instruction(*key)) for key in keys)

    def _key(self, op: int, module: int, program_id: int) -> tuple[bytes, bytes]:
        """The name of the program as its metadata has it, and that of the instruction."""
        name, of_module = (b"" if index == NONE else self._names[index] for index in (op, module))
        program = of_module if program_id == NONE else b"%s(%d)" % (of_module, program_id)
        return program, name


_BUFFER: Final = b"command_buffer"
_WITHOUT_KERNEL: Final = frozenset(
    (
        "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
        "opt-barrier", "add-dependency", "domain",
    )
)  # fmt: skip
_FUSION: Final = "fusion"
_MOST_COMPARED: Final = 1 << 20
"""Kernels that are compared with instructions of one program, a bound for hostile ones."""


def with_buffered_instructions(
    columns: DeviceColumns,
    names: Names,
    numbers: InstructionNumbers,
    programs: Iterable[Program],
    damaged: Callable[[DamageError], None],
) -> DeviceColumns:
    """The events of one file, of which the kernels of command buffers have the instruction that they run for op and instruction."""
    buffers = numbers.named(_BUFFER)
    if not buffers:
        return columns
    op, instruction = columns.op.copy(), columns.instruction.copy()
    for program in programs:
        if program.name not in buffers:
            continue
        from traceview.xplane.hlo_module import read_schedules

        try:
            stretches = _Stretches(read_schedules(program))
        except DamageError as error:
            damaged(error)
            continue
        for buffer in buffers[program.name]:
            for rows, found in _of_buffer(columns, names, buffer, stretches):
                ops = names.add_all(found)
                op[rows], instruction[rows] = ops, numbers.beside(buffer, ops)
    return replace(columns, op=op, instruction=instruction)


def _of_buffer(
    columns: DeviceColumns, names: Names, buffer: int, stretches: _Stretches
) -> Iterator[tuple[Int64Array, list[bytes]]]:
    """The kernels of each launch of a buffer, in order, and the names of their instructions, where these are known."""
    row = np.flatnonzero((columns.instruction == buffer) & columns.has_correlation)
    known: dict[bytes, list[bytes]] = {}
    for every in _launches(columns, row):
        # Calls of libraries fill their workspace before they run a kernel.
        for launch in (every[columns.class_[every] != ActivityClass.MEMSET], every):
            kernels = columns.name[launch]
            key = kernels.tobytes()
            if key not in known:
                known[key] = stretches.of([names[kernel] for kernel in kernels.tolist()])
            if known[key]:
                yield launch, known[key]
                break


def _launches(columns: DeviceColumns, row: Int64Array) -> list[Int64Array]:
    """The rows of each launch of a graph, in the order in which they begin."""
    if not row.size:
        return []
    keys = columns.correlation_id[row], columns.device[row]
    order = np.lexsort(keys)
    row = row[order]
    is_first: BoolArray = np.zeros(row.size, dtype=np.bool_)
    for key in keys:
        is_first[1:] |= np.diff(key[order]) != 0
    return np.split(row, np.flatnonzero(is_first))


class _Stretches:
    """The schedules of a program, in which stretches are looked for."""

    def __init__(self, schedules: Iterable[Iterable[Scheduled]]) -> None:
        self._schedules = [
            [each for each in schedule if _has_kernel(each.opcode)] for schedule in schedules
        ]
        every = (each for schedule in self._schedules for each in schedule)
        self._fusions = {_kernel(each.name): each for each in every if each.opcode == _FUSION}
        self._left = _MOST_COMPARED

    def of(self, kernels: Sequence[bytes]) -> list[bytes]:
        """By kernel the name of its instruction; empty where that is not known of all."""
        grouped = groupby(kernels, self._fusions.__contains__)
        runs = [(is_fusion, list(run)) for is_fusion, run in grouped]
        fits: dict[int, list[list[bytes]]] = {}
        distinct = frozenset(kernels)
        for schedule in self._schedules:
            for begin in range(len(schedule)):
                stretch = self._from(schedule, begin, runs, distinct)
                if self._left <= 0:
                    return []
                if stretch:
                    called_alike = sum(map(_is_called, stretch, kernels))
                    fits.setdefault(called_alike, []).append(stretch)
        best = fits[max(fits)] if fits else []
        return best[0] if len(best) == 1 else []

    def _from(
        self,
        schedule: Sequence[Scheduled],
        at: int,
        runs: Sequence[tuple[bool, list[bytes]]],
        kernels: frozenset[bytes],
    ) -> list[bytes]:
        """The instructions of kernels from a place of a schedule on; empty where they do not fit."""
        of_kernels: list[bytes] = []
        for number, (is_fusion, run) in enumerate(runs, start=1):
            self._left -= 1
            if self._left <= 0:
                return []
            if is_fusion:
                if len(schedule) - at < len(run):
                    return []
                for place, kernel in enumerate(run, start=at):
                    self._left -= 1
                    if not self._may_run(schedule[place], kernel, kernels):
                        return []
                taken = schedule[at : at + len(run)]
                at += len(run)
            else:
                taken = list(
                    takewhile(lambda each: each.opcode != _FUSION, schedule[at : at + len(run) + 1])
                )
                at += len(taken)
                if len(taken) == 1:
                    # A call of a library may run several kernels.
                    taken *= len(run)
                elif len(taken) > len(run) and number == len(runs):
                    taken = taken[: len(run)]
                elif len(taken) != len(run):
                    return []
                if not all(map(_may_copy, taken, run)):
                    return []
            of_kernels += [each.name for each in taken]
        return of_kernels

    def _may_run(self, instruction: Scheduled, kernel: bytes, kernels: frozenset[bytes]) -> bool:
        """Whether an instruction may be a fusion that runs this kernel: its own, or, if that runs nowhere, one of the same shape."""
        if instruction.opcode != _FUSION:
            return False
        own = _kernel(instruction.name)
        return own == kernel or (
            own not in kernels and instruction.shape == self._fusions[kernel].shape
        )


def _is_called(instruction: bytes, kernel: bytes) -> bool:
    return _kernel(instruction) == kernel


_COPIES: Final = frozenset(("copy", "copy-start", "async-start"))


def _may_copy(instruction: Scheduled, kernel: bytes) -> bool:
    """Whether both copy or neither does."""
    return (instruction.opcode in _COPIES) == kernel.lower().startswith(b"memcpy")


def _has_kernel(opcode: str) -> bool:
    return opcode not in _WITHOUT_KERNEL and not opcode.endswith("-done")


def _kernel(name: bytes) -> bytes:
    """The kernel of a fusion: its name, with what may stand in names of functions."""
    return name.replace(b".", b"_").replace(b"-", b"_")
