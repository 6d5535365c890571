"""Finds products that do more than they have to, by what they multiply: gradients for each part of the batch, rows that are repeated,
matrices of zeros around a diagonal or a one, and filters that are a column times a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import prod
from typing import Any, Final

from traceview.graphs.calls import GRADIENT_SCOPE, Call, source
from traceview.graphs.flops import relative_size
from traceview.graphs.flow import REPEATS, VIEWS, Flow, Node

_PRODUCTS: Final = frozenset(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"))
"""Ops that multiply matrices of a batch each for itself (TensorFlow 2.21)."""


def summed_products(calls: Iterable[Call]) -> set[Node]:
    """Such products, and the sums over their first dimensions.

    TensorFlow makes them where it multiplies a tensor of more dimensions with a matrix, `tensor @ matrix`, and where an einsum
    has dots for the dimensions of the batch.
    """
    found = set[Node]()
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


_MULTIPLY: Final = frozenset((*_PRODUCTS, "MatMul")) - {"Einsum"}


def repeated_products(flow: Flow) -> tuple[set[Node], int]:
    """Products with a matrix of what was repeated, perhaps joined with other features, their gradients, and what repeats and joins.

    Besides how much of such a product is the same again, in percent, at least. What repeats features themselves is none.
    """
    found, products, least = set[Node](), set[Node](), 100
    for (call, _), op in flow.forward(_MULTIPLY):
        wide = op.inputs[1].shape
        joined = _source(op.inputs[0])
        parts = joined.inputs[:-1] if joined.type == "ConcatV2" else joined.outputs
        # Joined otherwise than side by side each part has all features.
        if wide.rank != 2 or not wide[0] or sum(map(_features, parts)) != wide[0]:
            continue
        sources = [(part, _source(part)) for part in parts]
        again = sum(_features(part) * _again(made_by) for part, made_by in sources)
        percent = int(100 * again / wide[0])
        if percent >= _LEAST_AGAIN:
            least = min(least, percent)
            products.add((call, op.name))
            repeats = [made_by for _, made_by in sources if _again(made_by)]
            found.update((call, each.name) for each in (joined, *repeats))
    return found | products | flow.gradients(products), least if found else 0


_LEAST_AGAIN: Final = 25
"""Percent: of less there is little to gain. A choice of ours."""


def _source(tensor: Any) -> Any:
    """The op that made the numbers of a tensor, in whatever shape."""
    return source(tensor, VIEWS).op


def _features(tensor: Any) -> int:
    """The last dimension of a tensor, 0 where it is not known."""
    return (tensor.shape[-1] or 0) if tensor.shape.rank else 0


def _again(op: Any) -> float:
    """How much of what an op gives repeats whole rows of its input; 0 of another op, and where that is not known."""
    if op.type not in REPEATS or _features(op.inputs[0]) != _features(op.outputs[0]):
        return 0.0
    part = relative_size(op.inputs[0], op.outputs[0])
    return 0.0 if part is None else 1 - part


_SPARSE: Final = frozenset(("Diag", "MatrixDiag", "MatrixDiagV2", "MatrixDiagV3", "OneHot"))
"""Ops that give one number other than 0 in each row (TensorFlow 2.21)."""
_LEAST_ROWS: Final = 16
"""Of a smaller matrix of zeros a product may be as quick as what avoids it. A choice of ours."""


_CROSSING: Final = frozenset(("Conv2D", "Conv2DBackpropInput"))
"""Convolutions of all channels with all, the second one transposed."""
_MOST_NOT_ZERO: Final = 1 / 48
"""Of a matrix of no such form: what adds up few numbers takes 16 times as long for each. A choice of ours, as for JAX."""
_PER_NUMBER: Final = 16


def products_of_zeros(flow: Flow, fixed: Collection[Node]) -> tuple[set[Node], int]:
    """Products with a diagonal matrix, one-hot rows, or numbers that never change and are nearly all 0, convolutions that by such
    numbers keep channels apart, their gradients, and what makes these; besides how much of each is with zeros, in percent, at least.

    `fixed`: variables that nothing changes.
    """
    found, products, most = set[Node](), set[Node](), 0.0
    for (call, _), op in flow.forward(_MULTIPLY | _CROSSING):
        for tensor in op.inputs[:2]:
            made = _source(tensor)
            if op.type in _MULTIPLY and made.type in _SPARSE:
                width = _features(made.outputs[0])
                part = 1 / width if width >= _LEAST_ROWS else 0.0
                found |= {(call, made.name)} if part else set()
            else:
                part = _part_not_zero(flow.constant(call, tensor, fixed))
                # A gradient of a convolution may have no name of it, and reads the same filters.
                takers = (each for each in tensor.consumers() if each.type in _CROSSING)
                found |= {(call, each.name) for each in takers} if part else set()
            if part:
                most = max(most, part)
                products.add((call, op.name))
    found |= products | flow.gradients(products)
    return found, int(100 * (1 - most)) if products else 0


def _part_not_zero(numbers: Any) -> float:
    """How much of a product with a matrix, or a convolution by filters `[rows, columns, channels, results]`, is not with zeros; 0.0 where
    that is much, or not known.
    """
    if numbers is None or numbers.ndim not in (2, 4) or min(numbers.shape[-2:]) < _LEAST_ROWS:
        return 0.0
    if numbers.ndim == 4:
        part = float((numbers != 0).any((0, 1)).mean())
        return part if part <= 1 / _LEAST_ROWS else 0.0
    part = float((numbers != 0).mean())
    return _PER_NUMBER * part if part <= _MOST_NOT_ZERO else 0.0


_FILTERING: Final = frozenset(("Conv2D", "DepthwiseConv2dNative"))
_NARROW: Final = 5
"""Two filters of n numbers take about this over n of the time of one of n x n: of 25 they took 12 to 32%, of 17 20 to 44, of 9 46 to 83,
with gradients (TensorFlow 2.21, two cores).
"""
_LEAST_SAVED: Final = 50
"""Percent: small filters are as quick at once. A choice of ours."""


def separable(flow: Flow, fixed: Collection[Node]) -> tuple[set[Node], int]:
    """Convolutions by filters that never change and are a column times a row, as those of a blur, with their gradients; besides how much
    less two of such convolutions take, one along each, in percent. `fixed`: variables that nothing changes.
    """
    found, least = set[Node](), 100
    for node, op in flow.forward(_FILTERING):
        sizes = op.inputs[1].shape.as_list() if op.inputs[1].shape.rank == 4 else [None]
        saved = 0 if None in sizes else int(100 * (1 - _NARROW / max(min(sizes[:2]), 1)))
        if saved < _LEAST_SAVED:
            continue
        numbers = flow.constant(node[0], op.inputs[1], fixed)
        if numbers is not None and _are_columns_times_rows(numbers, op.type):
            least = min(least, saved)
            found |= {
                (node[0], each.name)
                for each in (op, *op.inputs[1].consumers())
                if each.type.startswith(op.type)
            }
    return found, least if found else 0


def _are_columns_times_rows(filters: Any, type_: str) -> bool:
    """Whether two convolutions can take the place of one by filters `[rows, columns, channels, of each]`."""
    rows, columns, *channels = filters.shape
    if type_ == "Conv2D":
        # Channels are added up, which is possible once only.
        every = filters.reshape(rows, -1), filters.swapaxes(0, 1).reshape(columns, -1)
        return all(map(_is_product_of_vectors, every))
    apart = filters.reshape(rows, columns, prod(channels)).transpose(2, 0, 1)
    return all(map(_is_product_of_vectors, apart))


def _is_product_of_vectors(matrix: Any) -> bool:
    """Whether a matrix is a column times a row, but for rounding."""
    row, column = divmod(int(abs(matrix).argmax()), matrix.shape[1])
    largest = matrix[row, column]
    errors = abs(matrix * largest - matrix[:, column : column + 1] * matrix[row])
    return not (errors > _ROUNDING * largest**2).any()


_ROUNDING: Final = 1e-3
"""Of the largest number, where rounding in float32 is far less. A choice of ours."""
