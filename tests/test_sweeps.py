"""Do the sweeps, compiled and not, say what a loop in Python says?"""

from __future__ import annotations

from itertools import accumulate, pairwise
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from traceview.base import sweeps_reference
from traceview.base.intervals import largest_between, union
from traceview.base.sweeping import SWEEPS

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
@given(st.lists(_numbers, min_size=2, max_size=12, unique=True), st.lists(_numbers, max_size=12))
@example([_LEAST, _LEAST + 2, _MOST - 1, _MOST], [_LEAST, 0, _MOST])
def test_covered_time_is_exact_up_to_the_limits_of_int64(
    sweeps: ModuleType, edges: list[int], times: list[int]
) -> None:
    edges = sorted(edges)[: len(edges) // 2 * 2]
    spans = [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True)]
    while sum(high - low for low, high in spans) > _MOST:
        spans.remove(max(spans, key=lambda span: span[1] - span[0]))
    start = np.array([low for low, _ in spans], dtype=np.int64)
    covered = np.array([0, *accumulate(high - low for low, high in spans)], dtype=np.int64)
    found = sweeps.covered_before(start, covered, np.array(times, dtype=np.int64))
    assert found.tolist() == [
        sum(max(min(high, time) - low, 0) for low, high in spans) for time in times
    ]


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
@pytest.mark.parametrize("stretched", [1, 700])
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9) | st.just(40)), max_size=14),
    st.lists(st.integers(-1, 50), max_size=8, unique=True),
)
def test_touching_events_are_those_of_a_loop(
    sweeps: ModuleType, stretched: int, events: list[tuple[int, int]], edges: list[int]
) -> None:
    # Many events, so that some are skipped in blocks.
    events = sorted((begin, begin + size) for begin, size in events for _ in range(stretched))
    edges = sorted(edges)[: len(edges) // 2 * 2]
    spans = list(zip(edges[::2], edges[1::2], strict=True))
    start, end = np.array(events, dtype=np.int64).reshape(-1, 2).T.copy()
    first, last = np.array(spans, dtype=np.int64).reshape(-1, 2).T.copy()
    found = sweeps.touching(start, end, sweeps.reaches(end), first, last)
    assert found.tolist() == [
        place
        for place, (begin, finish) in enumerate(events)
        if any(begin < high and finish > low for low, high in spans)
    ]


@given(
    st.lists(st.integers(-5, 5), max_size=9),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=9),
)
def test_the_largest_between_two_places(values: list[int], spans: list[tuple[int, int]]) -> None:
    spans = [(min(low, len(values)), min(high, len(values))) for low, high in spans]
    first, last = np.array(spans, dtype=np.int64).reshape(-1, 2).T.copy()
    found = largest_between(np.array(values, dtype=np.int64), first, last, -2)
    assert found.tolist() == [max(-2, *values[low:high], -2) for low, high in spans]


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


_valued = st.lists(
    st.tuples(st.integers(-2, 5), st.integers(-(2**40), 2**40), st.booleans()), max_size=14
)


@both
@given(_valued, st.sampled_from(_DTYPES[1:]), st.booleans())
def test_totals_are_sums(
    sweeps: ModuleType, rows: list[tuple[int, int, bool]], dtype: str, is_every: bool
) -> None:
    places = np.array([place for place, *_ in rows], dtype=dtype)
    values = np.array([value for _, value, _ in rows], dtype=np.int64)
    chosen = np.array([mark for *_, mark in rows], dtype=np.uint8)
    found = sweeps.totals(places, values, 6, *(() if is_every else (chosen,)))
    expected = [
        sum(value for at, value, mark in rows if at == place and (is_every or mark))
        for place in range(6)
    ]
    assert found.tolist() == expected


@both
@given(_valued, st.sets(st.integers(0, 14), max_size=4))
def test_totals_between_are_sums(
    sweeps: ModuleType, rows: list[tuple[int, int, bool]], cuts: set[int]
) -> None:
    first = [0, *sorted(cut for cut in cuts if cut <= len(rows)), len(rows)]
    found = sweeps.totals_between(
        np.array([value for _, value, _ in rows], dtype=np.int64),
        np.array([mark for *_, mark in rows], dtype=np.uint8),
        np.array(first, dtype=np.int64),
    )
    expected = [
        sum(value for _, value, mark in rows[low:high] if mark) for low, high in pairwise(first)
    ]
    assert found.tolist() == expected


