from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceview.base.intervals import Int64Array
from traceview.export.draw import MOST_ROWS, in_drawing_order, rows_nested
from traceview.export.perfetto import begins_and_ends

SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=14)
Pair = tuple[Int64Array, Int64Array]


def spans(found: list[tuple[int, int]]) -> Pair:
    start = np.array([start for start, _ in found], dtype=np.int64)
    end = start + np.array([length for _, length in found], dtype=np.int64)
    order = in_drawing_order(start, end)
    return start[order], end[order]


def overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether both run at once; those of no length do so strictly inside of another."""
    return max(one[0], other[0]) < min(one[1], other[1]) or any(
        a[0] == a[1] and b[0] < a[0] < b[1] for a, b in ((one, other), (other, one))
    )


def nest(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether one of them lies inside the other."""
    return any(a[0] <= b[0] and b[1] <= a[1] for a, b in ((one, other), (other, one)))


def in_rows(pair: Pair, row: Int64Array) -> list[list[tuple[int, int]]]:
    spans = list(zip(*(side.tolist() for side in pair), strict=True))
    return [
        [span for span, mine in zip(spans, row.tolist(), strict=True) if mine == one]
        for one in range(int(row.max(initial=-1)) + 1)
    ]


@given(SPANS)
def test_nested_of_two_that_overlap_one_lies_inside_the_other(found: list[tuple[int, int]]) -> None:
    pair = spans(found)
    for row in in_rows(pair, rows_nested(*pair)):
        assert row
        assert all(nest(a, b) or not overlap(a, b) for i, a in enumerate(row) for b in row[:i])


@given(SPANS)
def test_what_nests_takes_one_row(found: list[tuple[int, int]]) -> None:
    pair = spans(found)
    every = list(zip(*(side.tolist() for side in pair), strict=True))
    fits = all(nest(a, b) or not overlap(a, b) for i, a in enumerate(every) for b in every[:i])
    assert fits == (rows_nested(*pair).max(initial=0) == 0)


def test_what_begins_where_another_ends_takes_its_row() -> None:
    start, end = np.array([0, 5, 10, 15, 20]), np.array([10, 15, 20, 25, 30])
    assert rows_nested(start, end).tolist() == [0, 1, 0, 1, 0]


def test_what_needs_more_rows_is_left_out() -> None:
    start = np.arange(3 * MOST_ROWS, dtype=np.int64)
    row = rows_nested(start, start + start.size)
    assert row.tolist() == [*range(MOST_ROWS), *[MOST_ROWS] * (2 * MOST_ROWS)]


@given(SPANS)
def test_slices_begin_and_end_as_a_stack(found: list[tuple[int, int]]) -> None:
    start, end = spans(found)
    first = np.flatnonzero(rows_nested(start, end) == 0)
    start, end = start[first], end[first]
    index, is_begin = begins_and_ends(start, end)
    time = np.where(is_begin, start[index], end[index])
    assert (np.diff(time) >= 0).all()
    open_slices = []
    for one, begins in zip(index.tolist(), is_begin.tolist(), strict=True):
        if begins:
            open_slices.append(one)
        else:
            assert open_slices.pop() == one
    assert open_slices == []
    assert index[is_begin].tolist() == list(range(start.size))
