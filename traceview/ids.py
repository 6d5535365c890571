"""Finds the distinct values of ids. Ids are mostly small numbers, so counting is faster than sorting or hashing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Int64Array: TypeAlias = npt.NDArray[np.int64]

_DENSE_IDS: Final = 1 << 22
"""Ids below this are counted in an array; larger ids, which no known writer uses, are sorted."""

_PACKED_BITS: Final = 62
"""Of the 63 that an int64 has without its sign, less one to spare."""
_FEW_ROWS: Final = 4096
"""So many are sorted in less time than it takes to pack their keys."""


def is_dense(ids: npt.NDArray[np.integer]) -> bool:
    """Whether every id can be an index into an array of moderate size."""
    return ids.size == 0 or bool(ids.min() >= 0 and ids.max() < _DENSE_IDS)


def _length(ids: npt.NDArray[np.integer]) -> int:
    return int(ids.max()) + 1 if ids.size else 0


def sorted_unique(values: npt.NDArray[np.integer]) -> Int64Array:
    """The distinct values, sorted. `np.unique` would import `numpy.ma`, which takes longer than a small trace."""
    ordered = np.sort(values, axis=None).astype(np.int64)
    is_first = np.ones(ordered.size, dtype=np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


def order_by(*keys: npt.NDArray[np.integer]) -> Int64Array:
    """The order of rows by the first key, then by the second, and so on; equal rows keep theirs.

    `np.lexsort` with the keys reversed. Many rows are sorted six times faster, if the keys fit in one number of 62 bits.
    """
    packed = _packed(keys) if keys[0].size > _FEW_ROWS else None
    if packed is None:
        return np.lexsort(keys[::-1]).astype(np.int64, copy=False)
    order = np.argsort(packed)
    in_order = packed[order]
    is_new = np.ones(order.size, dtype=np.bool_)
    is_new[1:] = in_order[1:] != in_order[:-1]
    if not is_new.all():
        bits = order.size.bit_length()
        numbered = (np.cumsum(is_new) << bits) | order
        numbered.sort()
        order = numbered & ((1 << bits) - 1)
    return order.astype(np.int64, copy=False)


def _packed(keys: tuple[npt.NDArray[np.integer], ...]) -> Int64Array | None:
    """One number per row that sorts as the keys do; None if that takes more than 62 bits."""
    packed = np.zeros(keys[0].size, dtype=np.int64)
    left = _PACKED_BITS
    for key in keys:
        least = int(key.min())
        bits = (int(key.max()) - least).bit_length()
        left -= bits
        if left < 0:
            return None
        packed <<= bits
        packed |= key.astype(np.int64) - least
    return packed


def unique_ids(ids: npt.NDArray[np.integer]) -> Int64Array:
    """The distinct ids, sorted."""
    if not is_dense(ids):
        return sorted_unique(ids)
    occurs = np.zeros(_length(ids), dtype=np.bool_)
    occurs[ids] = True
    return np.flatnonzero(occurs)


def unique_inverse(ids: npt.NDArray[np.integer]) -> tuple[Int64Array, Int64Array]:
    """The distinct ids, sorted, and for each of `ids` its index among them."""
    if not is_dense(ids):
        values, inverse = np.unique(ids, return_inverse=True)
        return values.astype(np.int64), inverse.astype(np.int64)
    values = unique_ids(ids)
    index_of = np.zeros(_length(ids), dtype=np.int64)
    index_of[values] = np.arange(values.size)
    return values, index_of[ids]


def groups_of(*keys: npt.NDArray[np.integer]) -> Iterator[Int64Array]:
    """The places at which all keys are equal, for each such combination, sorted by it."""
    if keys[0].size:
        _, group, sizes = np.unique(
            np.stack(keys, axis=1), axis=0, return_inverse=True, return_counts=True
        )
        places = np.argsort(group.reshape(-1), kind="stable")
        yield from np.split(places, np.cumsum(sizes)[:-1])
