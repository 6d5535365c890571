"""Finds the ops of a graph that compute in float64, and those that compute the same in every step.

An op computes the same in every step if all that it reads is constant, or a tensor that the script made before the graph:
such a tensor never changes. Ops that read a variable, an argument of the function or random numbers do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from traceview.capture.steps.graphs import DEEPEST, Visits, inner_graphs, names_of

MOST_OPS: Final = 1_000
"""Of each kind; a model whose float64 is meant has them all in it."""

_IN_64_BITS: Final = ("float64", "complex128")
_NO_WORK: Final = frozenset(
    (
        "Const",
        "Identity",
        "NoOp",
        "Placeholder",
        "PlaceholderWithDefault",
        "ReadVariableOp",
        "Shape",
    )
)
"""Ops that hand on what they are given, or take no time."""

_HANDLES: Final = ("resource", "variant")
_MOST_VISITED: Final = 300_000
"""Ops, each as often as calls lead to it: 14,469 of a ResNet50 took 0.3 s on a busy core."""


def describe_values(graphs: Iterable[Any]) -> dict[str, Any]:
    """The fields of the sidecar: names of ops in float64, and names of constant ops."""
    found = _Found()
    for graph in graphs:
        given = {
            placeholder.name
            for tensor, placeholder in graph.captures
            if hasattr(tensor, "numpy") and tensor.dtype.name not in _HANDLES
        }
        found.visit(graph, given, ())
    return {f"{kind}_ops": found.only(kind)[:MOST_OPS] for kind in ("float64", "constant")}


class _Found:
    """Ops by name, as far as graphs were visited.

    Both names that the runtime may use are kept.
    """

    def __init__(self) -> None:
        self._visits = Visits(_MOST_VISITED)
        self._kinds: dict[str, list[set[str]]] = {}
        self._is_stateful: dict[str, bool] = {}

    def visit(self, graph: Any, constant: set[str], calls: tuple[str, ...]) -> None:
        """Add the ops of a graph; `constant`: the tensors among its inputs that never change; `calls`: that led to it."""
        ops = graph.get_operations()
        self._visits.add(len(ops))
        for op in ops:
            kind, inputs = op.type, list(op.inputs)
            inner = [each for _, each in inner_graphs(op, graph)]
            is_constant = (
                all(tensor.name in constant for tensor in inputs)
                and (bool(inputs) or kind == "Const")
                and not inner
                and not self._has_state(op)
            )
            if is_constant:
                constant.update(tensor.name for tensor in op.outputs)
            if kind not in _NO_WORK and not inner:
                self._add(op, is_constant=is_constant, calls=calls)
            for each in inner if len(calls) < DEEPEST else ():
                given = [tensor.name in constant for tensor in inputs]
                self._visit_inner(each, kind, given, (*calls, op.name))

    def only(self, kind: str) -> list[str]:
        """The ops of a kind, without those whose name an op of another kind has, too."""
        return [
            name for name, found in self._kinds.items() if all(kind in kinds for kinds in found)
        ]

    def _add(self, op: Any, *, is_constant: bool, calls: tuple[str, ...]) -> None:
        in_64_bits = any(tensor.dtype.name in _IN_64_BITS for tensor in op.outputs)
        kinds = {"float64"} if in_64_bits else set()
        if is_constant:
            kinds.add("constant")
        for name in names_of(op, calls):
            self._kinds.setdefault(name, []).append(kinds)

    def _visit_inner(
        self, graph: Any, kind: str, given: list[bool], calls: tuple[str, ...]
    ) -> None:
        arguments = list(graph.inputs)
        # A loop is given what its body made, and a branch is given more than what it passes on.
        is_call = kind.endswith("PartitionedCall") and len(arguments) == len(given)
        constant = {
            argument.name
            for argument, is_given in zip(arguments, given, strict=False)
            if is_call and is_given
        }
        self.visit(graph, constant, calls)

    def _has_state(self, op: Any) -> bool:
        kind: str = op.type
        if kind not in self._is_stateful:
            self._is_stateful[kind] = bool(op.op_def is None or op.op_def.is_stateful)
        return self._is_stateful[kind]
