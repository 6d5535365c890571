"""Says what every run of a compiled XLA program computes alike, and what each of its devices does, and what is exchanged for no other end."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Final

from traceview.xplane.hlo_flow import COLLECTIVES, DIFFERS, FILLS, Flow, Key
from traceview.xplane.hlo_module import DEEPEST, VIEWS, HloInstruction

_GIVE_ALL: Final = ("all-gather", "all-reduce")
"""Collectives after which the devices of a group have the same, without their `-start` and `-done`."""

_OF_MEAN: Final = VIEWS | {"broadcast", "constant", "convert", "divide", "multiply"}
"""What makes a mean of a sum, or gives an array another order."""
_MAY_NEED_ALL: Final = ("dot", "convolution", "custom-call", "while", "conditional", "sort")


def _exchanges(opcode: str) -> bool:
    return opcode.removesuffix("-done") in COLLECTIVES


class Shares:
    """What of a program is the same in each run, or on each device."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._effects: dict[int, tuple[bool, bool]] = {}

    @cached_property
    def constants(self) -> frozenset[Key]:
        """The instructions that compute from nothing that varies."""
        return self._events(self._made_of(frozenset()), frozenset())

    @cached_property
    def _is_alike(self) -> list[bool]:
        """By node whether it is made of parameters that each device has whole, and of what all have gathered."""
        return self._made_of(self._whole | self._exchanged("all-gather"))

    @cached_property
    def repeated(self) -> frozenset[Key]:
        """The instructions that each device computes alike."""
        seeds = self._whole | self._exchanged("all-gather")
        return self._events(self._is_alike, seeds) - self.constants if seeds else frozenset()

    @property
    def _whole(self) -> frozenset[int]:
        whole, of = self._flow.module.whole_parameters, self._flow.nodes
        return frozenset(
            number
            for number, node in enumerate(of)
            if node.at.id in whole and node.at.opcode == "parameter"
        )

    def _exchanged(self, *kinds: str) -> frozenset[int]:
        """What gives each of several partitions the same."""
        count = self._flow.module.partitions
        found: set[int] = set()
        for number, node in enumerate(self._flow.nodes if count > 1 else ()):
            kind, _, end = node.at.opcode.rpartition("-")
            kind = kind if end in ("start", "done") else node.at.opcode
            groups = self._flow.module.groups(node.at) if kind in kinds and end != "done" else ()
            if [*map(len, groups)] == [count] or (
                kind in kinds and found.issuperset(node.operands)
            ):
                found.add(number)
        return frozenset(found)

    def _made_of(self, seeds: frozenset[int]) -> list[bool]:
        """By node whether it is computed from nothing else that varies than some nodes."""
        known: list[bool] = []
        for number, node in enumerate(self._flow.nodes):
            has_no_input = node.at.opcode != "parameter" and all(
                known[one] for one in node.operands
            )
            known.append(
                number in seeds or (has_no_input and not self._reached(node.at, DEEPEST)[0])
            )
        return known

    def _events(self, known: list[bool], seeds: frozenset[int]) -> frozenset[Key]:
        found: set[Key] = set()
        for key, nodes in self._flow.of.items():
            instruction = self._flow.module.computation(key[0]).by_id[key[1]]
            is_known = bool(nodes) and all(known[one] and one not in seeds for one in nodes)
            if is_known and self._reached(instruction, DEEPEST)[1]:
                found.update((key, *self._flow.held(instruction)))
        return frozenset(found)

    # What is exchanged for no other end

    @cached_property
    def needless(self) -> dict[Key, float]:
        """Collectives that could be left out, with copies and factors for them alone, and the part of each that could not.

        They exchange what all devices have alike, or gather what each then computes alike without a product.
        """
        nodes, sizes = self._flow.nodes, dict[Key, list[int]]()
        known = self._made_of(self._whole | self._exchanged(*_GIVE_ALL))
        alike = set[int]()
        for number, node in enumerate(nodes if self._flow.module.partitions > 1 else ()):
            if node.at.opcode in COLLECTIVES and node.operands:
                is_alike, size = all(known[one] for one in node.operands), prod(node.sizes)
                of = sizes.setdefault(node.owner, [0, 0])
                of[0] += 0 if is_alike else size
                of[1] += size
                alike.update([number] if is_alike else ())
        parts = {key: part / whole for key, (part, whole) in sizes.items() if part < whole}
        for number in self._exchanged("all-gather") if self.repeated else ():
            if self._is_for_repeated(number):
                parts[nodes[number].owner] = 0.0
                alike.add(number)
        works = {node.owner for node in nodes if node.at.opcode not in _OF_MEAN}
        for number, node in enumerate(nodes):
            if node.owner not in works and node.operands:
                source = {
                    one: self._flow.source(one, VIEWS | {"broadcast"}) for one in node.operands
                }
                arrays = {one for one, made_of in source.items() if not nodes[made_of].is_number}
                is_for = node.at.opcode in VIEWS and alike.issuperset(self._flow.users[number])
                is_of = bool(arrays) and alike.issuperset(arrays)
                if is_of or (is_for and self._flow.users[number]):
                    parts[node.owner] = 0.0
        return parts

    @cached_property
    def moved(self) -> frozenset[Key]:
        """What only gives arrays another order for collectives, or what these have exchanged."""
        nodes, found = self._flow.nodes, set[Key]()
        works = {node.owner for node in nodes if node.at.opcode not in VIEWS}
        for number, node in enumerate(nodes if self._flow.module.partitions > 1 else ()):
            if node.owner not in works and node.operands:
                source = nodes[self._flow.source(node.operands[0], VIEWS | {"get-tuple-element"})]
                if _exchanges(source.at.opcode) or self._is_only_exchanged(number):
                    found.add(node.owner)
        return frozenset(found)

    def _is_only_exchanged(self, number: int) -> bool:
        """Whether collectives alone read an array, in whatever order."""
        users = {*self._flow.users[number]}
        for _ in range(DEEPEST):
            views = [one for one in users if self._flow.nodes[one].at.opcode in VIEWS]
            if not views:
                break
            users = users.difference(views).union(*(self._flow.users[one] for one in views))
        return bool(users) and all(_exchanges(self._flow.nodes[one].at.opcode) for one in users)

    @cached_property
    def activations(self) -> frozenset[Key]:
        """Collectives in the function that is differentiated of no vector, nor of as many numbers as a weight or its parts have."""
        flow, count = self._flow, self._flow.module.partitions
        factors = [factor for factor in range(1, count + 1) if count > 1 and count % factor == 0]
        kept = flow.module.taken & flow.module.given
        weights = {prod(sizes) * factor for _, sizes in kept for factor in factors}
        return frozenset(
            node.owner
            for number, node in enumerate(flow.nodes if weights else ())
            if node.at.opcode in COLLECTIVES and sum(size > 1 for size in node.sizes) > 1
            if prod(node.sizes) not in weights and "jvp(" in flow.scope(number)
        )

    def _is_for_repeated(self, number: int) -> bool:
        """Whether what is gathered is read by nothing but what each device computes alike, without a product."""
        open_, seen = [number], {number}
        while open_:
            users = self._flow.users[open_.pop()]
            for one in users:
                node = self._flow.nodes[one]
                is_end = node.at.opcode in COLLECTIVES or node.at.opcode == "dynamic-slice"
                if not is_end and (not self._is_alike[one] or node.at.opcode in _MAY_NEED_ALL):
                    return False
                if not is_end and one not in seen:
                    seen.add(one)
                    open_.append(one)
        given = seen.intersection(self._flow.given)
        return len(seen) > 1 and all(self._flow.nodes[one].is_number for one in given)

    def _reached(self, instruction: HloInstruction, depth: int) -> tuple[bool, bool]:
        """Whether it, or what it calls, has a state, and whether it does more than to fill memory."""
        is_stateful = instruction.has_side_effect or instruction.opcode in DIFFERS
        works = instruction.opcode not in FILLS
        for called in instruction.called:
            if called not in self._effects:
                # Also ends a recursion.
                self._effects[called] = (True, True)
                held = self._flow.module.computation(called).instructions if depth else ()
                inside = [self._reached(inner, depth - 1) for inner in held]
                if depth:
                    self._effects[called] = any(s for s, _ in inside), any(w for _, w in inside)
            inner_is_stateful, inner_works = self._effects[called]
            is_stateful, works = is_stateful or inner_is_stateful, works or inner_works
        return is_stateful, works
