# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Sweeps over columns without the GIL: unions of intervals, places in a sorted array, open events, tables by id.

`intervals` does the same with numpy where this module is not built; the tests compare the two.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint64_t

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
    cdef int64_t length
    if opened == 0:
        return 0
    # Of the interval that began last only the part up to the time counts; what passed since may not fit.
    length = covered[opened] - covered[opened - 1]
    if time >= start[opened - 1] + length:
        return covered[opened]
    return covered[opened - 1] + time - start[opened - 1]


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


cdef struct Reaches:
    # The latest ends of each 32 events, then of each 32 of those, and so on up to one.
    const int64_t* end
    const int64_t* latest
    int64_t levels
    # 32 to the power of 13 is more than any number of events.
    int64_t offset[13]
    int64_t size[13]


def reaches(const int64_t[::1] end):
    """The latest ends of each 32 events, of each 32 of those, and so on, up to one number: what `touching` skips by."""
    cdef int64_t size = end.shape[0], total = 0, below = size, i, first = 0, at = 0
    while below > 1:
        below = (below + 31) // 32
        total += below
    result = np.full(total, INT64_MIN, dtype=np.int64)
    cdef int64_t[::1] latest = result
    with nogil:
        if size > 1:
            for i in range(size):
                if end[i] > latest[i >> 5]:
                    latest[i >> 5] = end[i]
            below = (size + 31) // 32
            at = below
            while below > 1:
                for i in range(below):
                    if latest[first + i] > latest[at + (i >> 5)]:
                        latest[at + (i >> 5)] = latest[first + i]
                first = at
                below = (below + 31) // 32
                at += below
    return result


cdef inline void set_reaches(
    Reaches* of, const int64_t[::1] end, const int64_t[::1] latest
) noexcept nogil:
    cdef int64_t below = end.shape[0], total = 0
    of.end = &end[0] if below else NULL
    of.latest = &latest[0] if latest.shape[0] else NULL
    of.levels = 0
    while below > 1:
        below = (below + 31) // 32
        of.offset[of.levels] = total
        of.size[of.levels] = below
        of.levels += 1
        total += below


cdef inline int64_t next_reaching(
    const Reaches* of, int64_t place, int64_t last, int64_t time
) noexcept nogil:
    # The first event from a place on, and before `last`, that ends after a time; `last` without one.
    cdef int64_t level, block
    while place < last:
        if place & 31 or not of.levels:
            if of.end[place] > time:
                return place
            place += 1
            continue
        level, block = 0, place >> 5
        while True:
            if block >= of.size[level]:
                return last
            if of.latest[of.offset[level] + block] > time:
                if level == 0:
                    break
                level -= 1
                block <<= 5
            else:
                block += 1
                while not block & 31 and level + 1 < of.levels:
                    block >>= 5
                    level += 1
        place = block << 5
        while place < last:
            if of.end[place] > time:
                return place
            place += 1
            if not place & 31:
                break
    return last


def touching(
    const int64_t[::1] start,
    const int64_t[::1] end,
    const int64_t[::1] latest,
    const int64_t[::1] span_start,
    const int64_t[::1] span_end,
):
    """The places of the events that overlap a span: they begin before its end and end after its start; ascending int64.

    The events are sorted by start, and `latest` is what `reaches` makes of their ends; the spans are sorted and disjoint.
    """
    cdef int64_t i, place, last = 0, found, count = 0, room = 1024
    cdef int64_t size = start.shape[0], spans = span_start.shape[0]
    result = np.empty(room, dtype=np.int64)
    cdef int64_t[::1] out = result
    cdef Reaches of
    if size == 0 or spans == 0:
        return result[:0]
    set_reaches(&of, end, latest)
    i = 0
    place = 0
    while i < spans:
        if count == room:
            room *= 2
            result = _longer(result, room)
            out = result
        with nogil:
            while i < spans and count < room:
                if place >= last:
                    # What begins before the end of the span before this one is looked at no more.
                    last = place_of(&start[0], size, span_end[i], False, last)
                found = next_reaching(&of, place, last, span_start[i])
                if found < last:
                    out[count] = found
                    count += 1
                    place = found + 1
                else:
                    place = last
                if place >= last:
                    i += 1
    return result[:count].copy()


