"""Places in a sorted array, for the sweeps of every module."""

from libc.stdint cimport int64_t


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
