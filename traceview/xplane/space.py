"""The contents of one file: the planes, lines and metadata of an XSpace, and events as columns."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from msgspec import Struct

from traceview.base.location import Location
from traceview.base.text import lazy_pattern
from traceview.xplane.columns import Fault, LineColumns, LineHeader
from traceview.xplane.planes import DEVICE_STATS, HOST_STATS, PlaneKind

StatValue: TypeAlias = int | float | bytes


class Stat(Struct, frozen=True):
    """A stat as recorded: its name and value, with references to text resolved."""

    name: bytes
    value: StatValue


class EventMetadata(Struct, frozen=True):
    """The metadata that all events of one id share."""

    name: bytes
    display_name: bytes
    stats: tuple[Stat, ...]


class PlaneHeader(Struct, frozen=True):
    """An XPlane without its lines, as both decoders read it. `is_damaged`: some of it cannot be read and was left out."""

    name: bytes
    event_metadata: dict[int, EventMetadata]
    stat_names: dict[int, bytes]
    stats: tuple[Stat, ...]
    is_damaged: bool


class Line(Struct, frozen=True, eq=False):
    """One XLine: a stream or a thread. `payload`: where it is in the file."""

    header: LineHeader
    columns: LineColumns
    payload: tuple[int, int]


class Plane(Struct, frozen=True, eq=False):
    """One XPlane. `payloads`: where its lines are in the file. `lines`: empty until they are decoded."""

    name: bytes
    kind: PlaneKind
    ordinal: int
    event_metadata: dict[int, EventMetadata]
    stat_names: dict[int, bytes]
    stats: tuple[Stat, ...]
    payloads: tuple[tuple[int, int], ...]
    lines: list[Line]

    @property
    def spellings(self) -> dict[str, tuple[bytes, ...]]:
        """Key and recorded names of each stat in the columns of its lines, in the order of slots."""
        return HOST_STATS if self.kind is PlaneKind.HOST else DEVICE_STATS


class Program(Struct, frozen=True, eq=False, weakref=True):
    """A compiled XLA program, `jit_step(5)`: a serialized `HloModuleProto`, and where it begins in the file.

    `buffers`: likewise its `BufferAssignmentProto`, empty without one.
    """

    name: bytes
    data: bytes
    offset: int
    buffers: bytes = b""
    buffers_offset: int = 0


BUFFER_KINDS: Final = ("argument", "result", "constant", "temporary")


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


Groups: TypeAlias = tuple[tuple[int, ...], ...]
"""Devices that exchange with each other, group by group."""


class Exchange(Struct, frozen=True):
    """What a collective moves: `bytes`, what each device gives, None where its shapes do not tell; `groups`: the devices
    that exchange with each other, none where all do or it is not known; `of`: the scopes of
    what is exchanged, without numbers beside arrays.
    """

    bytes: int | None
    groups: Groups = ()
    of: tuple[str, ...] = ()


MOST_HELD: Final = 8


_OF_FUNCTION: Final = lazy_pattern(rb"(?:jit|pmap)_+(.+?)_?(?:\(\d+\))?", re.DOTALL)


F64, C128 = 12, 18
"""Numbers of types of elements (`PrimitiveType`)."""


class Instruction(Struct, frozen=True):
    """An instruction that events ran: its `program`, `jit_step(5)`, and its name.

    The rest is as the program says, empty or 0 where it does not: `scope`, the path in the source
    (`jit(step)/jvp(Model)/dense/dot_general`, or the name of an op of TensorFlow) and `op_type`; `line`, `model.py:42 in
    call`; `element_type`, the number of the type of the result, of several that of the first. `is_constant`: it computes
    the same in every run. `flops`: of its products of matrices, convolutions and attention, None where they are not known;
    `operand_type`: the number of the type of what the first of them multiplies. `bytes`: what it reads and writes at least,
    None where that is not known. `exchange`: of a collective. `holds`: the
    opcodes that a fusion runs as one, by how often, at most MOST_HELD, without those that compute nothing.
    """

    program: bytes
    name: bytes
    scope: str = ""
    op_type: str = ""
    line: str = ""
    element_type: int = 0
    is_constant: bool = False
    flops: int | None = None
    operand_type: int = 0
    bytes: int | None = None
    exchange: Exchange | None = None
    holds: tuple[tuple[str, int], ...] = ()

    @property
    def function(self) -> str:
        """The Python function that JAX named the program after: `step`; empty for programs of others."""
        named = _OF_FUNCTION.fullmatch(self.program)
        return named[1].decode("utf-8", "replace") if named else ""


class Space(Struct, frozen=True, eq=False):
    """One file of `size` bytes.

    `digest`: its SHA-256 in hexadecimal digits, empty if it was not asked for. `repeated`: the payloads of lines that are
    exact copies of lines in an earlier plane of the same name. `faults` is empty unless it was read with `salvage`.
    """

    path: Location
    size: int
    digest: str
    planes: tuple[Plane, ...]
    programs: tuple[Program, ...]
    hostnames: tuple[bytes, ...]
    errors: tuple[bytes, ...]
    warnings: tuple[bytes, ...]
    repeated: frozenset[tuple[int, int]]
    faults: tuple[Fault, ...]

    def take_lines(self) -> list[list[Line]]:
        """The lines of each plane, without the `repeated` ones. The planes keep none, so that lines can be let go of."""
        taken = []
        for plane in self.planes:
            taken.append([line for line in plane.lines if line.payload not in self.repeated])
            plane.lines.clear()
        return taken
