"""Finds ops that combine all pairs, such as the differences of each row with each other one, and all that is computed of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from traceview.graphs.calls import GRADIENT_SCOPE
from traceview.graphs.flow import OF_ONE, OF_TWO, REPEATS, Flow, Node, followed, node_of

_COMBINES: Final = OF_TWO - {"BiasAdd", "Pow", "SelectV2"}
_EACH: Final = OF_ONE | {"Cast", "Identity", "Pow"}
_REDUCES: Final = frozenset(("Max", "Mean", "Min", "Prod", "Sum"))
_LEAST_RANK: Final = 3
"""Two dimensions of rows and one of what each row holds, which a product of matrices would sum over."""


def of_pairs(flow: Flow) -> set[Node]:
    """Ops on two inputs each of which is repeated along a dimension of the other, and what is computed of each number of these, up to
    where they are summed, with the gradients. None of what is not summed.
    """
    found = set[Node]()
    for start, op in flow.ops.items():
        if start in found or not _is_of_pairs(op):
            continue
        behind = followed(
            [start],
            lambda node: () if flow.type_of(node) in _REDUCES else _of_each(flow, node),
        )
        if any(flow.type_of(node) in _REDUCES for node in behind):
            found |= behind
    return found | _gradients(flow, found)


def _gradients(flow: Flow, found: set[Node]) -> set[Node]:
    """What their gradients compute of each number, up to where these are summed, and what repeats a gradient for that."""

    def large(nodes: Iterable[Node]) -> list[Node]:
        return [each for each in nodes if GRADIENT_SCOPE in each[1] and _is_large(flow, each)]

    def after(node: Node) -> list[Node]:
        is_end = node not in found and flow.type_of(node) in _REDUCES
        return [] if is_end else large(flow.takers.get(node, ()))

    gradients = followed(found, after) - found
    given = {node_of(node[0], each) for node in gradients for each in flow.ops[node].inputs}
    return gradients.union(large(given))


def _is_large(flow: Flow, node: Node) -> bool:
    """Whether an op computes or repeats numbers in as many dimensions as pairs have, or sums such."""
    type_ = flow.type_of(node)
    known = type_ in _EACH | _COMBINES | _REDUCES | REPEATS or type_.endswith("Grad")
    tensors = (*flow.ops[node].inputs[:1], *flow.ops[node].outputs[:1]) if known else ()
    return any(each.shape.rank is not None and each.shape.rank >= _LEAST_RANK for each in tensors)


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
    return are_repeated and any(a != 1 != b for a, b in sizes)


def _of_each(flow: Flow, node: Node) -> Iterator[Node]:
    """What is computed of each number that an op gives, with less of other origin."""
    rank = flow.ops[node].outputs[0].shape.rank or 0
    for user in flow.takers.get(node, ()):
        if flow.type_of(user) in _EACH | _REDUCES | _COMBINES and GRADIENT_SCOPE not in user[1]:
            inputs = flow.ops[user].inputs
            others = (each.shape for each in inputs if node_of(user[0], each) != node)
            if all(each.rank is not None and each.rank < rank for each in others):
                yield user