@both
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 3)), max_size=9),
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_rows_are_marked_by_both_numbers(
    sweeps: ModuleType, rows: list[tuple[int, int]], of_first: list[bool], of_second: list[bool]
) -> None:
    found = sweeps.in_both(
        np.array([first for first, _ in rows], dtype=np.uint8),
        np.array(of_first, dtype=np.uint8),
        np.array([second for _, second in rows], dtype=np.int32),
        np.array(of_second, dtype=np.uint8),
    )
    assert found.dtype == np.bool_
    assert found.tolist() == [of_first[a] and of_second[b + 1] for a, b in rows]


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


@both
@given(st.lists(st.integers(0, 4), max_size=20))
def test_places_are_grouped_by_code(sweeps: ModuleType, codes: list[int]) -> None:
    places, begin = sweeps.grouped(np.array(codes, dtype=np.uint8), 5)
    assert (places.dtype, begin.dtype) == (np.int64, np.int64)
    found = [places[low:high].tolist() for low, high in pairwise(begin.tolist())]
    assert found == [[at for at, code in enumerate(codes) if code == wanted] for wanted in range(5)]


def _labelled(sweeps: ModuleType, rows: list[tuple[int, int, int]]) -> None:
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    label, begin = sweeps.labelled(
        table[:, 0].astype(np.int32), table[:, 1].astype(np.int32), table[:, 2].astype(np.uint8)
    )
    assert (label.dtype, begin.dtype) == (np.int32, np.int64)
    distinct = list(dict.fromkeys(rows))
    assert label.tolist() == [distinct.index(row) for row in rows]
    assert begin.tolist() == [rows.index(row) for row in distinct]


@both
@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3), st.integers(0, 2)), max_size=30))
@example([(0, 1, 0), (1, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0, 1), (0, 0, 0)])
def test_rows_are_labelled_as_they_first_occur(
    sweeps: ModuleType, rows: list[tuple[int, int, int]]
) -> None:
    _labelled(sweeps, rows)


@both
def test_labels_stay_when_their_table_grows(sweeps: ModuleType) -> None:
    rows = [(number % 70, number // 70, number % 3) for number in range(2500)]
    _labelled(sweeps, rows[::2] + rows[:300] + rows)
    # Where only the last column differs, some of so many meet in the table.
    _labelled(sweeps, [(0, 0, number) for number in range(256)])


_device_events = st.lists(
    st.tuples(st.integers(0, 12), st.integers(-1, 4), st.booleans(), st.integers(-1, 3)),
    max_size=8,
).map(lambda events: sorted(events, key=lambda event: event[0]))


@both
@given(
    _device_events,
    st.integers(-1, 8),
    st.integers(4, 16),
    st.lists(st.integers(0, 9), min_size=4, max_size=4),
)
@example(
    [(0, 2, False, 0), (1, 1, True, 1), (5, 1, False, 0), (5, 1, False, 1)], 0, 9, [4, 3, 0, 0]
)
@example(
    [(0, 2, False, 0), (0, 2, False, 1), (5, 1, False, -1), (5, 1, False, 1)], 2, 6, [4, 3, 0, 0]
)
@example([(0, 2, True, 0), (1, 1, False, 1), (1, 1, True, 0), (1, 1, True, 0)], 0, 6, [4, 3, 0, 0])
def test_gaps_are_what_no_event_covers(
    sweeps: ModuleType,
    events: list[tuple[int, int, bool, int]],
    first: int,
    last: int,
    launched_at: list[int],
) -> None:
    start, duration, wins, launch = (
        np.array(column, dtype=dtype)
        for column, dtype in zip(
            zip(*events, strict=True) if events else ((),) * 4,
            ("i8", "i8", "u1", "i4"),
            strict=True,
        )
    )
    found = sweeps.gaps_between(start, duration, wins, launch, np.array(launched_at), first, last)
    assert [column.dtype for column in found] == [np.int64, np.int64, np.int32, np.int32]
    real = [at for at, (_, length, _, _) in enumerate(events) if length > 0]
    free = [
        moment
        for moment in range(first, last)
        if not any(events[at][0] <= moment < events[at][0] + events[at][1] for at in real)
    ]
    expected = []
    for begin in (moment for moment in free if moment - 1 not in free):
        end = next(moment + 1 for moment in free if moment >= begin and moment + 1 not in free)
        before = [at for at in real if events[at][0] + events[at][1] == begin]
        after = [at for at in real if events[at][0] == end < last]
        expected.append(
            (
                begin,
                end,
                min(before, key=lambda at: (not events[at][2], -events[at][0]), default=-1),
                min(
                    after,
                    key=lambda at: launched_at[events[at][3]] if events[at][3] >= 0 else 99,
                    default=-1,
                ),
            )
        )
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected


@both
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(-1, 2)), max_size=8),
    st.lists(st.integers(-1, 2), min_size=3, max_size=3),
    st.lists(st.tuples(st.integers(-2, 16), st.integers(0, 4)), min_size=3, max_size=3),
)
@example([(2, 4, 0), (2, 4, 1)], [0, 1, 2], [(3, 2), (3, 1), (0, 0)])
def test_the_host_is_late_until_it_launches(
    sweeps: ModuleType,
    gaps: list[tuple[int, int, int]],
    launch: list[int],
    calls: list[tuple[int, int]],
) -> None:
    table = np.array(gaps, dtype=np.int64).reshape(-1, 3)
    start, end = table[:, 0].copy(), table[:, 0] + table[:, 1]
    late, launches = sweeps.late_until(
        start,
        end,
        table[:, 2].astype(np.int32),
        np.array(launch, dtype=np.int32),
        *np.array(calls, dtype=np.int64).T.copy(),
        2,
    )
    expected = []
    for begin, length, after in gaps:
        row = launch[after] if after >= 0 else -1
        until = begin + length if after < 0 else begin
        if row >= 0:
            at, took = calls[row]
            until = min(max(at + (took if took >= 2 else 0), begin), begin + length)
        expected.append((until, row))
    assert list(zip(late.tolist(), launches.tolist(), strict=True)) == expected


