"""What ops make of zeros, what is taken apart as it was joined, and what devices exchange."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from traceview.graphs.calls import GRADIENT_SCOPE
from traceview.graphs.flops import FLOPS_OF

SUMS: Final = frozenset(("Add", "AddN", "AddV2", "Sub"))
SCALING: Final = frozenset(("Cast", "Identity", "Mul", "Neg", "RealDiv", "Reshape"))
_ZERO_OF_ONE: Final = {*FLOPS_OF, "Mul", "MulNoNan"}
"""Ops that give zeros for zeros in one input; products do."""
_ZERO_OF_FIRST: Final = frozenset((
    "Abs", "BroadcastTo", "Cast", "DivNoNan", "ExpandDims", "Gather", "GatherV2", "Identity", "Mean", "Neg", "Pad", "PreventGradient",
    "RealDiv", "Relu", "Reshape", "Slice", "Sqrt", "Square", "Squeeze", "StopGradient", "StridedSlice", "Sum", "Tile",
    "Transpose", "UnsortedSegmentSum",
))  # fmt: skip
_ZERO_OF_ALL: Final = {*SUMS, "ConcatV2", "NcclAllReduce", "Pack", "SelectV2"}
"""The same for zeros in the first, and in all that have the type of the result."""
ZEROS: Final = frozenset(("Const", "Fill", "ZerosLike"))
APART: Final = {"IdentityN": None, "Split": 1, "SplitV": 0}
"""Ops whose results do not all depend on the same, and which input they take apart, None for all."""
_EXCHANGE: Final = "CollectiveReduceV2"
_FEW: Final = 1_000
"""The numbers of a constant that are looked at. TensorFlow makes a `Fill` of more zeros."""


def gives_zeros(op: Any, are: Sequence[bool]) -> bool:
    """Whether all numbers of the result are 0 for inputs of which these are zeros."""
    type_ = op.type
    own = [tensor.dtype == op.outputs[0].dtype for tensor in op.inputs]
    if type_ in _ZERO_OF_ONE:
        return any(map(min, are, own))
    if "Grad" in type_ or "Backprop" in type_:
        # Places and shapes, which may be zeros, are no gradients; an op with several results has one for each.
        gradients = [
            is_zero
            for is_zero, is_own, tensor in zip(are, own, op.inputs, strict=True)
            if is_own and GRADIENT_SCOPE in tensor.name
        ]
        return bool(gradients) and all(gradients)
    if type_ in _ZERO_OF_ALL:
        return all(is_zero for is_zero, is_own in zip(are, own, strict=True) if is_own)
    return are[type_ == "Fill"] if type_ in _ZERO_OF_FIRST or type_ == "Fill" else False


def exchanges(ops: Iterable[Any]) -> dict[Any, list[Any]]:
    """By an exchange of a device what all devices send in it."""
    of_device: dict[str, list[Any]] = {}
    for op in ops:
        if op.type == _EXCHANGE:
            of_device.setdefault(op.device, []).append(op)
    if len({len(own) for own in of_device.values()}) != 1:
        return {}
    # All devices make theirs in the same order.
    rounds = zip(*of_device.values(), strict=True)
    return {op: [each.inputs[0] for each in made] for made in rounds for op in made}


def parts_of(op: Any, sent: dict[Any, list[Any]]) -> list[list[Any]]:
    """Lists of what each result is made of: of a sum of vectors that is taken apart as these were joined."""
    place, found, passed = APART[op.type], list[list[Any]](), set[Any]()
    if place is None:
        return [list(op.inputs)]
    sizes, waiting = [each.shape.num_elements() for each in op.outputs], [op.inputs[place]]
    while waiting:
        made = waiting.pop().op
        if made in passed:
            continue
        passed.add(made)
        if made.type == "ConcatV2":
            found.append(list(made.inputs)[:-1])
            own = [each.shape.num_elements() for each in found[-1]]
            if None in sizes or own != sizes or made.outputs[0].shape.rank != 1:
                return []
        elif made in sent:
            waiting += sent[made]
        elif made.type in SUMS or made.type in SCALING:
            # Numbers scale all of it.
            waiting += (each for each in made.inputs if each.shape.rank == 1)
            if made.type == "Reshape" or all(each.shape.rank != 1 for each in made.inputs):
                return []
        else:
            return []
    return found


def is_array(op: Any) -> bool:
    """Whether an op gives several numbers, or perhaps several, that may be a gradient."""
    is_float = bool(op.outputs[0].dtype.is_floating)
    return is_float and op.outputs[0].shape.num_elements() != 1


def makes_zeros(op: Any) -> bool:
    """Whether an op gives zeros, whatever it is given."""
    if op.type != "Const":
        return bool(op.type == "ZerosLike")
    tensor = op.outputs[0]
    is_number = tensor.dtype.is_integer or tensor.dtype.is_floating
    if not is_number or (tensor.shape.num_elements() or _FEW + 1) > _FEW:
        return False
    fields = {field.name: value for field, value in op.get_attr("value").ListFields()}
    values = (value for name, value in fields.items() if name.endswith(("_content", "_val")))
    return not any(map(any, values))
