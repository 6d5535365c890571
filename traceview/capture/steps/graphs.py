"""Walks the graphs of functions and those that they call: counts ops by requested device, and finds gradients, updates and
training loops, ops that compute in float64, those that compute the same in every step, and the floating-point operations of products.

A product of two numbers and its sum are two operations. An unknown dimension may follow from the examples of a replica.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from math import prod
from typing import Any, Final, TypeAlias

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
_OWN_GRAPHS: Final = ("_cond_graph", "_body_graph", "_true_graph", "_false_graph")
"""Where loops and branches have their graphs, once there are gradients (TensorFlow 2.21)."""
_DEEPEST: Final = 8
"""Calls within calls; a function that calls itself has no end."""
_UPDATES: Final = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter")
_GRADIENT_SCOPE: Final = "gradient_tape/"
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
    loops = ((op, outer) for op, outer in ops_within(graph) if op.type in _LOOPS)
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
        if _GRADIENT_SCOPE in op.name:
            yield "gradient"
        if op.type.startswith(_UPDATES):
            yield "update"


_MOST_VISITED: Final = 100_000
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
    `_MOST_VISITED` ops: what is left of these might have the same names.
    """
    ops_of: dict[int, list[Any]] = {}

    def called(graph: Any, *by: Any) -> Call:
        if id(graph) not in ops_of:
            ops_of[id(graph)] = list(filter(is_seen, graph.get_operations()))
        return Call(graph, ops_of[id(graph)], *by)

    waiting, left = [called(graph) for graph in graphs], _MOST_VISITED
    while waiting:
        call = waiting.pop()
        left -= len(call.ops)
        if left < 0:
            raise NoAnswerError(f"its calls lead to more than {_MOST_VISITED:,} ops")
        for op in call.ops if len(call.path) < _DEEPEST else ():
            inner = [called(graph, call, op) for _, graph in inner_graphs(op, call.graph)]
            if inner:
                call.inner[op.name] = inner
                waiting += inner
        yield call


_NO_WORK: Final = frozenset((
    "Const", "Identity", "NoOp", "Placeholder", "PlaceholderWithDefault", "ReadVariableOp", "Shape",
))  # fmt: skip
_IN_64_BITS: Final = frozenset(("float64", "complex128"))
HANDLES: Final = ("resource", "variant")
_NEXT: Final = "IteratorGetNext"
_READS: Final = frozenset(("ReadVariableOp", "ResourceGather", "ResourceGatherNd"))


def describe_values(graphs: Iterable[Any], trained: Collection[int] = ()) -> dict[str, Any]:
    """The names of ops in float64, of those that read only constants and tensors made before the graph, of those that besides read
    only the batch, or only variables, and of those that train nothing; none for names of others.

    `trained`: ids of the handles of trained variables; without an update of one the last three are not known.
    """
    flow = _Flow(calls_of(graphs))
    changing = reached(flow.sources, flow.users)
    by_state = reached((node for node, is_state in flow.sources.items() if is_state), flow.users)
    by_others = reached(flow.sources.keys() - flow.variables, flow.users)
    needed = flow.needed(trained)
    # Where the only data are a tensor made before the graph, all that reads it reads no batch.
    has_batch = bool(needed) and not all(flow.sources.values())
    forward = {node for node, op in flow.ops.items() if _GRADIENT_SCOPE not in op.name}
    works = {node for node in forward if flow.ops[node].type not in _NO_WORK}
    free = {name for _, name in works & changing - by_others}
    scopes = {*free, *map(_scope, free)} - {"", *(_scope(name) for _, name in forward & by_others)}
    kinds: dict[str, set[str]] = {}
    for node, op in flow.ops.items():
        if op.type in _NO_WORK:
            continue
        own = set()
        if not _IN_64_BITS.isdisjoint(tensor.dtype.name for tensor in op.outputs):
            own.add("float64")
        if node not in changing:
            own.add("constant")
        elif needed and node not in needed and not flow.is_of_loss(op):
            own.add("untrained")
        elif needed and node not in by_state and not (op.type.startswith(_NEXT) or _widens(op)):
            own.add("batch")
        elif has_batch and (node not in by_others or _scope(op.name) in scopes):
            own.add("variable")
        for name in node[0].names_of(op):
            kinds[name] = kinds.get(name, own) & own
    return {
        f"{kind}_ops": [name for name, own in kinds.items() if kind in own][:1_000]
        for kind in ("float64", "constant", "batch", "variable", "untrained")
    }


def _widens(op: Any) -> bool:
    """Whether an op casts to a larger type: what the step is given before is less to hand over, and to copy to a GPU."""
    return op.type == "Cast" and bool(op.outputs[0].dtype.size > op.inputs[0].dtype.size)


def _scope(name: str) -> str:
    """The scope of an op; of a gradient that of the op that it is of."""
    return name.rpartition(_GRADIENT_SCOPE)[2].rpartition("/")[0]


_Node: TypeAlias = tuple[Call, str]
"""An op of a call, or a result of an op that calls; that op itself is whether, and how often, it calls."""
_Edges: TypeAlias = dict[_Node, list[_Node]]


def reached(starts: Iterable[_Node], *edges: _Edges) -> set[_Node]:
    """The nodes that edges lead to, with the starts."""
    found, waiting = set[_Node](), list(starts)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += (after for each in edges for after in each.get(node, ()))
    return found


