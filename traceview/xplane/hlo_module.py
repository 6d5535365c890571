"""Reads the messages of a compiled XLA program: its computations, and of their instructions shape, scope, line of Python and groups of devices.

The plane `/host:metadata` holds a program per event metadata, as stat `Hlo Proto`. Only the fields that are needed are
looked at (openxla/xla `xla/service/hlo.proto`, `xla/xla_data.proto`, jaxlib 0.4 to 0.10): an instruction that no event
ran is passed over once its name is known, so the time is linear in the size of the program.

An instruction names devices by their numbers in the program: as a list, as a reshaped and transposed count, or as the axes of a
mesh (`xla/hlo/ir/collective_device_list.h`). With several replicas and several partitions the number is
`replica * partitions + partition`; the program says which device that is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from math import prod
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct

from traceview.xplane import hlo_fields as field
from traceview.xplane.columns import Arrays, Buffer, Groups, Pairs, Program
from traceview.xplane.decode_reference import DamageError, read_fields
from traceview.xplane.message import Message

_CONTENT: Final = 2

_TUPLE: Final = 13
DEEPEST: Final = 16
_MOST_FRAMES: Final = 256
MOST_DIMENSIONS: Final = 32
VIEWS: Final = frozenset(("bitcast", "copy", "reshape", "transpose"))
"""What gives the same numbers as its operand, in a program that is compiled."""

LONGEST_CONFIG: Final = 1 << 16
_LIBRARY: Final = ("/site-packages/", "/dist-packages/", "/traceview/capture/", "<frozen ")
"""What the paths of code have that no user wrote, also where traceview is not installed."""
_OF_EVERY_OP: Final = "tensorflow/python/framework/ops.py"
"""Where TensorFlow makes all ops, which its programs give as their line."""

_MOST_DEVICES: Final = 1 << 20
_MOST_AXES: Final = 32


class Shape(Struct, frozen=True):
    """The number of the type of the elements, and the dimensions."""

    element_type: int
    dimensions: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of its elements."""
        return prod(self.dimensions)


class Scheduled(Struct, frozen=True):
    """An instruction that has its turn in a computation: its name, its opcode, and its shape as it is written."""

    name: bytes
    opcode: str
    shape: bytes


class HloInstruction(Struct):
    """An instruction; `place`, `shape`, `metadata`: where all of it and these are."""

    place: tuple[int, int]
    name: bytes
    opcode: str
    id: int
    shape: tuple[int, int]
    metadata: tuple[int, int]
    operands: list[int]
    called: list[int]
    has_side_effect: bool


class Computation:
    """A computation of a program, whose instructions are read when they are asked for."""

    def __init__(self, data: Buffer, fields: Message) -> None:
        self._data = data
        self.id = fields.number(field.COMPUTATION_ID)
        self.root_id = fields.number(field.COMPUTATION_ROOT_ID)
        self.places = fields.places(field.COMPUTATION_INSTRUCTIONS)

    @cached_property
    def instructions(self) -> tuple[HloInstruction, ...]:
        """All of them, in the order of the program."""
        return tuple(_instruction(self._data, *place) for place in self.places)

    @cached_property
    def by_id(self) -> dict[int, HloInstruction]:
        """Its instructions by their ids."""
        return {each.id: each for each in self.instructions}

    def source(self, id_: int) -> HloInstruction | None:
        """The instruction whose numbers one has, in whatever order; None of an id that it does not have."""
        at = self.by_id.get(id_)
        for _ in range(DEEPEST):
            if at is None or at.opcode not in VIEWS or len(at.operands) != 1:
                break
            at = self.by_id.get(at.operands[0])
        return at


NO_FIELDS: Final = Message(b"", 0, 0)
_NO_COMPUTATION: Final = Computation(b"", NO_FIELDS)


