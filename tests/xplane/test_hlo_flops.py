"""Operations of products, against counts by hand: 2 for each pair of numbers that are multiplied and summed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.xplane.hlo_messages import BF16, C64, F32, ModuleWriter
from tests.xplane.test_hlo import read


def product(
    module: ModuleWriter,
    opcode: str,
    result: Sequence[int],
    *operands: Sequence[int],
    name: str = "product",
    element: int = BF16,
    computation: int = 1,
) -> Any:
    """Add a product of parameters with these shapes; returns its message."""
    given = [
        module.add(
            f"{name}.{place}",
            "parameter",
            element=element,
            shape=tuple(shape),
            computation=computation,
        )
        for place, shape in enumerate(operands)
    ]
    module.add(name, opcode, *given, shape=tuple(result), computation=computation)
    return module.last(computation)


def dot(module: ModuleWriter, **options: Any) -> None:
    """Eight products of 16×32 with 32×64."""
    message = product(module, "dot", (8, 16, 64), (8, 16, 32), (8, 32, 64), **options)
    message.dot_dimension_numbers.lhs_contracting_dimensions.append(2)
    message.dot_dimension_numbers.rhs_contracting_dimensions.append(1)


DOT = 2 * 8 * 16 * 64 * 32


def convolution(message: Any, sizes: Sequence[int], *, numbers: bool = True) -> None:
    """In the order of JAX for `NHWC`, `HWIO`: batch first, features last."""
    for size in sizes:
        message.window.dimensions.add(size=size)
    of_message = message.convolution_dimension_numbers
    spatial = range(1, 1 + len(sizes))
    of_message.kernel_spatial_dimensions.extend(range(len(sizes)))
    of_message.kernel_input_feature_dimension = len(sizes)
    of_message.kernel_output_feature_dimension = len(sizes) + 1
    of_message.input_feature_dimension = of_message.output_feature_dimension = len(sizes) + 1
    if numbers:
        of_message.input_spatial_dimensions.extend(spatial)
        of_message.output_spatial_dimensions.extend(spatial)


def only(module: ModuleWriter) -> tuple[int | None, int]:
    found = read(module.message)["product"]
    return found.flops, found.operand_type


def test_a_product_of_matrices() -> None:
    module = ModuleWriter()
    dot(module)
    assert only(module) == (DOT, BF16)
    module = ModuleWriter()
    dot(module, element=C64)
    assert only(module) == (4 * DOT, C64), "a complex product is four"


FORWARD = 2 * 32 * 14 * 14 * 16 * 3 * 3 * 3
"""Three to sixteen features, 3×3 with stride 2, of 32 images of 28×28: the gradients take as much as the forward pass."""


@pytest.mark.parametrize(
    ("result", "left", "right", "sizes", "flops"),
    [
        ((32, 14, 14, 16), (32, 28, 28, 3), (3, 3, 3, 16), (3, 3), FORWARD),
        # The gradient of the input spreads that of the output with zeros between.
        ((32, 28, 28, 3), (32, 14, 14, 16), (3, 3, 16, 3), (3, 3), FORWARD),
        # That of the kernel sums over images: the features of the input are its batch.
        ((3, 3, 3, 16), (3, 28, 28, 32), (14, 14, 32, 16), (14, 14), FORWARD),
        # Without padding the gradient of the input counts no zeros.
        ((1, 10, 10, 4), (1, 8, 8, 6), (3, 3, 6, 4), (3, 3), 2 * 8 * 8 * 3 * 3 * 4 * 6),
        # A depthwise convolution has kernels of one feature.
        ((2, 8, 8, 64), (2, 8, 8, 64), (3, 3, 1, 64), (3, 3), 2 * 2 * 8 * 8 * 64 * 9),
    ],
)
def test_a_convolution(
    result: Sequence[int],
    left: Sequence[int],
    right: Sequence[int],
    sizes: Sequence[int],
    flops: int,
) -> None:
    module = ModuleWriter()
    convolution(product(module, "convolution", result, left, right), sizes)
    assert only(module) == (flops, BF16)


@pytest.mark.parametrize("is_wrapped", [True, False], ids=["jaxlib 0.5", "jaxlib 0.4"])
@pytest.mark.parametrize("target", ["__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8"])
def test_a_call_of_cublas(target: str, is_wrapped: bool) -> None:
    config = {"alpha_real": 1, "dot_dimension_numbers": {"lhs_contracting_dimensions": ["2"]}}
    module = ModuleWriter()
    message = product(module, "custom-call", (8, 16, 64), (8, 16, 32), (8, 32, 64))
    message.custom_call_target = target.encode()
    message.backend_config = json.dumps(
        {"gemm_backend_config": config} if is_wrapped else config
    ).encode()
    assert only(module) == (DOT, BF16)


@pytest.mark.parametrize(
    ("target", "result", "left", "right"),
    [
        ("__cudnn$convForward", (32, 14, 14, 16), (32, 28, 28, 3), (3, 3, 3, 16)),
        ("__cudnn$convBiasActivationForward", (32, 14, 14, 16), (32, 28, 28, 3), (3, 3, 3, 16)),
        ("__cudnn$convBackwardInput", (32, 28, 28, 3), (32, 14, 14, 16), (3, 3, 3, 16)),
        ("__cudnn$convBackwardFilter", (3, 3, 3, 16), (32, 28, 28, 3), (32, 14, 14, 16)),
    ],
)
def test_a_call_of_cudnn(target: str, result: Any, left: Any, right: Any) -> None:
    module = ModuleWriter()
    message = product(module, "custom-call", result, left, right)
    message.custom_call_target = target.encode()
    convolution(message, (3, 3), numbers=False)
    assert only(module)[0] == FORWARD


@pytest.mark.parametrize(
    ("target", "key", "factor"),
    [
        ("__cudnn$fmhaSoftmax", "bmm1", 1),
        # As JAX 0.10 writes it (jax/_src/cudnn/fused_attention_stablehlo.py).
        ("__cudnn$fmhaSoftmaxBackward", "bmm2_grad_gemm2", 2),
    ],
)
def test_attention(target: str, key: str, factor: int) -> None:
    """Scores of each of 4·8 heads, and what they weigh: two products; twice as many for the gradients."""
    module = ModuleWriter()
    message = product(module, "custom-call", (4, 128, 8, 64), (4, 128, 8, 64), (4, 256, 8, 64))
    message.custom_call_target = target.encode()
    config = {
        "intermediate_tensor_shape": {
            "element_type": "BF16",
            "dimensions": ["4", "8", "128", "256"],
        },
        f"{key}_dot_dimension_numbers": {"lhs_contracting_dimensions": ["3"]},
    }
    message.backend_config = json.dumps({"cudnn_fmha_backend_config": config}).encode()
    assert only(module)[0] == factor * 2 * 2 * 4 * 8 * 128 * 256 * 64


def test_what_is_no_product_counts_nothing_and_what_is_not_known_is_unknown() -> None:
    module = ModuleWriter()
    targets = {"sort": "__cub$DeviceRadixSort", "own": "my_kernel", "gemm": "__cublas$gemm"}
    for name, target in targets.items():
        message = product(module, "custom-call", (8,), (8,), (8,), name=name)
        message.custom_call_target = target.encode()
    product(module, "add", (8,), (8,), (8,), name="sum")
    product(module, "cholesky", (8, 8), (8, 8), name="factors")
    module.add("lost", "dot", 998, 999, shape=(8, 8))
    names = ("sort", "own", "gemm", "sum", "factors", "lost")
    found = read(module.message, *names)
    assert [found[name].flops for name in names] == [0, None, None, 0, None, None]


def test_a_fusion_has_what_it_holds_and_a_loop_is_unknown() -> None:
    module = ModuleWriter()
    dot(module, computation=2)
    dot(module, name="again", computation=2)
    module.add("inner", "fusion", calls=(2,), computation=3)
    module.add("outer", "fusion", calls=(3,))
    module.add("loop", "while", calls=(2, 4))
    module.add("empty", "while", calls=(4,))
    found = read(module.message, "outer", "loop", "empty")
    assert (found["outer"].flops, found["outer"].operand_type) == (2 * DOT, BF16)
    assert (found["loop"].flops, found["empty"].flops) == (None, 0)


def test_what_has_events_of_its_own_is_not_counted_twice() -> None:
    module = ModuleWriter()
    dot(module, computation=2)
    module.add("call", "call", calls=(2,))
    assert read(module.message, "call")["call"].flops == DOT
    found = read(module.message, "call", "product")
    assert (found["call"].flops, found["product"].flops) == (0, DOT)


def test_numbers_without_bound_are_unknown() -> None:
    module = ModuleWriter()
    message = product(
        module, "dot", (1 << 62, 1 << 62), (1 << 62, 1 << 62), (1 << 62,), element=F32
    )
    message.dot_dimension_numbers.lhs_contracting_dimensions.append(1)
    assert only(module)[0] is None
    message.dot_dimension_numbers.lhs_contracting_dimensions[0] = 1 << 40
    assert only(module)[0] is None
    module = ModuleWriter()
    dot(module)
    module.last().shape.dimensions.extend([2] * 5000)
    assert only(module)[0] == DOT << 30 or only(module)[0] is None


def test_a_circle_of_fusions_and_a_deep_chain_end() -> None:
    module = ModuleWriter()
    module.add("circle", "fusion", calls=(5,), computation=5)
    module.add("of_circle", "fusion", calls=(5,))
    for number in range(10, 5000):
        module.message.computations.add(id=number).instructions.add(
            name=b"next", opcode=b"fusion", id=10_000 + number, called_computation_ids=[number + 1]
        )
    module.add("deep", "fusion", calls=(10,))
    found = read(module.message, "of_circle", "deep")
    assert (found["of_circle"].flops, found["deep"].flops) == (None, None)
