"""Gives every instant of a gap its cause: the spans whose lengths `Gaps` sums.

A gap is host late up to its launch, first by the timeline of the thread that calls graphs, then by that of the thread
that launches; what is left is queued (see `gaps`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.ids import is_in, unique_ids
from traceview.intervals import Int64Array, IntervalSet, overlapping
from traceview.trace.cause import Cause
from traceview.trace.gaps import YIELDS_TO_PEERS, Gaps, late_parts
from traceview.trace.host_states import HostStates
from traceview.trace.model import NONE, Trace
from traceview.trace.state_timeline import StateTimeline

_FOREVER: Final = 1 << 62
"""Later than any event."""


class CauseSpans(Struct, frozen=True, eq=False):
    """Spans of one cause each, in time order; all arrays `[n]`.

    int64 `start_ps`, `end_ps`; uint8 `cause`; int64 `gap`, the number of the gap.
    """

    start_ps: Int64Array
    end_ps: Int64Array
    cause: npt.NDArray[np.uint8]
    gap: Int64Array


def cause_spans(trace: Trace, gaps: Gaps, states: HostStates, chosen: Int64Array) -> CauseSpans:
    """The causes of the gaps with the numbers `chosen`, instant by instant; touching spans of one cause are joined."""
    parts = [part for part in _parts(trace, gaps, states, chosen) if part[0].size]
    if not parts:
        empty = np.empty(0, dtype=np.int64)
        return CauseSpans(empty, empty, empty.astype(np.uint8), empty)
    start, end, cause, gap = (np.concatenate(column) for column in zip(*parts, strict=True))
    kept = np.flatnonzero(end > start)
    order = kept[np.argsort(start[kept], kind="stable")]
    start, end, cause, gap = start[order], end[order], cause[order], gap[order]
    # Spans of a gap touch each other.
    opens = np.ones(start.size, dtype=np.bool_)
    opens[1:] = (cause[1:] != cause[:-1]) | (gap[1:] != gap[:-1])
    first = np.flatnonzero(opens)
    last = np.append(first[1:], start.size) - 1
    return CauseSpans(start[first], end[last], cause[first].astype(np.uint8), gap[first])


_Part: TypeAlias = tuple[Int64Array, Int64Array, npt.NDArray[np.uint8], Int64Array]
"""Start, end, cause and gap of spans."""


def _parts(trace: Trace, gaps: Gaps, states: HostStates, chosen: Int64Array) -> Iterator[_Part]:
    start, end = gaps.spans_of(chosen)
    late_end, turn = late_parts(trace, gaps, chosen)
    if states.caller == NONE:
        unknown = np.full(chosen.size, Cause.UNATTRIBUTED, dtype=np.uint8)
        yield start, late_end, unknown, chosen
    else:
        yield _of_timeline(states.timeline(states.caller), start, turn, chosen)
        thread = gaps.thread[chosen]
        # Other gaps have no use for the timeline of their thread.
        by_other = (thread != states.caller) & (late_end > turn)
        for launching in unique_ids(thread[by_other]).tolist():
            rows = by_other & (thread == launching)
            timeline = states.timeline(launching)
            yield _of_timeline(timeline, turn[rows], late_end[rows], chosen[rows])
    cause = gaps.queued_cause[chosen]
    yields = is_in(cause, YIELDS_TO_PEERS) & (end > late_end)
    yield late_end[~yields], end[~yields], cause[~yields], chosen[~yields]
    if yields.any():
        peers = trace.collective_peers.of(gaps.device)
        yield from _queued(peers, late_end[yields], end[yields], cause[yields], chosen[yields])


def _of_timeline(
    timeline: StateTimeline, start: Int64Array, end: Int64Array, gap: Int64Array
) -> _Part:
    """The stretches of a timeline in each span."""
    span, place = overlapping(timeline.start, np.append(timeline.start[1:], _FOREVER), start, end)
    until = np.append(timeline.start, _FOREVER)[place + 1]
    return (
        np.maximum(timeline.start[place], start[span]),
        np.minimum(until, end[span]),
        timeline.cause[place],
        gap[span],
    )


def _queued(
    peers: IntervalSet,
    start: Int64Array,
    end: Int64Array,
    cause: npt.NDArray[np.uint8],
    gap: Int64Array,
) -> Iterator[_Part]:
    """The queued parts of gaps: `peer` while another device was in a collective, else their own cause."""
    edges = np.empty(2 * peers.start.size + 1, dtype=np.int64)
    edges[0] = -_FOREVER
    edges[1::2], edges[2::2] = peers.start, peers.end
    span, place = overlapping(edges, np.append(edges[1:], _FOREVER), start, end)
    yield (
        np.maximum(edges[place], start[span]),
        np.minimum(np.append(edges, _FOREVER)[place + 1], end[span]),
        np.where(place % 2 == 1, np.uint8(Cause.PEER), cause[span]),
        gap[span],
    )