class Module:
    """The messages of one program, which is looked at more than once."""

    def __init__(self, program: Program) -> None:
        self._data = data = program.data
        self._module = Message(data, 0, len(data))
        every = (
            Computation(data, each) for each in self._module.messages(field.MODULE_COMPUTATIONS)
        )
        self._computations = {each.id: each for each in every}
        self._roots: dict[int, tuple[str, str, str]] = {}
        self._arrays: dict[bytes, tuple[Shape, ...]] = {}

    def computation(self, id_: int) -> Computation:
        """A computation by its id, without instructions where there is none."""
        return self._computations.get(id_, _NO_COMPUTATION)

    @property
    def entry(self) -> Computation:
        """The computation that runs the others."""
        return self.computation(self._module.number(field.MODULE_ENTRY_ID))

    def named(self, wanted: Collection[bytes]) -> Iterator[tuple[Computation, HloInstruction]]:
        """The instructions with the names in `wanted`, each with its computation."""
        for computation in self._computations.values():
            for begin, end in computation.places:
                if _name(self._data, begin, end) in wanted:
                    yield computation, _instruction(self._data, begin, end)

    def fields(self, instruction: HloInstruction) -> Message:
        """All fields of an instruction."""
        return Message(self._data, *instruction.place)

    def scopes(self, ids: Collection[int]) -> dict[int, str]:
        """By id the scope of instructions, else their name; those that the program does not have are not there."""
        every = (each for of in self._computations.values() for each in of.instructions)
        return {
            each.id: self.said(each)[0] or each.name.decode("utf-8", "replace")
            for each in every
            if each.id in ids
        }

    def schedules(self) -> list[list[Scheduled]]:
        """The instructions of each computation in the order in which a device runs them."""
        schedules = []
        for entry in self._module.message(field.MODULE_SCHEDULE).messages(field.SCHEDULE_SEQUENCES):
            by_id = self.computation(entry.number(field.SEQUENCE_COMPUTATION)).by_id
            sequences = entry.messages(field.SEQUENCE_VALUE)
            ids = [id_ for each in sequences for id_ in each.numbers(field.SEQUENCE_INSTRUCTIONS)]
            known = (by_id[id_] for id_ in ids if id_ in by_id)
            schedules.append(
                [Scheduled(each.name, each.opcode, self.bytes_at(each.shape)) for each in known]
            )
        return schedules

    def bytes_at(self, bounds: tuple[int, int]) -> bytes:
        """The bytes at a place."""
        return bytes(self._data[slice(*bounds)])

    def said(self, instruction: HloInstruction) -> tuple[str, str, str]:
        """Scope, type of the op, and line of Python. A fusion that has none is what its root is, else what it holds first."""
        said = self._metadata(*instruction.metadata)
        if "/" in said[0] or not instruction.called:
            return said
        scope, op_type, line = self._said_inside(instruction.called[0])
        return (scope, op_type, said[2] or line) if scope else said

    def said_around(self, computation: Computation) -> tuple[str, str, str]:
        """The same of a copy that XLA has added to a computation, such as the body of a loop: of what runs that."""
        for _ in range(DEEPEST):
            if computation.id not in self._callers:
                break
            computation, instruction = self._callers[computation.id]
            scope, _, line = self.said(instruction)
            if "/" in scope:
                return f"{scope}/copy", "", line
        return "", "", ""

    @cached_property
    def _callers(self) -> dict[int, tuple[Computation, HloInstruction]]:
        """By id of a computation the instruction that calls it, in its computation."""
        return {
            called: (computation, instruction)
            for computation in self._computations.values()
            for instruction in computation.instructions
            for called in instruction.called
        }

    def _said_inside(self, id_: int) -> tuple[str, str, str]:
        """The same of the root of a computation, else of the first instruction in it that has a scope."""
        if id_ not in self._roots:
            computation = self.computation(id_)
            held = sorted(computation.instructions, key=lambda each: each.id != computation.root_id)
            said = (self._metadata(*inner.metadata) for inner in held)
            with_scope = (each for each in said if "/" in each[0])
            self._roots[id_] = next(with_scope, ("", "", ""))
        return self._roots[id_]

    def arrays(self, bounds: tuple[int, int]) -> tuple[Shape, ...]:
        """The arrays of a shape; most instructions have the same few shapes."""
        content = self.bytes_at(bounds)
        if content not in self._arrays:
            self._arrays[content] = tuple(_arrays(Message(self._data, *bounds), DEEPEST))
        return self._arrays[content]

    def groups(self, instruction: HloInstruction) -> Groups:
        """The devices that exchange with each other in an instruction; none where that is not known."""
        groups = _groups(self._of_devices(instruction))
        return tuple(tuple(map(self._device, group)) for group in groups if group)

    def pairs(self, instruction: HloInstruction) -> Pairs:
        """Which device gives to which in a permutation; none of other instructions, and where that is not known."""
        device, pairs = self._device, self._of_devices(instruction).messages(field.PAIRS)
        return tuple(
            (device(each.number(field.PAIR_SOURCE)), device(each.number(field.PAIR_TARGET)))
            for each in islice(pairs, _MOST_DEVICES)
        )

    def _of_devices(self, instruction: HloInstruction) -> Message:
        """The fields of an instruction; none where its numbers are neither of replicas and partitions together, nor there is one of either."""
        fields, (replicas, partitions, _) = self.fields(instruction), self._assignment
        is_known = fields.number(field.USES_GLOBAL_IDS) or replicas < 2 or partitions < 2
        return fields if is_known else NO_FIELDS

    def _device(self, number: int) -> int:
        """The device that has a number in the program."""
        _, partition_count, by_partition = self._assignment
        replica, partition = divmod(number, max(partition_count, 1))
        try:
            return by_partition[partition][replica]
        except IndexError:
            return number

    @cached_property
    def overwritten(self) -> frozenset[int]:
        """The numbers of the parameters that were donated."""
        fields = (
            (field.MODULE_ALIASES, field.ALIASED_PARAMETER),
            (field.MODULE_DONORS, field.DONATED_PARAMETER),
        )
        return frozenset(
            each.number(number)
            for group, number in fields
            for each in self._module.message(group).messages(field.ENTRIES)
        )

    @cached_property
    def taken(self) -> Arrays:
        """What kinds of arrays it is given."""
        return self._kinds(each for each in self.entry.instructions if each.opcode == "parameter")

    @cached_property
    def given(self) -> Arrays:
        """What kinds of arrays it gives."""
        entry = self.entry
        return self._kinds(each for each in entry.instructions if each.id == entry.root_id)

    def _kinds(self, instructions: Iterable[HloInstruction]) -> Arrays:
        arrays = (array for each in instructions for array in self.arrays(each.shape))
        return frozenset((of.element_type, of.dimensions) for of in arrays if of.dimensions)

    @property
    def partitions(self) -> int:
        """Devices that run it together, each a part of its arrays."""
        return self._assignment[1]

    @cached_property
    def whole_parameters(self) -> frozenset[int]:
        """The ids of the parameters of which each of several partitions is given all, alike; none where it is not said."""
        parameters = [each for each in self.entry.instructions if each.opcode == "parameter"]
        shardings = list(self._module.messages(field.MODULE_SHARDINGS))
        if self.partitions < 2 or len(shardings) != len(parameters):
            return frozenset()
        numbers = (
            (each.id, self.fields(each).number(field.PARAMETER_NUMBER)) for each in parameters
        )
        return frozenset(
            id_
            for id_, number in numbers
            if 0 <= number < len(shardings) and _is_whole(shardings[number])
        )

    @cached_property
    def _assignment(self) -> tuple[int, int, list[list[int]]]:
        """How many replicas and partitions there are, and by partition the devices of its replicas."""
        of = self._module.message(field.MODULE_ASSIGNMENT)
        by_partition = [
            each.numbers(field.ASSIGNED_DEVICES) for each in of.messages(field.ASSIGNED)
        ]
        return (
            of.number(field.ASSIGNED_REPLICAS, 1),
            of.number(field.ASSIGNED_PARTITIONS, 1),
            by_partition,
        )

    def _metadata(self, begin: int, end: int) -> tuple[str, str, str]:
        of = Message(self._data, begin, end)
        line = _line(of.text(field.SOURCE_FILE), of.number(field.SOURCE_LINE), "")
        return (
            of.text(field.OP_NAME),
            of.text(field.OP_TYPE),
            self._frames.line(of.number(field.FRAME_ID)) or line,
        )

    @cached_property
    def _frames(self) -> _Frames:
        return _Frames(self._module.message(field.MODULE_FRAMES))


