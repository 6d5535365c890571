"""Finds what a step computes several times from the same values, where TensorFlow does not see that they are the same.

It computes ops of one type that read the same tensors once. A variable that is read twice gives two tensors, and so do all ops
behind these (TensorFlow 2.21).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from traceview.graphs.calls import CALLS, GRADIENT_SCOPE, LOOPS, Call
from traceview.graphs.flow import Flow, Node, node_of

_READ: Final = "ReadVariableOp"
_LARGEST_CONSTANT: Final = 1_000
"""Numbers of constants that are compared. A choice of ours."""


def computed_again(flow: Flow) -> set[Node]:
    """All but the first of ops that compute the same and read variables for it, with their gradients."""
    tensors, values = _Numbers(flow, reads_are_equal=False), _Numbers(flow, reads_are_equal=True)
    first: dict[int, int] = {}
    found = set[Node]()
    for node, op in flow.ops.items():
        if GRADIENT_SCOPE not in op.name and _is_array(op):
            tensor = tensors.of(node)
            if first.setdefault(values.of(node), tensor) != tensor:
                found.add(node)
    return found | flow.gradients(found)


def _is_array(op: Any) -> bool:
    """Whether an op gives more than a number: each variable has some of those in an update."""
    return bool(op.outputs) and op.outputs[0].shape.num_elements() != 1


class _Numbers:
    """Numbers for what ops give: equal ones for what is the same in each step. `reads_are_equal`: also of what reads of one variable
    give between which nothing is assigned to it.
    """

    def __init__(self, flow: Flow, *, reads_are_equal: bool) -> None:
        self._flow = flow
        self._reads_are_equal = reads_are_equal
        self._number: dict[Node, int] = {}
        self._of: dict[Hashable, int] = {}
        self._one_of: dict[int, Any] = {}
        """By number the op that has it first."""

    def of(self, node: Node) -> int:
        """The number of a node."""
        waiting, seen = [node], set[Node]()
        while waiting:
            last = waiting[-1]
            known = [each for each, _ in self._inputs(last) if each not in self._number]
            if last in self._number or not known or last in seen:
                waiting.pop()
                if last not in self._number:
                    self._number[last] = self._made(last)
            else:
                # One that is met again is a circle.
                seen.add(last)
                waiting += known
        return self._number[node]

    def _inputs(self, node: Node) -> list[tuple[Node, int]]:
        """The nodes that a node is computed from, with the places among their results; none of one that is as no other."""
        given = self._flow.given.get(node)
        if given is not None:
            return [(given[0], 0)] if len(given) == 1 else []
        op = self._flow.ops.get(node)
        if op is None or (op._is_stateful and not (op.type == _READ and self._reads_are_equal)):
            return []
        return [(node_of(node[0], tensor), tensor.value_index) for tensor in op.inputs]

    def _made(self, node: Node) -> int:
        op, inputs = self._flow.ops.get(node), self._inputs(node)
        if not inputs and not (op and _is_small_constant(op)):
            return self._of.setdefault(node, len(self._of))
        of = tuple((self._number.get(each, -1), place) for each, place in inputs)
        if op is None or node in self._flow.given or op.type == "Identity":
            return of[0][0]
        since = _written_before(node[0], op) if op.type == _READ else ()
        key = (op.type, op.device, of, since, _branch(node[0]))
        number = self._of.setdefault(key, len(self._of))
        first = self._one_of.setdefault(number, op)
        # What an op is asked for is long to read, and mostly differs with what it reads.
        if first is not op and _attributes(first) != _attributes(op):
            number = self._of.setdefault((*key, _attributes(op)), len(self._of))
        return number


def _branch(call: Call | None) -> Call | None:
    """The branch that a call belongs to, of which a step takes one; None outside of any."""
    while call is not None and (call.op is None or call.op.type in (*CALLS, *LOOPS)):
        call = call.outer
    return call


def _attributes(op: Any) -> str:
    """What an op is asked to do."""
    attributes = op.node_def.attr
    return str(
        [(name, attributes[name]) for name in sorted(attributes) if not name.startswith("_")]
    )


def _is_small_constant(op: Any) -> bool:
    return op.type == "Const" and (op.outputs[0].shape.num_elements() or 0) <= _LARGEST_CONSTANT


def _written_before(call: Call | None, op: Any) -> tuple[str, ...]:
    """What else has to be done before a variable is read, by names: TensorFlow keeps the order of what changes something."""
    found = []
    while op is not None:
        path = call.path if call else ()
        found += [
            "/".join((*path, each.name))
            for each in op.control_inputs
            if each._is_stateful and each.type != _READ
        ]
        call, op = (call.outer, call.op) if call else (None, None)
    return tuple(found)
