"""Counts the floating-point operations of the products in graphs, from the shapes that are known before a step runs.

A product of two numbers and its sum are two operations; ops that multiply no matrices are not here. An op that has a
dimension that is not known is left out, unless that is the first of a tensor and follows from the examples of a replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from math import prod
from typing import Any, Final, TypeAlias

from traceview.capture.steps.graphs import HANDLES, Call, calls_of

MOST_OPS: Final = 20_000
"""Names; what a graph has beyond is left out."""

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

_BROADCAST: Final = "BroadcastGradientArgs"

_LARGEST: Final = 1 << 53
"""Readers of a sidecar take no larger number."""

_Sizes: TypeAlias = "list[int] | None"
_Shape: TypeAlias = Callable[[Any], _Sizes]
_Count: TypeAlias = Callable[[Any, _Shape], int]


def describe_flops(graphs: Iterable[Any], examples: int | None) -> dict[str, int]:
    """The operations of the products in graphs, by name of the op; `examples`: of a replica in a step, None where not known.

    Names that ops of different operations have are left out. Raises `NoAnswerError` where calls lead to too many ops.
    """
    found: dict[str, int | None] = {}
    shapes = _Shapes(examples)
    # All of them first: shapes follow from what outer and inner calls give each other.
    for call in list(calls_of(graphs)):
        for op in (op for op in call.ops if op.type in _FLOPS_OF):
            flops = _flops(op, partial(shapes.of, call))
            for name in (name for each in _fused(op) for name in call.names_of(each)):
                if name in found or len(found) < MOST_OPS:
                    found[name] = flops if found.setdefault(name, flops) == flops else None
    return {name: flops for name, flops in found.items() if flops is not None}


def _flops(op: Any, shape: _Shape) -> int | None:
    with suppress(TypeError, ValueError, IndexError, KeyError):
        counted = _FLOPS_OF[op.type](op, shape)
        return counted if 0 < counted <= _LARGEST else None
    return None


def _fused(op: Any) -> Iterator[Any]:
    """An op, and those after it with which it may be run as one: a bias and an activation."""
    yield op
    for _ in range(_MOST_FUSED):
        op = next((each for each in op.outputs[0].consumers() if each.type in _FUSED), None)
        if op is None:
            return
        yield op


class _Shapes:
    """The shapes of tensors, in each call of their graph."""

    def __init__(self, examples: int | None) -> None:
        self._examples = examples
        self._known: dict[tuple[Call, str], _Sizes] = {}

    def of(self, call: Call, tensor: Any, before: int = 0) -> _Sizes:
        """The dimensions of a tensor; None where one is not known."""
        key = call, tensor.name
        if key not in self._known:
            sizes: list[Any] = [None, None] if tensor.shape.rank is None else _static(tensor)
            if None in sizes:
                found = next(self._elsewhere(call, tensor, before + 1), None)
                self._known[key] = found or self._completed(call, tensor.op, sizes, before + 1)
            else:
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
        """The sizes of a result, of which one is not known."""
        if sizes.count(None) > 1 or before > _MOST_BEFORE:
            return None
        of = partial(self.of, call, before=before)
        inputs = list(op.inputs)
        if op.type in _AS_LARGE_AS and inputs[1].op.type == "Shape":
            # `Tile` repeats the gradient of a sum, of which all dimensions are 1.
            is_other = op.type == "Tile" and set(_static(inputs[0])) != {1}
            return None if is_other else of(inputs[1].op.inputs[0])
        is_part = op.type == "StridedSlice" and inputs[0].shape.rank == len(sizes) + 1
        if is_part and _static(inputs[0])[1:] == sizes:
            # One of the steps of a sequence, whichever dimension that is.
            whole = of(inputs[0])
            return whole[1:] if whole else self._of_examples(sizes)
        made_by: Any = inputs[0].op if op.type == "Reshape" else None
        if getattr(made_by, "type", "") == "Sum" and made_by.inputs[1].op.type == _BROADCAST:
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
        firsts = {known[0] for each in inputs if _is_open(each) and (known := of(each))}
        # What reads an iterator or an optional gives the examples.
        is_source = all(tensor.dtype.name in HANDLES for tensor in inputs)
        if not firsts and (is_source or op.type in _OF_BATCH):
            return self._of_examples(sizes)
        return [firsts.pop(), *sizes[1:]] if len(firsts) == 1 else None

    def _of_examples(self, sizes: list[Any]) -> _Sizes:
        return None if self._examples is None else [self._examples, *sizes[1:]]


def _is_open(tensor: Any) -> bool:
    """Whether the first dimension of a tensor is not known before a step."""
    return _static(tensor)[:1] == [None]


def _static(tensor: Any) -> list[Any]:
    """The dimensions that are known before a step, None for others; empty where not even their number is."""
    return [] if tensor.shape.rank is None else list(tensor.shape.as_list())


# Products


def _matrices(op: Any, shape: _Shape) -> int:
    """`MatMul` and its batched kin: the elements of the result, times what each sums over."""
    left, right = (shape(tensor) or [] for tensor in op.inputs[:2])
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


def _einsum(op: Any, shape: _Shape) -> int:
    """Two operations for each combination of all letters."""
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


def _convolution(kernel: str, result: str) -> _Count:
    """Each number of the result of the forward pass sums as many products as the kernel of one feature has elements.

    Both gradients have as many. `kernel`, `result`: which tensors of the op have these shapes, `input 1` the second one.
    """

    def count(op: Any, shape: _Shape) -> int:
        words = (place.split() for place in (kernel, result))
        sizes, places = (shape(getattr(op, f"{kind}s")[int(n)]) or [] for kind, n in words)
        summed = prod(sizes[:-2] if op.type.startswith("Depthwise") else sizes[:-1])
        return 2 * prod(places) * summed if sizes and places else 0

    return count


_FORWARD: Final = _convolution("input 1", "output 0")
_OF_INPUT: Final = _convolution("input 1", "input 2")
_OF_KERNEL: Final = _convolution("output 0", "input 2")

_FLOPS_OF: Final[dict[str, _Count]] = {
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
