"""At every instant a timeline gives the cause of the first layer that covers it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import example, given
from hypothesis import strategies as st

from traceview.base.intervals import IntervalSet, union
from traceview.trace.host.cause import Cause
from traceview.trace.host.state_timeline import complement, intersection, stacked, without_holes

LENGTH = 40
Bools = npt.NDArray[np.bool_]
pairs = st.lists(st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)), max_size=8)
causes = st.sampled_from(list(Cause))


def union_of(spans: list[tuple[int, int]]) -> IntervalSet:
    columns = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return union(columns[:, 0], columns[:, 1])


def instants(spans: list[tuple[int, int]]) -> Bools:
    """Which of the instants from 0 to `LENGTH` are covered."""
    covered = np.zeros(LENGTH, dtype=np.bool_)
    for start, end in spans:
        covered[start:end] = True
    return covered


def of_union(one: IntervalSet) -> Bools:
    return instants(
        [
            (max(start, 0), min(end, LENGTH))
            for start, end in zip(one.start.tolist(), one.end.tolist(), strict=True)
        ]
    )


@given(
    st.lists(st.tuples(causes, pairs), max_size=5),
    st.lists(st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)), min_size=1, max_size=5),
)
def test_the_first_layer_that_covers_an_instant_tells_its_cause(
    layers: list[tuple[Cause, list[tuple[int, int]]]], spans: list[tuple[int, int]]
) -> None:
    expected = np.full(LENGTH, Cause.UNKNOWN)
    for cause, covered in reversed(layers):
        expected[instants(covered)] = cause
    timeline = stacked([(cause, union_of(covered)) for cause, covered in layers])
    assert timeline.at(np.arange(LENGTH)).tolist() == expected.tolist()
    ordered = [(min(span), max(span)) for span in spans]
    inside = timeline.within([a for a, _ in ordered], [b for _, b in ordered])
    assert inside.tolist() == [
        [int((expected[a:b] == cause).sum()) for a, b in ordered] for cause in Cause
    ]
    assert inside.sum(axis=0).tolist() == [b - a for a, b in ordered]


def test_a_timeline_without_layers_knows_nothing() -> None:
    inside = stacked([]).within([-(10**18)], [10**18])
    assert inside[Cause.UNKNOWN].tolist() == [2 * 10**18]
    assert inside.sum() == 2 * 10**18


@example([(0, 2), (5, 7), (11, 12)], 3)
@given(pairs, st.integers(0, 6))
def test_without_holes_fills_short_holes(spans: list[tuple[int, int]], hole: int) -> None:
    expected = instants(spans)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], expected.astype(np.int8), [0]))))
    for end, start in zip(edges[1:-1:2].tolist(), edges[2::2].tolist(), strict=True):
        expected[end:start] |= start - end <= hole
    assert of_union(without_holes(union_of(spans), hole)).tolist() == expected.tolist()


@given(pairs, pairs)
def test_intersection_covers_the_time_of_both(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    covered = of_union(intersection(union_of(first), union_of(second)))
    assert covered.tolist() == (instants(first) & instants(second)).tolist()


@given(pairs)
def test_complement_covers_the_rest(spans: list[tuple[int, int]]) -> None:
    found = complement(union_of(spans))
    assert of_union(found).tolist() == (~instants(spans)).tolist()
    assert found.within([-(10**18)], [0]).tolist() == [10**18]
    assert found.within([LENGTH], [10**18]).tolist() == [10**18 - LENGTH]
