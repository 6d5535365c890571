"""Do the sweeps over ids and lines, compiled and not, say what a loop in Python says?"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from traceview import sweeps_reference
from traceview.sweeping import SWEEPS

EVERY_SWEEPS = list(dict.fromkeys((sweeps_reference, SWEEPS)))
both = pytest.mark.parametrize("sweeps", EVERY_SWEEPS)

_DTYPES = ("u1", "i2", "i4", "i8")
_LEAST, _MOST = -(2**63), 2**63 - 1
_numbers = st.integers(_LEAST, _MOST) | st.integers(-12, 12)


def _ids(dtype: str) -> st.SearchStrategy[npt.NDArray[Any]]:
    low = 0 if dtype == "u1" else -9
    return st.lists(st.integers(low, 30), max_size=12).map(
        lambda found: np.array(found, dtype=dtype)
    )


_small_ids = st.sampled_from(_DTYPES).flatmap(_ids)


@both
@given(
    st.lists(st.integers(0, 20), max_size=14),
    st.lists(st.tuples(st.integers(0, 14), st.integers(-1, 21)), max_size=14),
    st.booleans(),
)
@example([5, 3, 4], [(0, 0), (3, 3), (3, 4)], True)
@example([5, 5], [(2, 4), (1, 4)], False)
def test_last_open_is_the_last_that_ends_later(
    sweeps: ModuleType, ends: list[int], queries: list[tuple[int, int]], rises: bool
) -> None:
    limits = [min(limit, len(ends)) for limit, _ in queries]
    times = [time for _, time in queries]
    if rises:
        limits, times = sorted(limits), sorted(times)
    end, limit, time = (np.array(values, dtype=np.int64) for values in (ends, limits, times))
    found = sweeps.last_open(end, limit, time)
    if limits != sorted(limits) or times != sorted(times):
        assert found is None
        return
    expected = [
        max((place for place in range(at) if ends[place] > moment), default=-1)
        for at, moment in zip(limits, times, strict=True)
    ]
    assert found.tolist() == expected


@both
@given(
    st.lists(st.tuples(st.integers(-3, 12), st.integers(-3, 12)), max_size=12),
    st.integers(-4, 13),
    st.integers(-4, 13),
)
@example([(3, 3), (5, 5), (2, 3)], 3, 5)
def test_overlapping_events_are_those_of_a_loop(
    sweeps: ModuleType, events: list[tuple[int, int]], first: int, last: int
) -> None:
    table = np.array(events, dtype=np.int64).reshape(-1, 2)
    found = sweeps.overlapping(table[:, 0].copy(), table[:, 1].copy(), first, last)
    assert found.tolist() == [
        place
        for place, (start, end) in enumerate(events)
        if start < last and (end > first or start == end >= first)
    ]


@both
@given(_small_ids, _small_ids)
def test_tables_of_ids_are_those_of_sets(
    sweeps: ModuleType, ids: npt.NDArray[Any], asked: npt.NDArray[Any]
) -> None:
    least, most = min([0, *ids.tolist()]), max([0, *ids.tolist()])
    marks = sweeps.marked(ids, least, most - least + 1)
    assert marks.dtype == np.bool_
    assert (np.flatnonzero(marks) + least).tolist() == sorted(set(ids.tolist()))
    found = sweeps.are_marked(marks.view(np.uint8), asked, least)
    assert found.dtype == np.bool_
    assert found.tolist() == [number in set(ids.tolist()) for number in asked.tolist()]
    # A column of a table is no contiguous array.
    strided = np.stack((asked, asked), axis=1)[:, 1]
    assert sweeps.are_marked(marks.view(np.uint8), strided, least).tolist() == found.tolist()
    table = np.arange(100, 100 + marks.size)
    looked_up = sweeps.looked_up(table, asked, least, -7)
    assert looked_up.tolist() == [
        100 + number - least if least <= number <= most else -7 for number in asked.tolist()
    ]


@both
@given(st.lists(st.tuples(st.integers(-4, 9), st.integers(0, 3)), max_size=14))
def test_earliest_is_the_first_of_the_least(
    sweeps: ModuleType, events: list[tuple[int, int]]
) -> None:
    table = np.array(events, dtype=np.int64).reshape(-1, 2)
    found = sweeps.earliest(table[:, 0].copy(), table[:, 1].copy(), -4, 14)
    expected = [
        min(
            (place for place, (id_, _) in enumerate(events) if id_ == wanted),
            key=lambda place: events[place][1],
            default=-1,
        )
        for wanted in range(-4, 10)
    ]
    assert found.tolist() == expected


@both
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-(2**40), 2**40)), max_size=14))
def test_totals_are_sums(sweeps: ModuleType, values: list[tuple[int, int]]) -> None:
    table = np.array(values, dtype=np.int64).reshape(-1, 2)
    found = sweeps.totals(table[:, 0].copy(), table[:, 1].copy(), 6)
    assert found.tolist() == [sum(v for at, v in values if at == place) for place in range(6)]


@both
@given(st.lists(st.sampled_from([None, "a", "b", "", "a b", ("1.5",)]), max_size=20))
def test_codes_go_on_from_what_is_known(sweeps: ModuleType, values: list[Any]) -> None:
    known: dict[Any, int] = {"b": 0}
    array = np.empty(len(values), dtype=np.object_)
    array[:] = values
    codes = sweeps.codes_of(array, known)
    assert codes.dtype == np.int32
    names = list(known)
    assert [names[code] for code in codes.tolist()] == values
    assert names == list(dict.fromkeys(["b", *values]))
    assert list(known.values()) == list(range(len(known)))


@both
@given(
    st.lists(st.binary(max_size=4), min_size=1, max_size=4),
    st.integers(1, 3).flatmap(
        lambda columns: st.lists(
            st.lists(st.tuples(st.integers(-1, 3), _numbers), min_size=columns, max_size=columns),
            max_size=5,
        )
    ),
)
@example([b"x"], [[(-1, _LEAST)], [(-1, _MOST)], [(-1, 0)], [(-1, -10)]])
def test_lines_are_cells_with_commas(
    sweeps: ModuleType, cells: list[bytes], lines: list[list[tuple[int, int]]]
) -> None:
    lines = [[(min(code, len(cells) - 1), number) for code, number in line] for line in lines]
    width = len(lines[0]) if lines else 2
    table = np.array(lines, dtype=np.int64).reshape(-1, width, 2)
    codes = np.ascontiguousarray(table[:, :, 0].T, dtype=np.int32)
    numbers = np.ascontiguousarray(table[:, :, 1].T)
    begin = np.cumsum([0, *map(len, cells)], dtype=np.int64)
    packed = np.frombuffer(b"".join(cells), dtype=np.uint8)
    expected = b"".join(
        b",".join(str(number).encode() if code < 0 else cells[code] for code, number in line)
        + b"\n"
        for line in lines
    )
    assert sweeps.lines_of(codes, numbers, packed, begin) == expected
