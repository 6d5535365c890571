"""Finds ops of loops that need what the iteration before has computed, as the cells of a recurrent layer: no change runs these at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from traceview.graphs.calls import LOOPS, Call, source
from traceview.graphs.flow import Node

_SUMS: Final = frozenset(("Add", "AddN", "AddV2"))
_READS: Final = frozenset(("TensorListGather", "TensorListGetItem", "TensorListStack"))
"""Ops that read what is in a list. `TensorListPopBack` reads what an earlier loop has put there (TensorFlow 2.21)."""
_WHILE: Final = frozenset(name for name, graphs in LOOPS.items() if "body" in graphs)


def carried(calls: Iterable[Call]) -> set[Node]:
    """The ops of loops that depend on what an iteration hands to the next, and on which that depends, and their gradients.

    What none of it depends on could run behind the loop, and what depends on none of it before.
    """
    in_turn = dict[Call, set[str]]()
    for call in calls:
        # An outer one comes first.
        if call.outer is None:
            continue
        body = call.outer.inner[call.op.name][-1]
        if call is body and call.op.type in _WHILE:
            in_turn[call] = _carried_in(call)
        elif call.op.name in in_turn.get(call.outer, ()):
            in_turn[call] = {op.name for op in call.ops}
    every = set[str]().union(*in_turn.values())
    for call, names in in_turn.items():
        # Sums of gradients could wait for the end of the loop, but nobody moves them alone.
        names |= {op.name for op in call.ops if _of_gradient(op.name) in every}
    return {(call, name) for call, names in in_turn.items() for name in names}


def _of_gradient(name: str) -> str:
    """The op of a loop that one is a gradient of: `gradients/while/MatMul_grad/MatMul_1` is one of `while/MatMul` (TensorFlow 2.21)."""
    return name.rpartition("gradients/")[2].rpartition("_grad/")[0]


def _carried_in(body: Call) -> set[str]:
    """The names of these ops of the body of a loop."""
    after, before = set[str](), set[str]()
    for taken, given in zip(body.graph.inputs, body.graph.outputs, strict=False):
        if _hands_on(taken, given):
            after.add(taken.op.name)
            before.add(given.op.name)
    for op in body.ops:
        if any(tensor.op.name in after for tensor in op.inputs):
            after.add(op.name)
    for op in reversed(body.ops):
        if op.name in before:
            before.update(tensor.op.name for tensor in op.inputs)
    return after & before


def _hands_on(taken: Any, given: Any) -> bool:
    """Whether an iteration computes with what the one before has made of this, more than to count, to add to it, or to write into it."""
    made = source(given).op
    users = list(_users(taken))
    if made is taken.op or not users:
        return False
    if taken.dtype.name == "variant":
        reads = {user.type for user in users} & _READS
        return bool(reads) and made.type != "TensorListPopBack"
    is_number = taken.dtype.is_integer or taken.dtype.is_bool
    if is_number and taken.shape.num_elements() == 1:
        return False
    return not (made.type in _SUMS and all(user is made for user in users))


def _users(tensor: Any) -> Iterator[Any]:
    """The ops that read a tensor, or what has its numbers, in its graph; what only hands it on is none."""
    for user in tensor.consumers():
        if user.type == "Identity":
            yield from _users(user.outputs[0])
        else:
            yield user
