# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Sweeps over the states of devices without the GIL: gaps, their causes, walks along what held a step up, sums of rows.

`state_sweeps_reference` does the same with numpy where this module is not built; the tests compare the two.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t

import numpy as np

from traceview.base.places cimport place_of

ctypedef fused Id:
    uint8_t
    int16_t
    int32_t
    int64_t


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
    """Walk back from the end of each span of a host along what held it up: row, start, duration and span.

    int64 row, start and duration, int32 span. The pieces of a span touch, fill it, and are in time order.

    Per row, device by device and in time order: `start`, `duration`, which partition the time of the device; `is_active`, whether
    it does something; `waits_for`, another device, -1 for one that is not known, -2 where it waits for none. Devices are places
    in `first` and `host`; `first` `[devices + 1]`: where the rows of each begin. `takes_part`: devices that a walk can be on. The
    spans of `walk_host` lie in the time of its devices.

    A walk begins on the device of the host that is active last, of several the one that is active for longest, of equal ones the
    first. Where it waits for another one the walk goes on there, if that has a row at that instant, and takes part, and is
    of the same host or `one_clock` holds; else it is the wait. Of devices that wait for each other the one that began last
    keeps the wait. Where the rows of another host begin, the walk goes back to the device of its own host
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
    cdef const int64_t* starts = &start[0] if start.shape[0] else NULL
    rows, begins, durations = (np.empty(0, dtype=np.int64) for _ in range(3))
    numbers = np.empty(0, dtype=np.int32)
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
            numbers = np.empty(count, dtype=np.int32)
            out_row, out_start, out_duration, out_walk = rows, begins, durations, numbers
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
                    moment = begin
                    # The row before is next, on most devices.
                    near[device] = row - first[device]
                    stamp += 1
                if not filling:
                    end[walk] = count
    return rows, begins, durations, numbers


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
