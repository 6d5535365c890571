# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Sweeps over columns without the GIL: unions of intervals, places in a sorted array, open events, tables by id,
lines of text.

`intervals` does the same with numpy where this module is not built; the tests compare the two.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint64_t

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


def covered_before(
    const int64_t[::1] start,
    const int64_t[::1] end,
    const int64_t[::1] covered,
    const int64_t[::1] times,
):
    """The time before each of `times` that disjoint, sorted intervals cover; `covered`: the running total of lengths."""
    cdef int64_t i, near = 0, reach, count = start.shape[0], queries = times.shape[0]
    result = np.empty(queries, dtype=np.int64)
    if queries == 0 or count == 0:
        result[:] = 0
        return result
    cdef int64_t[::1] total = result
    cdef const int64_t* first = &start[0]
    with nogil:
        for i in range(queries):
            near = place_of(first, count, times[i], True, near)
            total[i] = covered[near]
            if near:
                reach = end[near - 1] - times[i]
                if reach > 0:
                    total[i] -= reach
    return result


def merged(const int64_t[::1] start, const int64_t[::1] end):
    """The union of intervals sorted by start, as starts, ends and the running total of lengths; None if unsorted."""
    cdef int64_t i, size = start.shape[0], count = 0, latest = 0, length = 0
    cdef bint is_sorted = True
    starts = np.empty(size + 1, dtype=np.int64)
    ends = np.empty(size + 1, dtype=np.int64)
    totals = np.empty(size + 1, dtype=np.int64)
    cdef int64_t[::1] out_start = starts, out_end = ends, out_total = totals
    out_total[0] = 0
    with nogil:
        for i in range(size):
            # Empty and negative intervals cover nothing, wherever they stand.
            if end[i] <= start[i]:
                continue
            if count and start[i] < latest:
                is_sorted = False
                break
            latest = start[i]
            if count and start[i] <= out_end[count - 1]:
                if end[i] > out_end[count - 1]:
                    out_end[count - 1] = end[i]
                continue
            out_start[count] = start[i]
            out_end[count] = end[i]
            count += 1
        for i in range(count):
            length += out_end[i] - out_start[i]
            out_total[i + 1] = length
    if not is_sorted:
        return None
    # What is not filled must not stay reserved: unions live as long as a report is made.
    return starts[:count].copy(), ends[:count].copy(), totals[: count + 1].copy()


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


def extent(const Id[:] ids):
    """The least and the largest of 0 and the ids."""
    cdef int64_t least = 0, most = 0
    cdef Py_ssize_t i
    with nogil:
        for i in range(ids.shape[0]):
            if ids[i] < least:
                least = ids[i]
            if ids[i] > most:
                most = ids[i]
    return least, most


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


def labelled(const int32_t[::1] first, const int32_t[::1] second, const uint8_t[::1] third):
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
