"""Selects the events of a device plane that are activity, gives each its class, and joins those of XLA programs with instructions.

A stream may mix kernels with bookkeeping, so each event is decided by itself: first by its name, then by its detail
strings, last by the host call that issued it. XLA instructions are found by program and name.

XLA runs a part of a program as one CUDA graph, a command buffer. Tracers name the buffer, `command_buffer_1`, where a kernel has
its instruction otherwise. The kernels of a graph begin in the order in which the program was scheduled, so they are joined with a
stretch of a schedule. A fusion has one kernel, which is called like it or like a fusion of the same code; other instructions
have kernels of libraries. Where no stretch fits, or several do, nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import asdict, replace

from traceview.base.ids import groups_of
from traceview.base.intervals import BoolArray, Int32Array, Int64Array
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.trace.columns import NONE, UNKNOWN_BYTES, DeviceColumns, Names, device_columns
from traceview.trace.device.op_names import KEPT_NAMES
from traceview.xplane.columns import Instruction, Program, ProgramBuffers
from traceview.xplane.decode_reference import DamageError
from traceview.xplane.planes import (
    XLA_OPS_LINE,
    ActivityClass,
    NameKind,
    PlaneKind,
    copy_direction,
    details_bytes,
    details_direction,
    details_host_memory,
    is_derived_line,
    is_never_busy_line,
    is_xla_container,
    name_kind,
    parse_details,
    xla_op_kind,
)
from traceview.xplane.read import MAX_SUM_PS
from traceview.xplane.table import PlaneTable

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
        return self._place.setdefault(key, len(self._place))

    def named(self, begin: bytes) -> dict[bytes, list[tuple[int, int, int]]]:
        """By program those whose names begin so: their number, module and program id."""
        found: dict[bytes, list[tuple[int, int, int]]] = {}
        for (op, module, program_id), number in self._place.items():
            program, name = self._key(op, module, program_id)
            if name.startswith(begin):
                found.setdefault(program, []).append((number, module, program_id))
        return found

    def beside(self, module: int, program_id: int, ops: Int32Array) -> Int32Array:
        """The numbers of instructions of a program by their names."""
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
_WITHOUT_KERNEL: Final = lazy_pattern(
    r"parameter|constant|tuple|get-tuple-element|bitcast|after-all|partition-id|replica-id|opt-barrier|add-dependency|domain"
    r"|.*-done"
)
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
        for buffer, module, program_id in buffers[program.name]:
            for rows, found in _of_buffer(columns, names, buffer, stretches):
                ops = names.add_all(found)
                op[rows], instruction[rows] = ops, numbers.beside(module, program_id, ops)
    return replace(columns, op=op, instruction=instruction)


def _of_buffer(
    columns: DeviceColumns, names: Names, buffer: int, stretches: _Stretches
) -> Iterator[tuple[Int64Array, list[bytes]]]:
    """The kernels of each launch of a buffer, in order, and the names of their instructions, where these are known."""
    row = np.flatnonzero((columns.instruction == buffer) & (columns.correlation_id != 0))
    known: dict[bytes, list[bytes]] = {}
    for places in groups_of(columns.device[row], columns.correlation_id[row]):
        every = row[places]
        # Calls of libraries fill their workspace before they run a kernel.
        for launch in (every[columns.class_[every] != ActivityClass.MEMSET], every):
            kernels = columns.name[launch]
            key = kernels.tobytes()
            if key not in known:
                known[key] = stretches.of([names[kernel] for kernel in kernels.tolist()])
            if known[key]:
                yield launch, known[key]
                break


class _Stretches:
    """The schedules of a program, in which stretches are looked for."""

    def __init__(self, schedules: Iterable[Iterable[Scheduled]]) -> None:
        self._schedules = [
            [each for each in schedule if not _WITHOUT_KERNEL.fullmatch(each.opcode)]
            for schedule in schedules
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
                    called_alike = sum(map(bytes.__eq__, map(_kernel, stretch), kernels))
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
            # One more shows whether there are more than kernels.
            taken = list(schedule[at : at + len(run) + (0 if is_fusion else 1)])
            if is_fusion:
                if len(taken) < len(run):
                    return []
                for each, kernel in zip(taken, run, strict=True):
                    self._left -= 1
                    if not self._may_run(each, kernel, kernels):
                        return []
                at += len(taken)
            else:
                taken = list(takewhile(lambda each: each.opcode != _FUSION, taken))
                at += len(taken)
                if len(taken) == 1:
                    # A call of a library may run several kernels.
                    taken *= len(run)
                elif len(taken) > len(run) and number == len(runs):
                    taken = taken[: len(run)]
                elif len(taken) != len(run):
                    return []
                copies = (each.opcode in _COPIES for each in taken)
                if list(copies) != [name.lower().startswith(b"memcpy") for name in run]:
                    return []
            of_kernels += [each.name for each in taken]
        return of_kernels

    def _may_run(self, instruction: Scheduled, kernel: bytes, kernels: frozenset[bytes]) -> bool:
        """Whether an instruction may be a fusion that runs this kernel: its own, or, if that runs nowhere, one of the same shape."""
        own, alike = _kernel(instruction.name), self._fusions[kernel]
        is_alike = own not in kernels and instruction.shape == alike.shape
        return instruction.opcode == _FUSION and (own == kernel or is_alike)


_COPIES: Final = frozenset(("copy", "copy-start", "async-start"))


def _kernel(name: bytes) -> bytes:
    """The kernel of a fusion: its name, with what may stand in names of functions."""
    return name.replace(b".", b"_").replace(b"-", b"_")


def activity_of(
    table: PlaneTable, names: Names, numbers: InstructionNumbers, device: int, first_line: int
) -> DeviceColumns:
    """The events of a GPU or TPU plane that count as activity, in order of start, before their launches are known.

    `class_`: `NameKind`, with `LINKED_COPY` where only the host call shows the direction. `first_line`: of the plane.
    """
    count = table.count
    every = device_columns(
        count,
        device=np.full(count, device, dtype=np.int16),
        line=table.line + np.int32(first_line),
        start_ps=table.start_ps,
        duration_ps=table.duration_ps,
        name=names.add_all(table.names).take(table.name),
        op=_ops(table, names),
        instruction=_instructions(table, names, numbers),
        details=_named(table, names, "kernel_details"),
        correlation_id=table.ints("correlation_id").dense(count, 0),
        group=table.ints("group_id").dense(count, NONE),
    )
    is_gpu = table.plane.kind is PlaneKind.GPU
    known, rows = _gpu_activity(table, every) if is_gpu else _tpu_activity(table, every)
    rows = rows[np.argsort(known.start_ps.take(rows), kind="stable")]
    return DeviceColumns(**{key: column[rows] for key, column in asdict(known).items()})


def _gpu_activity(table: PlaneTable, every: DeviceColumns) -> tuple[DeviceColumns, Int64Array]:
    """All events with their kinds, and the rows of those that are activity."""
    is_left_out = (
        is_derived_line(line.id, line.name) or is_never_busy_line(line.name) for line in table.lines
    )
    counts = ~np.fromiter(is_left_out, np.bool_, len(table.lines))
    kind_of_name = np.fromiter(map(name_kind, table.names), np.uint8, len(table.names))
    kind = kind_of_name.take(table.name)
    kind[table.has("memcpy_details") & (kind == NameKind.COMPUTE)] = NameKind.COPY
    named_by_kind = (kind != NameKind.COMPUTE) & (kind != NameKind.COLLECTIVE)
    busy = (
        counts.take(table.line)
        & (kind != NameKind.NEVER_BUSY)
        & ~table.has("not_activity")
        & (named_by_kind | table.has("correlation_id") | table.has("kernel_details"))
    )
    size = every.bytes
    for texts in (table.texts("memcpy_details"), table.texts("memset_details")):
        if not texts.texts:
            continue
        details = [parse_details(text) for text in texts.texts]
        sizes = [details_bytes(d) for d in details]
        of_text = np.array([UNKNOWN_BYTES if s is None else s for s in sizes], dtype=np.int64)
        size[texts.event] = of_text[texts.index]
        memories = np.array([details_host_memory(d) for d in details], dtype=np.uint8)
        every.host_memory[texts.event] = memories[texts.index]
        directions = np.array([details_direction(d) for d in details], dtype=np.uint8)
        neutral = kind[texts.event] == NameKind.COPY
        kind[texts.event[neutral]] = directions[texts.index[neutral]]
    # A copy of 0 bytes that took time: the writer did not know the size.
    size[(size == 0) & (table.duration_ps > 0)] = UNKNOWN_BYTES
    return replace(every, class_=kind), np.flatnonzero(busy)


def _tpu_activity(table: PlaneTable, every: DeviceColumns) -> tuple[DeviceColumns, Int64Array]:
    """The same of a TPU: the events of the `XLA Ops` line, with the times in their stats.

    A loop or a call is none where its ops are recorded: it lasts while they wait for copies, too.
    """
    counts = np.array([line.name == XLA_OPS_LINE for line in table.lines], dtype=np.bool_)
    rows = np.flatnonzero(counts.take(table.line))
    start, duration = table.start_ps.copy(), table.duration_ps.copy()
    offset, length = table.ints("device_offset_ps"), table.ints("device_duration_ps")
    start[offset.event] = offset.value
    if float(length.value.sum(dtype=np.float64)) <= MAX_SUM_PS:
        duration[length.event] = length.value
    kind = np.array([xla_op_kind(name) for name in table.names], dtype=np.uint8)
    is_container = np.array([is_xla_container(name) for name in table.names], dtype=np.bool_)
    begun = start[rows]
    rows = rows[
        ~with_ops_inside(is_container.take(table.name[rows]), begun, begun + duration[rows])
    ]
    known = replace(every, start_ps=start, duration_ps=duration, class_=kind.take(table.name))
    return known, rows


def with_ops_inside(is_loop: BoolArray, start_ps: Int64Array, end_ps: Int64Array) -> BoolArray:
    """Which events of one device are loops or calls, as `is_loop` says, inside which others begin."""
    loops = np.flatnonzero(is_loop)
    result = np.zeros(is_loop.size, dtype=np.bool_)
    if loops.size:
        begun = np.sort(start_ps)
        first, last = (np.searchsorted(begun, bound[loops]) for bound in (start_ps, end_ps))
        # It begins inside of itself.
        result[loops[last - first > 1]] = True
    return result


def _ops(table: PlaneTable, names: Names) -> Int32Array:
    """The op that issued each event, as text `scope/name:Type`, from the best stat that names it.

    TensorFlow on CUDA writes `tf_op`. XLA programs only write `XlaModule:` there and name the op in `hlo_op`.
    TensorFlow of 2020 wrote `level 0`, and `annotation` with `#shape=…#` behind the name.
    """
    op = np.full(table.count, NONE, dtype=np.int32)
    for key in ("annotation", "level_0", "hlo_op", "tf_op"):
        texts = table.texts(key)
        if texts.texts:
            kept = list(map(_op_text, texts.texts))
            ids = np.full(len(kept), NONE, dtype=np.int32)
            ids[np.fromiter(map(bool, kept), np.bool_, len(kept))] = names.add_all(
                filter(None, kept)
            )
            name = ids.take(texts.index)
            is_op = name != NONE
            op[texts.event[is_op]] = name[is_op]
    return op


def _named(table: PlaneTable, names: Names, key: str) -> Int32Array:
    """A text stat of each event, `NONE` without."""
    column = np.full(table.count, NONE, dtype=np.int32)
    texts = table.texts(key)
    if texts.texts:
        column[texts.event] = names.add_all(texts.texts)[texts.index]
    return column


def _instructions(table: PlaneTable, names: Names, numbers: InstructionNumbers) -> Int32Array:
    """The XLA instruction of each event."""
    if table.lacks("hlo_op") and table.lacks("hlo_module"):
        return np.full(table.count, NONE, dtype=np.int32)
    op, module = (_named(table, names, key) for key in ("hlo_op", "hlo_module"))
    return numbers.of(op, module, table.ints("program_id").dense(table.count, NONE))


@lru_cache(KEPT_NAMES)
def _op_text(text: bytes) -> bytes:
    """The op in a text, empty without one."""
    text = text.split(b"#", 1)[0]
    return b"" if text.startswith(b"XlaModule:") else text


_CLASS_OF_KIND: Final = np.arange(len(NameKind), dtype=np.uint8)
_CLASS_OF_KIND[[NameKind.P2P, NameKind.COPY, NameKind.LINKED_COPY]] = ActivityClass.D2D
_CLASS_OF_KIND[NameKind.GRAPH] = ActivityClass.COMPUTE


def with_final_classes(
    columns: DeviceColumns, host_name: Int32Array, names: Names
) -> DeviceColumns:
    """The events with classes instead of kinds: copies get the direction of the host call that issued them."""
    kind = columns.class_.copy()
    linked = np.flatnonzero((kind == NameKind.LINKED_COPY) & (columns.launch != NONE))
    calls = host_name[columns.launch[linked]]
    kind[linked] = names.each(calls, copy_direction, np.uint8, NameKind.LINKED_COPY)
    return replace(
        columns,
        class_=_CLASS_OF_KIND[kind],
        p2p=kind == NameKind.P2P,
        unknown_direction=(kind == NameKind.LINKED_COPY) | (kind == NameKind.COPY),
    )
