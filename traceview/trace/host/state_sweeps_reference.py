"""Sweeps over the states of devices with numpy: what `state_sweeps` does compiled, without a compiler and as its check.

`state_sweeps.pyx` says of each what its arrays hold.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

_Int64Array = npt.NDArray[np.int64]
_BoolArray = npt.NDArray[np.bool_]
_Ids = npt.NDArray[np.integer]


def gaps_between(
    start: _Int64Array,
    duration: _Int64Array,
    wins: npt.NDArray[np.uint8],
    launch: _Ids,
    launched_at: _Int64Array,
    first: int,
    last: int,
) -> tuple[_Int64Array, _Int64Array, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The spans of `[first, last)` that no event covers: start, end, the event before and the event after."""
    events = np.flatnonzero(duration > 0)
    begin, finish = start[events], start[events] + duration[events]
    covered = (finish > first) & (begin < last)
    # What ended before an event begins; the window is covered before its start.
    reach = np.maximum.accumulate(np.append(first, finish[covered]))
    gap_start, gap_end = reach, np.append(begin[covered], last)
    is_open = gap_end > gap_start
    gap_start, gap_end = gap_start[is_open], gap_end[is_open]
    at = np.full(events.size, np.iinfo(np.int64).max)
    launched = launch[events] >= 0
    at[launched] = launched_at[launch[events][launched]]
    after = _first_at(gap_end, begin, (at,))
    after[gap_end >= last] = -1
    before = _first_at(gap_start, finish, (-begin, ~wins[events].astype(np.bool_)))
    numbers = np.append(events, -1)
    return gap_start, gap_end, numbers[before].astype(np.int32), numbers[after].astype(np.int32)


def _first_at(
    times: _Int64Array, moments: _Int64Array, ranks: tuple[npt.NDArray[Any], ...]
) -> _Int64Array:
    """The event at each of the sorted times with the least rank, the last of `ranks` first; -1 without one."""
    place = np.searchsorted(times, moments)
    hit = np.flatnonzero((place < times.size) & (np.append(times, 0)[place] == moments))
    order = hit[np.lexsort(tuple(rank[hit] for rank in ranks))][::-1]
    found = np.full(times.size, -1, dtype=np.int64)
    # Of equal places the last assignment remains.
    found[place[order]] = order
    return found


def exclusive(
    start: _Int64Array, duration: _Int64Array, class_: npt.NDArray[np.uint8], classes: int
) -> tuple[_Int64Array, _Int64Array, npt.NDArray[np.int32], _Int64Array]:
    """The exclusive time of each event among those of its class: start, end and the number of the event, by class."""
    parts, begin = [], [0]
    for kind in range(classes):
        rows = np.flatnonzero((class_ == kind) & (duration > 0))
        at, end = start[rows], start[rows] + duration[rows]
        at[1:] = np.maximum(at[1:], np.maximum.accumulate(end)[:-1])
        kept = end > at
        parts.append((at[kept], end[kept], rows[kept].astype(np.int32)))
        begin.append(begin[-1] + int(kept.sum()))
    starts, ends, numbers = (np.concatenate(column) for column in zip(*parts, strict=True))
    return starts, ends, numbers, np.array(begin, dtype=np.int64)


def walked(
    start: _Int64Array,
    duration: _Int64Array,
    is_active: npt.NDArray[np.uint8],
    waits_for: npt.NDArray[np.int32],
    first: _Int64Array,
    host: _Int64Array,
    takes_part: npt.NDArray[np.uint8],
    one_clock: bool,
    walk_host: _Int64Array,
    walk_start: _Int64Array,
    walk_end: _Int64Array,
) -> tuple[_Int64Array, _Int64Array, _Int64Array, npt.NDArray[np.int32]]:
    """Walk back from the end of each span of a host along what held it up: row, start, duration and span."""
    begins, ends = start.tolist(), (start + duration).tolist()
    offset, of_host, waits = first.tolist(), host.tolist(), waits_for.tolist()

    def row_before(device: int, moment: int) -> int:
        return bisect_left(begins, moment, offset[device], offset[device + 1]) - 1

    def activity(device: int, low: int, high: int) -> tuple[int, int]:
        """Until when, and for how long, a device is active in a span."""
        last = row_before(device, high)
        own = np.arange(row_before(device, low + 1), last + 1)
        own = own[is_active[own] != 0]
        until = np.minimum(start[own] + duration[own], high)
        length = np.maximum(until - np.maximum(start[own], low), 0)
        return int(until[length > 0].max(initial=low)), int(length.sum())

    def follows(device: int, other: int, moment: int) -> bool:
        return (
            other >= 0
            and other != device
            and bool(takes_part[other])
            and (one_clock or of_host[other] == of_host[device])
            and begins[offset[other]] < moment <= ends[offset[other + 1] - 1]
        )

    pieces: list[tuple[int, int, int, int]] = []
    for walk, (own_host, low, high) in enumerate(
        zip(walk_host.tolist(), walk_start.tolist(), walk_end.tolist(), strict=True)
    ):
        own = [d for d, of in enumerate(of_host) if of == own_host and takes_part[d]]
        if not own:
            continue
        device = home = max(own, key=lambda place: activity(place, low, high))
        moment, passed, found = high, [device], []
        while moment > low:
            if moment <= begins[offset[device]]:
                device, passed = home, [home]
            row = row_before(device, moment)
            other = waits[row]
            if follows(device, other, moment):
                is_new = other not in passed
                if is_new:
                    passed.append(other)
                    device = other
                else:
                    # They wait for each other.
                    circle = passed[passed.index(other) :]
                    row = max(
                        (row_before(place, moment) for place in circle), key=begins.__getitem__
                    )
                    device = bisect_right(offset, row) - 1
                home = device if of_host[device] == own_host else home
                if is_new:
                    continue
            begin = max(begins[row], low)
            found.append((row, begin, moment - begin, walk))
            moment, passed = begin, [device]
        pieces += reversed(found)
    rows, at, lengths, numbers = (
        np.array(column, dtype=np.int64)
        for column in (zip(*pieces, strict=True) if pieces else [()] * 4)
    )
    return rows, at, lengths, numbers.astype(np.int32)


