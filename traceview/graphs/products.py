"""Finds gradients of a matrix that are made for each part of the batch and then summed, where one product would do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from traceview.graphs.calls import GRADIENT_SCOPE, Call

_PRODUCTS: Final = frozenset(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"))
"""Ops that multiply matrices of a batch each for itself (TensorFlow 2.21)."""


def summed_products(calls: Iterable[Call]) -> set[tuple[Call, str]]:
    """Such products, and the sums over their first dimensions.

    TensorFlow makes them where it multiplies a tensor of more dimensions with a matrix, `tensor @ matrix`, and where an einsum
    has dots for the dimensions of the batch.
    """
    found = set[tuple[Call, str]]()
    for call in calls:
        for op in call.ops:
            if op.type in _PRODUCTS and GRADIENT_SCOPE in op.name:
                takers = op.outputs[0].consumers()
                if len(takers) == 1 and takers[0].type == "Sum" and _has_fewer(op, takers[0]):
                    found.update(((call, op.name), (call, takers[0].name)))
    return found


def _has_fewer(product: Any, total: Any) -> bool:
    """Whether a sum, as it is then shaped, has fewer dimensions than the product; where batches are equal nothing is summed."""
    takers = total.outputs[0].consumers()
    last = takers[0] if len(takers) == 1 and takers[0].type == "Reshape" else total
    of_last, of_product = last.outputs[0].shape.rank, product.outputs[0].shape.rank
    return of_last is not None and of_product is not None and of_last < of_product
