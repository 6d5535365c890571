"""Counts the floating-point operations of the products in graphs, from the shapes that are known before a step runs.

A product of two numbers and its sum are two operations; ops that multiply no matrices are not here. An op that has a
dimension that is not known is left out, unless that is the first of a tensor and follows from the examples of a replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from math import prod
from typing import Any, Final, TypeAlias

from traceview.capture.steps.graphs import DEEPEST, Visits, inner_graphs, names_of

MOST_OPS: Final = 20_000
"""Names; what a graph has beyond is left out."""

_MOST_VISITED: Final = 300_000
_MOST_BEFORE: Final = 100
"""Ops in a row of which the size of a batch is handed on."""

_MOST_FUSED: Final = 4
"""Ops after a product that the runtime may run together with it, under the name of the last of them."""

_FUSED: Final = frozenset(
    (
        "BiasAdd", "Add", "AddV2", "FusedBatchNormV3", "Relu", "Relu6", "Elu", "LeakyRelu", "Tanh", "Sigmoid",
    )
)  # fmt: skip
_OF_BATCH: Final = frozenset(("Fill", "TensorListGetItem", "TensorListPopBack"))
"""Ops whose results have a dimension that no input shows: in a step it is that of the examples."""

_OTHER_FIRST: Final = frozenset(
    (
        "BatchToSpaceND", "BroadcastTo", "Concat", "ConcatV2", "Range", "SpaceToBatchND", "StridedSlice", "Tile",
        "Unique", "UniqueV2", "Where",
    )
)  # fmt: skip
"""Ops whose first dimension may be another than that of what they are given."""

_AS_LARGE_AS: Final = ("BroadcastTo", "Tile")
"""Ops that make a gradient as large as the tensor whose shape they are given."""

_HANDLES: Final = ("resource", "variant")

_LARGEST: Final = 1 << 53
"""Readers of a sidecar take no larger number."""

_Sizes: TypeAlias = "list[int] | None"
_Tensor: TypeAlias = Callable[[Any], Any]


def describe_flops(graphs: Iterable[Any], examples: int | None) -> dict[str, int]:
    """The operations of the products in graphs, by name of the op; `examples`: of a replica in a step, None where not known.

    Names that ops of different operations have are left out. Raises `NoAnswerError` where calls lead to too many ops.
    """
    found = _Found(examples)
    for graph in graphs:
        found.visit(graph, _Shapes(examples, {}), ())
    return {name: flops for name, flops in found.flops.items() if flops is not None}


class _Found:
    """Operations by name of the op, None where ops of one name differ; with the calls that led to it, and without."""

    def __init__(self, examples: int | None) -> None:
        self.flops: dict[str, int | None] = {}
        self._examples = examples
        self._visits = Visits(_MOST_VISITED)

    def visit(self, graph: Any, shapes: _Shapes, calls: tuple[str, ...]) -> None:
        """Add the products of a graph and of those that it calls."""
        ops = graph.get_operations()
        self._visits.add(len(ops))
        for op in ops:
            if op.type in _FLOPS_OF:
                self._add(op, shapes, calls)
            for _, inner in inner_graphs(op, graph) if len(calls) < DEEPEST else ():
                given = [shapes.of(tensor) for tensor in op.inputs][-len(inner.inputs) :]
                known = zip(inner.inputs, given, strict=False)
                own = _Shapes(self._examples, {a.name: sizes for a, sizes in known if sizes})
                self.visit(inner, own, (*calls, op.name))
                shapes.called(op, [own.of(tensor) for tensor in inner.outputs])

    def _add(self, op: Any, shapes: _Shapes, calls: tuple[str, ...]) -> None:
        flops = None
        with suppress(TypeError, ValueError, IndexError, KeyError):
            counted = _FLOPS_OF[op.type](op, shapes)
            flops = counted if 0 < counted <= _LARGEST else None
        for each in _fused(op):
            for shown in names_of(each, calls):
                if shown in self.flops or len(self.flops) < MOST_OPS:
                    is_other = self.flops.setdefault(shown, flops) != flops
                    self.flops[shown] = None if is_other else flops


def _fused(op: Any) -> Iterator[Any]:
    """An op, and those after it with which it may be run as one: a bias and an activation."""
    yield op
    for _ in range(_MOST_FUSED):
        op = next((each for each in op.outputs[0].consumers() if each.type in _FUSED), None)
        if op is None:
            return
        yield op


class _Shapes:
    """The shapes of the tensors of one call of a graph; `given`: those of its arguments by name, None where not known."""

    def __init__(self, examples: int | None, given: dict[str, _Sizes]) -> None:
        self._examples = examples
        self._known = given

    def of(self, tensor: Any, before: int = 0) -> _Sizes:
        """The dimensions of a tensor; None where one is not known."""
        name = tensor.name
        if name not in self._known:
            sizes: list[Any] = [None, None] if tensor.shape.rank is None else _static(tensor)
            if None in sizes:
                self._known[name] = self._completed(tensor.op, sizes, before + 1)
            else:
                self._known[name] = sizes
        return self._known[name]

    def called(self, op: Any, results: Sequence[_Sizes]) -> None:
        """Note the shapes of what a call returned."""
        for tensor, sizes in zip(op.outputs, results, strict=False):
            if sizes is not None:
                self._known.setdefault(tensor.name, sizes)

    def _completed(self, op: Any, sizes: list[Any], before: int) -> _Sizes:
        """The sizes of a result, of which one is not known."""
        if sizes.count(None) > 1 or before > _MOST_BEFORE:
            return None
        inputs = list(op.inputs)
        if op.type in _AS_LARGE_AS and inputs[1].op.type == "Shape":
            # `Tile` repeats the gradient of a sum, of which all dimensions are 1.
            if op.type == "Tile" and set(_static(inputs[0])) != {1}:
                return None
            return self.of(inputs[1].op.inputs[0], before)
        is_part = op.type == "StridedSlice" and inputs[0].shape.rank == len(sizes) + 1
        if is_part and _static(inputs[0])[1:] == sizes:
            # One of the steps of a sequence, whichever dimension that is.
            whole = self.of(inputs[0], before)
            return whole[1:] if whole else self._of_examples(sizes)
        if op.type == "Reshape" and _is_sum_of_broadcast(inputs[0].op):
            # The gradient of what may have been broadcast, and here was not.
            whole = self.of(inputs[0].op.inputs[0], before)
            return whole if whole and whole[1:] == sizes[1:] else None
        if op.type in ("Reshape", "Transpose"):
            whole = self.of(inputs[0], before)
            rest = prod(size for size in sizes if size is not None)
            if whole is None or not rest or prod(whole) % rest:
                return None
            return [prod(whole) // rest if size is None else size for size in sizes]
        # What is put together along another dimension is longer in that.
        is_part |= op.type == "ConcatV2" and _static(inputs[0])[1:] != sizes[1:]
        if sizes[0] is not None or (op.type in _OTHER_FIRST and not is_part):
            return None
        firsts = {
            known[0] for tensor in inputs if _is_open(tensor) and (known := self.of(tensor, before))
        }
        # What reads an iterator or an optional gives the examples.
        is_source = all(tensor.dtype.name in _HANDLES for tensor in inputs)
        if not firsts and (is_source or op.type in _OF_BATCH):
            return self._of_examples(sizes)
        return [firsts.pop(), *sizes[1:]] if len(firsts) == 1 else None

    def _of_examples(self, sizes: list[Any]) -> _Sizes:
        return None if self._examples is None else [self._examples, *sizes[1:]]


def _is_sum_of_broadcast(op: Any) -> bool:
    return bool(op.type == "Sum" and op.inputs[1].op.type == "BroadcastGradientArgs")


def _is_open(tensor: Any) -> bool:
    """Whether the first dimension of a tensor is not known before a step."""
    return _static(tensor)[:1] == [None]


def _static(tensor: Any) -> list[Any]:
    """The dimensions that are known before a step, None for others; empty where not even their number is."""
    return [] if tensor.shape.rank is None else list(tensor.shape.as_list())


# Products


def _matrices(op: Any, shapes: _Shapes) -> int:
    """`MatMul` and its batched kin: the elements of the result, times what each sums over."""
    left, right = (shapes.of(tensor) or [] for tensor in op.inputs[:2])
    rows, summed = left[-2:]
    of_left, of_right = (
        ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    )
    if op.get_attr(of_left):
        rows, summed = summed, rows
    columns = right[-2 if op.get_attr(of_right) else -1]
    # The innermost dimensions of the batches belong together; one of 1, or none, is the same for each of the other's.
    batches = zip_longest(reversed(left[:-2]), reversed(right[:-2]), fillvalue=1)
    return 2 * prod(map(max, batches)) * rows * summed * columns


def _einsum(op: Any, shapes: _Shapes) -> int:
    """Two operations for each combination of all letters."""
    first, second = op.get_attr("equation").decode().partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for letters, tensor in zip((first, second), op.inputs, strict=True):
        shape = shapes.of(tensor) or []
        before, dots, after = letters.partition("...")
        middle = len(shape) - len(before) - len(after)
        if middle if not dots else middle < 0:
            raise ValueError(letters)
        sizes["..."] = max(sizes.get("...", 1), prod(shape[len(before) : len(before) + middle]))
        sizes.update(zip(before, shape, strict=False))
        sizes.update(zip(reversed(after), reversed(shape), strict=False))
    return 2 * prod(sizes.values())


def _convolution(kernel: _Tensor, result: _Tensor) -> Callable[[Any, _Shapes], int]:
    """Each number of the result of the forward pass sums as many products as the kernel of one feature has elements.

    Both gradients have as many.
    """

    def count(op: Any, shapes: _Shapes) -> int:
        sizes, places = shapes.of(kernel(op)) or [], shapes.of(result(op)) or []
        summed = prod(sizes[:-2] if op.type.startswith("Depthwise") else sizes[:-1])
        return 2 * prod(places) * summed if sizes and places else 0

    return count


_FORWARD: Final = _convolution(lambda op: op.inputs[1], lambda op: op.outputs[0])
_OF_INPUT: Final = _convolution(lambda op: op.inputs[1], lambda op: op.inputs[2])
_OF_KERNEL: Final = _convolution(lambda op: op.outputs[0], lambda op: op.inputs[2])

_FLOPS_OF: Final[dict[str, Callable[[Any, _Shapes], int]]] = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matrices),
    "Einsum": _einsum,
    "Conv2D": _FORWARD,
    "Conv2DBackpropInput": _OF_INPUT,
    "Conv2DBackpropFilter": _OF_KERNEL,
    "Conv3D": _FORWARD,
    "Conv3DBackpropInputV2": _OF_INPUT,
    "Conv3DBackpropFilterV2": _OF_KERNEL,
    "DepthwiseConv2dNative": _FORWARD,
    "DepthwiseConv2dNativeBackpropInput": _OF_INPUT,
    "DepthwiseConv2dNativeBackpropFilter": _OF_KERNEL,
}
"""How operations are counted, by type of op."""
