"""Defines tables, from which CSV, JSON, Parquet, DataFrames and documents are made, and makes those of recorded events.

A table is named columns of equal length.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceview.base.ids import is_in, sorted_within, unique_inverse
from traceview.base.intervals import BoolArray, Int32Array, Int64Array, places, union
from traceview.base.record import Record, table_columns
from traceview.base.sweeping import SWEEPS
from traceview.base.text import encodable
from traceview.trace.columns import NONE, UNKNOWN_BYTES, Names
from traceview.trace.device.correlation import copies_of
from traceview.trace.device.op_names import label_lines, op_labels, op_names
from traceview.trace.model import Recording, Trace, step_numbers_at
from traceview.xplane.planes import CLASS_KEYS, ActivityClass, HostMemory

if TYPE_CHECKING:
    import pandas as pd

Kind: TypeAlias = Literal["int", "float", "bool", "category", "text"]

_ROWS_AT_ONCE: Final = 1 << 12
"""Bounds the memory that cells take as objects."""


class Column(Struct, frozen=True, eq=False):
    """One column of n cells.

    `values`, `[n]`: int64, float64, bool, whole codes into `labels` of a category, or texts as objects. `missing`: bool
    `[n]`, None where every cell is known; of a category `NONE` says what is not, of a float NaN, of a text None.
    """

    name: str
    kind: Kind
    values: npt.NDArray[Any]
    missing: BoolArray | None = None
    labels: tuple[str, ...] = ()

    def cells(self) -> list[Any]:
        """The cells as plain values, None for those that are missing."""
        if self.kind == "category":
            labels = [*self.labels, None]
            return [labels[code] for code in self.values.tolist()]
        cells: list[Any] = self.values.tolist()
        missing = np.isnan(self.values) if self.kind == "float" else self.missing
        if missing is not None:
            for place in np.flatnonzero(missing).tolist():
                cells[place] = None
        return cells

    def at(self, rows: npt.NDArray[np.int64] | slice) -> Column:
        """The cells of these rows, in their order."""
        missing = None if self.missing is None else self.missing[rows]
        return replace(self, values=self.values[rows], missing=missing)


class Table(Struct, frozen=True, eq=False):
    """Columns of `count` cells each."""

    name: str
    count: int
    columns: tuple[Column, ...]

    def __getitem__(self, name: str) -> list[Any]:
        """The cells of a column."""
        return next(column for column in self.columns if column.name == name).cells()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row with its cells by the names of their columns."""
        names = [column.name for column in self.columns]
        for first in range(0, self.count, _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            for cells in zip(*(column.at(some).cells() for column in self.columns), strict=True):
                yield dict(zip(names, cells, strict=True))

    def at(self, rows: Sequence[int]) -> Table:
        """The table with these rows alone, in their order."""
        chosen = np.array(rows, dtype=np.int64)
        return Table(self.name, chosen.size, tuple(column.at(chosen) for column in self.columns))

    def where(self, name: str, values: Collection[Any]) -> Table:
        """The table with the rows that have one of these values in a column."""
        return self.at([place for place, cell in enumerate(self[name]) if cell in values])


def table(name: str, *columns: Column) -> Table:
    """A table of columns, of which there is at least one."""
    return Table(name, int(columns[0].values.size), columns)


# Columns of arrays


def whole(name: str, values: npt.NDArray[np.integer], missing: BoolArray | None = None) -> Column:
    """Whole numbers."""
    return Column(name, "int", values.astype(np.int64, copy=False), missing)


def flag(name: str, values: BoolArray) -> Column:
    """Yes or no."""
    return Column(name, "bool", values)


def category(name: str, codes: npt.NDArray[np.integer], labels: Sequence[str]) -> Column:
    """Codes into labels, `NONE` where there is none; labels that repeat become one."""
    place: dict[str, int] = {}
    for label in labels:
        place.setdefault(label, len(place))
    known = np.array([*(place[label] for label in labels), NONE], dtype=np.int64)
    return Column(name, "category", known[codes], labels=tuple(place))


def named(name: str, indices: npt.NDArray[np.integer], names: Names) -> Column:
    """Names of a trace by their indices; only those that occur become labels."""
    used, codes = unique_inverse(indices)
    labels = [text for text in map(names.text, used.tolist()) if text is not None]
    # `NONE` sorts before all names.
    return category(name, codes.reshape(-1) - (used.size - len(labels)), labels)


# Columns of plain values


def texts(name: str, values: Sequence[str | None]) -> Column:
    """Texts of which most differ."""
    cells = np.empty(len(values), dtype=np.object_)
    cells[:] = list(values)
    return Column(name, "text", cells)


def integers(name: str, values: Sequence[int | None]) -> Column:
    """Whole numbers, None for those that are not known."""
    missing = np.array([value is None for value in values], dtype=np.bool_)
    return Column(name, "int", np.array([value or 0 for value in values], dtype=np.int64), missing)


def floats(name: str, values: Sequence[float | None]) -> Column:
    """Numbers with a fraction, None for those that are not known."""
    known = [np.nan if value is None else value for value in values]
    return Column(name, "float", np.array(known, dtype=np.float64))


def flags(name: str, values: Sequence[bool | None], *, is_optional: bool = True) -> Column:
    """Yes or no; `is_optional`: whether it may be None, for not known."""
    missing = np.array([value is None for value in values], dtype=np.bool_)
    cells = np.array([bool(value) for value in values], dtype=np.bool_)
    return Column(name, "bool", cells, missing if is_optional else None)


def record_columns(
    kind: type[Record],
    rows: Sequence[Record | None],
    fields: Sequence[str] | None = None,
    names: Mapping[str, str] | None = None,
) -> tuple[Column, ...]:
    """Columns of the fields of records, all without `fields`; a row without a record has no values.

    `names`: of the columns that are not called as in the JSON of the record.
    """
    known = {column.field: column for column in table_columns(kind)}
    columns = []
    for field in known if fields is None else fields:
        column = known[field]
        name = (names or {}).get(field, column.key)
        values = [None if row is None else getattr(row, field) for row in rows]
        if column.kind == "text":
            columns.append(texts(name, values))
        elif column.kind == "bool":
            columns.append(flags(name, values, is_optional=column.is_optional or None in rows))
        else:
            columns.append((integers if column.kind == "int" else floats)(name, values))
    return tuple(columns)


# DataFrames, for notebooks; nothing else imports pandas


def frame_of(rows: Table) -> pd.DataFrame:
    """A table as a DataFrame: whole numbers and flags of which some may be missing have pandas' types for that.

    Text columns that are not categories have the type `string`, so that they are text when empty, too.
    """
    import pandas as pd

    def series(column: Column) -> Any:
        values, missing = column.values, column.missing
        if column.kind == "category":
            known = category(column.name, values, list(map(encodable, column.labels)))
            labels = pd.Index(known.labels, dtype=object)
            return pd.Categorical.from_codes(known.values, categories=labels)
        if column.kind == "text":
            # Left to itself pandas makes numbers of an empty column.
            texts = [None if text is None else encodable(text) for text in values]
            return pd.array(texts, dtype="string")
        if column.kind == "int" and missing is not None:
            return pd.arrays.IntegerArray(values.copy(), missing.copy())
        if column.kind == "bool" and missing is not None:
            return pd.arrays.BooleanArray(values.copy(), missing.copy())
        return values

    return pd.DataFrame({column.name: series(column) for column in rows.columns})


# What was recorded: events of devices and hosts, copies and ops, with a row each


def device_events(trace: Trace, rows: Int64Array | None = None) -> Table:
    """Device events by their row numbers, by default all; gaps name them by these. `launch` is a row number of host events."""
    columns = trace.device_columns
    rows = np.arange(columns.count) if rows is None else rows
    device = columns.device[rows]
    size, launch, correlation = (
        column[rows] for column in (columns.bytes, columns.launch, columns.correlation_id)
    )
    return table(
        "device_events",
        whole("row", rows),
        category("device", device, device_keys(trace)),
        category("stream", columns.line[rows], line_names(trace)),
        category("class", columns.class_[rows], CLASS_KEYS),
        named("name", columns.name[rows], trace.names),
        named("op", columns.op[rows], trace.names),
        whole("start_ps", columns.start_ps[rows]),
        whole("duration_ps", columns.duration_ps[rows]),
        whole("bytes", size, size == UNKNOWN_BYTES),
        whole("correlation_id", correlation, correlation == 0),
        whole("launch", launch, launch == NONE),
        step_column(trace, trace.host_of_device[device], columns.start_ps[rows]),
        flag("p2p", columns.p2p[rows]),
    )


def host_events(trace: Trace, rows: Int64Array | None = None) -> Table:
    """Host events by their row numbers, by default all."""
    columns = trace.host_columns
    rows = np.arange(columns.count) if rows is None else rows
    correlation = columns.stat("correlation_id")
    host = columns.host[rows]
    return table(
        "host_events",
        whole("row", rows),
        category("host", host, [info.name for info in trace.hosts]),
        category("thread", columns.line[rows], line_names(trace)),
        named("name", columns.name[rows], trace.names),
        whole("start_ps", columns.start_ps[rows]),
        whole("duration_ps", columns.duration_ps[rows]),
        whole("correlation_id", correlation.at(rows, 0), ~correlation.has(rows)),
        step_column(trace, host.astype(np.int64), columns.start_ps[rows]),
    )


def copies(trace: Trace, rows: Int64Array) -> Table:
    """The copies among device events, given by their row numbers."""
    columns, copies = trace.device_columns, copies_of(trace)
    is_shown = np.zeros(columns.count, dtype=np.bool_)
    is_shown[rows] = True
    shown = np.flatnonzero(is_shown[copies.row])
    row = copies.row[shown]
    size = columns.bytes[row]
    kinds = (HostMemory.PAGEABLE, HostMemory.PINNED)
    memory = columns.host_memory[row].astype(np.int64)
    return table(
        "copy_events",
        whole("row", row),
        category("device", columns.device[row], device_keys(trace)),
        category("direction", columns.class_[row], CLASS_KEYS),
        category("stream", columns.line[row], line_names(trace)),
        whole("start_ps", columns.start_ps[row]),
        whole("duration_ps", columns.duration_ps[row]),
        whole("bytes", size, size == UNKNOWN_BYTES),
        category(
            "host_memory",
            np.where(is_in(memory, kinds), memory - kinds[0], NONE),
            [kind.name.lower() for kind in kinds],
        ),
        flag("p2p", columns.p2p[row]),
        named("op", copies.op[shown], trace.names),
        category("thread", copies.thread[shown], line_names(trace)),
        step_column(trace, trace.host_of_device[columns.device[row]], columns.start_ps[row]),
    )


def op_table(trace: Trace, rows: Int64Array) -> Table:
    """The device events at `rows`, which are in order, by device, class, op and kernel; those of a device by total time.

    Copies of one op on several devices share its name. Host ops of a replica have no kernel. Instructions of the programs of
    different functions are different ops, whatever their names.
    """
    # Device by device: what is made on the way is as large as the events.
    firsts = [trace.device_columns.rows_of(i).start for i in range(len(trace.device_list))]
    parts = [part for part in np.split(rows, places(rows, firsts)[1:]) if part.size]
    tables = [_ops_of_device(trace, part) for part in parts or [rows]]

    def joined(parts: tuple[Column, ...]) -> Column:
        missing = [part.missing for part in parts if part.missing is not None]
        return replace(
            parts[0],
            values=np.concatenate([part.values for part in parts]),
            missing=np.concatenate(missing) if missing else None,
        )

    return table("ops", *map(joined, zip(*tables, strict=True)))


def _ops_of_device(trace: Trace, rows: Int64Array) -> tuple[Column, ...]:
    """The columns of rows that are all of one device."""
    columns, labels = trace.device_columns, trace.once(op_labels)
    known, of_row = unique_inverse(labels.of_row[rows])
    first = labels.row[known]
    device = columns.device[rows[:1]].tolist()
    is_replica = bool(device) and trace.device_list[device[0]].kind == "replica"
    ops, op_of_label = trace.once(op_names)
    op = op_of_label[known]
    kernel = np.full(first.size, NONE, dtype=np.int32) if is_replica else columns.name[first]
    class_of_label = columns.class_[first]
    group_of_label, label = SWEEPS.labelled(op, kernel, class_of_label)
    if trace.instructions:
        function = trace.once(_function_of_instruction)[columns.instruction[first]]
        group_of_label, label = SWEEPS.labelled(group_of_label, function, class_of_label)
    op, kernel, label = op[label], kernel[label], known[label]
    group = group_of_label.astype(np.int64)[of_row]
    duration, size = columns.duration_ps[rows], op.size
    count, total = np.bincount(group, minlength=size), SWEEPS.totals(group, duration, size)
    # The shortest event of each group, of several the first.
    leader = SWEEPS.earliest(group, duration, 0, size)
    p95 = sorted_within(group, duration)[np.cumsum(count) - count + (19 * count + 19) // 20 - 1]
    bytes_ = columns.bytes[rows]
    is_known = np.flatnonzero(bytes_ != UNKNOWN_BYTES)
    known_bytes = SWEEPS.totals(group[is_known], bytes_[is_known], size)
    no_bytes = np.bincount(group[is_known], minlength=size) == 0
    class_ = columns.class_[rows[leader]]
    computing = rows[columns.class_[rows] == ActivityClass.COMPUTE]
    compute_ps = union(columns.start_ps[computing], columns.end_ps[computing]).length
    share = np.where(
        class_ == ActivityClass.COMPUTE, total / compute_ps if compute_ps else np.nan, np.nan
    )
    rank = np.lexsort((leader, -total))
    keys, lines = device_keys(trace), trace.once(label_lines)
    named_ops = [ops[place] for place in op[rank].tolist()]
    return (
        texts("device", [keys[device] for device in columns.device[rows[leader]].tolist()]),
        texts("class", [CLASS_KEYS[each] for each in class_[rank].tolist()]),
        texts("op", [name for name, _ in named_ops]),
        texts("op_type", [type_ for _, type_ in named_ops]),
        texts("kernel", list(map(trace.names.text, kernel[rank].tolist()))),
        texts("source_line", [lines[place] or None for place in label[rank].tolist()]),
        whole("count", count[rank]),
        whole("total_ps", total[rank]),
        whole("mean_ps", (total // np.maximum(count, 1))[rank]),
        whole("p95_ps", p95[rank]),
        Column("share_ratio", "float", share[rank]),
        whole("bytes", known_bytes[rank], no_bytes[rank]),
    )


def _function_of_instruction(recording: Recording) -> Int32Array:
    """By instruction the number of the function whose program it is of; of `NONE` in the last place."""
    place: dict[str, int] = {}
    numbers = [place.setdefault(each.function, len(place)) for each in recording.instructions]
    return np.array([*numbers, NONE], dtype=np.int32)


def device_keys(trace: Trace) -> list[str]:
    """The keys of all devices of the device list."""
    return [trace.device_key(index) for index in range(len(trace.device_list))]


def line_names(trace: Trace) -> list[str]:
    """The names of all lines."""
    return [line.name for line in trace.lines]


def step_column(trace: Trace, host: Int64Array, start_ps: Int64Array) -> Column:
    """The number of the step in which each event starts on its host."""
    number, in_step = step_numbers_at(trace.steps_by_host, host, start_ps)
    return whole("step", number, ~in_step)