def clearest(
    const int64_t[::1] start,
    const int64_t[::1] end,
    const int64_t[::1] latest,
    const uint16_t[::1] shows,
    const int64_t[::1] span_start,
    const int64_t[::1] span_end,
    const uint16_t[::1] wanted,
    double nearly,
):
    """The event that covers most of each span, of those that show what is wanted of it; -1 without one.

    `start`, `end`: of events sorted by start; `latest`: their `reaches`. An event counts for a span if `shows` and
    `wanted` share a bit. Of those that cover `nearly` as much as the one that covers most the shortest counts, of equal
    ones the last begun, of those the first.
    """
    cdef int64_t i, place, last, low, high, most, overlap, best
    cdef Reaches of
    cdef int64_t count = start.shape[0], queries = span_start.shape[0]
    result = np.empty(queries, dtype=np.int64)
    if queries == 0 or count == 0:
        result[:] = -1
        return result
    cdef int64_t[::1] found = result
    set_reaches(&of, end, latest)
    last = 0
    with nogil:
        for i in range(queries):
            last = place_of(&start[0], count, span_end[i], False, last)
            most = -1
            place = next_reaching(&of, 0, last, span_start[i])
            while place < last:
                if shows[place] & wanted[i]:
                    low = start[place] if start[place] > span_start[i] else span_start[i]
                    high = end[place] if end[place] < span_end[i] else span_end[i]
                    if high - low > most:
                        most = high - low
                place = next_reaching(&of, place + 1, last, span_start[i])
            best = -1
            place = next_reaching(&of, 0, last, span_start[i])
            while place < last:
                if shows[place] & wanted[i]:
                    low = start[place] if start[place] > span_start[i] else span_start[i]
                    high = end[place] if end[place] < span_end[i] else span_end[i]
                    if <double> (high - low) >= nearly * <double> most:
                        overlap = 0 if best < 0 else (end[place] - start[place]) - (end[best] - start[best])
                        if best < 0 or overlap < 0 or (overlap == 0 and start[place] > start[best]):
                            best = place
                place = next_reaching(&of, place + 1, last, span_start[i])
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
    cdef int64_t number
    cdef uint64_t place, length = marks.shape[0]
    cdef Py_ssize_t i
    result = np.empty(ids.shape[0], dtype=np.bool_)
    cdef uint8_t[::1] found = result.view(np.uint8)
    with nogil:
        for i in range(ids.shape[0]):
            number = <int64_t> ids[i]
            # Unsigned, for a difference of signed numbers need not fit.
            place = <uint64_t> number - <uint64_t> least
            found[i] = marks[place] if number >= least and place < length else 0
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


def totals(
    const Id[:] places, const int64_t[:] values, int64_t length, const uint8_t[:] chosen=None
):
    """The sum of the values at each place; int64 `[length]`, modulo 2**64. Places below 0 are left out.

    With `chosen` only the values that it marks count.
    """
    cdef int64_t i, place
    cdef bint is_every = chosen is None
    result = np.zeros(length, dtype=np.int64)
    cdef int64_t[::1] total = result
    with nogil:
        for i in range(places.shape[0]):
            place = <int64_t> places[i]
            if place >= 0 and (is_every or chosen[i]):
                total[place] += values[i]
    return result


def totals_between(const int64_t[::1] values, const uint8_t[::1] chosen, const int64_t[::1] first):
    """The sum of the chosen values from each place of `first` to the next; int64, one less than `first` has, modulo 2**64."""
    cdef int64_t i, part, total, parts = first.shape[0] - 1
    result = np.zeros(parts, dtype=np.int64)
    cdef int64_t[::1] sums = result
    with nogil:
        for part in range(parts):
            total = 0
            for i in range(first[part], first[part + 1]):
                # Without a branch, which would be guessed wrong half of the time.
                total += values[i] & -<int64_t> (chosen[i] != 0)
            sums[part] = total
    return result


