"""Sweeps over columns with numpy: what `sweeps` does compiled, for installations without a compiler and as its check.

`sweeps.pyx` says of each what its arrays hold.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

_Int64Array = npt.NDArray[np.int64]
_BoolArray = npt.NDArray[np.bool_]
_Ids = npt.NDArray[np.integer]


def places(values: _Int64Array, times: _Int64Array, right: bool) -> _Int64Array:
    """`np.searchsorted(values, times, side="right" if right else "left")`; all int64."""
    found = np.searchsorted(values, times, side="right" if right else "left")
    return found.astype(np.int64, copy=False)


def covered_before(start: _Int64Array, covered: _Int64Array, times: _Int64Array) -> _Int64Array:
    """The time before each of `times` that disjoint, sorted intervals cover; `covered`: the running total of lengths."""
    if start.size == 0:
        return np.zeros(times.shape, dtype=np.int64)
    opened = np.searchsorted(start, times, side="right")
    last = np.maximum(opened - 1, 0)
    # Of the interval that began last only the part up to the time counts; what passed since may not fit.
    end = start[last] + covered[last + 1] - covered[last]
    inside = np.minimum(times, end) - start[last]
    return np.where(opened > 0, covered[last] + inside, 0)


def merged(start: _Int64Array, end: _Int64Array) -> tuple[_Int64Array, _Int64Array] | None:
    """The union of intervals sorted by start, as starts and the running total of lengths; None if unsorted."""
    positive = end > start
    if not positive.all():
        start, end = start[positive], end[positive]
    if start.size == 0:
        return np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64)
    if (start[1:] < start[:-1]).any():
        return None
    reach = np.maximum.accumulate(end)
    opens = np.empty(start.size, dtype=np.bool_)
    opens[0] = True
    np.greater(start[1:], reach[:-1], out=opens[1:])
    first = np.flatnonzero(opens)
    merged_start = start[first]
    merged_end = reach[np.append(first[1:] - 1, start.size - 1)]
    covered = np.zeros(first.size + 1, dtype=np.int64)
    np.cumsum(merged_end - merged_start, out=covered[1:])
    return merged_start, covered


def reaches(end: _Int64Array) -> _Int64Array:
    """What `touching` and `clearest` skip events by: the latest end up to each."""
    return np.maximum.accumulate(end)


def touching(
    start: _Int64Array,
    end: _Int64Array,
    latest: _Int64Array,
    span_start: _Int64Array,
    span_end: _Int64Array,
) -> _Int64Array:
    """The places of the events that overlap a span: they begin before its end and end after its start; ascending int64."""
    next_start = np.append(span_start, np.iinfo(np.int64).max)
    return np.flatnonzero(next_start[np.searchsorted(span_end, start, side="right")] < end)


def clearest(
    start: _Int64Array,
    end: _Int64Array,
    latest: _Int64Array,
    shows: npt.NDArray[np.uint16],
    span_start: _Int64Array,
    span_end: _Int64Array,
    wanted: npt.NDArray[np.uint16],
    nearly: float,
) -> _Int64Array:
    """The event that covers most of each span, of those that show what is wanted of it; -1 without one."""
    result = np.full(span_start.size, -1, dtype=np.int64)
    first = np.searchsorted(latest, span_start, side="right").tolist()
    last = np.searchsorted(start, span_end, side="left").tolist()
    spans = zip(first, last, span_start.tolist(), span_end.tolist(), wanted.tolist(), strict=True)
    for number, (low, high, begin, finish, bits) in enumerate(spans):
        place = np.arange(low, max(low, high))
        place = place[(end[place] > begin) & (shows[place] & bits != 0)]
        if place.size:
            overlap = np.minimum(end[place], finish) - np.maximum(start[place], begin)
            place = place[overlap >= nearly * overlap.max()]
            order = np.lexsort((-start[place], end[place] - start[place]))
            result[number] = place[order[0]]
    return result


def last_open(end: _Int64Array, limit: _Int64Array, time: _Int64Array) -> _Int64Array | None:
    """For each query the last index below `limit` whose `end` lies after `time`, -1 without one."""
    if (limit[1:] < limit[:-1]).any() or (time[1:] < time[:-1]).any():
        return None
    result = np.full(limit.shape, -1, dtype=np.int64)
    ends, opened, stack = end.tolist(), 0, list[int]()
    for number, (bound, moment) in enumerate(zip(limit.tolist(), time.tolist(), strict=True)):
        stack += range(opened, bound)
        opened = bound
        while stack and ends[stack[-1]] <= moment:
            stack.pop()
        result[number] = stack[-1] if stack else -1
    return result


def marked(ids: _Ids, least: int, length: int) -> _BoolArray:
    """Which of the numbers from `least` on, `length` of them, are among the ids, all of which they must hold."""
    occurs = np.zeros(length, dtype=np.bool_)
    occurs[ids.astype(np.int64) - least] = True
    return occurs


def are_marked(marks: npt.NDArray[np.uint8], ids: _Ids, least: int) -> _BoolArray:
    """The mark of each id, of which the first mark is that of `least`; False for ids without a mark."""
    number = ids.astype(np.int64)
    has_mark = (number >= least) & (number < least + marks.size)
    found = np.zeros(ids.size, dtype=np.bool_)
    found[has_mark] = marks[number[has_mark] - least]
    return found


def earliest(ids: _Int64Array, time: _Int64Array, least: int, length: int) -> _Int64Array:
    """By id, from `least` on, the index of the earliest event with it, of several the first; -1 without one."""
    first = np.full(length, -1, dtype=np.int64)
    order = np.argsort(time, kind="stable")[::-1]
    # Of equal places the last assignment remains.
    first[ids[order] - least] = order
    return first


def totals(
    places: _Ids, values: _Int64Array, length: int, chosen: npt.NDArray[np.uint8] | None = None
) -> _Int64Array:
    """The sum of the values at each place; int64 `[length]`, modulo 2**64. Places below 0 are left out."""
    total = np.zeros(length, dtype=np.int64)
    counts = places >= 0 if chosen is None else (places >= 0) & (chosen != 0)
    np.add.at(total, places[counts], values[counts])
    return total


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


def cut(
    start: _Int64Array,
    end: _Int64Array,
    bounds: _Int64Array,
    chosen: npt.NDArray[np.uint8] | None = None,
) -> tuple[_Int64Array, _Int64Array, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Spans cut at the sorted, distinct bounds inside them: start, end, number of the span, and of the bounds up to its start."""
    first = np.searchsorted(bounds, start, side="right")
    cuts = np.maximum(np.searchsorted(bounds, end) - first, 0)
    if chosen is not None:
        cuts[chosen == 0] = 0
    number = np.repeat(np.arange(start.size), cuts + 1)
    nth = np.arange(number.size) - np.repeat(np.cumsum(cuts + 1) - cuts - 1, cuts + 1)
    place = first[number] + nth
    known = np.append(bounds, 0)
    begin = np.where(nth == 0, start[number], known[place - 1])
    finish = np.where(nth == cuts[number], end[number], known[np.minimum(place, bounds.size)])
    return begin, finish, number.astype(np.int32), place.astype(np.int32)


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


