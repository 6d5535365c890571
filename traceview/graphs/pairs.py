"""Finds ops that combine all pairs, such as the differences of each row with each other one, and all that is computed of these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from traceview.graphs.calls import GRADIENT_SCOPE
from traceview.graphs.flow import Flow, Node, around, node_of

_COMBINES: Final = frozenset(
    ("Add", "AddV2", "Maximum", "Minimum", "Mul", "RealDiv", "SquaredDifference", "Sub")
)
_EACH: Final = frozenset(
    ("Abs", "Cast", "Exp", "Identity", "Log", "Neg", "Pow", "Relu", "Rsqrt", "Sigmoid", "Softplus", "Sqrt", "Square", "Tanh")
)  # fmt: skip
_REDUCES: Final = frozenset(("Max", "Mean", "Min", "Prod", "Sum"))
_LEAST_RANK: Final = 3
"""Two dimensions of rows and one of what each row holds, which a product of matrices would sum over."""


def of_pairs(flow: Flow) -> set[Node]:
    """Ops on two inputs each of which is repeated along a dimension of the other, and what is computed of each number of these, up to
    where they are summed, with the gradients. None of what is not summed.
    """
    found, summed = set[Node](), set[Node]()
    for start, op in flow.ops.items():
        if not _is_of_pairs(op):
            continue
        behind, waiting = set[Node](), [start]
        while waiting:
            node = waiting.pop()
            if node not in behind:
                behind.add(node)
                is_summed = flow.type_of(node) in _REDUCES
                waiting += () if is_summed else _of_each(flow, node)
        summed |= {node for node in behind if flow.type_of(node) in _REDUCES}
        found |= behind if not summed.isdisjoint(behind) else set()
    scopes = {(call, f"{GRADIENT_SCOPE}{name}") for call, name in found}
    return found | {node for node in flow.ops if (node[0], around(node[1])) in scopes}


def _is_of_pairs(op: Any) -> bool:
    """Whether each input is repeated along a dimension of the other, and both have another one in common."""
    if op.type not in _COMBINES or GRADIENT_SCOPE in op.name or not op.outputs[0].dtype.is_floating:
        return False
    first, second = (each.shape for each in op.inputs)
    if first.rank is None or second.rank is None:
        return False
    rank = max(first.rank, second.rank)
    one, other = ([1] * (rank - each.rank) + each.as_list() for each in (first, second))
    sizes = [*zip(one, other, strict=True)]
    are_repeated = any(a == 1 != b for a, b in sizes) and any(b == 1 != a for a, b in sizes)
    return rank >= _LEAST_RANK and are_repeated and any(a != 1 != b for a, b in sizes)


def _of_each(flow: Flow, node: Node) -> Iterator[Node]:
    """What is computed of each number that an op gives, with less of other origin."""
    rank = flow.ops[node].outputs[0].shape.rank
    for user in flow.takers.get(node, ()):
        if flow.type_of(user) in _EACH | _REDUCES | _COMBINES and GRADIENT_SCOPE not in user[1]:
            inputs = flow.ops[user].inputs
            others = (each.shape for each in inputs if node_of(user[0], each) != node)
            if all(each.rank is not None and each.rank < rank for each in others):
                yield user