def in_both(
    const uint8_t[::1] first,
    const uint8_t[::1] of_first,
    const int32_t[::1] second,
    const uint8_t[::1] of_second,
):
    """Which rows are marked by both numbers of theirs; bool. The mark of a `second` of -1 is the first one."""
    cdef int64_t i
    result = np.empty(first.shape[0], dtype=np.bool_)
    cdef uint8_t[::1] found = result.view(np.uint8)
    with nogil:
        for i in range(first.shape[0]):
            found[i] = of_first[first[i]] & of_second[second[i] + 1]
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


def cut(
    const int64_t[::1] start,
    const int64_t[::1] end,
    const int64_t[::1] bounds,
    const uint8_t[:] chosen=None,
):
    """Spans cut at the sorted, distinct bounds inside them: start, end, number of the span, and of the bounds up to its start.

    int64 start and end, int32 numbers. With `chosen` only the spans that it marks are cut.
    """
    cdef bint is_every = chosen is None
    cdef int64_t i, bound = 0, count, size = start.shape[0], known = bounds.shape[0]
    cdef int64_t pieces = size, near = 0
    cdef const int64_t* first = &bounds[0] if known else NULL
    with nogil:
        for i in range(size):
            if not is_every and not chosen[i]:
                continue
            near = place_of(first, known, start[i], True, near)
            bound = near
            while bound < known and bounds[bound] < end[i]:
                bound += 1
            pieces += bound - near
    # Each by itself: what is a part of one array keeps all of it.
    starts, ends = np.empty(pieces, dtype=np.int64), np.empty(pieces, dtype=np.int64)
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
                if bound == known or bounds[bound] >= end[i] or not (is_every or chosen[i]):
                    out_end[count] = end[i]
                    count += 1
                    break
                out_end[count] = bounds[bound]
                out_start[count + 1] = bounds[bound]
                count += 1
                bound += 1
    return starts, ends, numbers, places_


def exclusive(
    const int64_t[::1] start, const int64_t[::1] duration, const uint8_t[::1] class_, int64_t classes
):
    """The exclusive time of each event among those of its class: start, end and the number of the event, by class.

    int64 `start`, `end`, int32 numbers, all in time order within a class; those of class c stand from `begin[c]` to
    `begin[c + 1]`, int64 `[classes + 1]`. The events are sorted by start. Of several of a class the one that began first has
    an instant.
    """
    cdef int64_t i, at, last, until, size = start.shape[0]
    cdef uint8_t kind
    counts, reached = np.zeros(classes, dtype=np.int64), np.empty(classes, dtype=np.int64)
    cdef int64_t[::1] count = counts, reach = reached, out_start, out_end
    cdef int32_t[::1] out_number
    cdef bint filling
    starts, ends = np.empty((2, 0), dtype=np.int64)
    numbers, begin = np.empty(0, dtype=np.int32), np.zeros(classes + 1, dtype=np.int64)
    # First they are counted, then they are written.
    for filling in (False, True):
        if filling:
            begin = np.append(0, np.cumsum(counts))
            starts, ends = np.empty((2, begin[classes]), dtype=np.int64)
            numbers = np.empty(begin[classes], dtype=np.int32)
            out_start, out_end, out_number = starts, ends, numbers
            counts[:] = begin[:classes]
        reached[:] = INT64_MIN
        with nogil:
            for i in range(size):
                kind = class_[i]
                at = start[i]
                last = at + duration[i]
                until = reach[kind]
                if last <= at or last <= until:
                    continue
                if filling:
                    out_start[count[kind]] = until if until > at else at
                    out_end[count[kind]] = last
                    out_number[count[kind]] = <int32_t> i
                count[kind] += 1
                reach[kind] = last
    return starts, ends, numbers, begin


def _longer(array, int64_t length):
    """The same values at the beginning of a longer array."""
    result = np.empty(length, dtype=array.dtype)
    result[: array.size] = array
    return result