_gaps = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), max_size=6).map(
    lambda steps: [
        (sum(map(sum, steps[:at])) + wait, sum(map(sum, steps[: at + 1])))
        for at, (wait, _) in enumerate(steps)
    ]
)


@both
@given(
    _gaps,
    st.sets(st.integers(-1, 40), max_size=6),
    st.none() | st.lists(st.booleans(), min_size=6, max_size=6),
)
@example([(0, 5), (7, 9)], {0, 2, 5, 8}, None)
@example([(0, 5), (7, 9)], {0, 2, 5, 8}, [False, True])
def test_spans_are_cut_at_the_bounds_inside_them(
    sweeps: ModuleType, spans: list[tuple[int, int]], bounds: set[int], marks: list[bool] | None
) -> None:
    start, end = np.array(spans, dtype=np.int64).reshape(-1, 2).T.copy()
    known = sorted(bounds)
    chosen = None if marks is None else np.array(marks[: len(spans)], dtype=np.uint8)
    found = sweeps.cut(start, end, np.array(known, dtype=np.int64), chosen)
    assert [column.dtype for column in found] == [np.int64, np.int64, np.int32, np.int32]
    expected = []
    for number, (begin, finish) in enumerate(spans):
        inside = [bound for bound in known if begin < bound < finish]
        if marks is not None and not marks[number]:
            inside = []
        for low, high in pairwise([begin, *inside, finish]):
            expected.append((low, high, number, sum(bound <= low for bound in known)))
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected


def runs(owners: dict[int, int]) -> list[tuple[int, int, int]]:
    """Start, end and owner of stretches of instants with one owner."""
    result: list[tuple[int, int, int]] = []
    for instant, owner in sorted(owners.items()):
        if result and result[-1][1:] == (instant, owner):
            result[-1] = (result[-1][0], instant + 1, owner)
        else:
            result.append((instant, instant + 1, owner))
    return result


@both
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(0, 2)), max_size=10).map(
        sorted
    )
)
@example([(0, 3, 0), (1, 5, 0), (2, 2, 0), (2, 2, 2)])
def test_of_events_of_a_class_the_first_begun_has_an_instant(
    sweeps: ModuleType, events: list[tuple[int, int, int]]
) -> None:
    columns = np.array(events, dtype=np.int64).reshape(-1, 3).T.copy()
    *found, begin = sweeps.exclusive(columns[0], columns[1], columns[2].astype(np.uint8), 3)
    assert [column.dtype for column in (*found, begin)] == [np.int64, np.int64, np.int32, np.int64]
    spans = list(zip(*(column.tolist() for column in found), strict=True))
    for class_, (low, high) in enumerate(pairwise(begin.tolist())):
        owners: dict[int, int] = {}
        for number, (start, length, own) in reversed(list(enumerate(events))):
            if own == class_:
                owners.update(dict.fromkeys(range(start, start + length), number))
        assert spans[low:high] == runs(owners)