class _Flow:
    """What ops read and wait for (`reads`), and who reads them (`users`). `sources`: what may differ from step to step, and whether
    that is any other state than the batch; `variables`: those that are handles, or only read one.
    """

    def __init__(self, calls: Iterable[Call]) -> None:
        self.ops: dict[_Node, Any] = {}
        self.sources: dict[_Node, bool] = {}
        self.variables: set[_Node] = set()
        self.users: _Edges = {}
        self._reads: _Edges = {}
        self._handles: dict[int, list[_Node]] = {}
        """By the id of a handle that graphs have captured its nodes."""
        self._carriers: set[_Node] = set()
        """Nodes that may be handles."""
        self._differentiated: set[str] = set()
        for call in list(calls):
            if call.outer is None:
                self._add_inputs(call)
            for op in call.ops:
                self._add(call, op)
        for node, read in self._reads.items():
            for each in read:
                self.users.setdefault(each, []).append(node)

    def is_of_loss(self, op: Any) -> bool:
        """Whether a gradient may have been taken through an op, without reading its result."""
        # Gradients of products have the name of the product, others that of the scope around.
        scopes = {op.name} if op.type in _FLOPS_OF else {op.name, op.name.rpartition("/")[0]}
        is_float = all(tensor.dtype.is_floating for tensor in op.outputs)
        is_float = is_float and any(tensor.dtype.is_floating for tensor in op.inputs)
        return is_float and not self._differentiated.isdisjoint(scopes)

    def needed(self, trained: Collection[int]) -> set[_Node]:
        """What updates of trained variables depend on, as do all changes of what these read; empty without an update by gradients."""
        beyond = {node: self.users.get(node, []) for node in self._carriers}
        uses = {
            handle: [node for node in reached(nodes, beyond) if node in self.ops]
            for handle, nodes in self._handles.items()
        }
        roots = [node for handle in trained for node in uses.get(handle, ())]
        changes = {node: uses[handle] for handle, nodes in self._handles.items() for node in nodes}
        found = reached(roots, self._reads, changes)
        # Gradients that are returned may be applied elsewhere.
        return found if any(_GRADIENT_SCOPE in name for _, name in found) else set()

    def _add_inputs(self, call: Call) -> None:
        captured = {inside.name: given for given, inside in call.graph.captures}
        for tensor in call.graph.inputs:
            node, given = (call, tensor.op.name), captured.get(tensor.name)
            is_handle = tensor.dtype.name in HANDLES
            if given is None or is_handle or not hasattr(given, "numpy"):
                self.sources[node] = given is not None or is_handle
            if is_handle:
                self.variables.add(node)
            if given is not None and is_handle:
                self._handles.setdefault(id(given), []).append(node)

    def _add(self, call: Call, op: Any) -> None:
        own = call, op.name
        if any(tensor.dtype.name in HANDLES for tensor in op.outputs):
            self._carriers.update(_node(call, tensor) for tensor in op.outputs)
        if _GRADIENT_SCOPE in op.name:
            self._differentiated.add(op.name.rpartition(_GRADIENT_SCOPE)[2].rpartition("/")[0])
        reads = self._reads.setdefault(own, [])
        if call.outer is not None:
            reads.append((call.outer, call.op.name))
        if op.name in call.inner:
            self._add_call(call, op, reads)
            return
        self.ops[own] = op
        if op.type.startswith(_NEXT):
            self.sources[own] = False
            return
        reads += (_node(call, tensor) for tensor in op.inputs)
        reads += ((call, each.name) for each in op.control_inputs)
        if op._is_stateful:
            self.sources[own] = True
        if op.type in _READS:
            self.variables.add(own)

    def _add_call(self, call: Call, op: Any, decide: list[_Node]) -> None:
        inner, is_loop = call.inner[op.name], op.type in _LOOPS
        inputs = [_node(call, tensor) for tensor in op.inputs]
        returned = [[_node(each, tensor) for tensor in each.graph.outputs] for each in inner]
        decide += ((call, each.name) for each in op.control_inputs)
        if is_loop:
            # A `While` has a condition; of loops over a dataset anything may depend on all.
            decide += returned[0] if len(inner) > 1 else [*inputs, *returned[0]]
            returned = [inputs, returned[-1]]
        elif op.type not in _CALLS:
            decide += inputs[:1]
        for each in inner:
            for place, (argument, given) in enumerate(each.arguments()):
                reads = self._reads.setdefault((each, argument.op.name), [])
                reads += (_node(call, given), *(returned[1][place : place + 1] if is_loop else ()))
        for place, tensor in enumerate(op.outputs):
            results = (node for each in returned for node in each[place : place + 1])
            self._reads[call, tensor.name] = [(call, op.name), *results]


def _node(call: Call, tensor: Any) -> _Node:
    return call, tensor.name if tensor.op.name in call.inner else tensor.op.name


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
        for op in (op for op in call.ops if op.type in _FLOPS_OF):
            flops = None
            with suppress(TypeError, ValueError, IndexError, KeyError):
                flops = _FLOPS_OF[op.type](op, partial(shapes.of, call))
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


_FLOPS_OF: Final[dict[str, _Count]] = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matrices),
    "Einsum": _einsum,
    **dict.fromkeys((
        "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter",
        "Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2",
        "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter",
    ), _convolution),
}  # fmt: skip
