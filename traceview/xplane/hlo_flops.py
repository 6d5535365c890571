"""Counts the floating-point operations of the products in XLA programs: matrices, convolutions and attention.

A product of two numbers and its sum are two operations. What is no product counts 0: it takes memory traffic rather than
units that multiply. Sources: openxla/xla `xla/xla_data.proto`, `xla/service/gpu/cublas_cudnn.h` (targets of custom
calls), `backend_configs.proto`; jax `_src/cudnn/fused_attention_stablehlo.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

LARGEST: Final = 2**62
"""More operations than any instruction has: a number above is damage, or of a dimension that is not known."""

KERNEL_OUTPUT_FEATURE: Final = 4
KERNEL_INPUT_FEATURE: Final = 3
INPUT_SPATIAL: Final = 11
OUTPUT_SPATIAL: Final = 12
OUTPUT_BATCH: Final = 9
OUTPUT_FEATURE: Final = 10
"""Fields of `ConvolutionDimensionNumbers`; what is 0 is not written."""

_COMPLEX: Final = (15, 18)
"""The types C64 and C128, of which a product is four."""

_NO_PRODUCT_CALLS: Final = (
    "__cudnn$norm", "__cub$", "__gpu$TopK", "TopK", "cu_threefry2x32", "hip_threefry2x32", "Sharding",
    "SPMDFullToShardShape", "SPMDShardToFullShape", "SliceToDynamic", "PadToStatic", "AllocateBuffer",
    "annotate_device_placement", "MoveToHost", "MoveToDevice",
)  # fmt: skip
_GEMM: Final = ("__cublas$gemm", "__cublas$lt$matmul")
_CONVOLUTION: Final = "__cudnn$conv"
_ATTENTION: Final = "__cudnn$fmha"
MATRIX_CALLS: Final = (*_GEMM, _CONVOLUTION, _ATTENTION, "__cudnn$norm")
"""Calls of libraries that read what they are given, and yield scratch memory last."""

PRODUCTS: Final = frozenset(
    (
        "dot", "convolution", "custom-call", "cholesky", "triangular-solve", "fft", "ragged-dot", "scaled-dot",
    )
)  # fmt: skip
"""Instructions that multiply, as far as their shapes tell how much."""


class Shape(NamedTuple):
    """The number of the type of the elements, and the dimensions."""

    element_type: int
    dimensions: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of its elements."""
        return prod(self.dimensions)


class Product(NamedTuple):
    """Operations, None where they are not known, and the number of the type of what is multiplied."""

    flops: int | None
    operand_type: int = 0


NO_PRODUCT: Final = Product(0)
UNKNOWN: Final = Product(None)


def product_of(
    opcode: str,
    target: str,
    result: Shape,
    operands: Sequence[Shape],
    *,
    contracted: Sequence[int],
    window: Sequence[int],
    convolution: Mapping[int, Sequence[int]],
    config: bytes,
) -> Product:
    """The operations of an instruction among `PRODUCTS`.

    `result`, `operands`: shapes, the first two operands. `contracted`: dimensions of the first operand that a product sums
    over. `window`: sizes of the kernel. `convolution`: fields of its dimension numbers. `config`: of a custom call, JSON.
    """
    if opcode == "custom-call" and target.startswith(_NO_PRODUCT_CALLS):
        return NO_PRODUCT
    try:
        left, right = operands
        if opcode == "dot":
            flops = _of_dot(result, left, contracted)
        elif opcode == "convolution":
            flops = _of_convolution(result, left, right, window, convolution)
        elif target.startswith(_GEMM):
            flops = _of_dot(result, left, _contracted(_parsed(config)))
        elif target.startswith(_CONVOLUTION):
            flops = _of_convolution_call(target, result, left, right, convolution)
        elif target.startswith(_ATTENTION):
            flops = _of_attention(target, left, _parsed(config))
        else:
            return UNKNOWN
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return UNKNOWN
    if left.element_type in _COMPLEX:
        flops *= 4
    is_known = left.element_type and 0 < flops < LARGEST
    return Product(flops, left.element_type) if is_known else UNKNOWN


def _of_dot(result: Shape, left: Shape, contracted: Sequence[int]) -> int:
    return 2 * result.size * prod(left.dimensions[place] for place in contracted)


def _of_convolution(
    result: Shape,
    input_: Shape,
    kernel: Shape,
    window: Sequence[int],
    numbers: Mapping[int, Sequence[int]],
) -> int:
    """Each element of the kernel meets each place of the result, or of the input where that has fewer.

    So zeros between the elements and around the input of a gradient are not counted, and those of `SAME` padding are, as is
    usual.
    """
    places = zip(numbers.get(INPUT_SPATIAL, ()), numbers.get(OUTPUT_SPATIAL, ()), strict=True)
    met = [min(input_.dimensions[at], result.dimensions[to]) for at, to in places]
    if len(met) != len(window):
        raise ValueError("a window of another rank")
    batch, features = (
        result.dimensions[_number(numbers, field)] for field in (OUTPUT_BATCH, OUTPUT_FEATURE)
    )
    summed = kernel.dimensions[_number(numbers, KERNEL_INPUT_FEATURE)]
    return 2 * batch * features * summed * prod(met) * prod(window)


def _of_convolution_call(
    target: str, result: Shape, left: Shape, right: Shape, numbers: Mapping[int, Sequence[int]]
) -> int:
    """Of cuDNN: forward, and the gradients of input and kernel, which have the operations of the forward pass."""
    if "BackwardFilter" in target:
        output, kernel = right, result
    elif "BackwardInput" in target:
        output, kernel = left, right
    else:
        output, kernel = result, right
    features = kernel.dimensions[_number(numbers, KERNEL_OUTPUT_FEATURE)]
    return 2 * output.size * (kernel.size // features)


def _number(numbers: Mapping[int, Sequence[int]], field: int) -> int:
    return numbers.get(field, (0,))[0]


def _parsed(config: bytes) -> Any:
    import json

    return json.loads(config)


def _contracted(config: Any) -> list[int]:
    """The dimensions of the first operand that cuBLAS sums over; older versions write the configuration bare."""
    of_gemm = config.get("gemm_backend_config", config)
    return _whole(of_gemm["dot_dimension_numbers"]["lhs_contracting_dimensions"])


def _of_attention(target: str, query: Shape, config: Any) -> int:
    """Two products forward, and four backward: scores that are computed again do not count, and masks take nothing off."""
    of_attention = config.get("cudnn_fmha_backend_config", config)
    scores = prod(_whole(of_attention["intermediate_tensor_shape"]["dimensions"]))
    is_backward = "Backward" in target
    # The product that yields scores of the shape above; backward its first factor has the shape of the queries, too.
    product = of_attention[f"{'bmm2_grad_gemm2' if is_backward else 'bmm1'}_dot_dimension_numbers"]
    contracted = _whole(product["lhs_contracting_dimensions"])
    forward = 4 * scores * prod(query.dimensions[place] for place in contracted)
    return 2 * forward if is_backward else forward


def _whole(values: Any) -> list[int]:
    """Numbers, which JSON of protobuf writes as texts."""
    return [int(value) for value in values[:32]]
