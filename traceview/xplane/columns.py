"""The contents of one file: the planes, lines and metadata of an XSpace, the events of a line as columns, and programs of XLA."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.location import Location
from traceview.base.text import lazy_pattern
from traceview.xplane.planes import DEVICE_STATS, HOST_STATS, PlaneKind, StatColumn

Buffer: TypeAlias = bytes | memoryview

_Scalar = TypeVar("_Scalar", bound=np.generic)


def joined(parts: Iterable[npt.NDArray[Any]], dtype: type[_Scalar]) -> npt.NDArray[_Scalar]:
    """One array of the given type from parts; empty without parts."""
    arrays = [np.empty(0, dtype=dtype), *parts]
    # A single part is returned without a copy.
    filled = [array for array in arrays if array.size] or arrays[:1]
    whole = filled[0] if len(filled) == 1 else np.concatenate(filled)
    return whole.astype(dtype, copy=False)


class ValueKind(IntEnum):
    """The member of the `value` oneof that an XStat holds, as its field number; 0 if none is set."""

    NONE = 0
    DOUBLE = 2
    UINT64 = 3
    INT64 = 4
    STR = 5
    BYTES = 6
    REF = 7


class Fault(Struct, frozen=True):
    """Where reading stopped, as a byte offset in the file, and why."""

    offset: int
    reason: str


PAST_END: Final = "a field reaches past the end of what holds it"
FAULT_REASONS: Final = (
    "",
    "a number is cut off or longer than 10 bytes",
    PAST_END,
    "a field has number 0 or a wire type that the format does not use",
)


_CONTENT: Final = 2
"""The wire type of texts, bytes, messages and packed numbers."""


class Fields(Struct, frozen=True, eq=False):
    """The fields of one message, in file order; each array has one entry per field.

    `number`, `wire_type`; `tag`: offset of the field's tag; `begin`, `end`: offsets of its payload (the content of
    a length-delimited field, else the encoded value). `fault`: where the rest of the message is unreadable.
    """

    number: Int64Array
    wire_type: Int64Array
    tag: Int64Array
    begin: Int64Array
    end: Int64Array
    fault: Fault | None

    def places(self, number: int) -> list[tuple[int, int]]:
        """Where the contents of the fields of a number begin and end."""
        chosen = (self.number == number) & (self.wire_type == _CONTENT)
        return list(zip(self.begin[chosen].tolist(), self.end[chosen].tolist(), strict=True))


class LineHeader(Struct, frozen=True):
    """What an XLine says of itself; `timestamp_ns` as recorded."""

    id: int
    name: bytes
    timestamp_ns: int


class LineColumns(Struct, frozen=True, eq=False):
    """The events of one XLine.

    Per event, int64 `[events]`: `metadata_id`; `time`, picoseconds since the line's timestamp, or the
    number of occurrences where `aggregated` (uint8) is 1; `duration_ps`.

    Per wanted stat, in file order: `stat_event` (int32, index of its event), `stat_slot` (int16),
    `stat_kind` (uint8, a `ValueKind`), `stat_value` (int64: integers and references modulo 2**64, the bits
    of a double, or for str and bytes the offset of the field's tag, which the reader replaces by the index in
    `contents`).

    `header`: the line's other fields; those behind a fault are not read.
    """

    metadata_id: Int64Array
    time: Int64Array
    duration_ps: Int64Array
    aggregated: npt.NDArray[np.uint8]
    stat_event: npt.NDArray[np.int32]
    stat_slot: npt.NDArray[np.int16]
    stat_kind: npt.NDArray[np.uint8]
    stat_value: Int64Array
    header: LineHeader
    fault: Fault | None
    contents: tuple[bytes, ...] = ()


StatColumns: TypeAlias = tuple[
    npt.NDArray[np.int32], npt.NDArray[np.int16], npt.NDArray[np.uint8], Int64Array
]
"""`stat_event`, `stat_slot`, `stat_kind` and `stat_value` of a line."""


class StatsBySlot(Struct, frozen=True, eq=False):
    """The stats of a plane; those of a slot stand together, in the order of the file.

    `event`: int64, the index of the event in the plane. `kind`: uint8, a `ValueKind`. `value`: int64 as in `LineColumns`, with
    texts numbered over the plane. `bounds`: int64 `[slots + 1]`, where each slot begins.
    """

    event: Int64Array
    kind: npt.NDArray[np.uint8]
    value: Int64Array
    bounds: Int64Array

    def of_slot(self, slot: int) -> tuple[Int64Array, npt.NDArray[np.uint8], Int64Array]:
        """The events, kinds and values of the stats of a slot."""
        begin, end = self.bounds[slot : slot + 2].tolist()
        return self.event[begin:end], self.kind[begin:end], self.value[begin:end]

    def of_events(self, is_kept: BoolArray) -> StatsBySlot:
        """The stats of the events that are kept, which are numbered anew."""
        number = np.cumsum(is_kept) - 1
        kept = is_kept[self.event]
        return StatsBySlot(
            number[self.event[kept]].astype(np.int64, copy=False),
            self.kind[kept],
            self.value[kept],
            np.concatenate(([0], np.cumsum(kept)))[self.bounds].astype(np.int64, copy=False),
        )


DENSE_STAT_IDS: Final = 1 << 16
UNWANTED: Final = -1


class WantedStats(Struct, frozen=True, eq=False):
    """The stats to collect: slot numbers by stat id, -1 for unwanted stats.

    `dense`: int16, indexed by ids below its length. `sparse_id`, `sparse_slot`: the larger ids and their slots.
    """

    dense: npt.NDArray[np.int16]
    sparse_id: Int64Array
    sparse_slot: npt.NDArray[np.int16]

    @classmethod
    def of(cls, slot_by_id: dict[int, int]) -> WantedStats:
        """From a mapping of stat id to slot."""
        small = {i: s for i, s in slot_by_id.items() if 0 <= i < DENSE_STAT_IDS}
        large = {i: s for i, s in slot_by_id.items() if i not in small}
        dense = np.full(max(small, default=-1) + 1, UNWANTED, dtype=np.int16)
        for stat_id, slot in small.items():
            dense[stat_id] = slot
        return cls(
            dense,
            np.array(list(large), dtype=np.int64),
            np.array(list(large.values()), dtype=np.int16),
        )


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


class Plane(PlaneHeader, frozen=True, eq=False):
    """One XPlane. `payloads`: where its lines are in the file. `lines`: empty until they are decoded."""

    kind: PlaneKind
    ordinal: int
    payloads: tuple[tuple[int, int], ...]
    lines: list[Line]

    @property
    def stat_columns(self) -> dict[str, StatColumn]:
        """By key the stats in the columns of its lines, in the order of slots."""
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

Pairs: TypeAlias = tuple[tuple[int, int], ...]
"""Which device gives to which, the source first."""


class Exchange(Struct, frozen=True):
    """What a collective moves: `bytes`, what each device gives, None where its shapes do not tell; `groups`: the devices
    that exchange with each other, none where all do or it is not known; `pairs`: of a permutation, where they are known.
    """

    bytes: int | None
    groups: Groups = ()
    pairs: Pairs = ()


Copied: TypeAlias = Literal["", "argument", "inside"]
Need: TypeAlias = Literal[
    "",
    "number",
    "choice",
    "mask",
    "zeros",
    "order",
    "length",
    "copies",
    "alike",
    "examples",
    "moved",
    "activations",
    "turns",
]

Arrays: TypeAlias = frozenset[tuple[int, tuple[int, ...]]]
"""Kinds of arrays: the number of the type of the elements, and the dimensions; no scalars."""

_OF_FUNCTION: Final = lazy_pattern(rb"(?:jit|pmap)_+(.+?)_?(?:\(\d+\))?", re.DOTALL)


F64, C128 = 12, 18
"""Numbers of types of elements (`PrimitiveType`)."""


class Instruction(Struct, frozen=True):
    """An instruction that events ran: its `program`, `jit_step(5)`, and its name.

    The rest is as the program says, empty or 0 where it does not: `scope`, the path in the source
    (`jit(step)/jvp(Model)/dense/dot_general`, or the name of an op of TensorFlow) and `op_type`; `line`, `model.py:42 in
    call`; `element_type`, the number of the type of the result, of several that of the first. `is_constant`: it computes
    the same in every run. `is_repeated`: each of the `partitions` of the program computes the same, from what all are given
    whole. `is_update`: it computes with gradients, and is none. `flops`: of its products of matrices, convolutions and attention, None where they are not known;
    `operand_type`: the number of the type of what the first of them multiplies. `exchange`: of a collective. `copied`: of a
    `copy` that XLA has added whether it is of an `argument` that the program may not overwrite, or `inside` of a loop or a branch, whose scope
    and line it has.
    `need`: `number` of a gradient of which the program uses no more than a number, such as a norm; `choice` of what a
    `select` may drop for an array as it was given, by a condition on numbers that were given; `mask` of what is used in a
    `part` that the program says; `zeros` of products with a constant of which this part is not 0; `order` of products of three matrices that take this part in another order; `length` of a Fourier transform that
    takes about this part with a length without large prime factors;
    `copies` of products of rows of which all but this part are copies; `alike` of a collective that in all but this part exchanges what all devices have alike, or
    gathers what each then computes alike, and of a copy for such a one; `activations` of a collective of what a model makes of its batch, or of the gradients of that; `turns` of what no turn of a loop has to wait for.
    `taken`, `given`: the arrays that the program takes and gives.
    """

    program: bytes
    name: bytes
    scope: str = ""
    op_type: str = ""
    line: str = ""
    element_type: int = 0
    is_constant: bool = False
    is_repeated: bool = False
    is_update: bool = False
    partitions: int = 1
    flops: int | None = None
    operand_type: int = 0
    exchange: Exchange | None = None
    copied: Copied = ""
    need: Need = ""
    part: float = 0.0
    taken: Arrays = frozenset()
    given: Arrays = frozenset()

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
