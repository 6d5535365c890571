"""The compiled sweeps say what the reference says, and that of gaps and walks is what a loop over instants says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scripts import fuzzed_kernels
from traceview.base import sweeps_reference
from traceview.base.intervals import largest_between, union
from traceview.base.sweeping import SWEEPS

EVERY_SWEEPS = list(dict.fromkeys((sweeps_reference, SWEEPS)))
both = pytest.mark.parametrize("sweeps", EVERY_SWEEPS)

_LEAST, _MOST = -(2**63), 2**63 - 1
_Call = Callable[[ModuleType], Any]


def i64(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def columns(rows: Sequence[tuple[int, ...]], *dtypes: str) -> list[npt.NDArray[Any]]:
    """The columns of rows, each of its type."""
    table = np.array(rows, dtype=np.int64).reshape(-1, len(dtypes))
    return [table[:, place].astype(dtype) for place, dtype in enumerate(dtypes)]


_small = st.integers(-3, 12)
_numbers = st.integers(_LEAST, _MOST) | _small
_ids = st.sampled_from(("u1", "i2", "i4", "i8")).flatmap(
    lambda dtype: st.lists(st.integers(0 if dtype == "u1" else -9, 30), max_size=12).map(
        lambda ids: np.array(ids, dtype=dtype)
    )
)
_bounds = st.sets(st.integers(-2, 40), max_size=6).map(sorted)
_gaps = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), max_size=6).map(
    lambda steps: [
        (sum(map(sum, steps[:at])) + wait, sum(map(sum, steps[: at + 1])))
        for at, (wait, _) in enumerate(steps)
    ]
)


@st.composite
def covered_before(draw: st.DrawFn) -> _Call:
    edges = i64(sorted(draw(st.sets(st.integers(-(2**61), 2**61) | _small, max_size=12))))
    start, end = edges[: edges.size // 2 * 2].reshape(-1, 2).T.copy()
    covered, times = np.append(0, np.cumsum(end - start)), i64(draw(st.lists(_numbers, max_size=9)))
    return lambda sweeps: sweeps.covered_before(start, covered, times)


@st.composite
def places(draw: st.DrawFn) -> _Call:
    values, times = i64(sorted(draw(st.lists(_numbers, max_size=12)))), draw(st.lists(_numbers))
    right = draw(st.booleans())
    return lambda sweeps: sweeps.places(values, i64(times), right)


@st.composite
def merged(draw: st.DrawFn) -> _Call:
    rows = draw(st.lists(st.tuples(_small, st.integers(-2, 9))))
    start, length = columns(sorted(rows) if draw(st.booleans()) else rows, "i8", "i8")
    return lambda sweeps: sweeps.merged(start, start + length)


@st.composite
def last_open(draw: st.DrawFn) -> _Call:
    ends = draw(st.lists(st.integers(0, 20), max_size=14))
    limits, times = columns(
        draw(st.lists(st.tuples(st.integers(0, len(ends)), st.integers(-1, 21)))), "i8", "i8"
    )
    if draw(st.booleans()):
        limits, times = np.sort(limits), np.sort(times)
    return lambda sweeps: sweeps.last_open(i64(ends), limits, times)


@st.composite
def touching(draw: st.DrawFn) -> _Call:
    # Many events, so that some are skipped in blocks.
    repeats = draw(st.sampled_from((1, 700)))
    events = st.tuples(st.integers(0, 40), st.integers(0, 9) | st.just(40))
    start, length = columns(sorted(draw(st.lists(events, max_size=9)) * repeats), "i8", "i8")
    end, edges = start + length, draw(_bounds)
    first, last = i64(edges[: len(edges) // 2 * 2]).reshape(-1, 2).T.copy()
    return lambda sweeps: sweeps.touching(start, end, sweeps.reaches(end), first, last)


@st.composite
def clearest(draw: st.DrawFn) -> _Call:
    row = st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(1, 3))
    start, length, shows = columns(sorted(draw(st.lists(row, max_size=9))), "i8", "i8", "u2")
    begin, size, wanted = columns(sorted(draw(st.lists(row, max_size=9))), "i8", "i8", "u2")
    end, finish = start + length, begin + size + 1
    return lambda sweeps: sweeps.clearest(
        start, end, sweeps.reaches(end), shows, begin, finish, wanted, 0.8
    )


@st.composite
def overlapping(draw: st.DrawFn) -> _Call:
    start, end = columns(draw(st.lists(st.tuples(_small, _small))), "i8", "i8")
    first, last = draw(_small), draw(_small)
    return lambda sweeps: sweeps.overlapping(start, end, first, last)


@st.composite
def tables_of_ids(draw: st.DrawFn) -> _Call:
    ids, asked = draw(_ids), draw(_ids | st.lists(_numbers, max_size=9).map(i64))
    least, most = min([0, *ids.tolist()]), max([0, *ids.tolist()])
    # A column of a table is no contiguous array.
    asked = np.stack((asked, asked), axis=1)[:, 1]
    low = draw(st.sampled_from((least, _LEAST, _MOST)))

    def call(sweeps: ModuleType) -> Any:
        marks = sweeps.marked(ids, least, most - least + 1)
        known = sweeps.are_marked(marks.view(np.uint8), asked, low)
        return marks, known, sweeps.looked_up(np.arange(marks.size), asked, low, -7)

    return call


@st.composite
def earliest(draw: st.DrawFn) -> _Call:
    ids, times = columns(
        draw(st.lists(st.tuples(st.integers(-4, 9), st.integers(0, 3)))), "i8", "i8"
    )
    return lambda sweeps: sweeps.earliest(ids, times, -4, 14)


@st.composite
def totals(draw: st.DrawFn) -> _Call:
    rows = draw(
        st.lists(st.tuples(st.integers(-2, 5), st.integers(-(2**40), 2**40), st.booleans()))
    )
    where, values, chosen = columns(rows, draw(st.sampled_from(("i2", "i4", "i8"))), "i8", "u1")
    marks = None if draw(st.booleans()) else chosen
    cuts = draw(st.sets(st.integers(0, len(rows)), max_size=4))
    first = i64(sorted({0, *cuts, len(rows)}))
    return lambda sweeps: (
        sweeps.totals(where, values, 6, marks),
        sweeps.totals_between(values, chosen, first),
    )


@st.composite
def in_both(draw: st.DrawFn) -> _Call:
    marks = st.lists(st.integers(0, 1), min_size=5, max_size=5)
    of_first, of_second = (np.array(draw(marks), dtype=np.uint8) for _ in range(2))
    first, second = columns(
        draw(st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 3)))), "u1", "i4"
    )
    return lambda sweeps: sweeps.in_both(first, of_first, second, of_second)


@st.composite
def lines_of(draw: st.DrawFn) -> _Call:
    cells = draw(st.lists(st.binary(max_size=4), min_size=1, max_size=4))
    width = draw(st.integers(1, 3))
    row = st.lists(
        st.tuples(st.integers(-1, len(cells) - 1), _numbers), min_size=width, max_size=width
    )
    table = i64(draw(st.lists(row, max_size=5))).reshape(-1, width, 2)
    codes = np.ascontiguousarray(table[:, :, 0].T, dtype=np.int32)
    numbers = np.ascontiguousarray(table[:, :, 1].T)
    begin, packed = np.cumsum([0, *map(len, cells)]), np.frombuffer(b"".join(cells), dtype=np.uint8)
    return lambda sweeps: sweeps.lines_of(codes, numbers, packed, begin)


@st.composite
def codes_of(draw: st.DrawFn) -> _Call:
    values = draw(st.lists(st.sampled_from([None, "a", "b", "", "a b"])))

    def call(sweeps: ModuleType) -> Any:
        known: dict[Any, int] = {"b": 0}
        codes = sweeps.codes_of(np.array(values, dtype=np.object_), known)
        return codes, np.array(list(known.values()), dtype=np.int64), repr(list(known)).encode()

    return call


@st.composite
def row_labels(draw: st.DrawFn) -> _Call:
    spread = draw(st.sampled_from((2, 60)))
    # Many rows, so that the table of labels grows.
    row = st.tuples(st.integers(-1, spread), st.integers(-1, spread), st.integers(0, 2))
    rows = draw(st.lists(row, max_size=30)) * draw(st.sampled_from((1, 90)))
    if draw(st.booleans()):
        rows += [(number % 70, number // 70, number % 3) for number in range(2500)]
    keys = columns(rows, "i4", "i4", "u1")
    return lambda sweeps: sweeps.labelled(*keys)


@st.composite
def gaps_between(draw: st.DrawFn) -> _Call:
    row = st.tuples(st.integers(0, 12), st.integers(-1, 4), st.integers(0, 1), st.integers(-1, 3))
    events = sorted(draw(st.lists(row, max_size=8)), key=lambda event: event[0])
    arguments = columns(events, "i8", "i8", "u1", "i4")
    launched_at = i64(draw(st.lists(st.integers(0, 9), min_size=4, max_size=4)))
    first, last = draw(st.integers(-1, 8)), draw(st.integers(4, 16))
    return lambda sweeps: sweeps.gaps_between(*arguments, launched_at, first, last)


@st.composite
def late_until(draw: st.DrawFn) -> _Call:
    row = st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(-1, 2))
    start, length, after = columns(draw(st.lists(row, max_size=8)), "i8", "i8", "i4")
    launch = np.array(draw(st.lists(st.integers(-1, 2), min_size=3, max_size=3)), dtype=np.int32)
    call = st.tuples(st.integers(-2, 16), st.integers(0, 4))
    calls = columns(draw(st.lists(call, min_size=3, max_size=3)), "i8", "i8")
    return lambda sweeps: sweeps.late_until(start, start + length, after, launch, *calls, 2)


@st.composite
def cut(draw: st.DrawFn) -> _Call:
    spans, bounds = draw(_gaps), i64(draw(_bounds))
    marks = draw(st.lists(st.integers(0, 1), min_size=len(spans), max_size=len(spans)))
    chosen = None if draw(st.booleans()) else np.array(marks, dtype=np.uint8)
    return lambda sweeps: sweeps.cut(*columns(spans, "i8", "i8"), bounds, chosen)


@st.composite
def exclusive(draw: st.DrawFn) -> _Call:
    row = st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(0, 2))
    events = columns(sorted(draw(st.lists(row, max_size=10))), "i8", "i8", "u1")
    return lambda sweeps: sweeps.exclusive(*events, 3)


@st.composite
def layered(draw: st.DrawFn) -> _Call:
    layers = draw(st.lists(_gaps, min_size=1, max_size=4))
    spans = columns([span for layer in layers for span in layer], "i8", "i8")
    begin, bounds = np.cumsum([0, *map(len, layers)]), i64(draw(_bounds))
    first, last = draw(st.integers(-2, 20)), draw(st.integers(-2, 40))
    return lambda sweeps: sweeps.layered(*spans, begin, bounds, first, last)


def plain(found: Any) -> Any:
    """What a sweep gives, with the types of its arrays."""
    if isinstance(found, np.ndarray):
        return found.dtype, found.tolist()
    return tuple(map(plain, found)) if isinstance(found, tuple) else found


@pytest.mark.parametrize(
    "calls",
    [
        covered_before, places, merged, last_open, touching, clearest, overlapping, tables_of_ids, earliest, totals, in_both,
        lines_of, codes_of, row_labels, gaps_between, late_until, cut, exclusive, layered,
    ],
)  # fmt: skip
@given(data=st.data())
def test_compiled_sweeps_are_those_of_the_reference(
    calls: Callable[[], st.SearchStrategy[_Call]], data: st.DataObject
) -> None:
    call = data.draw(calls())
    assert plain(call(SWEEPS)) == plain(call(sweeps_reference))


@given(
    st.lists(st.integers(-5, 5), max_size=9),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=9),
)
def test_the_largest_between_two_places(values: list[int], spans: list[tuple[int, int]]) -> None:
    spans = [(min(low, len(values)), min(high, len(values))) for low, high in spans]
    first, last = np.array(spans, dtype=np.int64).reshape(-1, 2).T.copy()
    found = largest_between(np.array(values, dtype=np.int64), first, last, -2)
    assert found.tolist() == [max(-2, *values[low:high], -2) for low, high in spans]


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
    for piece, (low, high) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        for moment in range(low, high):
            cause = cause_of[moment]
            if moment == low or cause != cause_of[moment - 1]:
                expected_spans.append((moment, cause, piece))
    assert [column.dtype for column in spans] == [np.int64, np.uint8, np.int32]
    assert list(zip(*(column.tolist() for column in spans), strict=True)) == expected_spans


def test_both_implementations_agree_on_what_no_trace_holds() -> None:
    for seed in range(3000):
        fuzzed_kernels.call(seed)
