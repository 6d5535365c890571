# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Decodes an XLine at the speed of memory: one pass, without the GIL, into columns that grow where they are full.

The metadata of a plane becomes Python objects in two passes: names of stats, then what they name. Field numbers: openxla/xla `tsl/profiler/protobuf/xplane.proto`. `decode_reference` does the same in plain Python; the
tests compare the two. Every length is checked against the end of its message before use, so that damaged bytes end in
a `Fault` and never outside of the buffer.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

import numpy as np

from traceview.xplane.columns import (
    FAULT_REASONS,
    Fault,
    Fields,
    LineColumns,
    LineHeader,
    StatsBySlot,
)
from traceview.xplane.columns import EventMetadata, PlaneHeader, Stat

cdef enum:
    # Places in FAULT_REASONS.
    FINE = 0
    BAD_NUMBER = 1
    PAST_END = 2
    BAD_FIELD = 3
    # No reason for a fault: the columns have no room for the next event.
    FULL = 4

cdef struct Cursor:
    const uint8_t* data
    int64_t at
    int64_t end

cdef struct Field:
    uint64_t number
    int wire_type
    int64_t tag
    int64_t begin
    int64_t end
    uint64_t value

cdef struct Span:
    int64_t begin
    int64_t end

cdef struct StatFields:
    # The value is encoded as in LineColumns.
    int64_t id
    int64_t value
    uint8_t kind

cdef struct Entry:
    int64_t key
    Span name
    Span display_name

cdef struct Wanted:
    const int16_t* dense
    int64_t dense_count
    const int64_t* sparse_id
    const int16_t* sparse_slot
    int64_t sparse_count

cdef struct Output:
    int64_t events
    int64_t stats
    # How many of each there is room for.
    int64_t event_room
    int64_t stat_room
    int64_t whole_end
    int64_t line_id
    int64_t timestamp_ns
    Span name
    int64_t* metadata_id
    int64_t* time
    int64_t* duration_ps
    uint8_t* aggregated
    int32_t* stat_event
    int16_t* stat_slot
    uint8_t* stat_kind
    int64_t* stat_value


cdef inline int read_varint(Cursor* cursor, uint64_t* value) noexcept nogil:
    cdef uint64_t result = 0
    cdef int shift = 0
    cdef uint8_t byte
    if cursor.at < cursor.end and cursor.data[cursor.at] < 0x80:
        value[0] = cursor.data[cursor.at]
        cursor.at += 1
        return FINE
    while shift < 70:
        if cursor.at >= cursor.end:
            return BAD_NUMBER
        byte = cursor.data[cursor.at]
        cursor.at += 1
        if shift < 63:
            result |= (<uint64_t> (byte & 0x7F)) << shift
        else:
            result |= (<uint64_t> (byte & 1)) << shift
        if byte < 0x80:
            value[0] = result
            return FINE
        shift += 7
    return BAD_NUMBER


cdef inline int read_field(Cursor* cursor, Field* field) noexcept nogil:
    cdef uint64_t tag, length
    cdef int status
    field.tag = cursor.at
    status = read_varint(cursor, &tag)
    if status != FINE:
        return status
    field.number = tag >> 3
    field.wire_type = tag & 7
    field.begin = cursor.at
    if field.number == 0 or field.number > 0x1FFFFFFF:
        return BAD_FIELD
    if field.wire_type == 0:
        status = read_varint(cursor, &field.value)
        if status != FINE:
            return status
    elif field.wire_type == 2:
        status = read_varint(cursor, &length)
        if status != FINE:
            return status
        field.begin = cursor.at
        if length > <uint64_t> (cursor.end - cursor.at):
            return PAST_END
        cursor.at += <int64_t> length
    elif field.wire_type == 1 or field.wire_type == 5:
        length = 8 if field.wire_type == 1 else 4
        if length > <uint64_t> (cursor.end - cursor.at):
            return PAST_END
        cursor.at += <int64_t> length
    else:
        return BAD_FIELD
    field.end = cursor.at
    return FINE


cdef inline int16_t slot_of(const Wanted* wanted, int64_t stat_id) noexcept nogil:
    cdef int64_t i
    if 0 <= stat_id < wanted.dense_count:
        return wanted.dense[stat_id]
    for i in range(wanted.sparse_count):
        if wanted.sparse_id[i] == stat_id:
            return wanted.sparse_slot[i]
    return -1


