"""The compiled sweeps say what the reference says, and that of gaps and walks is what a loop over instants says."""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scripts import fuzzed_kernels
from traceview.base.intervals import largest_between, union
from traceview.base.sweeping import SWEEPS
from traceview.trace.host import state_sweeps_reference
from traceview.trace.host.gaps import STATE_SWEEPS

EVERY_SWEEPS = list(dict.fromkeys((state_sweeps_reference, STATE_SWEEPS)))
both = pytest.mark.parametrize("sweeps", EVERY_SWEEPS)

_gaps = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), max_size=6).map(
    lambda steps: [
        (sum(map(sum, steps[:at])) + wait, sum(map(sum, steps[: at + 1])))
        for at, (wait, _) in enumerate(steps)
    ]
)


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            *fuzzed_kernels.SWEEP_CALLS,
            *fuzzed_kernels.STATE_SWEEP_CALLS,
            *fuzzed_kernels.DECODER_CALLS,
        }
    ),
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
    row, start, duration, number = found[0]
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
    start, end, gap, _ = SWEEPS.cut(starts, ends, np.array(idle["bounds"], dtype=np.int64))
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
