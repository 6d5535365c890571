"""Are ids found by counting the same as by sorting, for every range and type of number?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.base.ids import (
    groups_of,
    is_in,
    labels,
    order_by,
    sorted_within,
    unique_counts,
    unique_ids,
    unique_inverse,
)

_SPARSE = 1 << 22


def _ids_of(dtype: str) -> st.SearchStrategy[npt.NDArray[Any]]:
    limits = np.iinfo(dtype)
    low, high = int(limits.min), min(int(limits.max), 2**63 - 1)
    edges = [v for v in (-1, 0, 1, _SPARSE - 1, _SPARSE, low, high) if low <= v <= high]
    values = (
        st.sampled_from(edges) | st.integers(max(low, 0), min(high, 9)) | st.integers(low, high)
    )
    return st.lists(values, max_size=12).map(lambda found: np.array(found, dtype=dtype))


@given(st.sampled_from(["i1", "u1", "i2", "i4", "i8", "u8"]).flatmap(_ids_of))
def test_occurring_and_distinct_are_the_sorted_set(ids: npt.NDArray[Any]) -> None:
    values = sorted(set(ids.tolist()))
    found = unique_ids(ids)
    assert found.dtype == np.int64
    assert found.tolist() == values
    again, index = unique_inverse(ids)
    assert again.tolist() == values
    assert again.dtype == index.dtype == np.int64
    assert [values[i] for i in index.tolist()] == ids.tolist()


@given(*[st.sampled_from(["i1", "u1", "i2", "i4", "i8"]).flatmap(_ids_of)] * 2)
def test_membership_and_counts_are_those_of_sets(
    ids: npt.NDArray[Any], known: npt.NDArray[Any]
) -> None:
    wanted = set(known.tolist())
    assert is_in(ids, known).tolist() == [value in wanted for value in ids.tolist()]
    assert is_in(ids, known.tolist()).tolist() == is_in(ids, known).tolist()
    values, count = unique_counts(ids)
    assert dict(zip(values.tolist(), count.tolist(), strict=True)) == Counter(ids.tolist())
    assert values.tolist() == sorted(set(ids.tolist()))


@given(st.lists(st.tuples(st.integers(-2, 2), st.sampled_from([-(2**62), 0, 2**62])), max_size=12))
def test_labels_and_groups_follow_the_order_of_the_keys(rows: list[tuple[int, int]]) -> None:
    keys = np.array(rows, dtype=np.int64).reshape(-1, 2)
    distinct = sorted(set(rows))
    label = labels(keys[:, 0], keys[:, 1])
    assert [distinct[place] for place in label.tolist()] == rows
    groups = [group.tolist() for group in groups_of(keys[:, 0], keys[:, 1])]
    assert groups == [[i for i, row in enumerate(rows) if row == key] for key in distinct]


@pytest.mark.parametrize("row_count", [1, 10, 10_000])
@pytest.mark.parametrize("spread", [3, 1 << 20, 1 << 45])
def test_rows_are_ordered_by_one_key_after_the_other(row_count: int, spread: int) -> None:
    """Equal rows stay in order; keys that do not fit in one number are sorted all the same."""
    random = np.random.default_rng(row_count + spread)
    first = random.integers(-5, 5, row_count).astype(np.int16)
    second = random.integers(-spread, spread, row_count)
    third = random.integers(0, spread, row_count)
    order = order_by(first, second, third)
    assert order.tolist() == np.lexsort((third, second, first)).tolist()


def test_the_largest_numbers_are_ordered_too() -> None:
    values = np.tile([np.iinfo(np.int64).max, 0, np.iinfo(np.int64).min], 3000)
    assert order_by(values).tolist() == np.argsort(values, kind="stable").tolist()


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(-(2**62), 2**62) | st.integers(-3, 3)), max_size=14
    )
)
def test_values_are_sorted_within_their_group(rows: list[tuple[int, int]]) -> None:
    table = np.array(rows, dtype=np.int64).reshape(-1, 2)
    found = sorted_within(table[:, 0], table[:, 1])
    assert found.dtype == np.int64
    assert found.tolist() == [value for _, value in sorted(rows)]