_OPEN: Final[WeakKeyDictionary[Program, Module]] = WeakKeyDictionary()
"""Programs that are looked at more than once, as long as the file is read."""


def opened(program: Program) -> Module:
    """The messages of a program."""
    known = _OPEN.get(program)
    if known is None:
        known = _OPEN[program] = Module(program)
    return known


@contextmanager
def located(offset: int) -> Iterator[None]:
    """Says of damage where it is in the file; `offset`: where the bytes begin that are read."""
    try:
        yield
    except DamageError as error:
        raise error.moved(offset) from None


def read_schedules(program: Program) -> list[list[Scheduled]]:
    """The instructions of each computation in the order in which a device runs them; none of programs that do not say it.

    Raises `DamageError` with the offset in the file.
    """
    with located(program.offset):
        return opened(program).schedules()


class _Frames:
    """The lines of Python of a program; everything is numbered from 1."""

    def __init__(self, frames: Message) -> None:
        self._files, self._functions = (
            frames.texts(field.FRAME_FILES),
            frames.texts(field.FRAME_FUNCTIONS),
        )
        self._locations = list(frames.messages(field.FRAME_LOCATIONS))
        self._frames = list(frames.messages(field.FRAME_FRAMES))
        self._known: dict[int, str] = {}

    def line(self, frame: int) -> str:
        """The innermost line of a frame that is in no installed package; else the innermost; "" where there is none."""
        if frame not in self._known:
            stack = [line for line in self._stack(frame) if line[0]]
            own = (line for line in stack if not any(part in line[0] for part in _LIBRARY))
            chosen = next(own, stack[0] if stack else ("", 0, ""))
            self._known[frame] = _line(*chosen)
        return self._known[frame]

    def _stack(self, frame: int) -> Iterator[tuple[str, int, str]]:
        for _ in range(_MOST_FRAMES):
            if not 0 < frame <= len(self._frames):
                return
            of_frame = self._frames[frame - 1]
            place = of_frame.number(field.FRAME_LOCATION)
            if 0 < place <= len(self._locations):
                location = self._locations[place - 1]
                yield (
                    _numbered(self._files, location.number(field.LOCATION_FILE)),
                    location.number(field.LOCATION_LINE),
                    _numbered(self._functions, location.number(field.LOCATION_FUNCTION)),
                )
            frame = of_frame.number(field.FRAME_PARENT)