@both
@given(
    st.lists(_gaps, min_size=1, max_size=4),
    st.sets(st.integers(-2, 40), max_size=6),
    st.integers(-2, 20),
    st.integers(-2, 40),
)
@example([[(1, 9)], [(0, 5), (5, 12)], [(0, 20)]], {0, 7, 9}, 1, 15)
def test_of_spans_of_layers_the_first_layer_counts(
    sweeps: ModuleType, layers: list[list[tuple[int, int]]], bounds: set[int], first: int, last: int
) -> None:
    spans = [span for layer in layers for span in layer]
    start, end = np.array(spans, dtype=np.int64).reshape(-1, 2).T.copy()
    known = sorted(bounds)
    found = sweeps.layered(
        start,
        end,
        np.cumsum([0, *map(len, layers)]),
        np.array(known, dtype=np.int64),
        first,
        last,
    )
    assert [column.dtype for column in found] == [np.int64, np.int64, np.int32, np.int32]
    owners: dict[int, int] = {}
    for number, (begin, finish) in reversed(list(enumerate(spans))):
        owners.update(dict.fromkeys(range(max(begin, first), min(finish, last)), number))
    expected = []
    for begin, finish, owner in runs(owners):
        for low, high in pairwise(
            [begin, *(bound for bound in known if begin < bound < finish), finish]
        ):
            expected.append((low, high - low, owner, sum(bound <= low for bound in known)))
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected


_HOSTS = (0, 0, 1, 1)
_walk_rows = st.lists(
    st.tuples(st.integers(1, 5), st.booleans(), st.sampled_from([-2, -2, -1, 0, 1, 2, 3])),
    min_size=1,
    max_size=8,
)


@given(
    st.lists(_walk_rows, min_size=4, max_size=4),
    st.lists(st.integers(0, 4), min_size=2, max_size=2),
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(1, 9)), max_size=4),
)
@example(
    # Each waits for the next one, and the last for the first.
    [
        [(4, True, -2), (4, False, 1)],
        [(5, False, 2), (3, True, 2)],
        [(8, True, 0)],
        [(8, True, -2)],
    ],
    [0, 0],
    [True] * 4,
    True,
    [(0, 0, 8), (1, 2, 4)],
)
def test_walks_fill_their_spans_and_are_those_of_the_reference(
    rows: list[list[tuple[int, bool, int]]],
    starts: list[int],
    takes_part: list[bool],
    one_clock: bool,
    spans: list[tuple[int, int, int]],
) -> None:
    begin: list[int] = []
    first, last = [0, 0], [99, 99]
    for host, own in zip(_HOSTS, rows, strict=True):
        at = starts[host]
        for length, *_ in own:
            begin.append(at)
            at += length
        first[host], last[host] = starts[host], min(last[host], at)
    walks = [
        (host, max(at, first[host]), min(at + length, last[host])) for host, at, length in spans
    ]
    table = np.array([walk for walk in walks if walk[1] < walk[2]], dtype=np.int64).reshape(-1, 3)
    every = [row for own in rows for row in own]
    arguments = (
        np.array(begin, dtype=np.int64),
        np.array([length for length, *_ in every], dtype=np.int64),
        np.array([active for _, active, _ in every], dtype=np.uint8),
        np.array([other for *_, other in every], dtype=np.int32),
        np.cumsum([0, *map(len, rows)]),
        np.array(_HOSTS, dtype=np.int64),
        np.array(takes_part, dtype=np.uint8),
        one_clock,
        *table.T.copy(),
    )
    found = [[column.tolist() for column in sweeps.walked(*arguments)] for sweeps in EVERY_SWEEPS]
    assert found[0] == found[-1]
    row, start, duration, number, lost = found[0]
    assert lost == [every[place][2] != -2 for place in row]
    expected = []
    for walk, (host, low, high) in enumerate(table.tolist()):
        if any(takes_part[device] for device in (0, 1, 2, 3) if _HOSTS[device] == host):
            expected += [(walk, instant) for instant in range(low, high)]
    instants = zip(number, start, duration, strict=True)
    assert [(walk, at) for walk, low, size in instants for at in range(low, low + size)] == expected
    for place, low, size in zip(row, start, duration, strict=True):
        assert begin[place] <= low < low + size <= begin[place] + every[place][0]


_PEER, _SHORT, _LAUNCHING = 1, 2, 3
_CAUSES = 6
_YIELDS = np.array([0, 0, 1, 1, 0, 0], dtype=np.uint8)
_states = st.dictionaries(st.integers(1, 40), st.integers(0, _CAUSES - 1), max_size=12).map(
    # The first state has lasted since the beginning of time.
    lambda states: [(-(1 << 61), 4), *sorted(states.items())]
)


