"""Sweeps over columns with numpy: what `sweeps` does compiled, for installations without a compiler and as its check."""

from __future__ import annotations

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
    # Of the interval that began last only the part up to the time counts.
    inside = np.minimum(times - start[last], covered[last + 1] - covered[last])
    result: _Int64Array = np.where(opened > 0, covered[last] + inside, 0)
    return result


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


def clearest(
    start: _Int64Array,
    end: _Int64Array,
    reach: _Int64Array,
    shows: npt.NDArray[np.uint16],
    span_start: _Int64Array,
    span_end: _Int64Array,
    wanted: npt.NDArray[np.uint16],
    nearly: float,
) -> _Int64Array:
    """The event that covers most of each span, of those that show what is wanted of it; -1 without one.

    `start`, `end`: of events sorted by start; `reach`: the latest end up to each. An event counts for a span if `shows` and
    `wanted` share a bit. Of those that cover `nearly` as much as the one that covers most the shortest counts, of equal
    ones the last begun, of those the first.
    """
    result = np.full(span_start.size, -1, dtype=np.int64)
    first = np.searchsorted(reach, span_start, side="right").tolist()
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
    """For each query the last index below `limit` whose `end` lies after `time`, -1 without one.

    None unless both `limit` and `time` rise or stay from query to query. The search goes up a pyramid of maxima until a block
    has such an end, then down to its last one.
    """
    if (limit[1:] < limit[:-1]).any() or (time[1:] < time[:-1]).any():
        return None
    maxima = [end]
    while maxima[-1].size > 1:
        if maxima[-1].size % 2:
            maxima[-1] = np.append(maxima[-1], np.iinfo(np.int64).min)
        maxima.append(maxima[-1].reshape(-1, 2).max(axis=1))
    result = np.full(limit.shape, -1, dtype=np.int64)
    query = np.flatnonzero(limit > 0)
    bound = limit[query]
    for height, latest in enumerate(maxima):
        is_open = latest[bound - 1] > time[query]
        answered, block = query[is_open], bound[is_open] - 1
        for lower in reversed(maxima[:height]):
            block = 2 * block + 1
            block -= lower[block] <= time[answered]
        result[answered] = block
        query, bound = query[~is_open], bound[~is_open] >> 1
        query, bound = query[bound > 0], bound[bound > 0]
    return result


def overlapping(start: _Int64Array, end: _Int64Array, first: int, last: int) -> _Int64Array:
    """Indices of the events that overlap `[first, last)`; empty events count if they start in it."""
    is_empty = (start == end) & (start >= first)
    return np.flatnonzero((start < last) & ((end > first) | is_empty))


def marked(ids: _Ids, least: int, length: int) -> _BoolArray:
    """Which of the numbers from `least` on, `length` of them, are among the ids, all of which they must hold."""
    occurs = np.zeros(length, dtype=np.bool_)
    occurs[ids.astype(np.int64) - least] = True
    return occurs


def are_marked(marks: npt.NDArray[np.uint8], ids: _Ids, least: int) -> _BoolArray:
    """The mark of each id, of which the first mark is that of `least`; False for ids without a mark."""
    place, has_place = _places_in(ids, least, marks.size)
    found = np.zeros(ids.size, dtype=np.bool_)
    found[has_place] = marks[place[has_place]]
    return found


def looked_up(table: _Int64Array, ids: _Ids, least: int, absent: int) -> _Int64Array:
    """The entry of each id, of which the first is that of `least`; `absent` for ids without an entry."""
    place, has_place = _places_in(ids, least, table.size)
    found = np.full(ids.size, absent, dtype=np.int64)
    found[has_place] = table[place[has_place]]
    return found


def _places_in(ids: _Ids, least: int, length: int) -> tuple[_Int64Array, _BoolArray]:
    """The place of each id in a table whose first is that of `least`, and which have one."""
    number = ids.astype(np.int64)
    has_place = (number >= least) & (number - least < length)
    return number - least, has_place


def earliest(ids: _Int64Array, time: _Int64Array, least: int, length: int) -> _Int64Array:
    """By id, from `least` on, the index of the earliest event with it, of several the first; -1 without one."""
    first = np.full(length, -1, dtype=np.int64)
    order = np.argsort(time, kind="stable")[::-1]
    # Of equal places the last assignment remains.
    first[ids[order] - least] = order
    return first


