"""Finds exchanges of what all devices have alike, such as gradients that were summed before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from traceview.graphs.calls import HANDLES, MOST_VISITED, Call

_EXCHANGES: Final = frozenset(("CollectiveReduceV2", "NcclAllReduce"))
"""Ops that give all devices the sum of what each gives (TensorFlow 2.21)."""
_ALIKE: Final = frozenset(("Const", "ReadVariableOp"))
"""What is the same on all devices without an exchange: replicas have equal variables."""


def sent_again(calls: Iterable[Call]) -> set[tuple[Call, str]]:
    """The exchanges of what depends on nothing but other exchanges, constants and variables; none where too much leads to them."""
    found, left = set[tuple[Call, str]](), MOST_VISITED
    for call in calls:
        for op in call.ops:
            if op.type in _EXCHANGES:
                behind, is_alike = _made_of(call, op.inputs[0])
                left -= len(behind)
                if left < 0:
                    return set()
                if is_alike and any(each.type in _EXCHANGES for each in behind):
                    found.add((call, op.name))
    return found


def _made_of(call: Call, tensor: Any) -> tuple[set[Any], bool]:
    """The ops that a tensor is computed with, back to exchanges, and whether it is alike for all that these show."""
    seen, waiting = set[Any](), [tensor]
    while waiting:
        tensor = waiting.pop()
        op = tensor.op
        if op.type == "IdentityN":
            # `all_reduce` hands what it gives through one of these, with what it was given.
            waiting.append(op.inputs[tensor.value_index])
            continue
        if op in seen or tensor.dtype.name in HANDLES:
            continue
        seen.add(op)
        if op.type in _EXCHANGES or op.type in _ALIKE:
            continue
        if not op.inputs or op._is_stateful or op.name in call.inner:
            return seen, False
        waiting += op.inputs
    return seen, True
