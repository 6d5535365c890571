"""The vectorised intervals and ids say what a boolean array, a loop or a sort says, and compiled code what the reference does."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scripts import fuzzed_kernels
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
from traceview.base.intervals import Int64Array, difference, largest_between, nesting, places, union
from traceview.trace.host.state_timeline import intersection

_SPAN = 24
Pairs = list[tuple[int, int]]

_time = st.integers(0, _SPAN)
# Lengths near zero make empty, negative, touching and identical intervals frequent.
_intervals = st.lists(
    st.tuples(_time, st.integers(-2, 9)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=10
)
_far = st.sampled_from([0, 1_760_000_000_000_000_000, -(2**61)])


def _columns(pairs: Pairs, shift: int = 0) -> tuple[Int64Array, Int64Array]:
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2) + shift
    return table[:, 0].copy(), table[:, 1].copy()


def _covered(pairs: Pairs) -> npt.NDArray[np.bool_]:
    """Which unit cells from -16 to 48 lie inside an interval."""
    cells = np.zeros(64, dtype=np.bool_)
    for start, end in pairs:
        cells[start + 16 : max(end, start) + 16] = True
    return cells


@given(_intervals, _far)
def test_union_is_the_covered_cells(pairs: Pairs, shift: int) -> None:
    found = union(*_columns(pairs, shift))
    cells = _covered(pairs)
    edges = np.flatnonzero(np.diff(cells.astype(np.int8))) + 1 - 16 + shift
    assert found.start.tolist() == edges[::2].tolist()
    assert found.end.tolist() == edges[1::2].tolist()
    assert found.covered.tolist() == [0, *np.cumsum(edges[1::2] - edges[::2]).tolist()]
    assert found.length == int(cells.sum())


@given(_intervals, _far)
def test_covered_time_before_and_within_counts_cells(pairs: Pairs, shift: int) -> None:
    found = union(*_columns(pairs, shift))
    before = np.concatenate(([0], np.cumsum(_covered(pairs))))
    times = np.arange(-16, 49)
    assert found.before(times + shift).tolist() == before.tolist()
    starts, ends = np.meshgrid(times, times, indexing="ij")
    within = found.within(starts + shift, ends + shift)
    assert (within == before[ends + 16] - before[starts + 16]).all()
    assert found.before(shift).shape == ()


@given(_intervals, _intervals, _far)
def test_difference_and_intersection_are_the_cells_of_one_that_the_other_lacks_and_has(
    part: Pairs, cover: Pairs, shift: int
) -> None:
    sets = union(*_columns(part, shift)), union(*_columns(cover, shift))
    has = _covered(cover)
    for found, covered in ((difference(*sets), ~has), (intersection(*sets), has)):
        cells = _covered(part) & covered
        edges = np.flatnonzero(np.diff(cells.astype(np.int8))) + 1 - 16 + shift
        assert found.start.tolist() == edges[::2].tolist()
        assert found.end.tolist() == edges[1::2].tolist()


def _opened_before(pairs: Pairs) -> list[int]:
    """The numbers of the intervals in the order in which they open: longer first, then as given."""
    return sorted(range(len(pairs)), key=lambda i: (pairs[i][0], -pairs[i][1]))


def _innermost(pairs: Pairs, time: int) -> int:
    """The interval opened last among those that contain the instant."""
    around = [i for i in _opened_before(pairs) if pairs[i][0] <= time < pairs[i][1]]
    return around[-1] if around else -1


def _parents(pairs: Pairs) -> list[int]:
    """For each interval the one opened last before it that is still open at its start."""
    opened = _opened_before(pairs)
    parents = [-1] * len(pairs)
    for place, i in enumerate(opened):
        around = [j for j in opened[:place] if pairs[j][1] > pairs[i][0]]
        parents[i] = around[-1] if around else -1
    return parents


@given(_intervals, _far)
@example([(0, 10), (5, 15), (12, 13)], 0)  # overlap in part: the third lies in the second alone
@example([(0, 10), (10, 3)], 0)  # negative
@example([(0, 4), (4, 4), (0, 4), (0, 0)], 0)  # identical, empty at either end
def test_nesting_is_what_a_loop_over_all_pairs_says(pairs: Pairs, shift: int) -> None:
    nest = nesting(*_columns(pairs, shift))
    assert nest.order.tolist() == _opened_before(pairs)
    assert nest.start.tolist() == [pairs[i][0] + shift for i in nest.order]
    assert nest.end.tolist() == [pairs[i][1] + shift for i in nest.order]
    assert nest.parent.tolist() == _parents(pairs)
    times = np.arange(-3, _SPAN + 12)
    expected = [_innermost(pairs, int(t)) for t in times]
    assert nest.innermost(times + shift).tolist() == expected
    assert nest.innermost(times[::-1] + shift).tolist() == expected[::-1]


@given(
    st.lists(st.integers(-3, 12), max_size=20).map(sorted),
    st.lists(st.integers(-5, 15), max_size=30),
    st.booleans(),
)
def test_places_are_those_of_a_binary_search(
    values: list[int], times: list[int], right: bool
) -> None:
    known, asked = np.array(values, dtype=np.int64), np.array(times, dtype=np.int64)
    found = places(known, asked, right=right)
    assert found.dtype == np.int64
    assert found.tolist() == [sum(v < t or (right and v == t) for v in values) for t in times]


# Compiled sweeps


@pytest.mark.parametrize(
    "name",
    sorted({*fuzzed_kernels.SWEEP_CALLS, *fuzzed_kernels.DECODER_CALLS}),
)
def test_compiled_functions_are_those_of_the_reference(name: str) -> None:
    for seed in range(500):
        fuzzed_kernels.compare(name, Random(seed))


@given(
    st.lists(st.integers(-5, 5), max_size=9),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=9),
)
def test_the_largest_between_two_places(values: list[int], spans: list[tuple[int, int]]) -> None:
    spans = [(min(low, len(values)), min(high, len(values))) for low, high in spans]
    first, last = np.array(spans, dtype=np.int64).reshape(-1, 2).T.copy()
    found = largest_between(np.array(values, dtype=np.int64), first, last, -2)
    assert found.tolist() == [max(-2, *values[low:high], -2) for low, high in spans]


# Ids


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
