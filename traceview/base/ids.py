"""Finds the distinct values of ids. Ids are mostly small numbers, so counting is faster than sorting or hashing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.sweeping import SWEEPS

Int64Array: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

_FEW_VALUES: Final = 6
"""So many are compared one after the other."""

_DENSE_PER_ROW: Final = 16
"""A table of so many places per row is made in less time than the rows are sorted."""

_SPARSE_PER_ROW: Final = 64
"""A table of more places per row takes longer to look through than it takes to sort the rows."""

_LONGEST_SPARSE: Final = 1 << 22
"""Places. A longer table has two per row at most, for its memory."""

_FEW_IDS: Final = 128
"""So many are sorted in less time than a table is made."""

_COUNTABLE: Final = tuple(map(np.dtype, (np.uint8, np.int16, np.int32, np.int64)))
_PACKED_BITS: Final = 62
"""Of the 63 that an int64 has without its sign, less one to spare."""
_FEW_ROWS: Final = 4096
"""So many are sorted in less time than it takes to pack their keys."""


def sorted_unique(values: npt.NDArray[np.integer]) -> Int64Array:
    """The distinct values, sorted. `np.unique` would import `numpy.ma`, which takes longer than a small trace."""
    if values.size <= _FEW_VALUES:
        return np.array(sorted(set(values.reshape(-1).tolist())), dtype=np.int64)
    ordered = np.sort(values, axis=None).astype(np.int64)
    return ordered[_begins(ordered)]


def unique_counts(values: npt.NDArray[np.integer]) -> tuple[Int64Array, Int64Array]:
    """The distinct values, sorted, and how often each occurs."""
    ordered = np.sort(values, axis=None).astype(np.int64)
    first = np.flatnonzero(_begins(ordered))
    return ordered[first], np.diff(np.concatenate((first, (ordered.size,))))


def is_in(values: npt.ArrayLike, known: npt.ArrayLike) -> BoolArray:
    """Which of the integers `values` are among `known`; bool, the shape of `values`.

    `np.isin` would import `numpy.ma`, and sorts where counting is enough.
    """
    number, wanted = np.asarray(values), np.asarray(known).reshape(-1)
    if wanted.size <= _FEW_VALUES:
        found = np.zeros(number.shape, dtype=np.bool_)
        for value in wanted.tolist():
            found |= number == value
        return found
    least, most = int(wanted.min()), int(wanted.max())
    if most - least <= _DENSE_PER_ROW * (number.size + wanted.size):
        marks = SWEEPS.marked(_countable(wanted), least, most - least + 1).view(np.uint8)
        inside: BoolArray = SWEEPS.are_marked(marks, _countable(number.reshape(-1)), least)
        return inside.reshape(number.shape)
    wanted = np.sort(wanted)
    place = np.minimum(np.searchsorted(wanted, number), wanted.size - 1)
    result: BoolArray = wanted[place] == number
    return result


def labels(*keys: npt.NDArray[np.integer]) -> Int64Array:
    """One number per row, equal where all keys are, that sorts as the keys do, counted from 0 without holes."""
    if not keys[0].size:
        return np.empty(0, dtype=np.int64)
    order = order_by(*keys)
    begins = np.zeros(order.size, dtype=np.bool_)
    for key in keys:
        begins |= _begins(key[order])
    result = np.empty(order.size, dtype=np.int64)
    result[order] = np.cumsum(begins) - 1
    return result


def _begins(ordered: npt.NDArray[np.integer]) -> BoolArray:
    """Where a run of equal values begins."""
    begins = np.empty(ordered.size, dtype=np.bool_)
    begins[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    return begins


def in_order(*keys: npt.NDArray[np.integer]) -> bool:
    """Whether rows are sorted by the first key, then by the second, and so on."""
    tied = np.ones(max(0, keys[0].size - 1), dtype=np.bool_)
    for key in keys:
        if (tied & (key[1:] < key[:-1])).any():
            return False
        tied &= key[1:] == key[:-1]
        if not tied.any():
            return True
    return True


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


def sorted_within(group: npt.NDArray[np.integer], values: npt.NDArray[np.integer]) -> Int64Array:
    """The values by group, sorted within each; int64."""
    packed = _packed((group, values)) if group.size else None
    if packed is None:
        return values[np.lexsort((values, group))].astype(np.int64)
    packed.sort()
    least = int(values.min())
    packed &= (1 << (int(values.max()) - least).bit_length()) - 1
    packed += least
    return packed


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
    table = _table_of(ids)
    return sorted_unique(ids) if table is None else table.distinct


def unique_inverse(ids: npt.NDArray[np.integer]) -> tuple[Int64Array, Int64Array]:
    """The distinct ids, sorted, and for each of `ids` its index among them."""
    if not ids.size:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    table = _table_of(ids)
    if table is None:
        values = sorted_unique(ids)
        return values, np.searchsorted(values, ids.astype(np.int64)).astype(np.int64, copy=False)
    values = table.distinct
    index_of = np.zeros(table.marks.size, dtype=np.int64)
    index_of[values - table.least] = np.arange(values.size)
    return values, index_of.take(np.subtract(table.ids, table.least, dtype=np.int64))


class _Table(Struct, frozen=True):
    """`marks`: which of the numbers from `least` on are among the `ids`."""

    ids: npt.NDArray[np.integer]
    least: int
    marks: BoolArray

    @property
    def distinct(self) -> Int64Array:
        return np.flatnonzero(self.marks) + self.least


def _table_of(ids: npt.NDArray[np.integer]) -> _Table | None:
    """The ids as marks in a table; None if sorting them takes less time than that, or less memory."""
    if ids.size <= _FEW_IDS:
        return None
    countable = _countable(ids)
    least, most = int(countable.min(initial=0)), int(countable.max(initial=0))
    length = most - least + 1
    if length > max(2 * ids.size, min(_LONGEST_SPARSE, _SPARSE_PER_ROW * ids.size + _FEW_ROWS)):
        return None
    return _Table(countable, least, SWEEPS.marked(countable, least, length))


def _countable(ids: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """The ids in a type of number that sweeps read."""
    return ids if ids.dtype in _COUNTABLE else ids.astype(np.int64)


def groups_of(*keys: npt.NDArray[np.integer]) -> Iterator[Int64Array]:
    """The places at which all keys are equal, for each such combination, sorted by it."""
    if keys[0].size:
        label = labels(*keys)
        places = np.argsort(label, kind="stable")
        yield from np.split(places, np.flatnonzero(_begins(label[places]))[1:])
