"""Walks the graphs of functions and those that they call: counts ops by requested device, and finds gradients, updates and
training loops, ops that compute in float64, and those that compute the same in every step.

An op computes the same in every step if all that it reads is constant, or a tensor that the script made before the graph:
such a tensor never changes. Ops that read a variable, an argument of the function or random numbers do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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
_CALLS: Final = ("PartitionedCall", "StatefulPartitionedCall")
_FUNCTION_ATTRIBUTES: Final = {
    **_LOOPS,
    **dict.fromkeys((*_CALLS, "RemoteCall"), ("f",)),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("Case", "StatelessCase"), ("branches",)),
}
"""Ops that hold graphs, and their attributes that name these."""
_OWN_GRAPHS: Final = ("_cond_graph", "_body_graph", "_true_graph", "_false_graph")
"""Where loops and branches have their graphs, once there are gradients (TensorFlow 2.21)."""
_DEEPEST: Final = 8
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


# Each function once


def ops_within(graph: Any, known: set[str] | None = None) -> Iterator[tuple[Any, Any]]:
    """The ops of a graph and of the functions that it calls, each function once, with the graph that each op is in."""
    known = set() if known is None else known
    for op in graph.get_operations():
        yield op, graph
        for name, inner in inner_graphs(op, graph):
            if name not in known:
                known.add(name)
                yield from ops_within(inner, known)


def count_ops(graph: Any, known: dict[str, Counter[str]] | None = None) -> Counter[str]:
    """The ops of a graph and of those it calls by requested device, "" where none is requested.

    An op without one has that of its call. The body of a loop counts once, and so do both sides of a branch. `known`: the
    counts of functions that were counted.
    """
    known = {} if known is None else known
    devices: Counter[str] = Counter()
    for op in graph.get_operations():
        devices[op.device] += 1
        for name, inner in inner_graphs(op, graph):
            if name not in known:
                # Also ends a recursion.
                known[name] = Counter()
                known[name] = count_ops(inner, known)
            for inner_device, count in known[name].items():
                devices[inner_device or op.device] += count
    return devices


def training_loop(graph: Any) -> str | None:
    """The type of the op that repeats whole training steps inside a graph; None without one.

    The body of such a loop computes a gradient and updates a variable. A loop in a layer updates no variable from
    gradients, and one that accumulates gradients updates none either.
    """
    loops = ((op, outer) for op, outer in ops_within(graph) if op.type in _LOOPS)
    bodies = ((op.type, inner) for op, outer in loops for _, inner in inner_graphs(op, outer))
    return next((str(kind) for kind, body in bodies if len(_training_parts(body)) > 1), None)


def computes_gradients(function: Any) -> bool:
    """Whether the graph of a concrete function computes gradients; False where it cannot be read."""
    with suppress(Exception):  # private parts of TensorFlow
        return any(_GRADIENT_SCOPE in op.name for op, _ in ops_within(function.graph))
    return False


def updates_alone(function: Any) -> bool:
    """Whether a concrete function without arguments only updates variables that are trained, as after micro-batches."""
    with suppress(Exception):  # private parts of TensorFlow
        is_given_data = len(function.inputs) > len(function.captured_inputs)
        is_of_model = any(variable.trainable for variable in function.graph.variables)
        return is_of_model and not is_given_data and _training_parts(function.graph) == {"update"}
    return False


def _training_parts(graph: Any) -> set[str]:
    """Which of `gradient` and `update` a graph and those that it calls compute."""
    parts = set()
    for op, _ in ops_within(graph):
        if _GRADIENT_SCOPE in op.name:
            parts.add("gradient")
        if op.type.startswith(_UPDATES):
            parts.add("update")
    return parts


# Each call of a function


_MOST_VISITED: Final = 300_000
"""Ops, each as often as calls lead to it: 14,469 of a ResNet50 took 0.3 s on a busy core."""


class Call:
    """A graph as it is called: `op` of the graph of `outer` led to it, both None for the graph of a step.

    `inner`: the calls that each of its ops leads to, by the name of the op.
    """

    def __init__(
        self, graph: Any, ops: Sequence[Any], outer: Call | None = None, op: Any = None
    ) -> None:
        self.graph = graph
        self.ops = ops
        self.outer = outer
        self.op = op
        self.path: tuple[str, ...] = () if outer is None else (*outer.path, op.name)
        """The ops that led to it, by their names."""
        self.inner: dict[str, list[Call]] = {}

    def arguments(self) -> list[tuple[Any, Any]]:
        """The arguments of the graph, and what is given for them; a branch gets less than its condition."""
        inputs = self.graph.inputs
        return list(zip(inputs, list(self.op.inputs)[-len(inputs) :], strict=False))

    def names_of(self, op: Any) -> Iterator[str]:
        """The names under which the runtime may run an op: its own, and that below the calls that led to it."""
        yield op.name
        if self.path:
            yield "/".join((*self.path, op.name))


def calls_of(
    graphs: Iterable[Any],
    is_seen: Callable[[Any], bool] = lambda _: True,
    most: int | None = None,
) -> Iterator[Call]:
    """The graphs of steps and all calls in them, an outer one first; each knows the calls in it.

    `is_seen`: whether an op is one of `ops`, and its calls are followed. Raises `NoAnswerError` where calls lead to more than
    `most` ops: what is left of these might have the same names.
    """
    most = _MOST_VISITED if most is None else most
    ops_of: dict[int, list[Any]] = {}

    def called(graph: Any, *by: Any) -> Call:
        if id(graph) not in ops_of:
            ops_of[id(graph)] = list(filter(is_seen, graph.get_operations()))
        return Call(graph, ops_of[id(graph)], *by)

    waiting, left = [called(graph) for graph in graphs], most
    while waiting:
        call = waiting.pop()
        left -= len(call.ops)
        if left < 0:
            raise NoAnswerError(f"its calls lead to more than {most:,} ops")
        for op in call.ops if len(call.path) < _DEEPEST else ():
            inner = [called(graph, call, op) for _, graph in inner_graphs(op, call.graph)]
            if inner:
                call.inner[op.name] = inner
                waiting += inner
        yield call


MOST_VALUES: Final = 1_000
"""Of each kind; a model whose float64 is meant has them all in it."""

_IN_64_BITS: Final = ("float64", "complex128")
_NO_WORK: Final = frozenset(
    (
        "Const", "Identity", "NoOp", "Placeholder", "PlaceholderWithDefault", "ReadVariableOp", "Shape",
    )
)  # fmt: skip
"""Ops that hand on what they are given, or take no time."""

HANDLES: Final = ("resource", "variant")


def describe_values(graphs: Iterable[Any]) -> dict[str, Any]:
    """The fields of the sidecar: names of ops in float64, and names of constant ops.

    An op of another kind that has a name, too, takes it away.
    """
    kinds: dict[str, set[str]] = {}
    constants: dict[Call, set[str]] = {}
    is_stateful: dict[str, bool] = {}
    for call in calls_of(graphs):
        constant = constants[call] = _given_constants(call, constants)
        for op in call.ops:
            has_inner = op.type in _FUNCTION_ATTRIBUTES
            given = [tensor.name in constant for tensor in op.inputs]
            is_constant = all(given) and bool(given or op.type == "Const") and not has_inner
            if is_constant and op.type not in is_stateful:
                is_stateful[op.type] = op.op_def is None or op.op_def.is_stateful
            is_constant = is_constant and not is_stateful[op.type]
            if is_constant:
                constant.update(tensor.name for tensor in op.outputs)
            if op.type not in _NO_WORK and not has_inner:
                in_64_bits = any(tensor.dtype.name in _IN_64_BITS for tensor in op.outputs)
                of_op = (("float64", in_64_bits), ("constant", is_constant))
                own = {kind for kind, is_so in of_op if is_so}
                for name in call.names_of(op):
                    kinds[name] = kinds.get(name, own) & own
    return {
        f"{kind}_ops": [name for name, own in kinds.items() if kind in own][:MOST_VALUES]
        for kind in ("float64", "constant")
    }


def _given_constants(call: Call, constants: dict[Call, set[str]]) -> set[str]:
    """The tensors that a call is given and that never change. `constants`: of outer calls, those of all tensors."""
    if call.outer is None:
        return {
            placeholder.name
            for tensor, placeholder in call.graph.captures
            if hasattr(tensor, "numpy") and tensor.dtype.name not in HANDLES
        }
    if call.op.type not in _CALLS or len(call.graph.inputs) != len(call.op.inputs):
        # A loop is given what its body made, and a branch is given more than what it passes on.
        return set()
    known = constants[call.outer]
    return {argument.name for argument, given in call.arguments() if given.name in known}