cdef inline int64_t load_fixed64(const uint8_t* at) noexcept nogil:
    cdef uint64_t bits = 0
    cdef int i
    for i in range(8):
        bits |= (<uint64_t> at[i]) << (8 * i)
    return <int64_t> bits


cdef inline Cursor content_of(const Cursor* cursor, const Field* field) noexcept nogil:
    cdef Cursor inner
    inner.data = cursor.data
    inner.at = field.begin
    inner.end = field.end
    return inner


cdef inline int read_stat(Cursor* cursor, StatFields* stat) noexcept nogil:
    cdef Field field
    cdef int status
    cdef int64_t stat_id = 0, value = 0
    cdef uint8_t kind = 0
    while cursor.at < cursor.end:
        status = read_field(cursor, &field)
        if status != FINE:
            return status
        if field.wire_type == 0:
            if field.number == 1:
                stat_id = <int64_t> field.value
            elif field.number == 3 or field.number == 4 or field.number == 7:
                kind = <uint8_t> field.number
                value = <int64_t> field.value
        elif field.wire_type == 1:
            if field.number == 2:
                kind = 2
                value = load_fixed64(cursor.data + field.begin)
        elif field.wire_type == 2 and (field.number == 5 or field.number == 6):
            kind = <uint8_t> field.number
            value = field.tag
    stat.id = stat_id
    stat.value = value
    stat.kind = kind
    return FINE


cdef int collect_stat(Cursor* cursor, const Wanted* wanted, Output* out) noexcept nogil:
    cdef StatFields stat
    cdef int status = read_stat(cursor, &stat)
    if status != FINE:
        return status
    cdef int16_t slot = slot_of(wanted, stat.id)
    if slot >= 0:
        if out.stats == out.stat_room:
            return FULL
        out.stat_event[out.stats] = <int32_t> out.events
        out.stat_slot[out.stats] = slot
        out.stat_kind[out.stats] = stat.kind
        out.stat_value[out.stats] = stat.value
        out.stats += 1
    return FINE


cdef int read_event(Cursor* cursor, const Wanted* wanted, Output* out) noexcept nogil:
    cdef Field field
    cdef Cursor inner
    cdef int status
    cdef int64_t metadata_id = 0, time = 0, duration = 0
    cdef uint8_t aggregated = 0
    while cursor.at < cursor.end:
        status = read_field(cursor, &field)
        if status != FINE:
            return status
        if field.wire_type == 0:
            if field.number == 1:
                metadata_id = <int64_t> field.value
            elif field.number == 2:
                time = <int64_t> field.value
                aggregated = 0
            elif field.number == 3:
                duration = <int64_t> field.value
            elif field.number == 5:
                time = <int64_t> field.value
                aggregated = 1
        elif field.wire_type == 2 and field.number == 4:
            inner = content_of(cursor, &field)
            status = collect_stat(&inner, wanted, out)
            if status != FINE:
                cursor.at = inner.at
                return status
    if out.events == out.event_room:
        return FULL
    out.metadata_id[out.events] = metadata_id
    out.time[out.events] = time
    out.duration_ps[out.events] = duration
    out.aggregated[out.events] = aggregated
    out.events += 1
    return FINE


cdef int read_line(Cursor* cursor, const Wanted* wanted, Output* out) noexcept nogil:
    # Stops at the first event that is not readable as a whole, or for which there is no room; `whole_end` is its start.
    cdef Field field
    cdef Cursor inner
    cdef int status
    cdef int64_t stats_before
    while cursor.at < cursor.end:
        out.whole_end = cursor.at
        status = read_field(cursor, &field)
        if status != FINE:
            return status
        if field.wire_type == 2 and field.number == 4:
            inner = content_of(cursor, &field)
            stats_before = out.stats
            status = read_event(&inner, wanted, out)
            if status != FINE:
                out.stats = stats_before
                cursor.at = inner.at
                return status
        elif field.wire_type == 2:
            if field.number == 2:
                out.name = Span(field.begin, field.end)
        elif field.wire_type == 0:
            if field.number == 1:
                out.line_id = <int64_t> field.value
            elif field.number == 3:
                out.timestamp_ns = <int64_t> field.value
    out.whole_end = cursor.end
    return FINE


