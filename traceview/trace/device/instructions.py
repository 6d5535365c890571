"""Joins the events of XLA programs with the instructions that they run, by program and name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from traceview.base.intervals import Int32Array, Int64Array
from traceview.base.sweeping import SWEEPS
from traceview.trace.model import NONE, Names
from traceview.xplane.decode_reference import DamageError
from traceview.xplane.hlo import read_instructions
from traceview.xplane.hlo_buffers import ProgramBuffers, read_buffers
from traceview.xplane.space import Instruction, Program

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
        # A file may hold its planes twice.
        for program in {program.name: program for program in programs}.values():
            if program.name not in wanted:
                continue
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
