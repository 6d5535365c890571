"""Says of products of matrices in a compiled XLA program what their factors and results share, and which do more than they have to:
of three in a costly order, and of rows that are the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

from traceview.xplane import hlo_fields as field
from traceview.xplane.hlo_flow import GRADIENT, MOVES, OF_EACH, Flow, Key, Node
from traceview.xplane.hlo_module import LONGEST_CONFIG, MOST_DIMENSIONS, VIEWS
from traceview.xplane.message import Message

GEMM: Final = ("__cublas$gemm", "__cublas$lt$matmul")

MOST_LEFT: Final = 1 / 3
"""Of a product of which the rest is needless; a choice of ours: places for twice as many rows as there are may be room for them."""


class Mask(NamedTuple):
    """A part of an array, at most `part` of it, of which whole `dims` are left out; `made_by`: what says so, by their nodes."""

    made_by: frozenset[int]
    dims: frozenset[int]
    part: float


WHOLE: Final = Mask(frozenset(), frozenset(), 1.0)


class _Product(NamedTuple):
    """A product of matrices: which dimensions of its factors are those of the result, which are summed, and its operations."""

    pairs: list[list[tuple[int, int]]]
    summed: list[tuple[int, int]]
    flops: int


class Products:
    """The products of a program."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._nodes = flow.nodes

    def _pairs(self, number: int, place: int) -> list[tuple[int, int]]:
        """Which dimension of an operand is which of the result; those without one are summed, or new."""
        node = self._nodes[number]
        opcode, sizes, of = node.at.opcode, node.sizes, self._nodes[node.operands[place]].sizes
        has_dims = opcode in ("broadcast", "transpose", "reduce")
        dims = node.fields.numbers(field.DIMENSIONS_OF, MOST_DIMENSIONS) if has_dims else []
        if opcode == "broadcast" and len(dims) == len(of):
            return [*enumerate(dims)]
        if opcode == "transpose" and sorted(dims) == [*range(len(of))]:
            return [(one, at) for at, one in enumerate(dims)]
        if opcode in ("reshape", "bitcast"):
            orders = (
                self._order(one) if opcode == "bitcast" else [*range(len(self._nodes[one].sizes))]
                for one in (node.operands[place], number)
            )
            return [*_divided(of, sizes, *orders)]
        if opcode == "reduce" and place == 0 and len(node.operands) == 2:
            return [(one, at) for at, one in enumerate(d for d in range(len(of)) if d not in dims)]
        if (product_ := self._products.get(number)) and place < 2:
            return product_.pairs[place]
        return [(at, at) for at in range(len(of))] if of == sizes else []

    def _order(self, number: int) -> list[int]:
        """The dimensions of an array as they are in memory, the outermost first."""
        node = self._nodes[number]
        minor = (
            node.fields.message(field.SHAPE)
            .message(field.SHAPE_LAYOUT)
            .numbers(field.MINOR_TO_MAJOR)
        )
        usual = [*range(len(node.sizes))]
        return minor[::-1] if sorted(minor) == usual else usual

    def _moved(self, mask: Mask, pairs: Iterable[tuple[int, int]], sizes: tuple[int, ...]) -> Mask:
        """A mask of an array of `sizes` as one of what its dimensions become; where one is lost, any of its places counts."""
        to: dict[int, set[int]] = {}
        for one, other in pairs:
            to.setdefault(one, set()).add(other)
        lost = prod(sizes[at] for at in mask.dims if at not in to)
        dims = frozenset(other for at in mask.dims for other in to.get(at, ()))
        part = mask.part * lost
        return Mask(mask.made_by, dims, part) if part < 1 and dims else WHOLE

    def _operands(self, number: int, masks: list[Mask]) -> list[Mask]:
        """The masks of the operands of a node as those of its own dimensions."""
        return [
            self._moved(masks[one], self._pairs(number, place), self._nodes[one].sizes)
            if masks[one].part < 1
            else WHOLE
            for place, one in enumerate(self._nodes[number].operands)
        ]

    @cached_property
    def _products(self) -> dict[int, _Product]:
        found = {}
        for number, node in enumerate(self._nodes):
            is_call = node.at.opcode == "custom-call"
            is_product = node.at.opcode in ("dot", "convolution")
            if is_product or (is_call and node.fields.text(field.TARGET).startswith(GEMM)):
                with suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
                    found[number] = self._product(node)
        return found

    def _product(self, node: Node) -> _Product:
        if node.at.opcode == "convolution":
            return self._convolution(node)
        left, right, *batches = matrix_dimensions(node.at.opcode, node.fields)
        pairs, at = [], len(batches[0])
        for operand, batch, summed in zip(node.operands[:2], batches, (left, right), strict=True):
            sizes = self._nodes[operand].sizes
            free = [one for one in range(len(sizes)) if one not in (*batch, *summed)]
            both = [*enumerate(batch), *enumerate(free, at)]
            pairs.append([(one, to) for to, one in both])
            at += len(free)
        if at != len(node.sizes):
            raise ValueError("another result")
        flops = 2 * prod((*node.sizes, *(self._nodes[node.operands[0]].sizes[one] for one in left)))
        return _Product(pairs, [*zip(left, right, strict=True)], flops)

    def _convolution(self, node: Node) -> _Product:
        """One whose windows have one place, or hold all of the input: it multiplies matrices."""
        of, groups = (
            node.fields.message(field.CONVOLUTION),
            (field.FEATURE_GROUPS, field.BATCH_GROUPS),
        )
        batch, to_batch, feature, to_feature, one, other = map(
            of.number, (7, 9, 8, 10, field.KERNEL_INPUT_FEATURE, field.KERNEL_OUTPUT_FEATURE)
        )
        left, right = (self._nodes[operand].sizes for operand in node.operands[:2])
        pairs, summed = [(batch, to_batch)], [(feature, one)]
        for at, in_kernel, to in zip(
            *(
                of.numbers(number, MOST_DIMENSIONS)
                for number in (field.INPUT_SPATIAL, 6, field.OUTPUT_SPATIAL)
            ),
            strict=True,
        ):
            if right[in_kernel] == 1 and left[at] == node.sizes[to]:
                pairs.append((at, to))
            elif node.sizes[to] == 1 and left[at] == right[in_kernel]:
                summed.append((at, in_kernel))
            else:
                raise ValueError("a window")
        if any(node.fields.number(number) > 1 for number in groups):
            raise ValueError("several convolutions")
        flops = 2 * prod((*node.sizes, *(left[place] for place, _ in summed)))
        return _Product([pairs, [(other, to_feature)]], summed, flops)

    @cached_property
    def _varies(self) -> list[frozenset[int]]:
        """By node the dimensions along which its numbers may differ."""
        found: list[frozenset[int]] = []
        for number, node in enumerate(self._nodes):
            whole = frozenset(at for at, size in enumerate(node.sizes) if size > 1)
            if node.at.opcode == "iota":
                whole &= frozenset(node.fields.numbers(field.DIMENSIONS_OF, 1))
            elif node.at.opcode in MOVES | OF_EACH:
                pairs = [
                    (self._pairs(number, place), found[one])
                    for place, one in enumerate(node.operands)
                ]
                if all(of or not varies for of, varies in pairs):
                    whole = frozenset(at for of, varies in pairs for one, at in of if one in varies)
            found.append(whole)
        return found

    def _part(self, made_by: int, dims: Iterable[int], count: int, number: int) -> Mask:
        """The mask of `count` places along some dimensions of a node."""
        sizes = self._nodes[number].sizes
        own = frozenset(at for at in dims if sizes[at] > 1)
        part = count / max(prod(sizes[at] for at in own), 1)
        return Mask(frozenset((made_by,)), own, part) if part < 1 else WHOLE

    def _sides(self, number: int) -> list[set[int]]:
        """By factor of a product which dimensions of the result are of it."""
        return [{to for _, to in pairs} for pairs in self._products[number].pairs]

    def _is_gradient(self, number: int) -> bool:
        scope = self._flow.scope(number)
        return GRADIENT in scope or "gradient_tape/" in scope

    def _matrices(self, number: int) -> int:
        """How many products of two matrices a product is; 0 where it sums over more than one dimension, or is no such product."""
        of, node = self._products[number], self._nodes[number]
        if node.at.opcode == "convolution" or len(of.summed) != 1:
            return 0
        batches = {to for _, to in of.pairs[0]} & {to for _, to in of.pairs[1]}
        return prod(node.sizes[dim] for dim in batches)

    def _factors(self, number: int) -> set[int]:
        """What a product multiplies, in whatever order and type."""
        of = self._nodes[number].operands[:2]
        return {self._nodes[self._flow.source(one, MOVES | {"convert"})].alike for one in of}

    def orders(self) -> dict[Key, float]:
        """Products of three matrices that take less in another order, by event, and which part of their operations that takes."""
        found: dict[Key, float] = {}
        for number, of in self._products.items():
            sizes, count = self._nodes[number].sizes, self._matrices(number)
            own = {to for _, to in of.pairs[0]} ^ {to for _, to in of.pairs[1]}
            if not count or len(own) != 2:
                continue
            readers = self._multiplied(number)
            if any(self._matrices(one) != count for one in readers):
                continue
            summed = self._nodes[self._nodes[number].operands[0]].sizes[of.summed[0][0]]
            # The third matrix has as many columns, or rows, as that.
            columns = sum(self._products[one].flops // (2 * prod(sizes)) for one in readers)
            now = of.flops + sum(self._products[one].flops for one in readers)
            other = 2 * count * summed * columns * sum(sizes[dim] for dim in own)
            if readers and other <= MOST_LEFT * now:
                thirds = set[int]().union(*map(self._factors, readers)) - {
                    self._nodes[number].alike
                }
                # The gradients of a product of two narrow matrices, which could have been left out, too.
                made = (one for one in self._products if self._factors(one) <= thirds)
                keys = (self._nodes[one].owner for one in (number, *readers, *made))
                found.update(dict.fromkeys(keys, other / now))
        return found

    def _multiplied(self, number: int) -> list[int]:
        """The products that read a matrix, or its multiple by a number; none where anything else does."""
        open_, found = [number], []
        while open_:
            at = open_.pop()
            users = self._flow.users[at]
            if not users or at in self._flow.given:
                return []
            for one in users:
                node, of = self._nodes[one], self._products.get(one)
                others = [each for each in node.operands if each != at]
                is_multiple = node.at.opcode in ("multiply", "divide") and not any(
                    self._varies[each] for each in others
                )
                if of is not None and len(others) == 1 and self._matrices(one):
                    found.append(one)
                elif is_multiple or node.at.opcode in VIEWS | {"convert", "negate"}:
                    open_.append(one)
                else:
                    return []
        return found

    @cached_property
    def _copied(self) -> list[Mask]:
        """By node of which part all that it holds are copies; none of single numbers, nor of what a gradient repeats."""
        found: list[Mask] = []
        for number, node in enumerate(self._nodes):
            of, opcode, mask = node.operands, node.at.opcode, WHOLE
            moved = self._operands(number, found)
            if opcode in MOVES | OF_EACH and moved:
                # The others are the same for all copies, or copies in the same way.
                most = max(
                    (one for one in moved if one.part < 1), key=lambda one: one.part, default=WHOLE
                )
                is_alone = all(
                    own == most or self._varies[one].isdisjoint(most.dims)
                    for one, own in zip(of, moved, strict=True)
                )
                mask = most if is_alone else WHOLE
            if opcode == "broadcast" and self._varies[of[0]] and not self._is_gradient(number):
                kept = {at for _, at in self._pairs(number, 0)}
                new = [at for at in range(len(node.sizes)) if at not in kept]
                own = self._part(node.alike, new, 1, number)
                dims, part = mask.dims | own.dims, mask.part * own.part
                mask = Mask(mask.made_by | own.made_by, dims, part)
            if opcode == "concatenate" and not self._is_gradient(number):
                mask = self._of_windows(number, node)
            if number in self._products:
                # Rows of it are copies where those of a factor are that the other has not.
                mask = lower(
                    moved[place]
                    for place in (0, 1)
                    if moved[place].dims.isdisjoint(self._sides(number)[1 - place])
                )
            found.append(mask)
        return found

    def _of_windows(self, number: int, node: Node) -> Mask:
        """Of slices of one array that lie over each other, put together, the part that this array is."""
        slices = {self._flow.source(one) for one in node.operands}
        cut = {
            self._nodes[one].operands[0] for one in slices if self._nodes[one].at.opcode == "slice"
        }
        if len(cut) != 1 or len(slices) < len(node.operands):
            return WHOLE
        sizes = self._nodes[cut.pop()].sizes
        part = prod(sizes) / max(prod(node.sizes), 1)
        along = frozenset(node.fields.numbers(field.DIMENSIONS_OF, 1))
        # Also those along which the array was cut.
        along |= {at for at, size in enumerate(node.sizes) if size > 1 and size not in sizes}
        return Mask(frozenset((node.alike,)), along, part) if part < 1 else WHOLE

    def _added_up(self, number: int) -> float:
        """Which part of a result is left where nothing reads it but what adds numbers of it up, in whatever order."""
        part = 1.0
        while number not in self._flow.given and len(users := {*self._flow.users[number]}) == 1:
            before, number = number, next(iter(users))
            node = self._nodes[number]
            if self._flow.is_sum(number):
                part *= prod(node.sizes) / max(prod(self._nodes[before].sizes), 1)
            elif node.at.opcode not in VIEWS:
                break
        return part

    def copies(self) -> dict[Key, float]:
        """Events that multiply copies of rows, or rows that are then added up, or else compute on them, and which part one of each would take."""
        done: dict[Key, list[float]] = {}
        chosen = set[int]()
        for number, of in self._products.items():
            node, part = self._nodes[number], 1.0
            sides = [{one for one, _ in pairs} for pairs in of.pairs]
            both = {at for _, at in of.pairs[0]} & {at for _, at in of.pairs[1]}
            for place in (0, 1):
                mask = self._copied[node.operands[place]]
                free = sides[place] - {one for one, at in of.pairs[place] if at in both}
                # Of copies in what is summed the other factor can be summed first.
                if mask.dims <= free or mask.dims <= {one[place] for one in of.summed}:
                    part = min(part, mask.part)
                    chosen |= mask.made_by if mask.part <= MOST_LEFT else set()
            if not both:
                part = min(part, self._added_up(number))
            flops = done.setdefault(node.owner, [0.0, 0.0])
            flops[0] += of.flops * part
            flops[1] += of.flops
        products, found = frozenset(done), list[Mask]()
        for number, node in enumerate(self._nodes if chosen else ()):
            mask, is_of_each = self._copied[number], node.at.opcode in OF_EACH
            if is_of_each and self._is_gradient(number):
                # Of a function of copies the gradients can be summed before it is passed.
                mask = lower(found[one] for one in node.operands)
            found.append(mask if not chosen.isdisjoint(mask.made_by) else WHOLE)
            if node.owner not in products and (is_of_each or node.at.opcode == "concatenate"):
                numbers = done.setdefault(node.owner, [0.0, 0.0])
                numbers[0] += prod(node.sizes) * found[-1].part
                numbers[1] += prod(node.sizes)
        parts = {key: some / whole for key, (some, whole) in done.items() if whole}
        return {key: part for key, part in parts.items() if part <= MOST_LEFT}


def matrix_dimensions(opcode: str, fields: Message) -> list[list[int]]:
    """Of the factors of a product of matrices the dimensions that are summed, of each, and those of a batch."""
    if opcode == "dot":
        of = fields.message(field.DOT)
        return [of.numbers(number, MOST_DIMENSIONS) for number in range(1, 5)]
    named = config_of(fields, "gemm_backend_config")["dot_dimension_numbers"]
    kinds = ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch")
    return [whole_numbers(named.get(f"{kind}_dimensions", ())) for kind in kinds]


def config_of(fields: Message, name: str) -> Any:
    """The configuration of a call of a library; older versions write it bare."""
    config = json.loads(fields.content(field.BACKEND_CONFIG)[:LONGEST_CONFIG])
    return config.get(name, config)


def whole_numbers(values: Any) -> list[int]:
    """Numbers, which JSON of protobuf writes as texts."""
    return [int(value) for value in values[:MOST_DIMENSIONS]]


def lower(masks: Iterable[Mask]) -> Mask:
    """The smallest of some parts."""
    return min(masks, key=lambda mask: mask.part, default=WHOLE)


def _divided(
    old: tuple[int, ...], new: tuple[int, ...], old_order: list[int], new_order: list[int]
) -> Iterator[tuple[int, int]]:
    """Which dimensions of a reshaped array are made of which, in orders of dimensions."""
    olds = [at for at in old_order if old[at] > 1]
    news = [at for at in new_order if new[at] > 1]
    while olds and news:
        of, to = [olds.pop(0)], [news.pop(0)]
        while (have := prod(old[at] for at in of)) != (want := prod(new[at] for at in to)):
            rest, taken = (olds, of) if have < want else (news, to)
            if not rest:
                return
            taken.append(rest.pop(0))
        yield from product(of, to)
