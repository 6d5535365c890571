"""Follows masks through a compiled XLA program: where they leave zeros, and what is then multiplied for nothing.

A *mask* is an array that is zero for all but a part that the program itself says: a comparison of a count with indices is true
for one of N, and indices that are fewer than the places pick a part of them. What is multiplied by it, or chosen by it, is
needed in that part only, and so is what was multiplied to make it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import product
from math import prod
from typing import Final, NamedTuple

import numpy as np

from traceview.xplane import hlo_fields as field
from traceview.xplane.columns import Need
from traceview.xplane.hlo_flow import GRADIENT, MOVES, OF_EACH, OF_ONE, VIEWS, Flow, Key, Node
from traceview.xplane.hlo_module import (
    DEEPEST,
    LONGEST_CONFIG,
    MOST_DIMENSIONS,
)

GEMM: Final = ("__cublas$gemm", "__cublas$lt$matmul")

_OF_ZERO_ZERO: Final = MOVES | (
    OF_ONE - {"cosine", "exponential", "is-finite", "log", "logistic", "not", "rsqrt"}
    | {"divide", "reduce", "get-tuple-element"}
)
"""What gives zeros where its first operand has them."""
_PICKS: Final = ("gather", "slice", "dynamic-slice")

_FEWEST: Final = 16
"""Numbers that have to be together for a product to leave others out; a choice of ours."""
_SCATTERED: Final = 16
"""Numbers that are multiplied as quickly as one that has its place from an index; a choice of ours."""
_MOST_LEFT: Final = 1 / 3
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


class Masks:
    """What masks leave of the arrays of a program."""

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
        if node.at.opcode == "dot":
            of = node.fields.message(field.DOT)
            left, right, *batches = (of.numbers(number, MOST_DIMENSIONS) for number in range(1, 5))
        else:
            config = json.loads(node.fields.content(field.BACKEND_CONFIG)[:LONGEST_CONFIG])
            named = config.get("gemm_backend_config", config)["dot_dimension_numbers"]
            kinds = ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch")
            every = (named.get(f"{kind}_dimensions", ()) for kind in kinds)
            left, right, *batches = ([int(one) for one in dims[:MOST_DIMENSIONS]] for dims in every)
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
        batch, to_batch, feature, to_feature, one, other = (
            next(iter(of.numbers(number, 1)), 0)
            for number in (7, 9, 8, 10, field.KERNEL_INPUT_FEATURE, field.KERNEL_OUTPUT_FEATURE)
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

    def _counts(self, number: int) -> int | None:
        """The dimension along which a node counts, if it does nothing else."""
        source = self._nodes[self._flow.source(number, MOVES | {"convert"})]
        is_count = source.at.opcode == "iota" and len(self._varies[number]) == 1
        return next(iter(self._varies[number])) if is_count else None

    def _is_zero(self, number: int) -> bool:
        node = self._nodes[self._flow.source(number, MOVES | {"convert"})]
        return node.at.opcode == "constant" and not any(map(any, self._written(node)))

    def _written(self, node: Node) -> list[bytes]:
        """The numbers of a constant, as they are written."""
        literal, read = node.fields.message(field.LITERAL), self._flow.module.bytes_at
        fields = (number for number in literal if number != field.LITERAL_SHAPE)
        return [read(place) for number in fields for place in literal.places(number)]

    def _part(self, made_by: int, dims: Iterable[int], count: int, number: int) -> Mask:
        """The mask of `count` places along some dimensions of a node."""
        sizes = self._nodes[number].sizes
        own = frozenset(at for at in dims if sizes[at] > 1)
        part = count / max(prod(sizes[at] for at in own), 1)
        return Mask(frozenset((made_by,)), own, part) if part < 1 else WHOLE

    @cached_property
    def _zeros(self) -> list[Mask]:
        """By node outside of which part it is zero."""
        zeros: list[Mask] = []
        for number, node in enumerate(self._nodes):
            mask = WHOLE
            of = node.operands
            opcode = node.at.opcode
            moved = [
                self._moved(zeros[one], self._pairs(number, place), self._nodes[one].sizes)
                if zeros[one].part < 1
                else WHOLE
                for place, one in enumerate(of)
            ]
            if opcode == "compare" and node.fields.text(field.COMPARED) == "EQ":
                for count, other in (of, of[::-1]):
                    at = self._counts(count)
                    if at is not None and at not in self._varies[other]:
                        made_by = self._nodes[self._flow.source(other, MOVES | {"convert"})].alike
                        own = self._part(made_by, (at,), 1, number)
                        dims = own.dims | self._varies[other]
                        mask = own._replace(dims=dims) if own.part < 1 else WHOLE
            elif opcode == "select" and len(of) == 3:
                if self._is_zero(of[2]):
                    mask = _lower(moved[:2])
                elif self._is_zero(of[1]) or moved[1][:2] == moved[2][:2]:
                    mask = moved[2]
            elif opcode in ("multiply", "and"):
                mask = _lower(moved)
            elif opcode in ("add", "subtract", "or", "maximum"):
                mask = moved[0] if len({one[:2] for one in moved}) == 1 else WHOLE
            elif opcode in _OF_ZERO_ZERO and not node.fields.number(field.TUPLE_INDEX):
                mask = moved[0] if moved else WHOLE
            elif number in self._products and len(of) == 2:
                mask = _lower(moved)
            elif opcode == "constant" and not node.is_number:
                mask = self._of_constant(number, node)
            elif opcode in ("scatter", "pad") and len(of) == 3 - (opcode == "pad"):
                mask = self._spread(number, node, zeros)
            zeros.append(mask)
        return zeros

    def _of_constant(self, number: int, node: Node) -> Mask:
        """The mask of a constant array, as far as its numbers take bytes of the same number."""
        written = self._written(node)
        bytes_ = written[0] if len(written) == 1 else b""
        size, rest = divmod(len(bytes_), prod(node.sizes) or 1)
        if rest or not size:
            return WHOLE
        is_set = np.frombuffer(bytes_, np.uint8).reshape(-1, size).any(axis=1)
        return self._part(number, range(len(node.sizes)), _SCATTERED * int(is_set.sum()), number)

    def _spread(self, number: int, node: Node, zeros: list[Mask]) -> Mask:
        """The mask of what is written into zeros."""
        made_by, sizes = node.alike, self._nodes[node.operands[0]].sizes
        if node.at.opcode == "pad":
            dims = {at for at, one in enumerate(node.sizes) if sizes[at] < one}
            count = prod(sizes[at] for at in dims)
            return (
                self._part(made_by, dims, count, number)
                if self._is_zero(node.operands[1])
                else WHOLE
            )
        of = node.fields.message(field.SCATTER)
        windows, inserted, to, batch = (
            of.numbers(number, MOST_DIMENSIONS) for number in (1, 2, 3, 5)
        )
        update, update_mask = self._nodes[node.operands[2]].sizes, zeros[node.operands[2]]
        rest = [at for at in range(len(sizes)) if at not in (*inserted, *batch)]
        # A window of one place is as good as none.
        one = {
            at for at, size in zip(rest, (update[at] for at in windows), strict=False) if size == 1
        }
        dims = {*inserted, *batch, *one}
        count = prod(size for at, size in enumerate(update) if at not in windows)
        if not dims >= {*to} or max(dims, default=0) >= len(sizes):
            return WHOLE
        if self._is_zero(node.operands[0]):
            return self._part(made_by, dims, count, number)
        # Of one mask: what is added at a place of the batch belongs to it.
        mask = zeros[node.operands[0]]
        return mask if mask.dims <= dims and mask.made_by == update_mask.made_by else WHOLE

    # What masks leave of what is computed

    @cached_property
    def _needed(self) -> list[Mask | None]:
        """By node which part of it is needed; None of what is not."""
        needed: list[Mask | None] = [None] * len(self._nodes)
        for number in self._flow.given:
            needed[number] = WHOLE
        varies, basis = self._varies, self._basis
        for number in range(len(self._nodes) - 1, -1, -1):
            node = self._nodes[number]
            need = WHOLE if node.at.has_side_effect else needed[number]
            if need is None:
                continue
            if not self._is_late(self._zeros[number]):
                # What is zero anyway need not be computed.
                need = needed[number] = _lower((need, self._zeros[number]))
            of, opcode = node.operands, node.at.opcode
            picks = opcode in _PICKS and not self._is_gradient(number)
            passes = opcode in MOVES | OF_EACH | {"reduce"} or number in self._products
            passes |= opcode == "get-tuple-element" and not node.fields.number(field.TUPLE_INDEX)
            if opcode in ("add", "subtract") and all(
                len(varies[one]) == sum(size > 1 for size in node.sizes) for one in of
            ):
                # A sum of what a layer was given and of what it has made of it is more than a result of this layer.
                passes &= not basis[of[0]].isdisjoint(basis[of[1]])
            for place, operand in enumerate(of):
                pairs = self._pairs(number, place)
                own = WHOLE
                if passes and need.part < 1:
                    own = self._moved(need, ((to, one) for one, to in pairs), node.sizes)
                if place < 2 and number in self._products:
                    own = _lower((own, self._summed(number, place)))
                if picks and place == 0:
                    own = self._picked(node, need)
                before = needed[operand]
                sizes = self._nodes[operand].sizes
                needed[operand] = own if before is None else _either(before, own, sizes)
        return needed

    def _summed(self, number: int, place: int) -> Mask:
        """Which part of a factor meets anything but zeros of the other."""
        of, other = self._products[number], self._nodes[number].operands[1 - place]
        mask, to = self._zeros[other], {at: one for one, at in of.pairs[place]}
        if mask.part == 1 or self._is_late(mask):
            return WHOLE
        pairs = [(one, to[at]) for one, at in of.pairs[1 - place] if at in to]
        pairs += [one if place else one[::-1] for one in of.summed]
        return self._moved(mask, pairs, self._nodes[other].sizes)

    def _picked(self, node: Node, need: Mask) -> Mask:
        """Which part of an array indices pick."""
        source = node.operands[0]
        sizes = self._nodes[source].sizes
        if node.at.opcode == "gather":
            of = node.fields.message(field.GATHER)
            windows = node.fields.numbers(field.SLICE_SIZES, MOST_DIMENSIONS)
            offset, starts = (of.numbers(number, MOST_DIMENSIONS) for number in (1, 3))
            dims = {at for at, size in enumerate(windows) if size == 1}
            count = prod(size for at, size in enumerate(node.sizes) if at not in offset)
            if not dims >= {*starts}:
                return WHOLE
            mask = self._part(node.alike, dims, count, source)
            if need.part < 1 and need.dims.isdisjoint(offset):
                return Mask(need.made_by, mask.dims, mask.part * need.part)
            return mask
        if len(sizes) != len(node.sizes):
            return WHOLE
        dims = {at for at, size in enumerate(node.sizes) if size < sizes[at]}
        return self._part(node.alike, dims, prod(node.sizes[at] for at in dims), source)

    @cached_property
    def _basis(self) -> list[frozenset[int]]:
        """By node the last products and the arrays given that it is made of."""
        found: list[frozenset[int]] = []
        for number, node in enumerate(self._nodes):
            every = frozenset[int]().union(*(found[one] for one in node.operands))
            is_own = number in self._products or not node.operands or len(every) > DEEPEST
            is_own &= node.at.opcode not in ("constant", "iota")
            found.append(frozenset((node.alike,)) if is_own else every)
        return found

    def _is_gradient(self, number: int) -> bool:
        scope = self._flow.scope(number)
        return GRADIENT in scope or "gradient_tape/" in scope

    def _is_late(self, mask: Mask) -> bool:
        """Whether a gradient is the mask: of what was picked it is zero in all other places."""
        return any(self._is_gradient(one) for one in mask.made_by)

    def _left(self, number: int) -> Mask:
        """The part of a product that is left, where others can be left out."""
        node, of = self._nodes[number], self._products[number]
        masks = []
        need = self._needed[number] or WHOLE
        sides = self._sides(number)
        free = [
            prod(node.sizes[at] for at in side - sides[1 - i] - need.dims)
            for i, side in enumerate(sides)
        ]
        if need.part < 1 and (any(need.dims <= side for side in sides) or max(free) >= _FEWEST):
            masks.append(need)
        for place in (0, 1):
            mask = self._zeros[node.operands[place]]
            summed = {one[place] for one in of.summed}
            rest = sides[1 - place] - sides[place]
            is_mixed = bool(mask.dims & summed) and not mask.dims <= summed
            if mask.part < 1 and (not is_mixed or prod(node.sizes[at] for at in rest) >= _FEWEST):
                masks.append(mask)
        return _lower(masks)

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
            if readers and other <= _MOST_LEFT * now:
                thirds = set[int]().union(*map(self._factors, readers)) - {
                    self._nodes[number].alike
                }
                # The gradients of a product of two narrow matrices, which could have been left out, too.
                made = (one for one in self._products if self._factors(one) <= thirds)
                keys = (self._nodes[one].owner for one in (number, *readers, *made))
                found.update(dict.fromkeys(keys, other / now))
        return found

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
            moved = [
                self._moved(found[one], self._pairs(number, place), self._nodes[one].sizes)
                if found[one].part < 1
                else WHOLE
                for place, one in enumerate(of)
            ]
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
                mask = _lower(
                    moved[place]
                    for place in (0, 1)
                    if moved[place].dims.isdisjoint(self._sides(number)[1 - place])
                )
            found.append(mask)
        return found

    def _sides(self, number: int) -> list[set[int]]:
        """By factor of a product which dimensions of the result are of it."""
        return [{to for _, to in pairs} for pairs in self._products[number].pairs]

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
                    chosen |= mask.made_by if mask.part <= _MOST_LEFT else set()
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
                mask = _lower(found[one] for one in node.operands)
            found.append(mask if not chosen.isdisjoint(mask.made_by) else WHOLE)
            if node.owner not in products and (is_of_each or node.at.opcode == "concatenate"):
                numbers = done.setdefault(node.owner, [0.0, 0.0])
                numbers[0] += prod(node.sizes) * found[-1].part
                numbers[1] += prod(node.sizes)
        parts = {key: some / whole for key, (some, whole) in done.items() if whole}
        return {key: part for key, part in parts.items() if part <= _MOST_LEFT}

    def parts(self) -> dict[Key, tuple[Need, float]]:
        """Which part of what events compute is left by masks, or zeros: of products, and of what is computed of these in between."""
        left = {
            number: mask
            for number in self._products
            if (mask := self._left(number)).part <= _MOST_LEFT
        }
        chosen = {number for number in left if not self._is_gradient(number)}
        used = {one for number in chosen for one in self._factors(number)}
        chosen |= {number for number in left if not used.isdisjoint(self._factors(number))}
        if not chosen:
            return {}
        done: dict[Key, list[float]] = {}
        for number, of in self._products.items():
            flops = done.setdefault(self._nodes[number].owner, [0.0, 0.0])
            flops[0] += of.flops * (left[number].part if number in chosen else 1.0)
            flops[1] += of.flops
        of_zeros = {
            self._nodes[number].owner
            for number in chosen
            if all(self._nodes[one].at.opcode == "constant" for one in left[number].made_by)
        }
        found: dict[Key, tuple[Need, float]] = {
            key: ("zeros" if key in of_zeros else "mask", part / whole)
            for key, (part, whole) in done.items()
            if part < whole
        }
        is_chosen = {self._nodes[number].alike: number in chosen for number in self._products}
        feeds = {
            self._nodes[one].owner
            for node in self._nodes
            if node.owner in found
            for one in node.operands
        }
        for key, nodes in self._flow.of.items():
            made_of = [
                is_chosen[one] for node in nodes for one in self._basis[node] if one in is_chosen
            ]
            if key not in done and (key in feeds or (made_of and all(made_of))):
                masks = (_lower((self._zeros[one], self._needed[one] or WHOLE)) for one in nodes)
                part = max((mask.part for mask in masks), default=1.0)
                if part <= _MOST_LEFT:
                    found[key] = ("mask", part)
        return found


def _lower(masks: Iterable[Mask]) -> Mask:
    """The smallest of some parts."""
    return min(masks, key=lambda mask: mask.part, default=WHOLE)


def _either(one: Mask, other: Mask, sizes: tuple[int, ...]) -> Mask:
    """What is in one of two parts of an array of `sizes`."""
    if one.made_by != other.made_by:
        dims, part = one.dims | other.dims, one.part + other.part
    else:
        dims = one.dims & other.dims
        part = max(each.part * prod(sizes[at] for at in each.dims - dims) for each in (one, other))
    return Mask(one.made_by | other.made_by, dims, part) if part < 1 and dims else WHOLE


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
