# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Sweeps over columns without the GIL: unions of intervals, places in a sorted array, open events, tables by id,
lines of text.

`intervals` does the same with numpy where this module is not built; the tests compare the two.
"""

from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint64_t

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy

import numpy as np

ctypedef fused Id:
    uint8_t
    int16_t
    int32_t
    int64_t


cdef inline int64_t place_of(
    const int64_t* values, int64_t count, int64_t key, bint right, int64_t near
) noexcept nogil:
    # The number of values below `key`, or up to it if `right`. Times mostly rise, so the search begins
    # at the last place and doubles its steps.
    cdef int64_t low, high, step = 1, middle
    if near < count and (values[near] < key or (right and values[near] == key)):
        low = near + 1
        while near + step < count and (
            values[near + step] < key or (right and values[near + step] == key)
        ):
            low = near + step + 1
            step *= 2
        high = near + step if near + step < count else count
    else:
        high = near
        while near - step >= 0 and not (
            values[near - step] < key or (right and values[near - step] == key)
        ):
            high = near - step
            step *= 2
        low = near - step + 1 if near - step >= 0 else 0
    while low < high:
        middle = low + (high - low) // 2
        if values[middle] < key or (right and values[middle] == key):
            low = middle + 1
        else:
            high = middle
    return low


def places(const int64_t[::1] values, const int64_t[::1] times, bint right):
    """`np.searchsorted(values, times, side="right" if right else "left")`, faster where the times mostly rise."""
    cdef int64_t i, near = 0, count = values.shape[0], queries = times.shape[0]
    result = np.empty(queries, dtype=np.int64)
    if queries == 0 or count == 0:
        result[:] = 0
        return result
    cdef int64_t[::1] found = result
    cdef const int64_t* first = &values[0]
    with nogil:
        for i in range(queries):
            near = place_of(first, count, times[i], right, near)
            found[i] = near
    return result


cdef inline int64_t covered_until(
    const int64_t[::1] start, const int64_t[::1] covered, int64_t opened, int64_t time
) noexcept nogil:
    # The time that is covered before an instant at which so many intervals have begun.
    cdef int64_t most
    if opened == 0:
        return 0
    most = time - start[opened - 1]
    if covered[opened] - covered[opened - 1] < most:
        return covered[opened]
    return covered[opened - 1] + most


def covered_before(
    const int64_t[::1] start, const int64_t[::1] covered, const int64_t[::1] times
):
    """The time before each of `times` that disjoint, sorted intervals cover; `covered`: the running total of lengths."""
    cdef int64_t i, near = 0, count = start.shape[0], queries = times.shape[0]
    result = np.empty(queries, dtype=np.int64)
    if queries == 0 or count == 0:
        result[:] = 0
        return result
    cdef int64_t[::1] total = result
    cdef const int64_t* first = &start[0]
    with nogil:
        for i in range(queries):
            near = place_of(first, count, times[i], True, near)
            total[i] = covered_until(start, covered, near, times[i])
    return result


def merged(const int64_t[::1] start, const int64_t[::1] end):
    """The union of intervals sorted by start, as starts and the running total of lengths; None if unsorted."""
    cdef int64_t i, size = start.shape[0], count = 0, latest = 0, reach = 0
    cdef bint is_sorted = True
    starts = np.empty(size, dtype=np.int64)
    totals = np.zeros(size + 1, dtype=np.int64)
    cdef int64_t[::1] out_start = starts, out_total = totals
    with nogil:
        for i in range(size):
            # Empty and negative intervals cover nothing, wherever they stand.
            if end[i] <= start[i]:
                continue
            if count and start[i] < latest:
                is_sorted = False
                break
            latest = start[i]
            if count and start[i] <= reach:
                if end[i] > reach:
                    out_total[count] += end[i] - reach
                    reach = end[i]
                continue
            out_start[count] = start[i]
            out_total[count + 1] = out_total[count] + end[i] - start[i]
            reach = end[i]
            count += 1
    if not is_sorted:
        return None
    # What is not filled must not stay reserved: unions live as long as a report is made.
    return starts[:count].copy(), totals[: count + 1].copy()


def clearest(
    const int64_t[::1] start,
    const int64_t[::1] end,
    const int64_t[::1] reach,
    const uint16_t[::1] shows,
    const int64_t[::1] span_start,
    const int64_t[::1] span_end,
    const uint16_t[::1] wanted,
    double nearly,
):
    """The event that covers most of each span, of those that show what is wanted of it; -1 without one.

    `start`, `end`: of events sorted by start; `reach`: the latest end up to each. An event counts for a span if `shows` and
    `wanted` share a bit. Of those that cover `nearly` as much as the one that covers most the shortest counts, of equal
    ones the last begun, of those the first.
    """
    cdef int64_t i, place, first, last, low, high, most, overlap, best
    cdef int64_t count = start.shape[0], queries = span_start.shape[0]
    result = np.empty(queries, dtype=np.int64)
    if queries == 0 or count == 0:
        result[:] = -1
        return result
    cdef int64_t[::1] found = result
    cdef const int64_t* starts = &start[0]
    cdef const int64_t* reaches = &reach[0]
    first = last = 0
    with nogil:
        for i in range(queries):
            first = place_of(reaches, count, span_start[i], True, first)
            last = place_of(starts, count, span_end[i], False, last)
            most = -1
            for place in range(first, last):
                if end[place] > span_start[i] and shows[place] & wanted[i]:
                    low = start[place] if start[place] > span_start[i] else span_start[i]
                    high = end[place] if end[place] < span_end[i] else span_end[i]
                    if high - low > most:
                        most = high - low
            best = -1
            for place in range(first, last):
                if end[place] > span_start[i] and shows[place] & wanted[i]:
                    low = start[place] if start[place] > span_start[i] else span_start[i]
                    high = end[place] if end[place] < span_end[i] else span_end[i]
                    if <double> (high - low) < nearly * <double> most:
                        continue
                    if best >= 0:
                        overlap = (end[place] - start[place]) - (end[best] - start[best])
                        if overlap > 0 or (overlap == 0 and start[place] <= start[best]):
                            continue
                    best = place
            found[i] = best
    return result


def last_open(const int64_t[::1] end, const int64_t[::1] limit, const int64_t[::1] time):
    """For each query the last index below `limit` whose `end` lies after `time`, -1 without one.

    None unless both `limit` and `time` rise or stay from query to query.
    """
    cdef int64_t i, opened = 0, depth = 0, queries = limit.shape[0]
    cdef bint rises = True
    result = np.empty(queries, dtype=np.int64)
    stack = np.empty(end.shape[0] + 1, dtype=np.int64)
    cdef int64_t[::1] found = result, open_ = stack
    with nogil:
        for i in range(queries):
            if i and (limit[i] < limit[i - 1] or time[i] < time[i - 1]):
                rises = False
                break
            while opened < limit[i]:
                # What ends no later than a later one is never the last that is open.
                while depth and end[open_[depth - 1]] <= end[opened]:
                    depth -= 1
                open_[depth] = opened
                depth += 1
                opened += 1
            while depth and end[open_[depth - 1]] <= time[i]:
                depth -= 1
            found[i] = open_[depth - 1] if depth else -1
    return result if rises else None


def overlapping(const int64_t[::1] start, const int64_t[::1] end, int64_t first, int64_t last):
    """Indices of the events that overlap `[first, last)`; empty events count if they start in it."""
    cdef int64_t i, count = 0, size = start.shape[0]
    result = np.empty(size, dtype=np.int64)
    cdef int64_t[::1] found = result
    with nogil:
        for i in range(size):
            if start[i] < last and (end[i] > first or (start[i] == end[i] and start[i] >= first)):
                found[count] = i
                count += 1
    return result[:count]


def marked(const Id[:] ids, int64_t least, int64_t length):
    """Which of the numbers from `least` on, `length` of them, are among the ids, all of which they must hold."""
    result = np.zeros(length, dtype=np.bool_)
    cdef uint8_t[::1] occurs = result.view(np.uint8)
    cdef Py_ssize_t i
    with nogil:
        for i in range(ids.shape[0]):
            occurs[<int64_t> ids[i] - least] = 1
    return result


def are_marked(const uint8_t[::1] marks, const Id[:] ids, int64_t least):
    """The mark of each id, of which the first mark is that of `least`; False for ids without a mark."""
    cdef int64_t place, length = marks.shape[0]
    cdef Py_ssize_t i
    result = np.empty(ids.shape[0], dtype=np.bool_)
    cdef uint8_t[::1] found = result.view(np.uint8)
    with nogil:
        for i in range(ids.shape[0]):
            place = <int64_t> ids[i] - least
            found[i] = marks[place] if 0 <= place < length else 0
    return result


def looked_up(const int64_t[::1] table, const Id[:] ids, int64_t least, int64_t absent):
    """The entry of each id, of which the first is that of `least`; `absent` for ids without an entry."""
    cdef int64_t place, length = table.shape[0]
    cdef Py_ssize_t i
    result = np.empty(ids.shape[0], dtype=np.int64)
    cdef int64_t[::1] found = result
    with nogil:
        for i in range(ids.shape[0]):
            place = <int64_t> ids[i] - least
            found[i] = table[place] if 0 <= place < length else absent
    return result


def earliest(
    const int64_t[::1] ids, const int64_t[::1] time, int64_t least, int64_t length
):
    """By id, from `least` on, the index of the earliest event with it, of several the first; -1 without one."""
    cdef int64_t i, place
    result = np.full(length, -1, dtype=np.int64)
    cdef int64_t[::1] first = result
    with nogil:
        for i in range(ids.shape[0]):
            place = ids[i] - least
            if first[place] < 0 or time[i] < time[first[place]]:
                first[place] = i
    return result


def totals(const int64_t[::1] places, const int64_t[::1] values, int64_t length):
    """The sum of the values at each place; int64 `[length]`, modulo 2**64."""
    cdef int64_t i
    result = np.zeros(length, dtype=np.int64)
    cdef int64_t[::1] total = result
    with nogil:
        for i in range(places.shape[0]):
            total[places[i]] += values[i]
    return result


cdef inline uint64_t scattered(int64_t first, int64_t second, int64_t third) noexcept nogil:
    # Neighbours in any of the three lie far apart.
    cdef uint64_t mixed = <uint64_t> first * <uint64_t> 0x9E3779B97F4A7C15
    mixed ^= (<uint64_t> second + 1) * <uint64_t> 0xC2B2AE3D27D4EB4F
    mixed ^= (<uint64_t> third + 1) * <uint64_t> 0x165667B19E3779F9
    mixed ^= mixed >> 32
    mixed *= <uint64_t> 0xD6E8FEB86659FD93
    return mixed ^ (mixed >> 32)


def gaps_between(
    const int64_t[:] start,
    const int64_t[:] duration,
    const uint8_t[:] wins,
    const Id[:] launch,
    const int64_t[:] launched_at,
    int64_t first,
    int64_t last,
):
    """The spans of `[first, last)` that no event covers: start, end, the event before and the event after.

    int64 start and end, int32 before and after, -1 without one. The events are sorted by start; those of zero length
    count as none. Of several that end where a gap begins, one that `wins` counts, then the one that began last, then
    the first; of several that begin where it ends, the one launched first, then the first. `launched_at[launch]` is when,
    without a launch (-1) never.
    """
    cdef int64_t i, other, begin, at, best, count = 0, size = start.shape[0]
    cdef int64_t reach = first, before = -1, after
    starts, ends = np.empty((2, size + 1), dtype=np.int64)
    befores, afters = np.empty((2, size + 1), dtype=np.int32)
    cdef int64_t[::1] out_start = starts, out_end = ends
    cdef int32_t[::1] out_before = befores, out_after = afters
    with nogil:
        for i in range(size):
            begin = start[i]
            if begin >= last:
                break
            if duration[i] <= 0:
                continue
            if begin > reach:
                after = -1
                best = 0
                other = i
                while other < size and start[other] == begin:
                    if duration[other] > 0:
                        at = launched_at[<int64_t> launch[other]] if launch[other] >= 0 else INT64_MAX
                        if after < 0 or at < best:
                            after = other
                            best = at
                    other += 1
                out_start[count] = reach
                out_end[count] = begin
                out_before[count] = <int32_t> before
                out_after[count] = <int32_t> after
                count += 1
            if begin + duration[i] > reach:
                reach = begin + duration[i]
                before = i
            elif begin + duration[i] == reach:
                if (
                    before < 0
                    or (wins[i] and not wins[before])
                    or (wins[i] == wins[before] and begin > start[before])
                ):
                    before = i
        if reach < last:
            out_start[count] = reach
            out_end[count] = last
            out_before[count] = <int32_t> before
            out_after[count] = -1
            count += 1
    return tuple(column[:count].copy() for column in (starts, ends, befores, afters))


def late_until(
    const int64_t[::1] start,
    const int64_t[::1] end,
    const int32_t[::1] after,
    const Id[:] launch,
    const int64_t[:] launched_at,
    const int64_t[:] took,
    int64_t blocks,
):
    """Until when the host is late in each gap, and the launch of the event after it, -1 without one; int64 both.

    Late until the launch begins, or until it ends if it took `blocks` or more, inside the gap; until the end without an
    event after it; not at all if that has no launch.
    """
    cdef int64_t i, row, at, size = start.shape[0]
    late, launches = np.empty((2, size), dtype=np.int64)
    cdef int64_t[::1] until = late, found = launches
    with nogil:
        for i in range(size):
            row = <int64_t> launch[after[i]] if after[i] >= 0 else -1
            found[i] = row
            if after[i] < 0:
                until[i] = end[i]
            elif row < 0:
                until[i] = start[i]
            else:
                at = launched_at[row]
                if took[row] >= blocks:
                    at += took[row]
                at = start[i] if at < start[i] else at
                until[i] = end[i] if at > end[i] else at
    return late, launches


def cut(const int64_t[::1] start, const int64_t[::1] end, const int64_t[::1] bounds):
    """Spans cut at the sorted, distinct bounds inside them: start, end, number of the span, and of the bounds up to its start.

    int64 start and end, int32 numbers.
    """
    cdef int64_t i, bound = 0, count, size = start.shape[0], known = bounds.shape[0]
    cdef int64_t pieces = size, near = 0
    cdef const int64_t* first = &bounds[0] if known else NULL
    with nogil:
        for i in range(size):
            near = place_of(first, known, start[i], True, near)
            bound = near
            while bound < known and bounds[bound] < end[i]:
                bound += 1
            pieces += bound - near
    starts, ends = np.empty((2, pieces), dtype=np.int64)
    # Each by itself: what is a part of one array keeps all of it.
    numbers, places_ = np.empty(pieces, dtype=np.int32), np.empty(pieces, dtype=np.int32)
    cdef int64_t[::1] out_start = starts, out_end = ends
    cdef int32_t[::1] number = numbers, place = places_
    near = count = 0
    with nogil:
        for i in range(size):
            near = place_of(first, known, start[i], True, near)
            bound = near
            out_start[count] = start[i]
            while True:
                number[count] = <int32_t> i
                place[count] = <int32_t> bound
                if bound == known or bounds[bound] >= end[i]:
                    out_end[count] = end[i]
                    count += 1
                    break
                out_end[count] = bounds[bound]
                out_start[count + 1] = bounds[bound]
                count += 1
                bound += 1
    return starts, ends, numbers, places_


cdef inline int64_t add_states(
    const int64_t* start,
    const uint8_t* state,
    int64_t count,
    int64_t first,
    int64_t last,
    int64_t near,
    int64_t* total,
) noexcept nogil:
    # Adds the time of each state inside [first, last); gives where to search next.
    cdef int64_t until, place = place_of(start, count, first, True, near) - 1
    if place < 0:
        place = 0
    near = place
    while first < last:
        until = start[place + 1] if place + 1 < count and start[place + 1] < last else last
        total[state[place]] += until - first
        first = until
        place += 1
    return near


cdef inline void add_late(
    int64_t start,
    int64_t end,
    int64_t late_end,
    int64_t handed_over,
    int64_t line,
    const int64_t* states,
    const uint8_t* kinds,
    const int64_t* state_begin,
    int64_t* near,
    int64_t* total,
) noexcept nogil:
    cdef int64_t late = late_end if late_end < end else end
    cdef int64_t handed = handed_over if handed_over < late else late
    cdef int64_t begin = state_begin[0]
    if handed < start:
        handed = start
    if handed > start:
        near[0] = add_states(
            states + begin, kinds + begin, state_begin[1] - begin, start, handed, near[0], total
        )
    if line and late > handed:
        begin = state_begin[line]
        near[line] = add_states(
            states + begin, kinds + begin, state_begin[line + 1] - begin, handed, late, near[line], total
        )


def attributed(
    const int64_t[::1] start,
    const int64_t[::1] end,
    const int32_t[::1] gap,
    const int64_t[::1] late_end,
    const int64_t[::1] handed_over,
    const int64_t[::1] line,
    const int64_t[::1] state_start,
    const uint8_t[::1] state,
    const int64_t[::1] state_begin,
    const uint8_t[::1] queued,
    const int64_t[::1] peer_start,
    const int64_t[::1] peer_covered,
    const uint8_t[::1] yields,
    int64_t peer,
    int64_t short,
    int64_t launching,
):
    """How long each piece of a gap has each cause: by cause the pieces, int32, and how long, int64; and `queued`, uint8.

    Per piece: `start`, `end`, and the number of its gap, which rises. Per gap: up to `late_end` the host is late, in the state
    of line 0 until it handed over, then of `line`, where that is not 0; then it is `queued` with that cause, or has
    the cause `peer` in the intervals `peer_…` if the cause `yields`. What is `short` becomes `launching` if that is the largest
    cause while the host is late, of equal ones the first. The states of line n are those from `state_begin[n]` to
    `state_begin[n + 1]`, each from its `state_start` to the next.
    """
    cdef int64_t i, piece, after, number, cause, begin, handed, until, most, largest, filling
    cdef int64_t causes = yields.shape[0], pieces = start.shape[0], lines = state_begin.shape[0] - 1
    cdef int64_t peers = peer_start.shape[0], peer_near, low, high, taken, other
    own = np.array(queued, dtype=np.uint8)
    hints, counts = np.zeros(lines, dtype=np.int64), np.zeros(causes + 1, dtype=np.int64)
    sums = np.zeros((2, causes), dtype=np.int64)
    found, lengths = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    cdef uint8_t[::1] queue = own
    cdef int64_t[::1] near = hints, count = counts, length = lengths
    cdef int64_t[:, ::1] total = sums
    cdef int32_t[::1] found_piece = found
    cdef const int64_t* states = &state_start[0]
    cdef const uint8_t* kinds = &state[0]
    cdef const int64_t* peer_starts = &peer_start[0] if peers else NULL
    # First what there is of each cause is counted, then it is written.
    for filling in range(2):
        peer_near = 0
        i = 0
        with nogil:
            while i < pieces:
                number = gap[i]
                after = i
                while after < pieces and gap[after] == number:
                    after += 1
                if late_end[number] > start[i]:
                    largest = -1
                    if queue[number] == short:
                        for cause in range(causes):
                            total[1, cause] = 0
                        for piece in range(i, after):
                            add_late(
                                start[piece], end[piece], late_end[number], handed_over[number],
                                line[number], states, kinds, &state_begin[0], &near[0], &total[1, 0],
                            )
                        most = 0
                        for cause in range(causes):
                            if total[1, cause] > most:
                                most = total[1, cause]
                                largest = cause
                        if largest == launching:
                            queue[number] = <uint8_t> launching
                for piece in range(i, after):
                    taken = 0
                    cause = queue[number]
                    begin = start[piece] if start[piece] > late_end[number] else late_end[number]
                    other = end[piece] - begin if end[piece] > begin else 0
                    if other and peers and yields[cause]:
                        peer_near = place_of(peer_starts, peers, begin, True, peer_near)
                        low = covered_until(peer_start, peer_covered, peer_near, begin)
                        peer_near = place_of(peer_starts, peers, end[piece], True, peer_near)
                        high = covered_until(peer_start, peer_covered, peer_near, end[piece])
                        taken = high - low
                    other -= taken
                    if late_end[number] <= start[piece]:
                        if taken:
                            if filling:
                                found_piece[count[peer]] = <int32_t> piece
                                length[count[peer]] = taken
                            count[peer] += 1
                        if other:
                            if filling:
                                found_piece[count[cause]] = <int32_t> piece
                                length[count[cause]] = other
                            count[cause] += 1
                        continue
                    add_late(
                        start[piece], end[piece], late_end[number], handed_over[number],
                        line[number], states, kinds, &state_begin[0], &near[0], &total[0, 0],
                    )
                    total[0, peer] += taken
                    total[0, cause] += other
                    for cause in range(causes):
                        if total[0, cause]:
                            if filling:
                                found_piece[count[cause]] = <int32_t> piece
                                length[count[cause]] = total[0, cause]
                            count[cause] += 1
                            total[0, cause] = 0
                i = after
        if not filling:
            bounds = np.append(0, np.cumsum(counts[:causes]))
            found = np.empty(bounds[causes], dtype=np.int32)
            lengths = np.empty(bounds[causes], dtype=np.int64)
            found_piece, length = found, lengths
            counts[:] = bounds
    limits = bounds.tolist()
    by_cause = {
        cause: (found[limits[cause]:limits[cause + 1]], lengths[limits[cause]:limits[cause + 1]])
        for cause in range(causes)
        if limits[cause] < limits[cause + 1]
    }
    return by_cause, own


def labelled(const int32_t[:] first, const int32_t[:] second, const uint8_t[:] third):
    """Number the distinct rows of three columns as they first occur: the number of each row, and where each begins.

    int32 `[rows]` and int64 `[numbers]`.
    """
    cdef int64_t i = 0, row, place, number, count = 0, size = first.shape[0]
    cdef int64_t slots = 1024
    cdef uint64_t mask
    label = np.empty(size, dtype=np.int32)
    table, rows = np.full(slots, -1, dtype=np.int32), np.empty(slots // 2, dtype=np.int64)
    cdef int32_t[::1] labels = label, slot = table
    cdef int64_t[::1] begin = rows
    while i < size:
        mask = <uint64_t> slots - 1
        with nogil:
            while i < size and 2 * count < slots:
                place = <int64_t> (scattered(first[i], second[i], third[i]) & mask)
                while True:
                    number = slot[place]
                    if number < 0:
                        number = count
                        slot[place] = <int32_t> number
                        begin[number] = i
                        count += 1
                        break
                    row = begin[number]
                    if first[row] == first[i] and second[row] == second[i] and third[row] == third[i]:
                        break
                    place = <int64_t> ((<uint64_t> place + 1) & mask)
                labels[i] = <int32_t> number
                i += 1
        if i < size:
            # Half full: twice the room, and every number has its place there.
            slots *= 2
            mask = <uint64_t> slots - 1
            table = np.full(slots, -1, dtype=np.int32)
            rows = np.resize(rows, slots // 2)
            slot, begin = table, rows
            with nogil:
                for number in range(count):
                    row = begin[number]
                    place = <int64_t> (scattered(first[row], second[row], third[row]) & mask)
                    while slot[place] >= 0:
                        place = <int64_t> ((<uint64_t> place + 1) & mask)
                    slot[place] = <int32_t> number
    return label, rows[:count].copy()


def grouped(const uint8_t[:] codes, int64_t count):
    """The places of each of the codes 0 to `count` - 1, ascending; those of code c stand from `begin[c]` to `begin[c + 1]`.

    int64 `[codes]` and `[count + 1]`.
    """
    cdef int64_t i, total, before = 0, size = codes.shape[0]
    found, begins = np.empty(size, dtype=np.int64), np.zeros(count + 1, dtype=np.int64)
    cdef int64_t[::1] place = found, begin = begins
    with nogil:
        for i in range(size):
            begin[codes[i]] += 1
        for i in range(count + 1):
            total = begin[i]
            begin[i] = before
            before += total
        for i in range(size):
            place[begin[codes[i]]] = i
            begin[codes[i]] += 1
        for i in range(count, 0, -1):
            begin[i] = begin[i - 1]
        begin[0] = 0
    return found, begins


def tabulated(
    const int32_t[::1] labels,
    const int64_t[::1] values,
    const int64_t[::1] low,
    const int64_t[::1] high,
    const int64_t[::1] row_of,
    const int64_t[::1] column_of,
    int64_t rows,
    int64_t columns,
):
    """The sums and the numbers of the values in spans `[low, high)` of places; int64 `[rows, columns]` each.

    A value counts in the row of its label and in the column of its span; not at all where that row is -1.
    """
    cdef int64_t i, span, row
    sums, counts = np.zeros((2, rows, columns), dtype=np.int64)
    cdef int64_t[:, ::1] total = sums, number = counts
    with nogil:
        for span in range(low.shape[0]):
            for i in range(low[span], high[span]):
                row = row_of[labels[i]]
                if row >= 0:
                    total[row, column_of[span]] += values[i]
                    number[row, column_of[span]] += 1
    return sums, counts


def codes_of(object[::1] values, dict known):
    """The number of each value in `known`, int32; values that are new there get the next numbers."""
    cdef Py_ssize_t i
    cdef int32_t code = 0
    cdef object value, before = None, found
    result = np.empty(values.shape[0], dtype=np.int32)
    cdef int32_t[::1] codes = result
    for i in range(values.shape[0]):
        value = values[i]
        if i == 0 or value is not before:
            found = known.get(value)
            if found is None:
                found = known[value] = len(known)
            code = found
            before = value
        codes[i] = code
    return result


cdef inline uint64_t magnitude(int64_t number) noexcept nogil:
    return (<uint64_t> 0) - <uint64_t> number if number < 0 else <uint64_t> number


cdef inline int digits_of(int64_t number) noexcept nogil:
    cdef uint64_t left = magnitude(number)
    cdef int count = 2 if number < 0 else 1
    while left >= 10:
        left //= 10
        count += 1
    return count


def lines_of(
    const int32_t[:, ::1] codes,
    const int64_t[:, ::1] numbers,
    const uint8_t[::1] cells,
    const int64_t[::1] begin,
):
    """Lines of cells with commas between them, as bytes; `codes` and `numbers` are `[columns, lines]`.

    The cell of a code is `cells[begin[code]:begin[code + 1]]`; where the code is -1, it is the number.
    """
    cdef Py_ssize_t line, column, columns = codes.shape[0], count = codes.shape[1]
    cdef int64_t size = columns * count, length
    cdef uint64_t left
    cdef int32_t code
    cdef char* at
    cdef char* digit
    cdef const uint8_t* first = &cells[0] if cells.shape[0] else NULL
    with nogil:
        for column in range(columns):
            for line in range(count):
                code = codes[column, line]
                if code < 0:
                    size += digits_of(numbers[column, line])
                else:
                    size += begin[code + 1] - begin[code]
    text = PyBytes_FromStringAndSize(NULL, size)
    at = PyBytes_AS_STRING(text)
    with nogil:
        for line in range(count):
            for column in range(columns):
                code = codes[column, line]
                if code < 0:
                    length = digits_of(numbers[column, line])
                    left = magnitude(numbers[column, line])
                    digit = at + length
                    while True:
                        digit -= 1
                        digit[0] = <char> (48 + left % 10)
                        left //= 10
                        if left == 0:
                            break
                    if numbers[column, line] < 0:
                        at[0] = 45
                else:
                    length = begin[code + 1] - begin[code]
                    if length:
                        memcpy(at, first + begin[code], length)
                at[length] = 44 if column + 1 < columns else 10
                at += length + 1
    return text


cdef extern from *:
    """
    #ifdef __GLIBC__
    #include <malloc.h>
    static void give_back(void) { malloc_trim(0); }
    #else
    static void give_back(void) {}
    #endif
    """
    void give_back() nogil


def release_free_memory():
    """Give the memory that was freed back to the system, where the C library keeps it for later."""
    with nogil:
        give_back()