def layered(
    start: _Int64Array,
    end: _Int64Array,
    begin: _Int64Array,
    bounds: _Int64Array,
    first: int,
    last: int,
) -> tuple[_Int64Array, _Int64Array, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Spans of several layers in one row of pieces, in time order: start, duration, number of the span, and of bounds up to it."""
    edges = np.unique(np.clip(np.concatenate((start, end, bounds, [first, last])), first, last))
    number = np.full(edges.size, -1, dtype=np.int64)
    for low, high in reversed(list(pairwise(begin.tolist()))):
        place = low - 1 + np.searchsorted(start[low:high], edges, side="right")
        covered = (place >= low) & (np.append(end, 0)[place] > edges)
        number[covered] = place[covered]
    number[-1] = -1
    # Between two edges that are no bounds a span goes on.
    opens = np.append(True, number[1:] != number[:-1])
    opens[np.searchsorted(edges, bounds[(bounds >= first) & (bounds <= last)])] = True
    at = np.flatnonzero(opens)
    duration = np.diff(edges[at], append=edges[-1])
    kept = number[at] >= 0
    at, duration = at[kept], duration[kept]
    place = np.searchsorted(bounds, edges[at], side="right")
    return edges[at], duration, number[at].astype(np.int32), place.astype(np.int32)


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
) -> tuple[_Int64Array, _Int64Array, _Int64Array, npt.NDArray[np.int32], _BoolArray]:
    """Walk back from the end of each span of a host along what held it up: row, start, duration, span and whether it is lost."""
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

    pieces: list[tuple[int, int, int, int, bool]] = []
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
            found.append((row, begin, moment - begin, walk, waits[row] != -2))
            moment, passed = begin, [device]
        pieces += reversed(found)
    rows, at, lengths, numbers, lost = (
        np.array(column, dtype=np.int64)
        for column in (zip(*pieces, strict=True) if pieces else [()] * 5)
    )
    return rows, at, lengths, numbers.astype(np.int32), lost.astype(np.bool_)


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


def labelled(
    first: npt.NDArray[np.int32], second: npt.NDArray[np.int32], third: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.int32], _Int64Array]:
    """Number the distinct rows of three columns as they first occur: the number of each row, and where each begins."""
    order = np.lexsort((third, second, first))
    begins = np.ones(order.size, dtype=np.bool_)
    begins[1:] = False
    for column in (first, second, third):
        begins[1:] |= column[order[1:]] != column[order[:-1]]
    begin = order[begins]
    by_row = np.argsort(begin)
    number = np.empty(begin.size, dtype=np.int32)
    number[by_row] = np.arange(begin.size)
    label = np.empty(order.size, dtype=np.int32)
    label[order] = number[np.cumsum(begins) - 1]
    return label, begin[by_row].astype(np.int64, copy=False)


def release_free_memory() -> None:
    """Give the memory that was freed back to the system; only compiled code can ask for it."""


def share_one_heap() -> None:
    """Let the threads of this process share one heap; only compiled code can ask for it."""