def layered(
    const int64_t[::1] start,
    const int64_t[::1] end,
    const int64_t[::1] begin,
    const int64_t[::1] bounds,
    int64_t first,
    int64_t last,
):
    """Spans of several layers in one row of pieces, in time order: start, duration, number of the span, and of bounds up to it.

    int64 start and duration, int32 numbers. The spans of layer n stand from `begin[n]` to `begin[n + 1]`, disjoint and in time
    order; where several layers have one, that of the first counts. Pieces lie in `[first, last)` and are cut at the sorted,
    distinct `bounds`.
    """
    cdef int64_t i, at = first, until, chosen, bound = 0, count = 0
    cdef int64_t layers = begin.shape[0] - 1, known = bounds.shape[0]
    # A piece begins at a start, an end or a bound, or at the first instant; mostly there are about as many as spans.
    cdef int64_t most = 2 * start.shape[0] + known + 2
    cdef int64_t room = start.shape[0] + start.shape[0] // 4 + known + 1
    heads = np.array(begin[:layers], dtype=np.int64)
    starts, durations = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    numbers, places_ = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.int32)
    cdef int64_t[::1] head = heads, out_start, out_duration
    cdef int32_t[::1] out_number, out_place
    while at < last:
        if count == room:
            room = most
            starts, durations = _longer(starts, room), _longer(durations, room)
            numbers, places_ = _longer(numbers, room), _longer(places_, room)
        out_start, out_duration, out_number, out_place = starts, durations, numbers, places_
        with nogil:
            while at < last and count < room:
                chosen = -1
                until = last
                for i in range(layers):
                    while head[i] < begin[i + 1] and end[head[i]] <= at:
                        head[i] += 1
                    if head[i] == begin[i + 1]:
                        continue
                    if start[head[i]] <= at:
                        chosen = head[i]
                        if end[chosen] < until:
                            until = end[chosen]
                        break
                    if start[head[i]] < until:
                        until = start[head[i]]
                while bound < known and bounds[bound] <= at:
                    bound += 1
                if bound < known and bounds[bound] < until:
                    until = bounds[bound]
                if chosen >= 0:
                    out_start[count] = at
                    out_duration[count] = until - at
                    out_number[count] = <int32_t> chosen
                    out_place[count] = <int32_t> bound
                    count += 1
                at = until
    return starts[:count], durations[:count], numbers[:count], places_[:count]


cdef inline int64_t row_before(
    const int64_t* start, const int64_t* first, int64_t device, int64_t moment, int64_t* near
) noexcept nogil:
    # The last row of a device that begins before a moment.
    near[device] = place_of(
        start + first[device], first[device + 1] - first[device], moment, False, near[device]
    )
    return first[device] + near[device] - 1


cdef inline int64_t active_within(
    const int64_t* start,
    const int64_t* duration,
    const uint8_t* is_active,
    const int64_t* first,
    int64_t device,
    int64_t low,
    int64_t high,
    int64_t* near,
) noexcept nogil:
    # How long a device is active in a span that begins in its time.
    cdef int64_t row = row_before(start, first, device, high, near), total = 0, begin, until
    while row >= first[device] and start[row] + duration[row] > low:
        if is_active[row]:
            begin = start[row] if start[row] > low else low
            until = start[row] + duration[row] if start[row] + duration[row] < high else high
            total += until - begin
        row -= 1
    return total