def _numbered(texts: list[str], number: int) -> str:
    return texts[number - 1] if 0 < number <= len(texts) else ""


def _line(file: str, number: int, function: str) -> str:
    """`model.py:42 in call`."""
    path = file.replace(chr(92), "/")
    if not path or not 0 < number < 1 << 31 or path.endswith(_OF_EVERY_OP):
        return ""
    place = f"{path.rpartition('/')[2]}:{number}"
    inner = function.rpartition(".")[2]
    return f"{place} in {inner}" if inner.isidentifier() else place


# Fields


def _name(data: Buffer, begin: int, end: int) -> bytes:
    """The name of an instruction, which writers put first."""
    for each in read_fields(data, begin, end):
        if each.number == field.NAME and each.wire_type == _CONTENT:
            return bytes(data[each.begin : each.end])
    return b""


def _instruction(data: Buffer, begin: int, end: int) -> HloInstruction:
    of = Message(data, begin, end)
    return HloInstruction(
        place=(begin, end),
        name=of.content(field.NAME),
        opcode=of.text(field.OPCODE),
        id=of.number(field.ID),
        shape=of.place(field.SHAPE),
        metadata=of.place(field.METADATA),
        operands=of.numbers(field.OPERANDS),
        called=of.numbers(field.CALLED),
        has_side_effect=bool(of.number(field.HAS_SIDE_EFFECT)),
    )


def _arrays(shape: Message, depth: int) -> Iterator[Shape]:
    """The arrays of a shape, those of a tuple in its order; a type that is not known where it is too deep."""
    element = shape.number(field.ELEMENT_TYPE)
    if element != _TUPLE:
        yield Shape(element, tuple(shape.numbers(field.DIMENSIONS, MOST_DIMENSIONS + 1)))
    elif depth:
        for inner in shape.messages(field.TUPLE_SHAPES):
            yield from _arrays(inner, depth - 1)
    else:
        yield Shape(0, ())


