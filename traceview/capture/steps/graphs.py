"""Walks the graphs of functions and those that they call: counts ops by requested device, and finds gradients, updates and
training loops, and the floating-point operations of products.

A product of two numbers and its sum are two operations. An unknown dimension may follow from the examples of a replica.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from math import prod
from typing import Any, Final, TypeAlias

from traceview.capture.sidecar.file import NoAnswerError

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
        return [function] if hasattr(function, "captured_inputs") else []
    return list(cache.values())


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


def updates_alone(function: Any) -> bool:
    """Whether a concrete function without arguments only updates variables that are trained, as after micro-batches."""
    with suppress(Exception):  # private parts of TensorFlow
        is_given_data = len(function.inputs) > len(function.captured_inputs)
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
_FUSED: Final = frozenset((
    "BiasAdd", "Add", "AddV2", "FusedBatchNormV3", "Relu", "Relu6", "Elu", "LeakyRelu", "Tanh", "Sigmoid",
))  # fmt: skip
_OF_BATCH: Final = frozenset(("Fill", "TensorListGetItem", "TensorListPopBack"))
"""Ops whose results have a dimension that no input shows: in a step it is that of the examples."""
_OTHER_FIRST: Final = frozenset((
    "BatchToSpaceND", "BroadcastTo", "Concat", "ConcatV2", "Range", "SpaceToBatchND", "StridedSlice", "Tile",
    "Unique", "UniqueV2", "Where",
))  # fmt: skip
"""Ops whose first dimension may be another than that of what they are given."""
_Sizes: TypeAlias = "list[int] | None"
_Shape: TypeAlias = Callable[[Any], _Sizes]
_Count: TypeAlias = Callable[[Any, _Shape], int]


def describe_flops(graphs: Iterable[Any], examples: int | None) -> dict[str, int]:
    """The operations of products by name of the op, none for names of several; raises `NoAnswerError` for too many ops."""
    found: dict[str, int | None] = {}
    shapes = _Shapes(examples)
    # All of them first: shapes follow from what outer and inner calls give each other.
    for call in list(calls_of(graphs)):
        for op in (op for op in call.ops if op.type in FLOPS_OF):
            flops = None
            with suppress(TypeError, ValueError, IndexError, KeyError):
                flops = FLOPS_OF[op.type](op, partial(shapes.of, call))
            flops = flops if flops and 0 < flops <= 1 << 53 else None
            for name in (name for each in _fused(op) for name in call.names_of(each)):
                if name in found or len(found) < 20_000:
                    found[name] = flops if found.setdefault(name, flops) == flops else None
    return {name: flops for name, flops in found.items() if flops is not None}


def _fused(op: Any) -> Iterator[Any]:
    yield op
    for _ in range(4):
        op = next((each for each in op.outputs[0].consumers() if each.type in _FUSED), None)
        if op is None:
            return
        yield op


class _Shapes:
    def __init__(self, examples: int | None) -> None:
        self._examples = examples
        self._known: dict[tuple[Call, str], _Sizes] = {}

    def of(self, call: Call, tensor: Any, before: int = 0) -> _Sizes:
        """The dimensions of a tensor; None where one is not known."""
        key = call, tensor.name
        if key not in self._known:
            sizes: Any = [None, None] if tensor.shape.rank is None else _static(tensor)
            if None in sizes:
                found = next(self._elsewhere(call, tensor, before + 1), None)
                sizes = found or self._completed(call, tensor.op, sizes, before + 1)
            self._known[key] = sizes
        return self._known[key]

    def _elsewhere(self, call: Call, tensor: Any, before: int) -> Iterator[list[int]]:
        """The sizes of what an argument is given, and of what a call returns."""
        if call.outer is not None and tensor.op.type == "Placeholder":
            for argument, given in call.arguments():
                if argument.name == tensor.name and (sizes := self.of(call.outer, given, before)):
                    yield sizes
        for inner in call.inner.get(tensor.op.name, ()):
            for result in inner.graph.outputs[tensor.value_index :][:1]:
                if (sizes := self.of(inner, result, before)) is not None:
                    yield sizes

    def _completed(self, call: Call, op: Any, sizes: list[Any], before: int) -> _Sizes:
        if sizes.count(None) > 1 or before > 100:
            return None
        of = partial(self.of, call, before=before)
        inputs = list(op.inputs)
        if op.type in ("BroadcastTo", "Tile") and inputs[1].op.type == "Shape":
            # A gradient as large as the tensor whose shape it is given: `Tile` repeats that of a sum, all of whose dimensions are 1.
            is_other = op.type == "Tile" and set(_static(inputs[0])) != {1}
            return None if is_other else of(inputs[1].op.inputs[0])
        is_part = op.type == "StridedSlice" and inputs[0].shape.rank == len(sizes) + 1
        if is_part and _static(inputs[0])[1:] == sizes:
            # One of the steps of a sequence, whichever dimension that is.
            whole = of(inputs[0])
            return whole[1:] if whole else self._of_examples(sizes)
        made_by: Any = inputs[0].op if inputs else None
        is_sum = op.type == "Reshape" and made_by.type == "Sum"
        if is_sum and made_by.inputs[1].op.type == "BroadcastGradientArgs":
            # The gradient of what may have been broadcast, and here was not.
            whole = of(made_by.inputs[0])
            return whole if whole and whole[1:] == sizes[1:] else None
        if op.type in ("Reshape", "Transpose"):
            whole = of(inputs[0])
            rest = prod(size for size in sizes if size is not None)
            if whole is None or not rest or prod(whole) % rest:
                return None
            return [prod(whole) // rest if size is None else size for size in sizes]
        # What is put together along another dimension is longer in that.
        is_part |= op.type == "ConcatV2" and _static(inputs[0])[1:] != sizes[1:]
        if sizes[0] is not None or (op.type in _OTHER_FIRST and not is_part):
            return None
        open_ = (each for each in inputs if _static(each)[:1] == [None])
        firsts = {known[0] for each in open_ if (known := of(each))}
        # What reads an iterator or an optional gives the examples.
        is_source = all(tensor.dtype.name in HANDLES for tensor in inputs)
        if not firsts and (is_source or op.type in _OF_BATCH):
            return self._of_examples(sizes)
        return [firsts.pop(), *sizes[1:]] if len(firsts) == 1 else None

    def _of_examples(self, sizes: list[Any]) -> _Sizes:
        return None if self._examples is None else [self._examples, *sizes[1:]]


def _static(tensor: Any) -> list[Any]:
    """The dimensions that are known before a step, None for others; empty where not even their number is."""
    return [] if tensor.shape.rank is None else list(tensor.shape.as_list())


def _matrices(op: Any, shape: _Shape) -> int:
    """`MatMul` and its batched kin: the elements of the result, times what each sums over."""
    left, right = (shape(tensor) or [] for tensor in op.inputs[:2])
    rows, summed = left[-2:]
    names = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    is_left_turned, is_right_turned = map(op.get_attr, names)
    if is_left_turned:
        rows, summed = summed, rows
    columns = right[-2 if is_right_turned else -1]
    # The innermost dimensions of the batches belong together; one of 1, or none, is the same for each of the other's.
    batches = zip_longest(reversed(left[:-2]), reversed(right[:-2]), fillvalue=1)
    return 2 * prod(map(max, batches)) * rows * summed * columns


def _einsum(op: Any, shape: _Shape) -> int:
    first, second = op.get_attr("equation").decode().partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for letters, tensor in zip((first, second), op.inputs, strict=True):
        dimensions = shape(tensor) or []
        before, dots, after = letters.partition("...")
        end = len(dimensions) - len(after)
        if end < len(before) or (end > len(before) and not dots):
            raise ValueError(letters)
        sizes["..."] = max(sizes.get("...", 1), prod(dimensions[len(before) : end]))
        sizes.update(zip(before, dimensions, strict=False))
        sizes.update(zip(reversed(after), reversed(dimensions), strict=False))
    return 2 * prod(sizes.values())


def _convolution(op: Any, shape: _Shape) -> int:
    """Both gradients take as many products as the forward pass: they are given that of the result, and make those of the others."""
    kernel = op.outputs[0] if "BackpropFilter" in op.type else op.inputs[1]
    result = op.inputs[2] if "Backprop" in op.type else op.outputs[0]
    sizes, places = shape(kernel) or [], shape(result) or []
    summed = prod(sizes[:-2] if op.type.startswith("Depthwise") else sizes[:-1])
    return 2 * prod(places) * summed if sizes and places else 0


FLOPS_OF: Final[dict[str, _Count]] = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matrices),
    "Einsum": _einsum,
    **dict.fromkeys((
        "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter",
        "Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2",
        "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter",
    ), _convolution),
}  # fmt: skip
