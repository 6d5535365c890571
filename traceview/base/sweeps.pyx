# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Sweeps over columns without the GIL: unions of intervals, places in a sorted array, open events, tables by id.

`sweeps_reference` does the same with numpy where this module is not built; the tests compare the two.
"""

from libc.stdint cimport INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint64_t

import numpy as np

from traceview.base.places cimport place_of

ctypedef fused Id:
    uint8_t
    int16_t
    int32_t
    int64_t


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


cdef inline uint64_t scattered(int64_t first, int64_t second, int64_t third) noexcept nogil:
    # Neighbours in any of the three lie far apart.
    cdef uint64_t mixed = <uint64_t> first * <uint64_t> 0x9E3779B97F4A7C15
    mixed ^= (<uint64_t> second + 1) * <uint64_t> 0xC2B2AE3D27D4EB4F
    mixed ^= (<uint64_t> third + 1) * <uint64_t> 0x165667B19E3779F9
    mixed ^= mixed >> 32
    mixed *= <uint64_t> 0xD6E8FEB86659FD93
    return mixed ^ (mixed >> 32)


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
