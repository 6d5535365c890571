"""Counts the floating-point operations of products in graphs.

A product of two numbers and its sum are two operations. An unknown dimension may follow from the examples of a replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from math import prod
from typing import Any, Final, TypeAlias

from traceview.graphs.calls import HANDLES, Call, calls_of

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


def relative_size(tensor: Any, other: Any) -> float | None:
    """How many numbers a tensor has for each of another; None where their shapes do not tell, or one has none."""
    if tensor.shape.rank is None or other.shape.rank is None:
        return None
    shapes = _static(tensor), _static(other)
    own, others = (prod(size for size in of if size is not None) for of in shapes)
    is_known = shapes[0].count(None) == shapes[1].count(None)
    return own / others if is_known and own and others else None


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
