"""Tests that the section on precision shows the compute of each GPU by precision, and products off the tensor cores."""

from __future__ import annotations

from typing import Any

from tests.analysis.sections import (
    headings_of,
    lines_of,
    markdown_of,
    sentences_of,
    tables_of,
    values_of,
    view_of,
)
from traceview.analysis.workload.precision import (
    BRIEF_KERNELS,
    PRECISIONS,
    DevicePrecision,
    OrdinaryKernel,
    Precision,
)
from traceview.analysis.workload.precision import precision_section as section
from traceview.document.model import Section

MS = 10**9


def product(op: str | None = "model/dense/MatMul") -> OrdinaryKernel:
    return OrdinaryKernel(op, "MatMul", "sgemm_128x64", "fp32", 4, 20 * MS, 1 / 3)


def precision_of(device: str = "GPU:0", **changes: Any) -> DevicePrecision:
    """Half of 60 ms in bfloat16 on tensor cores, a third in float32 off them, the rest unknown."""
    spent = {"fp32": 20 * MS, "bf16": 30 * MS, "unknown": 10 * MS}
    parts: dict[str, Any] = {
        "host": "worker0",
        "device": device,
        "ordinal": int(device[-1]),
        "compute_ps": 60 * MS,
        "precision_ps": {name: spent.get(name, 0) for name in PRECISIONS},
        "low_precision_ratio": 0.5,
        "unknown_ratio": 1 / 6,
        "has_tensor_cores": True,
        "tensor_core_ps": 30 * MS,
        "tensor_core_ratio": 0.5,
        "ordinary_ps": 20 * MS,
        "ordinary_kernels": (product(),),
        "ordinary_kernel_count": 2,
    }
    return DevicePrecision(**parts | changes)


def without_tensor_cores(device: str = "GPU:0") -> DevicePrecision:
    return precision_of(
        device,
        has_tensor_cores=False,
        tensor_core_ps=0,
        tensor_core_ratio=0.0,
        ordinary_ps=None,
        ordinary_kernels=(),
        ordinary_kernel_count=0,
    )


def shown(*rows: DevicePrecision, **changes: Any) -> Section:
    result = section(view_of(**changes), Precision(0.5, rows))
    assert result is not None
    return result


def test_a_row_for_each_gpu_and_a_column_for_each_precision_that_occurs() -> None:
    document = shown(precision_of(), without_tensor_cores("GPU:1"))
    assert document.lead == "50.0% of the compute runs on tensor cores."
    table = tables_of(document)[0]
    assert headings_of(table) == [
        "device",
        "compute",
        "tensor cores",
        "16 bits or less",
        "bf16",
        "fp32",
        "unknown",
    ]
    assert values_of(table, "tensor cores") == (0.5, "none")
    assert values_of(table, "bf16") == (0.5, 0.5)
    assert values_of(table, "fp32") == (1 / 3, 1 / 3)


def test_gpus_without_tensor_cores() -> None:
    assert shown(without_tensor_cores()).lead == "The GPUs have no tensor cores."


def test_products_off_the_tensor_cores_of_the_device_with_most_of_them() -> None:
    few = precision_of("GPU:1", ordinary_ps=MS)
    document = shown(few, precision_of())
    assert sentences_of(document) == [
        "33.3% of the compute on GPU:0 could use tensor cores and does not"
    ]
    _, products = tables_of(document)
    assert values_of(products, "op") == ("model/dense/MatMul",)
    assert values_of(products, "kernel") == ("sgemm_128x64",)
    assert values_of(products, "precision") == ("fp32",)
    assert values_of(products, "total") == (20 * MS,)
    assert values_of(products, "share") == (1 / 3,)
    assert products.hidden_count == 1
    assert len(tables_of(shown(without_tensor_cores()))) == 1


def test_a_brief_document_has_the_first_products() -> None:
    row = precision_of(ordinary_kernels=(product(),) * 5, ordinary_kernel_count=7)
    _, products = tables_of(shown(row, is_brief=True))
    assert (products.shown_count, products.hidden_count) == (BRIEF_KERNELS, 7 - BRIEF_KERNELS)


def test_of_many_devices_those_that_are_alike_are_a_range() -> None:
    rows = (
        precision_of(ordinary_ps=None),
        precision_of("GPU:1", ordinary_ps=None),
        precision_of("GPU:2", ordinary_ps=None, tensor_core_ratio=0.25),
    )
    document = shown(*rows, outliers=("GPU:0",), others=("GPU:1", "GPU:2"))
    assert values_of(tables_of(document)[0], "device") == ("GPU:0",)
    assert sentences_of(document) == [
        "2 other GPUs: 25.0–50.0% of the compute on tensor cores, 50.0% in 16 bits or less."
    ]


def test_it_prints() -> None:
    document = shown(precision_of())
    lines = lines_of(document)
    assert lines[0] == "Precision  50.0% of the compute runs on tensor cores."
    assert lines[2].split() == ["GPU:0", "60.0", "ms", "50.0%", "50.0%", "50.0%", "33.3%", "16.7%"]
    text = markdown_of(document)
    assert "| `GPU:0` | 60.0 ms | 50.0% | 50.0% | 50.0% | 33.3% | 16.7% |" in text
    assert (
        "| `model/dense/MatMul` | `MatMul` | `sgemm_128x64` | fp32 | 4 | 20.0 ms | 33.3% |" in text
    )


def test_without_kernels_there_is_no_section() -> None:
    assert section(view_of(), Precision(0.0, ())) is None