def _bounds(const uint8_t[::1] data, int64_t begin, int64_t end):
    if not 0 <= begin <= end <= data.shape[0]:
        raise ValueError(f"[{begin}, {end}) does not lie in a buffer of {data.shape[0]} bytes")


def scan_fields(const uint8_t[::1] data, int64_t begin, int64_t end):
    """The fields of the message at `data[begin:end]`, as `Fields`."""
    cdef Cursor cursor
    cdef Field field
    cdef int status = FINE
    cdef int64_t count = 0
    cdef int64_t[:, ::1] table
    _bounds(data, begin, end)
    if begin == end:
        return _fields(np.empty((5, 0), dtype=np.int64), None)
    cursor.data = &data[0]
    cursor.end = end
    cursor.at = begin
    with nogil:
        while cursor.at < cursor.end:
            status = read_field(&cursor, &field)
            if status != FINE:
                break
            count += 1
    rows = np.empty((5, count), dtype=np.int64)
    table = rows
    cdef int64_t i
    cdef int64_t stopped = field.tag
    cursor.at = begin
    with nogil:
        for i in range(count):
            read_field(&cursor, &field)
            table[0, i] = <int64_t> field.number
            table[1, i] = field.wire_type
            table[2, i] = field.tag
            table[3, i] = field.begin
            table[4, i] = field.end
    fault = None if status == FINE else Fault(stopped, FAULT_REASONS[status])
    return _fields(rows, fault)


def _fields(rows, fault):
    return Fields(rows[0], rows[1], rows[2], rows[3], rows[4], fault)


def decode_line(const uint8_t[::1] data, int64_t begin, int64_t end, wanted):
    """The events of the XLine at `data[begin:end]`, as `LineColumns`; `wanted` is a `WantedStats`."""
    cdef const int16_t[::1] dense = wanted.dense
    cdef const int64_t[::1] sparse_id = wanted.sparse_id
    cdef const int16_t[::1] sparse_slot = wanted.sparse_slot
    cdef Wanted want
    cdef Cursor cursor
    cdef Output out
    cdef int status
    cdef int64_t stopped
    cdef double whole
    _bounds(data, begin, end)
    want.dense_count = dense.shape[0]
    want.dense = &dense[0] if dense.shape[0] else NULL
    want.sparse_count = sparse_id.shape[0]
    want.sparse_id = &sparse_id[0] if sparse_id.shape[0] else NULL
    want.sparse_slot = &sparse_slot[0] if sparse_slot.shape[0] else NULL
    cursor.data = &data[0] if data.shape[0] else NULL
    cursor.at = begin
    cursor.end = end
    out.events = out.stats = out.whole_end = out.line_id = out.timestamp_ns = 0
    out.name = Span(0, 0)
    # The start of the line shows how many events there are in all of it.
    out.event_room = (end - begin) // 1024 + 16
    out.stat_room = (end - begin) // 512 + 16
    columns = _grown(None, &out)
    _point_into(columns, &out)
    while True:
        with nogil:
            status = read_line(&cursor, &want, &out)
        if status != FULL:
            break
        whole = 1.03 * (end - begin) / max(1, out.whole_end - begin)
        if out.events < out.event_room:
            # One event may have any number of stats.
            out.stat_room += out.stat_room // 2
        out.event_room = max(out.event_room, 16 + <int64_t> (whole * out.events))
        out.stat_room = max(out.stat_room, 16 + <int64_t> (whole * out.stats))
        columns = _grown(columns, &out)
        _point_into(columns, &out)
        cursor.at = out.whole_end
    stopped = cursor.at
    events, stats = [_cut(column, out.events) for column in columns[0]], [
        _cut(column, out.stats) for column in columns[1]
    ]
    return LineColumns(
        *events,
        *stats,
        LineHeader(out.line_id, bytes_of(cursor.data, out.name), out.timestamp_ns),
        None if status == FINE else Fault(stopped, FAULT_REASONS[status]),
    )


_EVENT_TYPES = (np.int64, np.int64, np.int64, np.uint8)
_STAT_TYPES = (np.int32, np.int16, np.uint8, np.int64)


