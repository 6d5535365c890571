"""Reads what a compiled XLA program says of its instructions: scope, line of Python, type, FLOPs, bytes, and what has no input.

The plane `/host:metadata` holds a program per event metadata, as stat `Hlo Proto`. Only the fields that are needed are
looked at (openxla/xla `xla/service/hlo.proto`, `xla/xla_data.proto`, jaxlib 0.4 to 0.10): an instruction that no event
ran is passed over once its name is known, so the time is linear in the size of the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from functools import cached_property
from itertools import compress, islice, repeat
from typing import Final
from weakref import WeakKeyDictionary

from msgspec import Struct

from traceview.xplane.columns import MOST_HELD, Buffer, Exchange, Instruction, Program
from traceview.xplane.decode_reference import DamageError, read_fields
from traceview.xplane.hlo_collectives import (
    COLLECTIVES,
    Assignment,
    read_assignment,
    read_groups,
)
from traceview.xplane.hlo_costs import (
    LARGEST,
    NO_PRODUCT,
    PRODUCTS,
    SLICES,
    UNCHANGED,
    UNKNOWN,
    UPDATES,
    Product,
    Shape,
    bytes_of,
    product_of,
    size_of,
    whole,
)
from traceview.xplane.message import Message

_CONTENT: Final = 2

MODULE_COMPUTATIONS: Final = 3
MODULE_ENTRY_ID: Final = 6
MODULE_SCHEDULE: Final = 7
MODULE_ASSIGNMENT: Final = 15
MODULE_FRAMES: Final = 17
SCHEDULE_SEQUENCES: Final = 1
SEQUENCE_COMPUTATION, SEQUENCE_VALUE, SEQUENCE_INSTRUCTIONS = 1, 2, 1
COMPUTATION_INSTRUCTIONS: Final = 2
COMPUTATION_ID: Final = 5
COMPUTATION_ROOT_ID: Final = 6
NAME: Final = 1
OPCODE: Final = 2
SHAPE: Final = 3
METADATA: Final = 7
PARAMETER_NUMBER: Final = 9
WINDOW: Final = 15
CONVOLUTION: Final = 16
TARGET: Final = 28
DOT: Final = 30
ID: Final = 35
OPERANDS: Final = 36
CALLED: Final = 38
BACKEND_CONFIG: Final = 43
HAS_SIDE_EFFECT: Final = 65
USES_GLOBAL_IDS: Final = 71
OP_TYPE: Final = 1
OP_NAME: Final = 2
SOURCE_FILE: Final = 3
SOURCE_LINE: Final = 4
FRAME_ID: Final = 15
ELEMENT_TYPE: Final = 2
DIMENSIONS: Final = 3
TUPLE_SHAPES: Final = 4
DOT_CONTRACTED: Final = 1
WINDOW_DIMENSIONS, WINDOW_SIZE = 1, 1
FRAME_FILES, FRAME_FUNCTIONS, FRAME_LOCATIONS, FRAME_FRAMES = 1, 2, 3, 4
LOCATION_FILE, LOCATION_FUNCTION, LOCATION_LINE = 1, 2, 3
FRAME_LOCATION, FRAME_PARENT = 1, 2

_TUPLE: Final = 13
_DEEPEST: Final = 16
_MOST_FRAMES: Final = 256
_MOST_CALLED: Final = 64
"""Computations that one instruction calls, through others too: of one that calls more it is not known what it depends on."""

_VARYING: Final = frozenset(
    ("parameter", "infeed", "recv", "recv-done", "partition-id", "replica-id")
)
_STATEFUL: Final = frozenset(("infeed", "recv", "recv-done", "rng", "rng-get-and-update-state"))
_FILLS: Final = frozenset(
    (
        "constant", "broadcast", "iota", "reshape", "bitcast", "copy", "transpose", "convert", "tuple",
        "get-tuple-element", "parameter", "fusion", "call", "slice", "pad", "concatenate",
    )
)  # fmt: skip
"""What only writes memory. A result that is written anew in each step is a buffer that the step overwrites."""

_CALLS: Final = frozenset(("fusion", "call", "async-start", "while", "conditional"))
"""What runs the instructions of other computations."""

_COMPUTES_NOTHING: Final = frozenset(
    ("", "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "broadcast", "iota")
)

_SAME: Final = frozenset(("bitcast", "copy", "reshape", "get-tuple-element", "tuple", "convert"))
"""What only hands on what another instruction computed."""

_REPEATS: Final = frozenset(("while", "conditional"))
"""Of those the ones of which it is not known how often."""

_LARGEST_SCALAR: Final = 16
"""Bytes: of a complex number of two float64."""

_MOST_DIMENSIONS: Final = 32
_MOST_USES: Final = 64
_LONGEST_CONFIG: Final = 1 << 16

_LIBRARY: Final = ("/site-packages/", "/dist-packages/", "<frozen ")
_OF_EVERY_OP: Final = "tensorflow/python/framework/ops.py"
"""Where TensorFlow makes all ops, which its programs give as their line."""


def read_instructions(program: Program, wanted: Collection[bytes]) -> dict[bytes, Instruction]:
    """The instructions of a program with the names in `wanted`; others are not there.

    Raises `DamageError` with the offset in the file.
    """
    try:
        return _opened(program).instructions(frozenset(wanted))
    except DamageError as error:
        raise error.moved(program.offset) from None


class Scheduled(Struct, frozen=True):
    """An instruction that has its turn in a computation: its name, its opcode, and its shape as it is written."""

    name: bytes
    opcode: str
    shape: bytes


def read_schedules(program: Program) -> list[list[Scheduled]]:
    """The instructions of each computation in the order in which a device runs them; none of programs that do not say it.

    Raises `DamageError` with the offset in the file.
    """
    try:
        return _opened(program).schedules()
    except DamageError as error:
        raise error.moved(program.offset) from None


def read_scopes(program: Program, ids: Collection[int]) -> dict[int, str]:
    """By id the scope of instructions, else their name; those that the program does not have are not there.

    Raises `DamageError` with the offset in the file.
    """
    try:
        return _opened(program).scopes(frozenset(ids))
    except DamageError as error:
        raise error.moved(program.offset) from None


class _Instruction(Struct):
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


class _Effect(Struct, frozen=True):
    """What a computation does by itself, and the computations that it calls."""

    is_stateful: bool
    works: bool
    called: tuple[int, ...]


class _Traffic(Struct, frozen=True):
    """What a fusion moves less of than its shapes say: bytes read by number of the parameter, and bytes written."""

    read: dict[int, int | None]
    written: int | None


_WHOLE: Final = _Traffic({}, None)
"""Of a fusion that moves what it is given and what it yields."""


class _Computation:
    """A computation of a program, whose instructions are read when they are asked for."""

    def __init__(self, data: Buffer, fields: Message) -> None:
        self._data = data
        self.id = fields.number(COMPUTATION_ID)
        self.root_id = fields.number(COMPUTATION_ROOT_ID)
        self.places = fields.places(COMPUTATION_INSTRUCTIONS)

    @cached_property
    def instructions(self) -> tuple[_Instruction, ...]:
        return tuple(_instruction(self._data, *place) for place in self.places)

    @cached_property
    def by_id(self) -> dict[int, _Instruction]:
        return {each.id: each for each in self.instructions}

    @cached_property
    def effect(self) -> _Effect:
        called = dict.fromkeys(each for inner in self.instructions for each in inner.called)
        return _Effect(
            any(each.has_side_effect or each.opcode in _STATEFUL for each in self.instructions),
            any(each.opcode not in _FILLS for each in self.instructions),
            tuple(called)[:_MOST_CALLED],
        )


_NO_COMPUTATION: Final = _Computation(b"", Message(b"", 0, 0))


class _Program:
    """One program while it is read."""

    def __init__(self, program: Program) -> None:
        self._name = program.name
        self._data = data = program.data
        self._module = Message(data, 0, len(data))
        every = (_Computation(data, each) for each in self._module.messages(MODULE_COMPUTATIONS))
        self._computations = {each.id: each for each in every}
        self._roots: dict[int, tuple[str, str, str]] = {}
        self._opcodes_in: dict[int, Counter[str]] = {}
        self._with_events: dict[int, bool] = {}
        self._products: dict[int, Product] = {}
        self._arrays: dict[bytes, tuple[Shape, ...]] = {}
        self._traffic: dict[int, _Traffic] = {}
        self._wanted: frozenset[bytes] = frozenset()

    def _computation(self, id_: int) -> _Computation:
        return self._computations.get(id_, _NO_COMPUTATION)

    def instructions(self, wanted: frozenset[bytes]) -> dict[bytes, Instruction]:
        entry_id = self._module.number(MODULE_ENTRY_ID)
        constants = self._constants(self._computation(entry_id))
        self._wanted = wanted
        found = {}
        for computation in self._computations.values():
            for begin, end in computation.places:
                name = _name(self._data, begin, end)
                if name in wanted:
                    is_constant = computation.id == entry_id and name in constants
                    instruction = _instruction(self._data, begin, end)
                    found[name] = self._finished(instruction, computation, is_constant=is_constant)
        return found

    def scopes(self, ids: frozenset[int]) -> dict[int, str]:
        found = (
            each
            for computation in self._computations.values()
            for each in computation.instructions
            if each.id in ids
        )
        return {
            each.id: self._said(each)[0] or each.name.decode("utf-8", "replace") for each in found
        }

    def schedules(self) -> list[list[Scheduled]]:
        schedules = []
        for entry in self._module.message(MODULE_SCHEDULE).messages(SCHEDULE_SEQUENCES):
            by_id = self._computation(entry.number(SEQUENCE_COMPUTATION)).by_id
            sequences = entry.messages(SEQUENCE_VALUE)
            ids = [id_ for each in sequences for id_ in each.numbers(SEQUENCE_INSTRUCTIONS)]
            schedules.append([self._scheduled(by_id[id_]) for id_ in ids if id_ in by_id])
        return schedules

    def _scheduled(self, instruction: _Instruction) -> Scheduled:
        shape = bytes(self._data[slice(*instruction.shape)])
        return Scheduled(instruction.name, instruction.opcode, shape)

    def _finished(
        self, instruction: _Instruction, computation: _Computation, *, is_constant: bool
    ) -> Instruction:
        scope, op_type, line = self._said(instruction)
        product = self._product(instruction, computation, _DEEPEST)
        return Instruction(
            self._name,
            instruction.name,
            scope,
            op_type,
            line,
            self._shape(instruction.shape).element_type,
            is_constant,
            *product,
            bytes=self._bytes(instruction, computation),
            exchange=self._exchange(instruction, computation),
            holds=self._holds(instruction),
        )

    def _said(self, instruction: _Instruction) -> tuple[str, str, str]:
        """Scope, type and line. A fusion that has none is what its root is, else what it holds first."""
        said = self._metadata(*instruction.metadata)
        if "/" in said[0] or not instruction.called:
            return said
        scope, op_type, line = self._said_inside(instruction.called[0])
        return (scope, op_type, said[2] or line) if scope else said

    def _said_inside(self, id_: int) -> tuple[str, str, str]:
        """The same of the root of a computation, else of the first instruction in it that has a scope."""
        if id_ not in self._roots:
            computation = self._computation(id_)
            held = sorted(computation.instructions, key=lambda each: each.id != computation.root_id)
            said = (self._metadata(*inner.metadata) for inner in held)
            with_scope = (each for each in said if "/" in each[0])
            self._roots[id_] = next(with_scope, ("", "", ""))
        return self._roots[id_]

    # What a fusion is made of

    def _holds(self, instruction: _Instruction) -> tuple[tuple[str, int], ...]:
        if instruction.opcode != "fusion" or not instruction.called:
            return ()
        counted = self._opcodes(instruction.called[0], _DEEPEST)
        ranked = sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))
        some = ((opcode, min(count, LARGEST)) for opcode, count in ranked)
        return tuple(islice((pair for pair in some if pair[0] not in _COMPUTES_NOTHING), MOST_HELD))

    def _opcodes(self, computation: int, depth: int) -> Counter[str]:
        """How often each opcode is in a computation; in the place of a fusion is what that holds."""
        known = self._opcodes_in.get(computation)
        if known is None:
            # Also ends a recursion.
            self._opcodes_in[computation] = Counter()
            held = self._computation(computation).instructions if depth else ()
            known = Counter(inner.opcode for inner in held if inner.opcode != "fusion")
            for inner in held:
                if inner.opcode == "fusion" and inner.called:
                    known.update(self._opcodes(inner.called[0], depth - 1))
            self._opcodes_in[computation] = known
        return known

    # What depends on nothing

    def _constants(self, entry: _Computation) -> set[bytes]:
        """The names of instructions of the entry that compute, from nothing that varies."""
        constant: dict[int, bool] = {}
        names = set()
        # Operands stand before what uses them.
        for instruction in entry.instructions:
            has_no_input = (
                instruction.opcode not in _VARYING
                and not instruction.has_side_effect
                and all(constant.get(operand, False) for operand in instruction.operands)
            )
            is_stateful, works = self._reached(instruction) if has_no_input else (True, True)
            constant[instruction.id] = not is_stateful
            if works and not is_stateful:
                names.add(instruction.name)
        return names

    def _reached(self, instruction: _Instruction) -> tuple[bool, bool]:
        """Whether it, or what it calls, has a state, and whether it does more than to fill memory."""
        is_stateful, works = instruction.opcode in _STATEFUL, instruction.opcode not in _FILLS
        waiting = instruction.called[:_MOST_CALLED]
        seen = set(waiting)
        while waiting:
            if len(seen) >= _MOST_CALLED:
                return True, True
            inner = self._computation(waiting.pop()).effect
            is_stateful |= inner.is_stateful
            works |= inner.works
            waiting += [called for called in inner.called if called not in seen]
            seen.update(inner.called)
        return is_stateful, works

    # Its FLOPs

    def _product(self, instruction: _Instruction, computation: _Computation, depth: int) -> Product:
        """What an instruction multiplies, with what it calls unless that has events of its own."""
        if instruction.opcode in _CALLS:
            return self._product_called(instruction, depth)
        if instruction.opcode not in PRODUCTS:
            return NO_PRODUCT
        fields, most = Message(self._data, *instruction.place), _MOST_DIMENSIONS
        by_id = computation.by_id
        known = [by_id[id_].shape for id_ in instruction.operands[:2] if id_ in by_id]
        convolution = fields.message(CONVOLUTION)
        windows = islice(fields.message(WINDOW).messages(WINDOW_DIMENSIONS), most + 1)
        return product_of(
            instruction.opcode,
            fields.text(TARGET),
            self._shape(instruction.shape),
            list(map(self._shape, known)),
            contracted=fields.message(DOT).numbers(DOT_CONTRACTED, most + 1),
            window=[(window.numbers(WINDOW_SIZE, 1) or [0])[0] for window in windows],
            convolution={
                number: found
                for number in convolution
                if (found := convolution.numbers(number, most + 1))
            },
            config=fields.content(BACKEND_CONFIG)[:_LONGEST_CONFIG],
        )

    def _product_called(self, instruction: _Instruction, depth: int) -> Product:
        flops, operand_type = 0, 0
        if len(instruction.called) > _MOST_CALLED:
            return UNKNOWN
        for called in instruction.called:
            if called not in self._products:
                # Also ends a recursion.
                self._products[called] = UNKNOWN
                self._products[called] = self._product_inside(called, depth - 1)
            inner = self._products[called]
            if inner.flops != 0 and self._has_events(called, instruction.opcode):
                continue
            if inner.flops is None:
                return UNKNOWN
            flops, operand_type = flops + inner.flops, operand_type or inner.operand_type
        is_known = not flops or instruction.opcode not in _REPEATS
        return Product(flops, operand_type) if is_known else UNKNOWN

    def _has_events(self, id_: int, opcode: str) -> bool:
        """Whether events ran instructions of a called computation themselves; a fusion is one event."""
        if opcode == "fusion":
            return False
        if id_ not in self._with_events:
            held = self._computation(id_).instructions
            self._with_events[id_] = any(inner.name in self._wanted for inner in held)
        return self._with_events[id_]

    def _product_inside(self, id_: int, depth: int) -> Product:
        """The sum of the instructions of a computation."""
        if depth <= 0:
            return UNKNOWN
        flops, operand_type = 0, 0
        for inner in self._computation(id_).instructions:
            product = self._product(inner, self._computation(id_), depth)
            if product.flops is None:
                return UNKNOWN
            flops, operand_type = flops + product.flops, operand_type or product.operand_type
        return Product(flops, operand_type)

    # The bytes that it moves

    def _bytes(self, instruction: _Instruction, computation: _Computation) -> int | None:
        """What it reads and writes, each once; None where its shapes do not tell."""
        operands = dict.fromkeys(instruction.operands)
        if not operands.keys() <= computation.by_id.keys():
            return None
        size_of_operand = {id_: self._size(computation.by_id[id_].shape) for id_ in operands}
        arrays = self._arrays_of(instruction.shape)
        if instruction.opcode != "fusion":
            target = Message(self._data, *instruction.place).text(TARGET)
            return bytes_of(instruction.opcode, target, arrays, [*size_of_operand.values()])
        moved = self._traffic_of(instruction.called[0]) if instruction.called else _WHOLE
        written = moved.written
        if written is None:
            written = whole([size_of(array) for array in arrays])
        # A parameter that is given twice is read once, as long as it is read whole.
        read = {
            operand: moved.read.get(number, size_of_operand[operand])
            for number, operand in enumerate(instruction.operands)
        }
        return whole([written, *read.values()])

    def _shape(self, bounds: tuple[int, int]) -> Shape:
        """The type of the elements of a shape and its dimensions; of a tuple those of its first shape."""
        return next(iter(self._arrays_of(bounds)), Shape(0, ()))

    def _size(self, bounds: tuple[int, int]) -> int | None:
        return whole([size_of(array) for array in self._arrays_of(bounds)])

    def _arrays_of(self, bounds: tuple[int, int]) -> tuple[Shape, ...]:
        """The arrays of a shape; most instructions have the same few shapes."""
        content = bytes(self._data[slice(*bounds)])
        if content not in self._arrays:
            self._arrays[content] = tuple(_arrays(Message(self._data, *bounds), _DEEPEST))
        return self._arrays[content]

    def _traffic_of(self, id_: int) -> _Traffic:
        """What a fusion reads through slices only, and what it writes into an array that is there."""
        if id_ not in self._traffic:
            computation = self._computation(id_)
            opcodes = {each.opcode for each in computation.instructions}
            is_whole = opcodes.isdisjoint(SLICES | UPDATES)
            self._traffic[id_] = _WHOLE if is_whole else self._traffic_inside(computation)
        return self._traffic[id_]

    def _traffic_inside(self, computation: _Computation) -> _Traffic:
        users: dict[int, list[tuple[_Instruction, int]]] = {}
        for inner in computation.instructions:
            for place, operand in enumerate(inner.operands):
                users.setdefault(operand, []).append((inner, place))
        by_id = computation.by_id
        read: dict[int, int | None] = {}
        for inner in by_id.values():
            if inner.opcode == "parameter":
                parts = self._parts_read(inner.id, users)
                if parts is not None:
                    number = Message(self._data, *inner.place).number(PARAMETER_NUMBER)
                    read[number] = whole(parts)
        root = by_id.get(computation.root_id)
        for _ in range(_DEEPEST):
            if root is None or root.opcode not in UNCHANGED:
                break
            root = by_id.get(root.operands[0]) if root.operands else None
        if root is None or root.opcode not in UPDATES or len(root.operands) < 2:
            return _Traffic(read, None)
        update = by_id.get(root.operands[1])
        return _Traffic(read, self._size(update.shape) if update else None)

    def _parts_read(
        self, id_: int, users: dict[int, list[tuple[_Instruction, int]]]
    ) -> list[int | None] | None:
        """The sizes of the slices that alone take a value; None where something takes all of it."""
        parts: list[int | None] = []
        waiting = [id_]
        for _ in range(_MOST_USES):
            if not waiting:
                return parts
            for user, place in users.get(waiting.pop(), ()):
                if user.opcode in UNCHANGED:
                    waiting.append(user.id)
                elif place == 0 and user.opcode in SLICES:
                    parts.append(self._size(user.shape))
                elif place != 0 or user.opcode not in UPDATES:
                    return None
        return None

    # What it exchanges

    def _exchange(self, instruction: _Instruction, computation: _Computation) -> Exchange | None:
        collective = instruction
        if instruction.opcode == "async-start" and instruction.called:
            held = self._computation(instruction.called[0]).instructions
            collective = next((each for each in held if each.opcode in COLLECTIVES), instruction)
        if collective.opcode not in COLLECTIVES:
            return None
        by_id = computation.by_id
        given = [by_id[operand] for operand in instruction.operands if operand in by_id]
        sizes = [self._size(each.shape) for each in given]
        # The loss is summed with the gradients.
        arrays = [size is None or size > _LARGEST_SCALAR for size in sizes]
        of = compress(given, arrays if any(arrays) else repeat(True))
        scopes = dict.fromkeys(self._scope_of(each, by_id) for each in of)
        fields = Message(self._data, *collective.place)
        return Exchange(
            whole(sizes),
            read_groups(fields, self._assignment, is_global=bool(fields.number(USES_GLOBAL_IDS))),
            tuple(scope for scope in scopes if scope),
        )

    def _scope_of(self, instruction: _Instruction, by_id: dict[int, _Instruction]) -> str:
        """The scope in which a value was computed."""
        scope = self._said(instruction)[0]
        for _ in range(_DEEPEST):
            if scope or instruction.opcode not in _SAME or not instruction.operands:
                break
            maker = by_id.get(instruction.operands[0])
            if maker is None:
                break
            instruction, scope = maker, self._said(maker)[0]
        return scope

    @cached_property
    def _assignment(self) -> Assignment:
        return read_assignment(self._module.message(MODULE_ASSIGNMENT))

    # Where it is written

    def _metadata(self, begin: int, end: int) -> tuple[str, str, str]:
        """Scope, type of the op, and line of Python."""
        of = Message(self._data, begin, end)
        line = _line(of.text(SOURCE_FILE), of.number(SOURCE_LINE), "")
        return of.text(OP_NAME), of.text(OP_TYPE), self._frames.line(of.number(FRAME_ID)) or line

    @cached_property
    def _frames(self) -> _Frames:
        return _Frames(self._module.message(MODULE_FRAMES))


_OPEN: Final[WeakKeyDictionary[Program, _Program]] = WeakKeyDictionary()
"""Programs that are looked at more than once, as long as the file is read."""


def _opened(program: Program) -> _Program:
    known = _OPEN.get(program)
    if known is None:
        known = _OPEN[program] = _Program(program)
    return known


class _Frames:
    """The lines of Python of a program; everything is numbered from 1."""

    def __init__(self, frames: Message) -> None:
        self._files, self._functions = frames.texts(FRAME_FILES), frames.texts(FRAME_FUNCTIONS)
        self._locations = list(frames.messages(FRAME_LOCATIONS))
        self._frames = list(frames.messages(FRAME_FRAMES))
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
            place = of_frame.number(FRAME_LOCATION)
            if 0 < place <= len(self._locations):
                location = self._locations[place - 1]
                yield (
                    _numbered(self._files, location.number(LOCATION_FILE)),
                    location.number(LOCATION_LINE),
                    _numbered(self._functions, location.number(LOCATION_FUNCTION)),
                )
            frame = of_frame.number(FRAME_PARENT)


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
    for field in read_fields(data, begin, end):
        if field.number == NAME and field.wire_type == _CONTENT:
            return bytes(data[field.begin : field.end])
    return b""


def _instruction(data: Buffer, begin: int, end: int) -> _Instruction:
    of = Message(data, begin, end)
    return _Instruction(
        place=(begin, end),
        name=of.content(NAME),
        opcode=of.text(OPCODE),
        id=of.number(ID),
        shape=of.place(SHAPE),
        metadata=of.place(METADATA),
        operands=of.numbers(OPERANDS),
        called=of.numbers(CALLED),
        has_side_effect=bool(of.number(HAS_SIDE_EFFECT)),
    )


def _arrays(shape: Message, depth: int) -> Iterator[Shape]:
    """The arrays of a shape, those of a tuple in its order; a type that is not known where it is too deep."""
    element = shape.number(ELEMENT_TYPE)
    if element != _TUPLE:
        yield Shape(element, tuple(shape.numbers(DIMENSIONS, _MOST_DIMENSIONS + 1)))
    elif depth:
        for inner in shape.messages(TUPLE_SHAPES):
            yield from _arrays(inner, depth - 1)
    else:
        yield Shape(0, ())
