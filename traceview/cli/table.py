"""Chooses and sorts the rows of a table of `traceview show`, and writes them in every format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import Struct

from traceview.base.errors import UsageError
from traceview.base.intervals import Int64Array
from traceview.base.sweeping import SWEEPS
from traceview.cli.options import word_of
from traceview.cli.output import Target, format_of
from traceview.document.vocabulary import STATES
from traceview.report.tables import TableKind, check_pyarrow
from traceview.trace.device.table import table, whole

if TYPE_CHECKING:
    from traceview.document.model import Column as ShownColumn
    from traceview.document.model import Section
    from traceview.trace.device.table import Column, Table

FORMATS: Final = ("terminal", "csv", "json", "parquet")
"""Formats of a table."""


class Choice(Struct, frozen=True):
    """Which rows are asked for, and in which order.

    `states`: keys, all without any. `least_ps`: only rows of at least this length. `by`: columns; rows that agree in them
    become one. `sort`: a column, largest first, or "" for the order of the table. `top`: so many rows, None for those that
    suit the format. `is_terminal`: somebody reads the rows, so there are few of them by default. `devices`: keys of those to
    show; `names_devices`: the user named them.
    """

    states: tuple[str, ...] = ()
    least_ps: int = 0
    by: tuple[str, ...] = ()
    sort: str = ""
    top: int | None = None
    is_terminal: bool = False
    devices: frozenset[str] = frozenset()
    names_devices: bool = False

    def top_or(self, of_terminal: int | None) -> int | None:
        """The number of rows to show: on a terminal `of_terminal` if none is asked for."""
        return of_terminal if self.top is None and self.is_terminal else self.top


class Answer(Struct, frozen=True):
    """The rows of a table.

    `sections`: what a terminal shows of rows that are chosen, without those that are None; None for the rows themselves.
    `left_out_count`: rows that were not asked for. `order`: how the rows are sorted. `remark`: why rows are missing, for
    standard error. `about`: what JSON says beside the rows; `head`: what a terminal says above them. `code`: the exit code.
    """

    rows: Table
    sections: Callable[[Table], Iterable[Section | None]] | None = None
    left_out_count: int = 0
    order: str = ""
    remark: str = ""
    about: Mapping[str, Any] = {}
    head: tuple[str, ...] = ()
    code: int = 0


# Rows


def arranged(rows: Table, kind: TableKind, choice: Choice, top: int | None) -> Table:
    """The rows of a table of this kind that are asked for, in the order that is asked for; `top`: so many."""
    groups = rows[kind.within] if kind.within else [None] * rows.count
    columns = (rows[name] for name in kind.things)
    things = list(zip(*columns, strict=True)) if kind.things else range(rows.count)
    lengths = rows[kind.length] if kind.length and choice.least_ps else None
    keys = _sort_keys(rows, choice.sort or kind.sort)
    # By group, then by thing in the order of its largest row.
    places: dict[Any, dict[Any, list[int]]] = {group: {} for group in groups}
    for at in sorted(range(rows.count), key=keys.__getitem__):
        if lengths is None or (lengths[at] or 0) >= choice.least_ps:
            places[groups[at]].setdefault(things[at], []).append(at)
    shown = (sorted(at) for group in places.values() for at in islice(group.values(), top))
    return rows.at(list(chain.from_iterable(shown)))


def grouped(
    rows: Table, sums: Sequence[str], by: Sequence[str], *, with_zeros: bool = True
) -> Table:
    """A row for each combination of cells in the columns `by`, with the number of its `rows` and the sums of other columns.

    A sum of cells that are all missing is missing. `with_zeros`: with sums that are zero in all groups, but for the first.
    """
    columns = [_column_called("--by", rows, name) for name in by]
    places: dict[tuple[Any, ...], int] = {}
    first: list[int] = []
    number = np.empty(rows.count, dtype=np.int64)
    for at, cells in enumerate(zip(*(column.cells() for column in columns), strict=True)):
        if cells not in places:
            places[cells] = len(first)
            first.append(at)
        number[at] = places[cells]
    return table(
        rows.name,
        *(column.at(np.array(first, dtype=np.int64)) for column in columns),
        whole("rows", np.bincount(number, minlength=len(first))),
        *(
            _sum(column, number, len(first))
            for column in rows.columns
            if column.name in sums
            and column not in columns
            and (with_zeros or column.name == sums[0] or column.values.any())
        ),
    )


def _sum(column: Column, number: Int64Array, count: int) -> Column:
    if column.missing is None:
        return whole(column.name, SWEEPS.totals(number, column.values, count))
    known = ~column.missing
    total = SWEEPS.totals(number[known], column.values[known], count)
    return whole(column.name, total, np.bincount(number[known], minlength=count) == 0)


def _sort_keys(rows: Table, sort: str) -> list[tuple[bool, Any]]:
    """Sort keys of the rows: numbers from the largest, texts by the alphabet, missing values last."""
    if not sort:
        return [(False, 0)] * rows.count
    column = _column_called("--sort", rows, sort)
    is_text = column.kind in ("text", "category")
    return [
        (cell is None, ("" if is_text else 0) if cell is None else cell if is_text else -cell)
        for cell in column.cells()
    ]


def _column_called(option: str, rows: Table, name: str) -> Column:
    """The column that an option names; raises `UsageError` for one that the table has not."""
    by_name = {column.name: column for column in rows.columns}
    return by_name[word_of(option, by_name)(name)]


def checked_format(asked: str | None, target: Target) -> str:
    """The format asked for, or that of the file's name; raises `UsageError` where it cannot be written."""
    format_ = format_of(asked, target.path, FORMATS)
    if format_ == "parquet":
        check_pyarrow("Parquet")
        if target.is_terminal:
            raise UsageError(
                "a terminal cannot show Parquet", hint="write it to a file: -o table.parquet"
            )
    return format_