def totals(places: _Int64Array, values: _Int64Array, length: int) -> _Int64Array:
    """The sum of the values at each place; int64 `[length]`, modulo 2**64."""
    total = np.zeros(length, dtype=np.int64)
    np.add.at(total, places, values)
    return total


def gaps_between(
    start: _Int64Array,
    duration: _Int64Array,
    wins: npt.NDArray[np.uint8],
    launch: _Ids,
    launched_at: _Int64Array,
    first: int,
    last: int,
) -> tuple[_Int64Array, _Int64Array, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The spans of `[first, last)` that no event covers: start, end, the event before and the event after.

    int64 start and end, int32 before and after, -1 without one. The events are sorted by start; those of zero length
    count as none. Of several that end where a gap begins, one that `wins` counts, then the one that began last, then
    the first; of several that begin where it ends, the one launched first, then the first. `launched_at[launch]` is when,
    without a launch (-1) never.
    """
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


def late_until(
    start: _Int64Array,
    end: _Int64Array,
    after: npt.NDArray[np.int32],
    launch: _Ids,
    launched_at: _Int64Array,
    took: _Int64Array,
    blocks: int,
) -> tuple[_Int64Array, _Int64Array]:
    """Until when the host is late in each gap, and the launch of the event after it, -1 without one; int64 both.

    Late until the launch begins, or until it ends if it took `blocks` or more, inside the gap; until the end without an
    event after it; not at all if that has no launch.
    """
    launches = np.full(after.size, -1, dtype=np.int64)
    launches[after >= 0] = launch[after[after >= 0]]
    until = np.where(after < 0, end, start)
    has_launch = np.flatnonzero(launches >= 0)
    row = launches[has_launch]
    at = launched_at[row] + np.where(took[row] >= blocks, took[row], 0)
    until[has_launch] = np.clip(at, start[has_launch], end[has_launch])
    return until, launches


def cut(
    start: _Int64Array, end: _Int64Array, bounds: _Int64Array
) -> tuple[_Int64Array, _Int64Array, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Spans cut at the sorted, distinct bounds inside them: start, end, number of the span, and of the bounds up to its start.

    int64 start and end, int32 numbers.
    """
    first = np.searchsorted(bounds, start, side="right")
    cuts = np.maximum(np.searchsorted(bounds, end) - first, 0)
    number = np.repeat(np.arange(start.size), cuts + 1)
    nth = np.arange(number.size) - np.repeat(np.cumsum(cuts + 1) - cuts - 1, cuts + 1)
    place = first[number] + nth
    known = np.append(bounds, 0)
    begin = np.where(nth == 0, start[number], known[place - 1])
    finish = np.where(nth == cuts[number], end[number], known[np.minimum(place, bounds.size)])
    return begin, finish, number.astype(np.int32), place.astype(np.int32)


def attributed(
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
) -> tuple[dict[int, tuple[npt.NDArray[np.int32], _Int64Array]], npt.NDArray[np.uint8]]:
    """How long each piece of a gap has each cause: by cause the pieces, int32, and how long, int64; and `queued`, uint8.

    Per piece: `start`, `end`, and the number of its gap, which rises. Per gap: up to `late_end` the host is late, in the state
    of line 0 until it handed over, then of `line`, where that is not 0; then it is `queued` with that cause, or has
    the cause `peer` in the intervals `peer_…` if the cause `yields`. What is `short` becomes `launching` if that is the largest
    cause while the host is late, of equal ones the first. The states of line n are those from `state_begin[n]` to
    `state_begin[n + 1]`, each from its `state_start` to the next.
    """
    late = np.flatnonzero(late_end[gap] > start)
    begin, until = start[late], np.minimum(late_end[gap[late]], end[late])
    handed = np.clip(handed_over[gap[late]], begin, until)
    total = np.zeros((yields.size, start.size), dtype=np.int64)
    for number in range(state_begin.size - 1):
        own = slice(state_begin[number], state_begin[number + 1])
        low, high, rows = (begin, handed, late) if number == 0 else (handed, until, late)
        if number:
            chosen = line[gap[late]] == number
            low, high, rows = low[chosen], high[chosen], rows[chosen]
        for cause in np.flatnonzero(np.bincount(state[own])).tolist():
            total[cause, rows] += _state_within(state_start[own], state[own] == cause, low, high)
    of_gaps = np.zeros((yields.size, late_end.size), dtype=np.int64)
    for cause in range(yields.size):
        np.add.at(of_gaps[cause], gap, total[cause])
    is_launching = (of_gaps.argmax(axis=0) == launching) & (of_gaps[launching] > 0)
    queue = np.where((queued == short) & is_launching, launching, queued).astype(np.uint8)
    waits = np.flatnonzero(end > np.maximum(start, late_end[gap]))
    begin, cause_of = np.maximum(start[waits], late_end[gap[waits]]), queue[gap[waits]]
    by_peers = covered_before(peer_start, peer_covered, end[waits])
    by_peers = by_peers - covered_before(peer_start, peer_covered, begin)
    by_peers[yields[cause_of] == 0] = 0
    total[peer, waits] += by_peers
    total[cause_of, waits] += end[waits] - begin - by_peers
    by_cause = {}
    for cause in range(yields.size):
        pieces = np.flatnonzero(total[cause])
        if pieces.size:
            by_cause[cause] = pieces.astype(np.int32), total[cause, pieces]
    return by_cause, queue


def _state_within(
    start: _Int64Array, is_state: _BoolArray, low: _Int64Array, high: _Int64Array
) -> _Int64Array:
    """The time in some of the stretches that follow each other inside each `[low, high)`."""
    end = np.append(start[1:], np.iinfo(np.int64).max // 2)
    begins = start[is_state]
    covered = np.append(0, np.cumsum(end[is_state] - begins))
    result: _Int64Array = covered_before(begins, covered, high)
    result -= covered_before(begins, covered, low)
    return result


def labelled(
    first: npt.NDArray[np.int32], second: npt.NDArray[np.int32], third: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.int32], _Int64Array]:
    """Number the distinct rows of three columns as they first occur: the number of each row, and where each begins.

    int32 `[rows]` and int64 `[numbers]`.
    """
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


def grouped(codes: npt.NDArray[np.uint8], count: int) -> tuple[_Int64Array, _Int64Array]:
    """The places of each of the codes 0 to `count` - 1, ascending; those of code c stand from `begin[c]` to `begin[c + 1]`.

    int64 `[codes]` and `[count + 1]`.
    """
    found = np.argsort(codes, kind="stable").astype(np.int64, copy=False)
    return found, np.append(0, np.cumsum(np.bincount(codes, minlength=count)))


def tabulated(
    labels: npt.NDArray[np.int32],
    values: _Int64Array,
    low: _Int64Array,
    high: _Int64Array,
    row_of: _Int64Array,
    column_of: _Int64Array,
    rows: int,
    columns: int,
) -> tuple[_Int64Array, _Int64Array]:
    """The sums and the numbers of the values in spans `[low, high)` of places; int64 `[rows, columns]` each.

    A value counts in the row of its label and in the column of its span; not at all where that row is -1.
    """
    sums, counts = np.zeros((2, rows, columns), dtype=np.int64)
    for begin, end, column in zip(low.tolist(), high.tolist(), column_of.tolist(), strict=True):
        row = row_of[labels[begin:end]]
        np.add.at(sums[:, column], row[row >= 0], values[begin:end][row >= 0])
        np.add.at(counts[:, column], row[row >= 0], 1)
    return sums, counts


def codes_of(values: npt.NDArray[np.object_], known: dict[Any, int]) -> npt.NDArray[np.int32]:
    """The number of each value in `known`, int32; values that are new there get the next numbers."""
    return np.array(
        [known.setdefault(value, len(known)) for value in values.tolist()], dtype=np.int32
    )


def lines_of(
    codes: npt.NDArray[np.int32],
    numbers: _Int64Array,
    cells: npt.NDArray[np.uint8],
    begin: _Int64Array,
) -> bytes:
    """Lines of cells with commas between them, as bytes; `codes` and `numbers` are `[columns, lines]`.

    The cell of a code is `cells[begin[code]:begin[code + 1]]`; where the code is -1, it is the number.
    """
    text, bounds = cells.tobytes(), begin.tolist()
    known = [text[low:high] for low, high in pairwise(bounds)]
    columns = [
        [b"%d" % number if code < 0 else known[code] for code, number in zip(*column, strict=True)]
        for column in zip(codes.tolist(), numbers.tolist(), strict=True)
    ]
    return b"".join(b",".join(line) + b"\n" for line in zip(*columns, strict=True))


def release_free_memory() -> None:
    """Give the memory that was freed back to the system; only compiled code can ask for it."""