cdef _grown(columns, Output* out):
    """Columns with the room that `out` says, and what is in the old ones."""
    new = (
        [np.empty(out.event_room, dtype=kind) for kind in _EVENT_TYPES],
        [np.empty(out.stat_room, dtype=kind) for kind in _STAT_TYPES],
    )
    if columns is not None:
        for count, before, after in (
            (out.events, columns[0], new[0]),
            (out.stats, columns[1], new[1]),
        ):
            for old, column in zip(before, after):
                column[:count] = old[:count]
    return new


cdef void _point_into(columns, Output* out):
    cdef int64_t[::1] metadata_id = columns[0][0], time = columns[0][1], duration_ps = columns[0][2]
    cdef int64_t[::1] stat_value = columns[1][3]
    cdef uint8_t[::1] aggregated = columns[0][3], stat_kind = columns[1][2]
    cdef int32_t[::1] stat_event = columns[1][0]
    cdef int16_t[::1] stat_slot = columns[1][1]
    out.metadata_id = &metadata_id[0]
    out.time = &time[0]
    out.duration_ps = &duration_ps[0]
    out.aggregated = &aggregated[0]
    out.stat_event = &stat_event[0]
    out.stat_slot = &stat_slot[0]
    out.stat_kind = &stat_kind[0]
    out.stat_value = &stat_value[0]


def _cut(column, int64_t count):
    """The part of a column that is filled; what is not filled of a large one has never been touched, so it takes no memory."""
    part = column[:count]
    return part.copy() if column.nbytes < 1 << 20 else part


cdef bytes bytes_of(const uint8_t* data, Span span):
    return (<const char*> data)[span.begin : span.end]


cdef object stat_of(const Cursor* cursor, const StatFields* stat, dict stat_names):
    # `cursor` is that of the message of the stat.
    cdef Cursor inner
    cdef Field field
    cdef double number
    if stat.kind == 2:
        memcpy(&number, &stat.value, 8)
        value = number
    elif stat.kind == 3:
        value = <uint64_t> stat.value
    elif stat.kind == 5 or stat.kind == 6:
        inner.data = cursor.data
        inner.at = stat.value
        inner.end = cursor.end
        read_field(&inner, &field)
        value = bytes_of(cursor.data, Span(field.begin, field.end))
    elif stat.kind == 7:
        value = stat_names.get(stat.value, b"")
    else:
        value = stat.value
    return Stat(stat_names.get(stat.id, b""), value)


cdef int read_entry(Cursor* cursor, Entry* entry, dict stat_names, list stats) except -1:
    # Of a map of metadata; without `stat_names` the metadata has only a name.
    cdef Field field, part
    cdef Cursor metadata, inner
    cdef StatFields stat
    cdef int status
    entry.key = 0
    entry.name = entry.display_name = Span(0, 0)
    while cursor.at < cursor.end:
        status = read_field(cursor, &field)
        if status != FINE:
            return status
        if field.wire_type == 0 and field.number == 1:
            entry.key = <int64_t> field.value
        if field.wire_type != 2 or field.number != 2:
            continue
        metadata = content_of(cursor, &field)
        while metadata.at < metadata.end:
            status = read_field(&metadata, &part)
            if status != FINE:
                return status
            if part.wire_type != 2:
                continue
            if part.number == 2:
                entry.name = Span(part.begin, part.end)
            elif part.number == 4:
                entry.display_name = Span(part.begin, part.end)
            elif part.number == 5 and stat_names is not None:
                inner = content_of(&metadata, &part)
                status = read_stat(&inner, &stat)
                if status != FINE:
                    return status
                stats.append(stat_of(&inner, &stat, stat_names))
    return FINE


