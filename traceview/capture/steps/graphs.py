"""Walks the graphs of functions and those that they call: counts ops by requested device, and finds gradients, updates and
training loops, ops that compute in float64, and those that compute the same in every step.

An op computes the same in every step if all that it reads is constant, or a tensor that the script made before the graph:
such a tensor never changes. Ops that read a variable, an argument of the function or random numbers do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from traceview.capture.sidecar.file import NoAnswerError

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
_OWN_GRAPHS: Final = ("_cond_graph", "_body_graph", "_true_graph", "_false_graph")
"""Where loops and branches have their graphs, once there are gradients (TensorFlow 2.21)."""
DEEPEST: Final = 8
"""Calls within calls; a function that calls itself has no end."""
_GRADIENT_SCOPE: Final = "gradient_tape/"
"""The name scope of gradient ops (`GradientTape.gradient`, tensorflow/python/eager/backprop.py)."""
_UPDATES: Final = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter")


def traces(function: Any) -> list[Any]:
    """The graphs of a `tf.function` as concrete functions, oldest first; of a concrete function itself. Nothing is traced."""
    cache = getattr(function, "_function_cache", None)
    if cache is not None:
        return list(cache.values())
    return [function] if hasattr(function, "captured_inputs") else []


def trace_count(function: Any) -> int:
    """How many graphs a `tf.function` has. Cheap, unlike to list them, which hashes the types of all that they capture."""
    cache = getattr(function, "_function_cache", None)
    return len(traces(function)) if cache is None else len(cache)


def inner_graphs(op: Any, graph: Any) -> Iterator[tuple[str, Any]]:
    """The names and graphs of the functions that an op of a graph calls."""
    for attribute in _FUNCTION_ATTRIBUTES.get(op.type, ()):
        value = op.get_attr(attribute)
        for function in value if isinstance(value, list) else [value]:
            name = function.name
            own = (getattr(op, each, None) for each in _OWN_GRAPHS)
            known = (each for each in own if each is not None and each.name == name)
            yield name, next(known, None) or graph._get_function(name).graph


def ops_within(graph: Any, known: set[str] | None = None) -> Iterator[tuple[Any, Any]]:
    """The ops of a graph and of the functions that it calls, each function once, with the graph that each op is in."""
    known = set() if known is None else known
    for op in graph.get_operations():
        yield op, graph
        for name, inner in inner_graphs(op, graph):
            if name not in known:
                known.add(name)
                yield from ops_within(inner, known)


class Visits:
    """The ops that were visited, each as often as calls lead to it, of which there may be `most`."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def add(self, ops: int) -> None:
        """Count more; raises `NoAnswerError` where these are too many: what is left of them might have the same names."""
        self._left -= ops
        if self._left < 0:
            raise NoAnswerError(f"its calls lead to more than {self._most:,} ops")


def names_of(op: Any, calls: tuple[str, ...]) -> Iterator[str]:
    """The names under which the runtime may run an op: its own, and that below the calls that led to it."""
    yield op.name
    if calls:
        yield "/".join((*calls, op.name))


def count_ops(graph: Any, known: dict[str, Counter[str]] | None = None) -> Counter[str]:
    """The ops of a graph and of those it calls by requested device, "" where none is requested.

    An op without one has that of its call. The body of a loop counts once, and so do both sides of a branch. `known`: the
    counts of functions that were counted.
    """
    known = {} if known is None else known
    devices: Counter[str] = Counter()
    for op in graph.get_operations():
        device = op.device
        devices[device] += 1
        for name, inner in inner_graphs(op, graph):
            if name not in known:
                # Also ends a recursion.
                known[name] = Counter()
                known[name] = count_ops(inner, known)
            for inner_device, count in known[name].items():
                devices[inner_device or device] += count
    return devices


def training_loop(graph: Any) -> str | None:
    """The type of the op that repeats whole training steps inside a graph; None without one.

    The body of such a loop computes a gradient and updates a variable. A loop in a layer updates no variable from
    gradients, and one that accumulates gradients updates none either.
    """
    for op, outer in ops_within(graph):
        if op.type in _LOOPS:
            for _, inner in inner_graphs(op, outer):
                if {"gradient", "update"} <= set(_training_parts(inner)):
                    return str(op.type)
    return None


def computes_gradients(function: Any) -> bool:
    """Whether the graph of a concrete function computes gradients; False where it cannot be read."""
    with suppress(Exception):  # private parts of TensorFlow
        return "gradient" in _training_parts(function.graph)
    return False


def updates_alone(function: Any) -> bool:
    """Whether a concrete function without arguments only updates variables that are trained, as after micro-batches."""
    with suppress(Exception):  # private parts of TensorFlow
        graph = function.graph
        is_given_data = len(function.inputs) > len(function.captured_inputs)
        is_of_model = any(variable.trainable for variable in graph.variables)
        return is_of_model and not is_given_data and set(_training_parts(graph)) == {"update"}
    return False


def _training_parts(graph: Any) -> Iterator[str]:
    """`gradient` and `update` for each such op in a graph and those that it calls."""
    for op, _ in ops_within(graph):
        if _GRADIENT_SCOPE in op.name:
            yield "gradient"
        if op.type.startswith(_UPDATES):
            yield "update"


# Values


MOST_VALUES: Final = 1_000
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
    return {f"{kind}_ops": found.only(kind)[:MOST_VALUES] for kind in ("float64", "constant")}


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