@st.composite
def _idle(draw: st.DrawFn) -> dict[str, Any]:
    gaps = draw(_gaps)
    offsets = [
        (draw(st.integers(0, end - start)), draw(st.integers(0, end - start)))
        for start, end in gaps
    ]
    return {
        "gaps": gaps,
        "late_end": [start + late for (start, _), (late, _) in zip(gaps, offsets, strict=True)],
        "handed_over": [
            start + min(late, handed)
            for (start, _), (late, handed) in zip(gaps, offsets, strict=True)
        ],
        "line": [draw(st.integers(0, 2)) for _ in gaps],
        "queued": [draw(st.sampled_from([_SHORT, 4, 5])) for _ in gaps],
        "bounds": sorted(draw(st.sets(st.integers(0, 40), max_size=4))),
        "states": [draw(_states) for _ in range(3)],
        "peers": draw(st.sets(st.integers(0, 60), max_size=20)),
    }


@both
@given(_idle())
@example(
    {
        "gaps": [(0, 6), (8, 12)],
        "late_end": [5, 10],
        "handed_over": [2, 8],
        "line": [1, 0],
        "queued": [_SHORT, _SHORT],
        "bounds": [3],
        "states": [[(-1, 4), (2, 3)], [(-1, 4), (2, 3), (9, 4)], [(-1, 5)]],
        "peers": {5, 11},
    }
)
def test_every_instant_of_a_gap_has_its_cause(sweeps: ModuleType, idle: dict[str, Any]) -> None:
    starts, ends = np.array(idle["gaps"], dtype=np.int64).reshape(-1, 2).T.copy()
    start, end, gap, _ = sweeps.cut(starts, ends, np.array(idle["bounds"], dtype=np.int64))
    states = [state for of_line in idle["states"] for state in of_line]
    peers = union(*(np.array(sorted(idle["peers"]), dtype=np.int64) + by for by in (0, 1)))
    spans = sweeps.attributed_spans(
        start,
        end,
        gap,
        *(np.array(idle[name], dtype=np.int64) for name in ("late_end", "handed_over", "line")),
        np.array([begin for begin, _ in states], dtype=np.int64),
        np.array([cause for _, cause in states], dtype=np.uint8),
        np.cumsum([0, *map(len, idle["states"])]),
        np.array(idle["queued"], dtype=np.uint8),
        peers.start,
        peers.covered,
        _YIELDS,
        _PEER,
        _SHORT,
        _LAUNCHING,
    )
    cause_of: dict[int, int] = {}
    for number, (first, last) in enumerate(idle["gaps"]):
        late = [0] * _CAUSES
        for moment in range(first, idle["late_end"][number]):
            handed = moment >= idle["handed_over"][number]
            of_line = idle["states"][idle["line"][number] if handed else 0]
            cause = [cause for begin, cause in of_line if begin <= moment][-1]
            cause_of[moment] = cause
            late[cause] += 1
        wait = idle["queued"][number]
        if wait == _SHORT and any(late) and late.index(max(late)) == _LAUNCHING:
            wait = _LAUNCHING
        for moment in range(idle["late_end"][number], last):
            cause_of[moment] = _PEER if moment in idle["peers"] and _YIELDS[wait] else wait
    expected_spans = []
    expected: dict[int, dict[int, int]] = {}
    for piece, (low, high) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        for moment in range(low, high):
            cause = cause_of[moment]
            if moment == low or cause != cause_of[moment - 1]:
                expected_spans.append((moment, cause, piece))
            of_cause = expected.setdefault(cause, {})
            of_cause[piece] = of_cause.get(piece, 0) + 1
    assert [column.dtype for column in spans] == [np.int64, np.uint8, np.int32]
    assert list(zip(*(column.tolist() for column in spans), strict=True)) == expected_spans
    by_cause = sweeps.summed_spans(*spans, end, _CAUSES)
    assert list(by_cause) == sorted(expected)
    for cause, (pieces, lengths) in by_cause.items():
        assert (pieces.dtype, lengths.dtype) == (np.int32, np.int64)
        assert pieces.tolist() == list(expected[cause])
        assert lengths.tolist() == list(expected[cause].values())


@both
def test_numbers_too_far_from_the_least_are_not_in_a_table(sweeps: ModuleType) -> None:
    ids = np.array([_LEAST, _LEAST + 1, -3, 4, 5, _MOST], dtype=np.int64)
    table = np.array([10, 20], dtype=np.int64)
    assert sweeps.looked_up(table, ids, 4, -1).tolist() == [-1, -1, -1, 10, 20, -1]
    assert sweeps.looked_up(table, ids, _LEAST, -1).tolist() == [10, 20, -1, -1, -1, -1]
    assert sweeps.looked_up(table, ids, _MOST, -1).tolist() == [-1] * 5 + [10]
    marks = np.array([1, 1], dtype=np.uint8)
    assert sweeps.are_marked(marks, ids, _MOST).tolist() == [False] * 5 + [True]