def walked(
    const int64_t[::1] start,
    const int64_t[::1] duration,
    const uint8_t[::1] is_active,
    const int32_t[::1] waits_for,
    const int64_t[::1] first,
    const int64_t[::1] host,
    const uint8_t[::1] takes_part,
    bint one_clock,
    const int64_t[::1] walk_host,
    const int64_t[::1] walk_start,
    const int64_t[::1] walk_end,
):
    """Walk back from the end of each span of a host along what held it up: row, start, duration, span and whether it is lost.

    int64 row, start and duration, int32 span, bool lost. The pieces of a span touch, fill it, and are in time order.

    Per row, device by device and in time order: `start`, `duration`, which partition the time of the device; `is_active`, whether
    it does something; `waits_for`, another device, -1 for one that is not known, -2 where it waits for none. Devices are places
    in `first` and `host`; `first` `[devices + 1]`: where the rows of each begin. `takes_part`: devices that a walk can be on. The
    spans of `walk_host` lie in the time of its devices.

    A walk begins on the device of the host that is active last, of several the one that is active for longest, of equal ones the
    first. Where it waits for another one the walk goes on there, if that has a row at that instant, and takes part, and is
    of the same host or `one_clock` holds; else the wait is lost. Of devices that wait for each other the one that began last
    keeps the wait, which is lost. Where the rows of another host begin, the walk goes back to the device of its own host
    that it left last.
    """
    cdef int64_t walk, device, home, other, row, moment, begin, until, length, best, longest, member, chosen
    cdef int64_t count = 0, devices = host.shape[0], walks = walk_host.shape[0], stamp = 0
    cdef bint filling, can_follow
    nears, stamps, nexts = np.zeros((3, devices), dtype=np.int64)
    from_, ends = np.full(walks, -1, dtype=np.int64), np.zeros(walks, dtype=np.int64)
    # `seen`: when a device was passed on at an instant; `then`: to which one.
    cdef int64_t[::1] near = nears, seen = stamps, then = nexts, begins_on = from_, end = ends
    cdef int64_t[::1] out_row, out_start, out_duration
    cdef int32_t[::1] out_walk
    cdef uint8_t[::1] out_lost
    cdef const int64_t* starts = &start[0] if start.shape[0] else NULL
    rows, begins, durations = (np.empty(0, dtype=np.int64) for _ in range(3))
    numbers, lost = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.bool_)
    with nogil:
        for walk in range(walks):
            best = longest = -1
            for device in range(devices):
                if host[device] != walk_host[walk] or not takes_part[device]:
                    continue
                row = row_before(starts, &first[0], device, walk_end[walk], &near[0])
                while row > first[device] and not is_active[row] and start[row] > walk_start[walk]:
                    row -= 1
                until = walk_start[walk]
                if is_active[row] and start[row] + duration[row] > until:
                    until = start[row] + duration[row]
                    until = walk_end[walk] if until > walk_end[walk] else until
                if begins_on[walk] >= 0 and until < best:
                    continue
                if begins_on[walk] < 0 or until > best:
                    begins_on[walk] = device
                    best, longest = until, -1
                    continue
                # As late as another one: how long each was active decides.
                if longest < 0:
                    longest = active_within(
                        starts, &duration[0], &is_active[0], &first[0],
                        begins_on[walk], walk_start[walk], walk_end[walk], &near[0],
                    )
                length = active_within(
                    starts, &duration[0], &is_active[0], &first[0],
                    device, walk_start[walk], walk_end[walk], &near[0],
                )
                if length > longest:
                    begins_on[walk] = device
                    longest = length
    # First the pieces are counted, then they are written, each walk from its end.
    for filling in (False, True):
        if filling:
            ends = np.cumsum(ends)
            end = ends
            count = end[walks - 1] if walks else 0
            rows, begins, durations = (np.empty(count, dtype=np.int64) for _ in range(3))
            numbers, lost = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.bool_)
            out_row, out_start, out_duration, out_walk = rows, begins, durations, numbers
            out_lost = lost.view(np.uint8)
        with nogil:
            for walk in range(walks):
                device = home = begins_on[walk]
                if device < 0:
                    continue
                moment = walk_end[walk]
                count = 0
                stamp += 1
                while moment > walk_start[walk]:
                    if moment <= start[first[device]]:
                        device = home
                        stamp += 1
                    row = row_before(starts, &first[0], device, moment, &near[0])
                    if waits_for[row] != -2:
                        other = waits_for[row]
                        can_follow = (
                            other >= 0 and other != device and takes_part[other]
                            and (one_clock or host[other] == host[device])
                            and start[first[other]] < moment
                            and moment <= start[first[other + 1] - 1] + duration[first[other + 1] - 1]
                        )
                        if can_follow and seen[other] != stamp:
                            seen[device] = stamp
                            then[device] = other
                            # The last one that is passed on to leads nowhere yet.
                            seen[other] = stamp
                            then[other] = -1
                            device = other
                            if host[device] == walk_host[walk]:
                                home = device
                            continue
                        if can_follow:
                            # They wait for each other. The one that began to wait last had something else to do until then.
                            member = chosen = other
                            row = row_before(starts, &first[0], member, moment, &near[0])
                            while member != device:
                                member = then[member]
                                best = row_before(starts, &first[0], member, moment, &near[0])
                                if start[best] > start[row]:
                                    row, chosen = best, member
                            device = chosen
                            if host[device] == walk_host[walk]:
                                home = device
                    begin = start[row] if start[row] > walk_start[walk] else walk_start[walk]
                    count += 1
                    if filling:
                        out_row[end[walk] - count] = row
                        out_start[end[walk] - count] = begin
                        out_duration[end[walk] - count] = moment - begin
                        out_walk[end[walk] - count] = <int32_t> walk
                        out_lost[end[walk] - count] = waits_for[row] != -2
                    moment = begin
                    # The row before is next, on most devices.
                    near[device] = row - first[device]
                    stamp += 1
                if not filling:
                    end[walk] = count
    return rows, begins, durations, numbers, lost


