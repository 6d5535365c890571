"""Counts the ops in the graph of a step function by requested device, and finds a training loop in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

_LOOPS: Final = {
    "While": ("cond", "body"),
    "StatelessWhile": ("cond", "body"),
    "ReduceDataset": ("f",),
    "ScanDataset": ("f",),
}
"""Ops that repeat a graph. AutoGraph makes the last two from a `for` over a dataset."""
_FUNCTION_ATTRIBUTES: Final = {
    **_LOOPS,
    "PartitionedCall": ("f",),
    "StatefulPartitionedCall": ("f",),
    "RemoteCall": ("f",),
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
    "Case": ("branches",),
    "StatelessCase": ("branches",),
}
"""Ops that hold graphs, and their attributes that name these."""
_GRADIENT_SCOPE: Final = "gradient_tape/"
"""The name scope of gradient ops (`GradientTape.gradient`, tensorflow/python/eager/backprop.py)."""
_UPDATES: Final = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter")


def count_ops(graph: Any) -> Counter[str]:
    """The ops of a graph and of those it calls by requested device, "" where none is requested.

    An op without one has that of its call. The body of a loop counts once, and so do both sides of a branch.
    """
    return _count(graph, {})


def training_loop(graph: Any) -> str | None:
    """The type of the op that repeats whole training steps inside a graph; None without one.

    The body of such a loop computes a gradient and updates a variable. A loop in a layer updates no variable from
    gradients, and one that accumulates gradients updates none either.
    """
    return next(_training_loops(graph, set()), None)


def computes_gradients(function: Any) -> bool:
    """Whether the graph of a concrete function computes gradients; False where it cannot be read."""
    try:
        return "gradient" in _training_parts(function.graph, set())
    except Exception:  # private parts of TensorFlow
        return False


def updates_alone(function: Any) -> bool:
    """Whether a concrete function without arguments only updates variables that are trained, as after micro-batches."""
    try:
        graph = function.graph
        is_given_data = len(function.inputs) > len(function.captured_inputs)
        is_of_model = any(variable.trainable for variable in graph.variables)
        is_update = set(_training_parts(graph, set())) == {"update"}
    except Exception:  # private parts of TensorFlow
        return False
    return is_update and is_of_model and not is_given_data


def _training_loops(graph: Any, known: set[str]) -> Iterator[str]:
    for op in graph.get_operations():
        kind = op.type
        for name in called(op, kind):
            inner = graph._get_function(name).graph
            if kind in _LOOPS and {"gradient", "update"} <= set(_training_parts(inner, set())):
                yield kind
            elif name not in known:
                known.add(name)
                yield from _training_loops(inner, known)


def _training_parts(graph: Any, known: set[str]) -> Iterator[str]:
    """`gradient` and `update` for each such op in a graph and those that it calls."""
    for op in graph.get_operations():
        kind = op.type
        if _GRADIENT_SCOPE in op.name:
            yield "gradient"
        if kind.startswith(_UPDATES):
            yield "update"
        for name in called(op, kind):
            if name not in known:
                known.add(name)
                yield from _training_parts(graph._get_function(name).graph, known)


def _count(graph: Any, known: dict[str, Counter[str]]) -> Counter[str]:
    devices: Counter[str] = Counter()
    for op in graph.get_operations():
        kind, device = op.type, op.device
        devices[device] += 1
        for name in called(op, kind):
            if name not in known:
                # Also ends a recursion.
                known[name] = Counter()
                known[name] = _count(graph._get_function(name).graph, known)
            for inner_device, count in known[name].items():
                devices[inner_device or device] += count
    return devices


def called(op: Any, kind: str) -> Iterator[str]:
    """The names of the functions that an op of this type calls."""
    for attribute in _FUNCTION_ATTRIBUTES.get(kind, ()):
        value = op.get_attr(attribute)
        yield from (function.name for function in (value if isinstance(value, list) else [value]))