# Writing


def content(target: Target, format_: str, answer: Answer) -> Iterable[str | bytes]:
    """The output, part by part."""
    rows = answer.rows
    if format_ == "parquet":
        from traceview.report.tables import parquet_of

        return (parquet_of(rows),)
    if format_ == "csv":
        from traceview.report.tables import csv_of

        return csv_of(rows, is_escaped=target.is_terminal)
    if format_ == "json":
        from traceview.base.version import VERSION
        from traceview.document.sanitize import dumped

        left_out = {"rows": list(rows.rows()), "left_out_count": answer.left_out_count}
        return (dumped({"traceview_version": VERSION, **answer.about, **left_out}),)
    from traceview.document.page import Page
    from traceview.document.terminal import add_section

    page = Page(target.width, target.has_color)
    page.facts(_head(answer))
    plain = [section_of(rows)] if rows.count else []
    for section in answer.sections(rows) if answer.sections else plain:
        if section is not None:
            add_section(page, section)
    return (page.render(),)


def _head(answer: Answer) -> Iterator[str]:
    from traceview.document import numbers

    yield from answer.head
    left_out = f", {numbers.count(answer.left_out_count)} left out" if answer.left_out_count else ""
    yield f"{numbers.plural(answer.rows.count, 'row')}{left_out}"
    if answer.order:
        yield answer.order


def section_of(rows: Table, by_count: int = 0) -> Section:
    """The table as it is. Where room is short its last columns go first.

    `by_count`: columns of keys, if it is one of groups. Then the number of their rows goes first; a key that is empty in all
    groups stays.
    """
    from traceview.document import model as doc

    keys, further = rows.columns[:by_count], rows.columns[by_count:]
    rest = range(len(further) - 1)
    places = (len(rest), *rest) if by_count else (0, *rest)
    columns = [*(_shown(column, 0, "–") for column in keys), *map(_shown, further, places)]
    title = rows.name.replace("_", " ").capitalize()
    return doc.Section(rows.name, title, doc.table(title, columns))


def _shown(column: Column, priority: int, absent: str | None = None) -> ShownColumn:
    """The column in a document; `absent`: what stands where nothing was recorded."""
    from traceview.document.columns import kind_of
    from traceview.document.model import column as shown

    cells, kind = column.cells(), kind_of(column.name)
    if column.kind == "bool":
        words = {None: absent or "", True: "yes", False: "no"}
        cells, kind = [words[cell] for cell in cells], "words"
    elif kind == "name" and column.kind in ("int", "float"):
        kind = "count" if column.kind == "int" else "number"
    state, of_time, _ = column.name.rpartition("_ps")
    if of_time and state in STATES:
        heading = STATES[state].words
    else:
        heading = column.name.replace("_", " ").replace(" ps", "").removesuffix(" count")
    return shown(kind, heading, [absent if c is None else c for c in cells], priority)