def attributed_spans(
    start: _Int64Array,
    end: _Int64Array,
    gap: npt.NDArray[np.int32],
    late_end: _Int64Array,
    handed_over: _Int64Array,
    line: _Int64Array,
    state_start: _Int64Array,
    state: npt.NDArray[np.uint8],
    state_begin: _Int64Array,
    queued: npt.NDArray[np.uint8],
    peer_start: _Int64Array,
    peer_covered: _Int64Array,
    yields: npt.NDArray[np.uint8],
    peer: int,
    short: int,
    launching: int,
) -> tuple[_Int64Array, npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """The cause of every instant of each piece of a gap: int64 starts of spans, their uint8 causes and int32 pieces."""
    until = np.clip(late_end[gap], start, end)
    handed = np.clip(handed_over[gap], start, until)
    late = []
    for number in range(state_begin.size - 1):
        own = slice(state_begin[number], state_begin[number + 1])
        turn = np.flatnonzero(line[gap] == number)
        if number == 0:
            late.append(_stretches(state_start[own], state[own], start, handed))
        begin, cause, of = _stretches(state_start[own], state[own], handed[turn], until[turn])
        late.append((begin, cause, turn[of]))
    total = np.zeros((yields.size, late_end.size), dtype=np.int64)
    begin, cause, piece = _in_order(late)
    length = _ends(begin, piece, until) - begin
    np.add.at(total, (cause, gap[piece]), length)
    is_launching = (total.argmax(axis=0) == launching) & (total[launching] > 0)
    queue = np.where((queued == short) & is_launching, launching, queued).astype(np.uint8)
    # From `edges[1]` on, every other stretch is one of the peers.
    edges = np.empty(2 * peer_start.size + 1, dtype=np.int64)
    edges[0] = np.iinfo(np.int64).min
    edges[1::2], edges[2::2] = peer_start, peer_start + np.diff(peer_covered)
    is_peer = (np.arange(edges.size) % 2).astype(np.uint8)
    waits, by_peers, of = _stretches(edges, is_peer, until, end)
    own_cause = queue[gap[of]]
    by_peers = np.where((by_peers == 1) & (yields[own_cause] == 1), peer, own_cause)
    begin, cause, piece = _in_order([(begin, cause, piece), (waits, by_peers, of)])
    opens = np.ones(begin.size, dtype=np.bool_)
    opens[1:] = (cause[1:] != cause[:-1]) | (piece[1:] != piece[:-1])
    return begin[opens], cause[opens].astype(np.uint8), piece[opens].astype(np.int32)


_Stretches = tuple[_Int64Array, npt.NDArray[np.integer], npt.NDArray[np.integer]]


def _stretches(
    edges: _Int64Array, kinds: npt.NDArray[np.uint8], low: _Int64Array, high: _Int64Array
) -> _Stretches:
    """The stretches, each from its edge to the next, inside each `[low, high)`: start, kind and number of the span."""
    first = np.searchsorted(edges, low, side="right") - 1
    count = np.where(high > low, np.searchsorted(edges, high) - first, 0)
    span = np.repeat(np.arange(low.size), count)
    place = np.arange(span.size) - np.repeat(np.cumsum(count) - count, count) + first[span]
    return np.maximum(edges[place], low[span]), kinds[place], span


def _in_order(parts: list[_Stretches]) -> _Stretches:
    start, kind, span = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(start, kind="stable")
    return start[order], kind[order], span[order]


def _ends(start: _Int64Array, span: npt.NDArray[np.integer], end: _Int64Array) -> _Int64Array:
    """Where stretches end that fill their spans: where the next of the span begins, or with the span."""
    result: _Int64Array = end[span]
    goes_on = np.flatnonzero(span[1:] == span[:-1])
    result[goes_on] = start[goes_on + 1]
    return result


def totals_between(
    values: _Int64Array, chosen: npt.NDArray[np.uint8], first: _Int64Array
) -> _Int64Array:
    """The sum of the chosen values from each place of `first` to the next; int64, one less than `first` has, modulo 2**64."""
    total = np.append(0, np.cumsum(np.where(chosen, values, 0)))
    return np.diff(total[first])


def in_both(
    first: npt.NDArray[np.uint8],
    of_first: npt.NDArray[np.uint8],
    second: npt.NDArray[np.int32],
    of_second: npt.NDArray[np.uint8],
) -> _BoolArray:
    """Which rows are marked by both numbers of theirs; bool. The mark of a `second` of -1 is the first one."""
    return (of_first[first] & of_second[second + 1]).astype(np.bool_)