def read_plane(const uint8_t[::1] data):
    """The plane with the fields in `data`, its lines aside, as `PlaneHeader`. A field that is damaged inside is left out as a whole.

    A ref and the stat id that it names compare modulo 2**64.
    """
    cdef Cursor cursor, inner
    cdef Field field
    cdef Entry entry
    cdef StatFields stat
    cdef int status
    cdef Span name = Span(0, 0)
    cdef bint is_damaged = False
    cdef dict stat_names = {}, event_metadata = {}
    cdef list stats = [], of_entry = []
    cursor.data = &data[0] if data.shape[0] else NULL
    cursor.end = data.shape[0]
    # Stats are named by the entries of this map, wherever it stands.
    cursor.at = 0
    while cursor.at < cursor.end and read_field(&cursor, &field) == FINE:
        if field.number == 5 and field.wire_type == 2:
            inner = content_of(&cursor, &field)
            if read_entry(&inner, &entry, None, of_entry) == FINE:
                stat_names[entry.key] = bytes_of(cursor.data, entry.name)
            else:
                is_damaged = True
    cursor.at = 0
    while cursor.at < cursor.end:
        status = read_field(&cursor, &field)
        if status != FINE:
            is_damaged = True
            break
        if field.wire_type != 2:
            continue
        inner = content_of(&cursor, &field)
        if field.number == 2:
            name = Span(field.begin, field.end)
        elif field.number == 4:
            of_entry.clear()
            if read_entry(&inner, &entry, stat_names, of_entry) == FINE:
                event_metadata[entry.key] = EventMetadata(
                    bytes_of(cursor.data, entry.name),
                    bytes_of(cursor.data, entry.display_name),
                    tuple(of_entry),
                )
            else:
                is_damaged = True
        elif field.number == 6:
            if read_stat(&inner, &stat) == FINE:
                stats.append(stat_of(&inner, &stat, stat_names))
            else:
                is_damaged = True
    return PlaneHeader(
        bytes_of(cursor.data, name), event_metadata, stat_names, tuple(stats), is_damaged
    )


def intern_contents(const uint8_t[::1] data, const int64_t[::1] offsets):
    """The distinct length-delimited contents at `offsets`: their bytes, and the index into them for each."""
    cdef Cursor cursor
    cdef Field field
    cdef int64_t i
    indices = np.empty(offsets.shape[0], dtype=np.int32)
    cdef int32_t[::1] index = indices
    cdef dict seen = {}
    cursor.data = &data[0] if data.shape[0] else NULL
    cursor.end = data.shape[0]
    for i in range(offsets.shape[0]):
        cursor.at = offsets[i]
        if cursor.at < 0 or read_field(&cursor, &field) != FINE or field.wire_type != 2:
            raise ValueError(f"no length-delimited field at byte {offsets[i]}")
        text = bytes_of(cursor.data, Span(field.begin, field.end))
        index[i] = seen.setdefault(text, len(seen))
    return list(seen), indices


def stats_by_slot(lines, first_event, first_text, int64_t slots):
    """The stats of several lines by slot, those of a slot in the order of the file, as `StatsBySlot`.

    `lines`: of each line `stat_event`, `stat_slot`, `stat_kind` and `stat_value`. `first_event`, `first_text`: what is added
    to the events and to the texts of each. Raises `ValueError` for a slot that is none of `slots`.
    """
    cdef const int32_t[::1] event
    cdef const int16_t[::1] slot
    cdef const uint8_t[::1] kind
    cdef const int64_t[::1] value
    cdef int64_t i, at, added_event, added_text, count = 0
    cdef bint is_slot = True
    bounds = np.zeros(slots + 1, dtype=np.int64)
    cdef int64_t[::1] bound = bounds
    for _, slots_of_line, _, _ in lines:
        slot = slots_of_line
        count += slot.shape[0]
        with nogil:
            for i in range(slot.shape[0]):
                if not 0 <= slot[i] < slots:
                    is_slot = False
                    break
                bound[slot[i] + 1] += 1
    if not is_slot:
        raise ValueError(f"a slot is not one of {slots}")
    for i in range(slots):
        bound[i + 1] += bound[i]
    rows = np.empty(count, dtype=np.int64)
    kinds = np.empty(count, dtype=np.uint8)
    values = np.empty(count, dtype=np.int64)
    places = bounds[:slots].copy()
    cdef int64_t[::1] row_of = rows, value_of = values, place = places
    cdef uint8_t[::1] kind_of = kinds
    for (events, slots_of_line, kinds_of_line, values_of_line), one, other in zip(
        lines, first_event, first_text
    ):
        event, slot, kind, value = events, slots_of_line, kinds_of_line, values_of_line
        added_event, added_text = one, other
        with nogil:
            for i in range(slot.shape[0]):
                at = place[slot[i]]
                place[slot[i]] = at + 1
                row_of[at] = event[i] + added_event
                kind_of[at] = kind[i]
                # Of texts the value is an index: 5 and 6 are str and bytes.
                value_of[at] = value[i] + added_text if kind[i] == 5 or kind[i] == 6 else value[i]
    return StatsBySlot(rows, kinds, values, bounds)
