"""Follows masks through a compiled XLA program: where they leave zeros, and what is then multiplied for nothing.

A *mask* is an array that is zero for all but a part that the program itself says: a comparison of a count with indices is true
for one of N, and indices that are fewer than the places pick a part of them. What is multiplied by it, or chosen by it, is
needed in that part only, and so is what was multiplied to make it.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Final

import numpy as np

from traceview.xplane import hlo_fields as field
from traceview.xplane.columns import Need
from traceview.xplane.hlo_flow import MOVES, OF_EACH, OF_ONE, Key, Node
from traceview.xplane.hlo_module import DEEPEST, MOST_DIMENSIONS
from traceview.xplane.hlo_products import MOST_LEFT, WHOLE, Mask, Products, lower

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


class Masks(Products):
    """What masks leave of the arrays of a program."""

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

    @cached_property
    def _zeros(self) -> list[Mask]:
        """By node outside of which part it is zero."""
        zeros: list[Mask] = []
        for number, node in enumerate(self._nodes):
            of, opcode, mask = node.operands, node.at.opcode, WHOLE
            moved = self._operands(number, zeros)
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
                    mask = lower(moved[:2])
                elif self._is_zero(of[1]) or moved[1][:2] == moved[2][:2]:
                    mask = moved[2]
            elif opcode in ("multiply", "and"):
                mask = lower(moved)
            elif opcode in ("add", "subtract", "or", "maximum"):
                mask = moved[0] if len({one[:2] for one in moved}) == 1 else WHOLE
            elif opcode in _OF_ZERO_ZERO and not node.fields.number(field.TUPLE_INDEX):
                mask = moved[0] if moved else WHOLE
            elif number in self._products and len(of) == 2:
                mask = lower(moved)
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
                need = needed[number] = lower((need, self._zeros[number]))
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
                    own = lower((own, self._summed(number, place)))
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
        return lower(masks)

    def _is_known(self, mask: Mask) -> bool:
        """Whether the program says where the zeros are, whatever it is given."""
        return all(self._nodes[one].at.opcode in ("constant", "iota") for one in mask.made_by)

    def _convolved(self) -> dict[Key, tuple[Need, float]]:
        """The same of convolutions over windows, which are no product of matrices, by a kernel of zeros, such as an identity."""
        found: dict[Key, tuple[Need, float]] = {}
        for number, node in enumerate(self._nodes):
            if node.at.opcode == "convolution" and number not in self._products:
                mask = self._zeros[node.operands[1]]
                if mask.part <= MOST_LEFT and self._is_known(mask):
                    found[node.owner] = ("zeros", mask.part)
        return found

    def parts(self) -> dict[Key, tuple[Need, float]]:
        """Which part of what events compute is left by masks, or zeros: of products, and of what is computed of these in between."""
        left = {
            number: mask
            for number in self._products
            if (mask := self._left(number)).part <= MOST_LEFT
        }
        chosen = {number for number in left if not self._is_gradient(number)}
        used = {one for number in chosen for one in self._factors(number)}
        chosen |= {number for number in left if not used.isdisjoint(self._factors(number))}
        found = self._convolved()
        if not chosen:
            return found
        done: dict[Key, list[float]] = {}
        for number, of in self._products.items():
            flops = done.setdefault(self._nodes[number].owner, [0.0, 0.0])
            flops[0] += of.flops * (left[number].part if number in chosen else 1.0)
            flops[1] += of.flops
        of_zeros = {self._nodes[number].owner for number in chosen if self._is_known(left[number])}
        found |= {
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
                masks = (lower((self._zeros[one], self._needed[one] or WHOLE)) for one in nodes)
                part = max((mask.part for mask in masks), default=1.0)
                if part <= MOST_LEFT:
                    found[key] = ("mask", part)
        return found


def _either(one: Mask, other: Mask, sizes: tuple[int, ...]) -> Mask:
    """What is in one of two parts of an array of `sizes`."""
    if one.made_by != other.made_by:
        dims, part = one.dims | other.dims, one.part + other.part
    else:
        dims = one.dims & other.dims
        part = max(each.part * prod(sizes[at] for at in each.dims - dims) for each in (one, other))
    return Mask(one.made_by | other.made_by, dims, part) if part < 1 and dims else WHOLE
