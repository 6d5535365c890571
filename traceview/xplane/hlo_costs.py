"""Counts what instructions of XLA programs cost: the floating-point operations of products, and the bytes that are read and written.

A product of two numbers and its sum are two operations: of matrices, convolutions and attention. What is no product counts 0:
it takes memory traffic rather than units that multiply. Bytes are the least that has to move between memory and these units:
what an instruction is given and what it yields, each once. As `HloCostAnalysis` of XLA counts: a slice reads what it yields,
an update in place moves the update. Of a fusion in which there are such it is not known. Sources: openxla/xla
`xla/xla_data.proto` (types), `xla/service/gpu/cublas_cudnn.h` (targets of custom calls), `backend_configs.proto`,
`xla/service/hlo_cost_analysis.cc`; jax `_src/cudnn/fused_attention_stablehlo.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

from msgspec import Struct

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


class Shape(Struct, frozen=True):
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


# Bytes

_BITS: Final = {
    **dict.fromkeys((30, 31), 1),
    **dict.fromkeys((26, 27), 2),
    **dict.fromkeys((21, 22, 32), 4),
    **dict.fromkeys((1, 2, 6, 19, 20, 23, 24, 25, 28, 29, 33), 8),
    **dict.fromkeys((3, 7, 10, 16), 16),
    **dict.fromkeys((4, 8, 11), 32),
    **dict.fromkeys((5, 9, 12, 15), 64),
    18: 128,
}
"""Bits of an element by the number of its type (`PrimitiveType`)."""

_NOTHING: Final = (14, 17)
"""Opaque values and tokens, which have no memory that is known of."""

SLICES: Final = frozenset(("slice", "dynamic-slice", "gather"))
UPDATES: Final = frozenset(("dynamic-update-slice",))

_UNKNOWN: Final = frozenset(
    (
        "while", "conditional", "call", "async-start", "async-done", "infeed", "outfeed", "send", "recv", "parameter",
        "tuple", "get-tuple-element", "bitcast", "constant", "after-all", "copy-start", "copy-done", "scatter", "sort",
    )
)  # fmt: skip
"""What runs other instructions, has no kernel of its own, or moves as much as its shapes do not tell."""

_SCRATCH: Final = (2, 6)
"""The types S8 and U8, which the scratch memory of a library has: it comes last in what a call yields."""


def size_of(shape: Shape) -> int | None:
    """The bytes of an array; None where the type or a dimension is not known."""
    if shape.element_type in _NOTHING:
        return 0
    bits = _BITS.get(shape.element_type)
    size = None if bits is None else (prod(shape.dimensions) * bits + 7) // 8
    return size if size is not None and 0 <= size < LARGEST else None


def whole(sizes: Sequence[int | None]) -> int | None:
    """Their sum; None where one is not known."""
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total if total < LARGEST else None


def bytes_of(
    opcode: str, target: str, result: Sequence[Shape], operands: Sequence[int | None]
) -> int | None:
    """What an instruction that is no fusion reads and writes; None where that is not known.

    `result`: the shapes that it yields. `operands`: the bytes of each of what it is given, once.
    """
    if opcode == "custom-call":
        if not target.startswith(MATRIX_CALLS):
            return None
        if len(result) > 1 and result[-1].element_type in _SCRATCH:
            result = result[:-1]
    written = whole([size_of(shape) for shape in result])
    if opcode in _UNKNOWN or written is None:
        return None
    if opcode in SLICES:
        indices = operands[1:2] if opcode == "gather" else ()
        return whole([2 * written, *indices])
    if opcode in UPDATES:
        return whole([*operands[1:2], *operands[1:2]]) if len(operands) > 1 else None
    return whole([written, *operands])