cdef struct Spans:
    # Spans as they are found, of which the last is of this piece and cause; without `start` they are only counted.
    int64_t count
    int64_t last_piece
    int64_t last_cause
    int64_t* start
    uint8_t* cause
    int32_t* piece


cdef inline void add_span(Spans* spans, int64_t start, int64_t cause, int64_t piece) noexcept nogil:
    # What goes on with the same cause in the same piece is one span.
    if spans.last_piece == piece and spans.last_cause == cause:
        return
    if spans.start != NULL:
        spans.start[spans.count] = start
        spans.cause[spans.count] = <uint8_t> cause
        spans.piece[spans.count] = <int32_t> piece
    spans.count += 1
    spans.last_piece = piece
    spans.last_cause = cause


cdef inline int64_t add_states(
    const int64_t* start,
    const uint8_t* state,
    int64_t count,
    int64_t first,
    int64_t last,
    int64_t near,
    int64_t piece,
    Spans* spans,
    int64_t* total,
) noexcept nogil:
    # Adds the states inside [first, last) to the spans, or without any the time of each; gives where to search next.
    cdef int64_t until, place
    if first >= last:
        return near
    place = place_of(start, count, first, True, near) - 1
    if place < 0:
        place = 0
    near = place
    while first < last:
        until = start[place + 1] if place + 1 < count and start[place + 1] < last else last
        if spans != NULL:
            add_span(spans, first, state[place], piece)
        else:
            total[state[place]] += until - first
        first = until
        place += 1
    return near


cdef inline void add_late(
    int64_t start,
    int64_t late_end,
    int64_t handed_over,
    int64_t line,
    const int64_t* states,
    const uint8_t* kinds,
    const int64_t* state_begin,
    int64_t* near,
    int64_t piece,
    Spans* spans,
    int64_t* total,
) noexcept nogil:
    cdef int64_t handed = handed_over if handed_over < late_end else late_end
    cdef int64_t begin = state_begin[0]
    if handed < start:
        handed = start
    near[0] = add_states(
        states + begin, kinds + begin, state_begin[1] - begin, start, handed, near[0], piece, spans, total
    )
    begin = state_begin[line]
    near[line] = add_states(
        states + begin, kinds + begin, state_begin[line + 1] - begin, handed, late_end, near[line],
        piece, spans, total,
    )


