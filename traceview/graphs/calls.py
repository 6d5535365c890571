"""Walks the graphs of functions and those that they call: counts ops by requested device, and finds gradients, updates and training loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from traceview.base.errors import NoAnswerError

LOOPS: Final = {
    "While": ("cond", "body"),
    "StatelessWhile": ("cond", "body"),
    "ReduceDataset": ("f",),
    "ScanDataset": ("f",),
}
"""Ops that repeat a graph. AutoGraph makes the last two from a `for` over a dataset."""
CALLS: Final = ("PartitionedCall", "StatefulPartitionedCall")
_FUNCTION_ATTRIBUTES: Final = {
    **LOOPS,
    **dict.fromkeys((*CALLS, "RemoteCall"), ("f",)),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("Case", "StatelessCase"), ("branches",)),
}
_OWN_GRAPHS: Final = ("_cond_graph", "_body_graph", "_true_graph", "_false_graph")
"""Where loops and branches have their graphs, once there are gradients (TensorFlow 2.21)."""
_DEEPEST: Final = 8
"""Calls within calls; a function that calls itself has no end."""
_UPDATES: Final = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter")
GRADIENT_SCOPE: Final = "gradient_tape/"
"""The name scope of gradient ops (`GradientTape.gradient`, tensorflow/python/eager/backprop.py)."""


def traces(function: Any) -> list[Any]:
    """The graphs of a `tf.function` as concrete functions, oldest first; of a concrete function itself. Nothing is traced."""
    cache = getattr(function, "_function_cache", None)
    if cache is None:
        return [function] if is_concrete(function) else []
    return list(cache.values())


def is_concrete(function: Any) -> bool:
    """Whether it is a concrete function.

    By its type: to ask one for what it captures makes what it is given with each call, such as the key of a collective, of which
    other workers then have another.
    """
    return hasattr(type(function), "captured_inputs")


def trace_count(function: Any) -> int:
    """How many graphs a `tf.function` has. Cheap, unlike to list them, which hashes the types of all that they capture."""
    cache = getattr(function, "_function_cache", None)
    return len(traces(function)) if cache is None else len(cache)


def inner_graphs(op: Any, graph: Any) -> list[tuple[str, Any]]:
    """The names and graphs of the functions that an op of a graph calls; none where one of them is of TensorFlow 1."""
    found = []
    for attribute in _FUNCTION_ATTRIBUTES.get(op.type, ()):
        value = op.get_attr(attribute)
        for function in value if isinstance(value, list) else [value]:
            name = function.name
            own = (getattr(op, each, None) for each in _OWN_GRAPHS)
            known = (each for each in own if each is not None and each.name == name)
            inner = next(known, None) or getattr(graph._get_function(name), "graph", None)
            found.append((name, inner))
    return found if all(inner is not None for _, inner in found) else []


def ops_within(graph: Any, known: set[str] | None = None) -> Iterator[tuple[Any, Any]]:
    """The ops of a graph and of the functions that it calls, each function once, with the graph that each op is in."""
    known = set() if known is None else known
    for op in graph.get_operations():
        yield op, graph
        for name, inner in inner_graphs(op, graph):
            if name not in known:
                known.add(name)
                yield from ops_within(inner, known)


def count_ops(graph: Any) -> Counter[str]:
    """The ops of a graph and of all that it calls by requested device, else that of the call, or ""."""
    devices: Counter[str] = Counter()
    device_of: dict[Call | None, str] = {None: ""}
    for call in calls_of([graph]):
        around = device_of[call] = (call.op and call.op.device) or device_of[call.outer]
        devices.update(op.device or around for op in call.ops)
    return devices


def training_loop(graph: Any) -> str | None:
    """The type of the op that repeats whole training steps inside a graph: a gradient and an update of a variable; None without one."""
    loops = ((op, outer) for op, outer in ops_within(graph) if op.type in LOOPS)
    bodies = ((op.type, inner) for op, outer in loops for _, inner in inner_graphs(op, outer))
    return next((str(kind) for kind, body in bodies if len({*_training_parts(body)}) > 1), None)


def computes_gradients(function: Any) -> bool:
    """Whether the graph of a concrete function computes gradients; False where it cannot be read."""
    with suppress(Exception):  # private parts of TensorFlow
        return "gradient" in _training_parts(function.graph)
    return False


def makes_batches(functions: Iterable[Any], of_steps: Iterable[Any]) -> list[Any]:
    """Those of some concrete functions that give tensors of a kind that one of a step takes and gives not itself, nor they take.

    The kind is the type and all dimensions but the first, which a script may cut; a scalar has none.
    """
    steps = list(of_steps)
    taken = set[Any]().union(*map(_taken, steps))
    batches = taken - set[Any]().union(*(_kinds(each.outputs) for each in steps))
    return [each for each in functions if batches & (_kinds(each.outputs) - _taken(each))]


def _taken(function: Any) -> set[Any]:
    return _kinds(_arguments(function.graph))


def _arguments(graph: Any) -> list[Any]:
    """What the graph of a function is given by its caller, without what it captures."""
    captured = {id(each) for each in (*graph.internal_captures, *graph.deferred_internal_captures)}
    return [each for each in graph.inputs if id(each) not in captured]


def _kinds(tensors: Iterable[Any]) -> set[Any]:
    shaped = (each for each in tensors if getattr(each, "shape", None) is not None)
    return {(each.dtype.name, *each.shape[1:].as_list()) for each in shaped if each.shape.rank}


def updates_alone(function: Any) -> bool:
    """Whether a concrete function without arguments only updates variables that are trained, as after micro-batches."""
    with suppress(Exception):  # private parts of TensorFlow
        is_given_data = bool(_arguments(function.graph))
        is_of_model = any(variable.trainable for variable in function.graph.variables)
        is_alone = is_of_model and not is_given_data
        return is_alone and {*_training_parts(function.graph)} == {"update"}
    return False


def _training_parts(graph: Any) -> Iterator[str]:
    for op, _ in ops_within(graph):
        if GRADIENT_SCOPE in op.name:
            yield "gradient"
        if op.type.startswith(_UPDATES):
            yield "update"


def source(tensor: Any, through: Collection[str] = ("Identity",)) -> Any:
    """The tensor whose numbers one has; `through`: types of ops that give theirs on."""
    while tensor.op.type in through:
        tensor = tensor.op.inputs[0]
    return tensor


MOST_VISITED: Final = 100_000
"""Ops, each as often as calls lead to it: 14,469 of a ResNet50 took 0.3 s on a busy core."""


@dataclass(eq=False)
class Call:
    """A graph as it is called by `op` of the graph of `outer`, None for that of a step. `inner`: calls by the name of the op."""

    graph: Any
    ops: Sequence[Any]
    outer: Call | None = None
    op: Any = None
    inner: dict[str, list[Call]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.path: tuple[str, ...] = (*self.outer.path, self.op.name) if self.outer else ()
        self.root: Call = self.outer.root if self.outer else self

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
    graphs: Iterable[Any], is_seen: Callable[[Any], bool] = lambda _: True
) -> Iterator[Call]:
    """The graphs of steps and all calls in them, an outer one first; each knows the calls in it.

    `is_seen`: whether an op is one of `ops`, and its calls are followed. Raises `NoAnswerError` where calls lead to more than
    `MOST_VISITED` ops: what is left of these might have the same names.
    """
    ops_of: dict[int, list[Any]] = {}

    def called(graph: Any, *by: Any) -> Call:
        if id(graph) not in ops_of:
            ops_of[id(graph)] = list(filter(is_seen, graph.get_operations()))
        return Call(graph, ops_of[id(graph)], *by)

    waiting, left = [called(graph) for graph in graphs], MOST_VISITED
    while waiting:
        call = waiting.pop()
        left -= len(call.ops)
        if left < 0:
            raise NoAnswerError(f"its calls lead to more than {MOST_VISITED:,} ops")
        for op in call.ops if len(call.path) < _DEEPEST else ():
            inner = [called(graph, call, op) for _, graph in inner_graphs(op, call.graph)]
            if inner:
                call.inner[op.name] = inner
                waiting += inner
        yield call


HANDLES: Final = ("resource", "variant")
