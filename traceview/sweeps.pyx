# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Sweeps over sorted times without the GIL: unions of intervals, places in a sorted array, and the clearest event of spans.

`intervals` does the same with numpy where this module is not built; the tests compare the two.
"""

from libc.stdint cimport int64_t, uint16_t

import numpy as np


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
