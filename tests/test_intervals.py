"""Do the vectorised intervals say what a boolean array, or a loop over every pair, says?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import example, given
from hypothesis import strategies as st

from traceview.base.intervals import Int64Array, difference, nesting, places, union

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
def test_difference_is_the_cells_of_one_and_not_of_the_other(
    part: Pairs, cover: Pairs, shift: int
) -> None:
    found = difference(union(*_columns(part, shift)), union(*_columns(cover, shift)))
    cells = _covered(part) & ~_covered(cover)
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
