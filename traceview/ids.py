"""Finds the distinct values of ids. Ids are mostly small numbers, so counting is faster than sorting or hashing."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Int64Array: TypeAlias = npt.NDArray[np.int64]

_DENSE_IDS: Final = 1 << 22
"""Ids below this are counted in an array; larger ids, which no known writer uses, are sorted."""


def is_dense(ids: npt.NDArray[np.integer]) -> bool:
    """Whether every id can be an index into an array of moderate size."""
    return ids.size == 0 or bool(ids.min() >= 0 and ids.max() < _DENSE_IDS)


def _length(ids: npt.NDArray[np.integer]) -> int:
    return int(ids.max()) + 1 if ids.size else 0


def unique_ids(ids: npt.NDArray[np.integer]) -> Int64Array:
    """The distinct ids, sorted."""
    if not is_dense(ids):
        return np.unique(ids).astype(np.int64)
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
