"""Follows the arrays of a compiled XLA program through it and its fusions, and says what of them it needs less than whole."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import prod
from typing import Final, TypeAlias

from msgspec import Struct

from traceview.base.record import LARGEST
from traceview.xplane import hlo_fields as field
from traceview.xplane.columns import Need
from traceview.xplane.hlo_module import (
    DEEPEST,
    NO_FIELDS,
    VIEWS,
    Computation,
    HloInstruction,
    Module,
)
from traceview.xplane.message import Message

Key: TypeAlias = tuple[int, int]
"""The ids of a computation and of an instruction in it."""

COLLECTIVES: Final = frozenset(
    name + start
    for name in (
        "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute",
        "collective-broadcast",
    )
    for start in ("", "-start")
)  # fmt: skip

DIFFERS: Final = COLLECTIVES | frozenset(
    ("infeed", "recv", "recv-done", "rng", "rng-get-and-update-state", "partition-id", "replica-id")
)
"""What is not the same in every run, or on every device, whatever it is given; collectives give what was computed apart."""

FILLS: Final = frozenset(
    (
        "constant", "broadcast", "iota", "reshape", "bitcast", "copy", "transpose", "convert", "tuple",
        "get-tuple-element", "parameter", "fusion", "call", "slice", "pad", "concatenate",
    )
)  # fmt: skip
"""What only writes memory. A result that is written anew in each step is a buffer that the step overwrites."""

CALLS: Final = frozenset(("fusion", "call", "async-start", "while", "conditional"))
"""What runs the instructions of other computations."""

FLOATS: Final = frozenset((10, 11, 12, 15, 16, 18))
"""The numbers of the types of floats."""

GRADIENT: Final = "transpose(jvp("
"""In the scope of what JAX computes backward."""

OF_ONE: Final = frozenset(
    (
        "abs", "bitcast-convert", "ceil", "convert", "cosine", "erf", "exponential", "exponential-minus-one", "floor",
        "is-finite", "log", "log-plus-one", "logistic", "negate", "not", "cbrt", "reduce-precision", "round-nearest-afz",
        "round-nearest-even", "rsqrt", "sign", "sine", "sqrt", "tan", "tanh",
    )
)  # fmt: skip
OF_EACH: Final = OF_ONE | frozenset(
    (
        "add", "and", "atan2", "clamp", "compare", "divide", "maximum", "minimum", "multiply", "or", "power", "remainder",
        "select", "subtract", "xor",
    )
)  # fmt: skip
"""What computes each number of its result from those at the same place in its operands."""
MOVES: Final = VIEWS | {"broadcast"}

_MOST_NODES: Final = 1 << 17
_MOST_READ: Final = 256
"""What a condition may be computed from that is looked at, and what a sum is made of. Choices of ours, as programs are of any size."""

_ALIKE: Final = OF_EACH | MOVES | {"constant", "iota", "reduce"}
_LONGEST_LITERAL: Final = 256
_UNKNOWN: Final = 0
"""The node of what a damaged program does not have."""

_UNUSED, _NUMBER, _CHOICE, _ALL, _NUMBERS = range(5)
"""What a result is needed for: a number that others are computed with, what a choice may drop, all, and numbers that are kept."""


class Node(Struct):
    """An array that the program computes: by what, from which nodes, and in which event (`owner`)."""

    at: HloInstruction
    fields: Message
    sizes: tuple[int, ...]
    operands: tuple[int, ...]
    owner: Key
    alike: int
    is_number: bool


class Flow:
    """The arrays of a program, of its entry with what its fusions and calls hold."""

    def __init__(self, module: Module) -> None:
        self.module = module
        unknown = HloInstruction((0, 0), b"", "parameter", -1, (0, 0), (0, 0), [], [], False)
        self.nodes = [Node(unknown, module.fields(unknown), (), (), (-1, -1), _UNKNOWN, False)]
        self._alike: dict[object, int] = {}
        self.of: dict[Key, tuple[int, ...]] = {}
        entry = module.entry
        self.given = self._flattened(entry, None, None, DEEPEST).get(entry.root_id, ())

    def _flattened(
        self,
        computation: Computation,
        given: list[tuple[int, ...]] | None,
        owner: Key | None,
        depth: int,
    ) -> dict[int, tuple[int, ...]]:
        """By instruction the nodes of its result, of a tuple one each."""
        values: dict[int, tuple[int, ...]] = {}
        for each in computation.instructions:
            key = (computation.id, each.id)
            of = [values.get(id_) or (_UNKNOWN,) for id_ in each.operands]
            fields = self.module.fields(each)
            nodes: tuple[int, ...]
            if len(self.nodes) > _MOST_NODES:
                return {}
            if each.opcode == "parameter" and given is not None:
                nodes = (*given, *[()] * 64)[min(fields.number(field.PARAMETER_NUMBER), len(given))]
            elif each.opcode == "tuple" and all(len(one) == 1 for one in of):
                nodes = tuple(one[0] for one in of)
            elif each.opcode == "get-tuple-element" and of and len(of[0]) > 1:
                nodes = of[0][(at := fields.number(field.TUPLE_INDEX)) : at + 1]
            elif each.opcode in ("fusion", "call") and each.called and depth:
                held = self.module.computation(each.called[0])
                own = owner or (key if each.opcode == "fusion" else None)
                nodes = self._flattened(held, of, own, depth - 1).get(held.root_id, ())
            elif each.opcode in COLLECTIVES and len(of) > 1:
                nodes = tuple(
                    self._node(each, fields, one, owner or key, at) for at, one in enumerate(of)
                )
            else:
                every = tuple(node for one in of for node in one)
                nodes = (self._node(each, fields, every, owner or key, 0),)
            values[each.id] = nodes
            if owner is None:
                self.of[key] = nodes
        return values

    def _node(
        self, at: HloInstruction, fields: Message, operands: tuple[int, ...], owner: Key, place: int
    ) -> int:
        arrays = self.module.arrays(at.shape)
        if at.opcode in COLLECTIVES:
            arrays = arrays[min(place, len(arrays) - 1) :][:1]
        sizes = arrays[0].dimensions if arrays else ()
        number = len(self.nodes)
        alike = number
        begin, end = fields.place(field.LITERAL)
        if at.opcode in _ALIKE and not at.called[1:] and end - begin < _LONGEST_LITERAL:
            # What several fusions compute from the same is one thing.
            content = (
                fields.content(number)
                for number in (field.SHAPE, field.DIMENSIONS_OF, field.COMPARED, field.LITERAL)
            )
            of = tuple(self.nodes[one].alike for one in operands)
            alike = self._alike.setdefault((at.opcode, *content, *at.called, of), number)
        is_number = all(of.size == 1 for of in arrays)
        if at.opcode in OF_EACH and at.opcode != "compare":
            # Programs are large, and nothing else is asked of these.
            fields = NO_FIELDS
        self.nodes.append(Node(at, fields, sizes, operands, owner, alike, is_number))
        return number

    def held(self, instruction: HloInstruction) -> Iterator[tuple[int, int]]:
        """What runs in a loop, a branch or a call, each with events of its own; a fusion is one event."""
        seen, open_ = set[int](), [instruction]
        while open_:
            each = open_.pop()
            for called in each.called if each.opcode in CALLS - {"fusion"} else ():
                if called not in seen:
                    seen.add(called)
                    inner = self.module.computation(called).instructions
                    yield from ((called, one.id) for one in inner if one.opcode not in FILLS)
                    open_ += inner

    @cached_property
    def users(self) -> list[list[int]]:
        """By node those that are computed from it."""
        users: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            for one in node.operands:
                users[one].append(number)
        return users

    # What it is needed for

    def viewed(self, key: Key) -> HloInstruction | None:
        """The instruction whose numbers the result of one has, in whatever order."""
        source = self.source(next(iter(self.of.get(key, ())), _UNKNOWN))
        return self.nodes[source].at if source else None

    def source(self, number: int, through: frozenset[str] = VIEWS) -> int:
        """The node whose numbers one has, in whatever order; `through`: what gives them on."""
        for _ in range(DEEPEST):
            node = self.nodes[number]
            if node.at.opcode not in through or len(node.operands) != 1:
                break
            number = node.operands[0]
        return number

    def gradients_of_examples(self) -> dict[Key, bool]:
        """What has or reads gradients larger than all arrays that the program takes and gives again: whether only sums of them are read.

        They are those of each example, or position. A sum of products of vectors is one product of matrices.
        """
        kept = self.module.taken & self.module.given
        largest = max((prod(dimensions) for _, dimensions in kept), default=LARGEST)
        large = {
            number
            for number, node in enumerate(self.nodes)
            if prod(node.sizes) > largest and GRADIENT in self.module.said(node.at)[0]
        }
        found: dict[Key, bool] = {}
        is_summed: dict[int, bool] = {}
        for number in sorted(large, reverse=True):
            users = self.users[number]
            is_summed[number] = bool(users) and all(
                is_summed.get(one, False) if one in large else self.is_sum(one) for one in users
            )
            is_summed[number] &= self._is_factored(number)
            for key in {self.nodes[one].owner for one in (number, *users)}:
                found[key] = found.get(key, True) and is_summed[number]
        return found

    def is_sum(self, number: int) -> bool:
        """Whether a node adds up numbers."""
        at = self.nodes[number].at
        if at.opcode != "reduce" or not at.called:
            return False
        return any(
            one.opcode == "add" for one in self.module.computation(at.called[0]).instructions
        )

    def _is_factored(self, number: int) -> bool:
        """Whether a large gradient is a product, a factor of one that is the same for all places, or one of these in another form."""
        node = self.nodes[number]
        if node.at.opcode in MOVES | {"dot", "convolution", "convert", "negate"}:
            return True
        sources = (self.nodes[self.source(one)].at.opcode for one in node.operands)
        of = [opcode for opcode in sources if opcode != "broadcast"]
        return node.at.opcode in ("multiply", "divide") and len(of) <= 1

    def needs(self) -> dict[Key, tuple[Need, float]]:
        """What the program needs less than whole, and which part: of gradients a number, what a choice may drop, and what a mask leaves."""
        found: dict[Key, tuple[Need, float]] = {}
        level = self._levels()
        of_gradients = self._for_numbers(level)
        for key, nodes in self.of.items():
            if nodes and all(level[one] <= _CHOICE for one in nodes):
                if any(level[one] == _CHOICE for one in nodes):
                    found[key] = ("choice", 0.0)
                elif not of_gradients.isdisjoint(nodes):
                    found[key] = ("number", 0.0)
            elif (
                not of_gradients.isdisjoint(nodes) and self.nodes[nodes[0]].at.opcode in COLLECTIVES
            ):
                left, whole = (
                    sum(prod(self.nodes[one].sizes) for one in every)
                    for every in (set(nodes) - of_gradients, nodes)
                )
                found[key] = ("number", left / whole)
        for node in self.nodes:
            if found.get(node.owner, ("", 0))[0] == "choice":
                made_of = (self.nodes[one] for one in node.operands)
                copies = [one.owner for one in made_of if one.at.opcode == "copy"]
                found.update(dict.fromkeys(copies, ("choice", 0.0)))
        return found

    def _for_numbers(self, level: list[int]) -> set[int]:
        """Gradients of which a number is needed, and what is computed of them for it."""
        found: set[int] = set()
        for number, node in enumerate(self.nodes):
            if level[number] == _NUMBER:
                of = self.module.arrays(node.at.shape)
                is_gradient = (
                    bool(of) and of[0].element_type in FLOATS and GRADIENT in self.scope(number)
                )
                if is_gradient or not found.isdisjoint(node.operands):
                    found.add(number)
        return found

    def scope(self, number: int) -> str:
        """The scope of what computes a node."""
        return self.module.said(self.nodes[number].at)[0]

    def _levels(self) -> list[int]:
        level = [_UNUSED] * len(self.nodes)
        for number in self.given:
            level[number] = _ALL
        for number in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[number]
            need = level[number]
            if node.at.has_side_effect or (number in self.given and self._is_kept(node)):
                need = _NUMBERS
            elif need == _ALL and self._chooses(node):
                need = _CHOICE
            level[number] = need
            passed = min(need, _NUMBER) if need < _NUMBERS and node.is_number else need
            for operand in node.operands:
                level[operand] = max(level[operand], passed)
        return level

    def _is_kept(self, node: Node) -> bool:
        """Whether it is a number made of one that the program was given, such as one that is learned."""
        made_of = (self.nodes[self.source(one)] for one in node.operands)
        return node.is_number and any(
            one.at.opcode == "parameter" and one.is_number for one in made_of
        )

    def _chooses(self, node: Node) -> bool:
        """Whether numbers alone decide if it gives what it computes, or an array as the program was given it."""
        if node.at.opcode != "select" or node.is_number or len(node.operands) != 3:
            return False
        chosen = (self.nodes[self.source(one)].at.opcode for one in node.operands[1:])
        is_one = [opcode == "parameter" for opcode in chosen]
        return sum(is_one) == 1 and self._is_now_and_then(node.operands[0])

    def _is_now_and_then(self, number: int) -> bool:
        """Whether a condition is computed from nothing but numbers, and may hold again and again: not for being less than one."""
        open_, seen, compared = [number], set[int](), set[str]()
        while open_ and len(seen) < _MOST_READ:
            number = open_.pop()
            if number not in seen:
                seen.add(number)
                node = self.nodes[number]
                is_view = bool(node.operands) and node.at.opcode in MOVES
                if node.at.opcode in DIFFERS or not (is_view or node.is_number):
                    return False
                inside = (self.module.computation(id_).instructions for id_ in node.at.called)
                held = (self.module.fields(one) for of in inside for one in of)
                compared.update(
                    of.text(field.COMPARED) for of in (node.fields, *held) if field.COMPARED in of
                )
                open_ += node.operands
        return not open_ and (not compared or not compared.isdisjoint(("EQ", "NE")))


# Loops


def beside_turns(module: Module) -> Iterator[Key]:
    """Instructions of loops that could run before or behind the loop, for all turns at once: what depends on nothing that one turn hands
    to the next, and what no other turn needs, as sums and results that are put together.
    """
    open_, seen = [module.entry], set[int]()
    while open_:
        for each in open_.pop().instructions:
            inner = [module.computation(one) for one in each.called if one not in seen]
            if each.opcode in CALLS - {"fusion"}:
                seen.update(each.called)
                open_ += inner
            for body in inner if each.opcode == "while" else ():
                root = body.by_id.get(body.root_id)
                if root is not None and root.opcode == "tuple":
                    yield from ((body.id, one) for one in _Turn(module, body, root).movable())


class _Turn:
    """The body of a loop. What a turn hands to the next has a place in the tuple that it is given and gives."""

    def __init__(self, module: Module, body: Computation, root: HloInstruction) -> None:
        self._module, self._body, self._given = module, body, root.operands
        self._taken: dict[int, int] = {}
        """By place what takes it from the tuple."""
        self._users: dict[int, set[int]] = {}
        for each in body.instructions:
            for one in each.operands:
                self._users.setdefault(self._source(one), set()).add(each.id)
            of = body.by_id.get(each.operands[0]) if each.operands else None
            if each.opcode == "get-tuple-element" and of is not None and of.opcode == "parameter":
                self._taken[module.fields(each).number(field.TUPLE_INDEX)] = each.id

    def _source(self, id_: int) -> int:
        """What has the numbers of an instruction first."""
        source = self._body.source(id_)
        return id_ if source is None else source.id

    def movable(self) -> Iterator[int]:
        """The ids of the instructions that no turn has to wait for."""
        carried = [place for place in self._taken if self._is_carried(place)]
        after, handed = set[int](), set[int]()
        for place in carried:
            after.add(self._taken[place])
            handed.add(self._source(self._given[place]))
        for each in self._body.instructions:
            if not after.isdisjoint(each.operands):
                after.add(each.id)
        for each in reversed(self._body.instructions):
            if each.id in handed:
                handed.update(each.operands)
        for each in self._body.instructions:
            is_first = each.id not in after
            is_last = each.id not in handed and self._ends_with(each)[0] != _UPDATE
            is_array = any(of.size > 1 for of in self._module.arrays(each.shape))
            if is_array and each.opcode not in FILLS - {"fusion"} and (is_first or is_last):
                yield each.id

    def _is_carried(self, place: int) -> bool:
        """Whether a turn computes with what the one before has computed, more than to count, to add to it, or to write into it."""
        taken = self._taken[place]
        given = self._body.by_id.get(
            self._source(self._given[place] if place < len(self._given) else taken)
        )
        if given is None or given.id == taken:
            return False
        arrays = self._module.arrays(given.shape)
        if all(of.size == 1 and of.element_type not in FLOATS for of in arrays):
            return False
        opcode, grown = self._ends_with(given)
        is_grown = opcode in ("add", _UPDATE) and taken in map(self._source, grown)
        views = {each for each in self._users.get(taken, ()) if self._source(each) != taken}
        return not (is_grown and views == {given.id})

    def _ends_with(self, at: HloInstruction) -> tuple[str, list[int]]:
        """The opcode of an instruction, of a fusion that of its last, and what that is given of the body."""
        if at.opcode != "fusion" or not at.called:
            return at.opcode, at.operands
        held = self._module.computation(at.called[0])
        last = held.source(held.root_id)
        given = []
        for of in map(held.source, last.operands if last is not None else ()):
            if of is not None and of.opcode == "parameter":
                number = self._module.fields(of).number(field.PARAMETER_NUMBER)
                given += at.operands[number : number + 1]
        return (last.opcode if last is not None else "", given)


_UPDATE: Final = "dynamic-update-slice"
