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
        "Const", "Identity", "NoOp", "Placeholder", "PlaceholderWithDefault", "ReadVariableOp", "Shape",
    )
)  # fmt: skip
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
            given = [tensor.name in constant for tensor in op.inputs]
            inner = [each for _, each in inner_graphs(op, graph)]
            is_constant = (
                all(given)
                and (bool(given) or op.type == "Const")
                and not inner
                and not self._has_state(op)
            )
            if is_constant:
                constant.update(tensor.name for tensor in op.outputs)
            if op.type not in _NO_WORK and not inner:
                in_64_bits = any(tensor.dtype.name in _IN_64_BITS for tensor in op.outputs)
                of_op = zip(("float64", "constant"), (in_64_bits, is_constant), strict=True)
                kinds = {kind for kind, is_so in of_op if is_so}
                for name in names_of(op, calls):
                    self._kinds.setdefault(name, []).append(kinds)
            for each in inner if len(calls) < DEEPEST else ():
                # A loop is given what its body made, and a branch is given more than what it passes on.
                is_call = op.type.endswith("PartitionedCall") and len(each.inputs) == len(given)
                passed = zip(each.inputs, given, strict=False) if is_call else ()
                known = {argument.name for argument, is_given in passed if is_given}
                self.visit(each, known, (*calls, op.name))

    def only(self, kind: str) -> list[str]:
        """The ops of a kind, without those whose name an op of another kind has, too."""
        return [
            name for name, found in self._kinds.items() if all(kind in kinds for kinds in found)
        ]

    def _has_state(self, op: Any) -> bool:
        kind: str = op.type
        if kind not in self._is_stateful:
            self._is_stateful[kind] = bool(op.op_def is None or op.op_def.is_stateful)
        return self._is_stateful[kind]