# Devices that exchange with each other


def _is_whole(sharding: Message) -> bool:
    """Whether each device has all of an array; a sharding of a kind that is not known divides it."""
    said = {*sharding} - {field.SHARDING_METADATA, *field.SHARDING_GROUP}
    return said <= {field.SHARDING_TYPE} and not sharding.number(field.SHARDING_TYPE)


def _groups(instruction: Message) -> list[Sequence[int]]:
    """The numbers of devices that exchange with each other in an instruction; none where that is not known."""
    groups: list[Sequence[int]] = [
        of.numbers(field.GROUP_IDS) for of in instruction.messages(field.GROUPS)
    ]
    for listed in instruction.messages(field.DEVICE_LIST):
        groups += [of.numbers(field.GROUP_IDS) for of in listed.messages(field.LIST_GROUPS)]
        groups += [group for of in listed.messages(field.LIST_COUNTED) for group in _counted(of)]
    groups += [group for of in instruction.messages(field.COUNTED) for group in _counted(of)]
    groups += [group for of in instruction.messages(field.MESH_AXES) for group in _along_axes(of)]
    pairs = instruction.messages(field.PAIRS)
    return groups + _joined(
        (of.number(field.PAIR_SOURCE), of.number(field.PAIR_TARGET)) for of in pairs
    )


def _counted(of: Message) -> Sequence[Sequence[int]]:
    """All numbers in order, reshaped, transposed, and divided into groups."""
    count, each = of.number(field.COUNTED_GROUPS), of.number(field.COUNTED_DEVICES)
    if not 0 < count * each <= _MOST_DEVICES:
        return ()
    shape, order = (
        of.numbers(number, _MOST_AXES + 1) for number in (field.COUNTED_SHAPE, field.COUNTED_ORDER)
    )
    shape = shape or [count * each]
    return _divided(list(range(count * each)), shape, order or list(range(len(shape))), each)


def _along_axes(of: Message) -> Sequence[Sequence[int]]:
    """The devices of a mesh that differ in the place on some axes only."""
    mesh, axes = list(of.messages(field.AXES_MESH)), list(of.messages(field.AXES_AXES))
    sizes = [
        axis.number(field.AXIS_SIZE, 1)
        for each in mesh
        for axis in each.messages(field.MESH_AXES_OF)
    ]
    devices = [device for each in mesh for device in each.numbers(field.MESH_DEVICES)]
    chosen = [axis.number(field.AXIS_INDEX) for axis in axes]
    if any(field.AXIS_PART in axis for axis in axes) or not all(
        0 <= axis < len(sizes) for axis in chosen
    ):
        return ()
    if len(sizes) > _MOST_AXES or not 0 < prod(sizes) <= _MOST_DEVICES:
        return ()
    rest = [axis for axis in range(len(sizes)) if axis not in chosen]
    each = prod(sizes[axis] for axis in chosen)
    return _divided(devices or list(range(prod(sizes))), sizes, rest + chosen, each)


def _divided(
    numbers: Sequence[int], shape: list[int], order: list[int], each: int
) -> Sequence[tuple[int, ...]]:
    """Numbers of this shape, with their axes in this order, in groups of `each`; none where these do not fit."""
    is_shape = 0 < len(shape) <= _MOST_AXES and sorted(order) == list(range(len(shape)))
    if not is_shape or prod(shape) != len(numbers) or each < 1 or len(numbers) % each:
        return ()
    place = np.arange(len(numbers)).reshape(shape).transpose(order).reshape(-1, each)
    return [tuple(numbers[at] for at in group) for group in place.tolist()]


def _joined(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, ...]]:
    """The numbers that pairs connect."""
    group_of: dict[int, set[int]] = {}
    for pair in pairs:
        first, second = (group_of.setdefault(number, {number}) for number in pair)
        if first is not second:
            small, large = sorted((first, second), key=len)
            large |= small
            group_of.update(dict.fromkeys(small, large))
    return [
        tuple(sorted(group)) for group in {id(each): each for each in group_of.values()}.values()
    ]