def attributed_spans(
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
    """The cause of every instant of each piece of a gap: int64 starts of spans, their uint8 causes and int32 pieces.

    The spans of a piece fill it: each lasts until the next, and the last until the piece ends. No two that follow each other
    have the same cause. None is in an empty piece.

    Per piece: `start`, `end`, and the number of its gap, which rises. Per gap: up to `late_end` the host is late, in the state
    of line 0 until it handed over, then of `line`; then it is `queued` with that cause, or has the cause `peer` in the
    intervals `peer_…` if the cause `yields`. What is `short` becomes `launching` if that is the largest
    cause while the host is late, of equal ones the first. The states of line n are those from `state_begin[n]` to
    `state_begin[n + 1]`, each from its `state_start` to the next.
    """
    cdef int64_t i, piece, after, number, cause, begin, late, most, largest, place
    cdef int64_t causes = yields.shape[0], pieces = start.shape[0], lines = state_begin.shape[0] - 1
    cdef int64_t peers = peer_start.shape[0], peer_near
    cdef bint filling
    own, hints = np.array(queued, dtype=np.uint8), np.zeros(lines, dtype=np.int64)
    sums = np.empty(causes, dtype=np.int64)
    cdef uint8_t[::1] queue = own, found_cause
    cdef int64_t[::1] near = hints, total = sums, found_start
    cdef int32_t[::1] found_piece
    cdef const int64_t* states = &state_start[0]
    cdef const uint8_t* kinds = &state[0]
    cdef const int64_t* peer_starts = &peer_start[0] if peers else NULL
    cdef Spans spans
    spans.count = 0
    spans.start, spans.cause, spans.piece = NULL, NULL, NULL
    # First the spans are counted, then they are written.
    for filling in (False, True):
        if filling:
            starts = np.empty(spans.count, dtype=np.int64)
            span_causes = np.empty(spans.count, dtype=np.uint8)
            numbers = np.empty(spans.count, dtype=np.int32)
            if not spans.count:
                break
            found_start, found_cause, found_piece = starts, span_causes, numbers
            spans.start, spans.cause, spans.piece = &found_start[0], &found_cause[0], &found_piece[0]
        spans.count, spans.last_piece, spans.last_cause = 0, -1, -1
        peer_near = i = 0
        with nogil:
            while i < pieces:
                number = gap[i]
                after = i
                while after < pieces and gap[after] == number:
                    after += 1
                if not filling and queue[number] == short and late_end[number] > start[i]:
                    for cause in range(causes):
                        total[cause] = 0
                    late = late_end[number] if late_end[number] < end[after - 1] else end[after - 1]
                    add_late(
                        start[i], late, handed_over[number], line[number],
                        states, kinds, &state_begin[0], &near[0], 0, NULL, &total[0],
                    )
                    most, largest = 0, -1
                    for cause in range(causes):
                        if total[cause] > most:
                            most, largest = total[cause], cause
                    if largest == launching:
                        queue[number] = <uint8_t> launching
                cause = queue[number]
                for piece in range(i, after):
                    begin = start[piece]
                    if late_end[number] > begin:
                        late = late_end[number] if late_end[number] < end[piece] else end[piece]
                        add_late(
                            begin, late, handed_over[number], line[number],
                            states, kinds, &state_begin[0], &near[0], piece, &spans, NULL,
                        )
                        begin = late
                    if begin < end[piece] and peers and yields[cause]:
                        peer_near = place_of(peer_starts, peers, begin, True, peer_near)
                        place = peer_near - 1 if peer_near else 0
                        while begin < end[piece] and place < peers and peer_start[place] < end[piece]:
                            if peer_start[place] > begin:
                                add_span(&spans, begin, cause, piece)
                                begin = peer_start[place]
                            late = peer_start[place] + peer_covered[place + 1] - peer_covered[place]
                            if late > begin:
                                add_span(&spans, begin, peer, piece)
                                begin = late
                            place += 1
                    if begin < end[piece]:
                        add_span(&spans, begin, cause, piece)
                i = after
    return starts, span_causes, numbers


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


cdef extern from *:
    """
    #ifdef __GLIBC__
    #include <malloc.h>
    static void give_back(void) { malloc_trim(0); }
    static void one_heap(void) {
        mallopt(M_ARENA_MAX, 1);
        /* Up to this size blocks are taken from the heap; by itself the library gets there one freed block after another. */
        mallopt(M_MMAP_THRESHOLD, 32 << 20);
        /* How much may be free at the end of the heap before it is given back. */
        mallopt(M_TRIM_THRESHOLD, 1 << 30);
    }
    #else
    static void give_back(void) {}
    static void one_heap(void) {}
    #endif
    """
    void give_back() nogil
    void one_heap() nogil


def release_free_memory():
    """Give the memory that was freed back to the system, where the C library keeps it for later."""
    with nogil:
        give_back()


def share_one_heap():
    """Let the threads of this process share one heap, so that it holds less memory that nobody uses, and keep what is freed.

    Memory that is given back and asked for again is cleared by the system each time.
    """
    one_heap()
