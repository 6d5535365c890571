"""Which ops and kernels take the time of each device?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from traceview.analyses.ops import OpRow
from traceview.render import numbers
from traceview.render.columns import GAP, Column, add_columns, room_beside
from traceview.render.device_names import joined
from traceview.render.page import Page
from traceview.report.model import Report

SIDE_BY_SIDE: Final = 110
"""From this width on op and kernel stand beside each other, else the kernel below the op."""

_NARROWEST_NAME: Final = 30
_ESSENTIAL: Final = 2
"""Columns that stay beside the names however narrow the page is."""


def add_top_ops(page: Page, report: Report, top: int) -> None:
    """The first `top` rows of each device, and where the others are."""
    ops = report.results.ops
    if ops is None:
        page.heading("Top ops", f"{numbers.ABSENT} {report.skipped.get('ops', '')}")
        return
    page.heading("Top ops", "by total time in the window; share is of the device's compute time")
    shown = 0
    for devices, rows in _grouped(ops.rows, top):
        shown += len(rows)
        others = f"  and the same ops on {joined(devices[1:])}, with their own times"
        page.prose(
            page.styled(devices[0], "bold") + page.styled(others if len(devices) > 1 else "", "dim")
        )
        add_op_rows(page, rows, indent=2)
    left_out = ops.row_count - shown
    if left_out:
        told = (
            f"{numbers.count(left_out)} of {numbers.plural(ops.row_count, 'row')} are not shown; "
        )
        page.prose(page.styled(f"{told}all of them: traceview ops LOGDIR", "dim"))


def _grouped(rows: Sequence[OpRow], top: int) -> list[tuple[list[str], list[OpRow]]]:
    """The first rows of each device; devices that have the same ops there are named together."""
    groups: dict[frozenset[tuple[str | None, ...]], tuple[list[str], list[OpRow]]] = {}
    for device in dict.fromkeys(row.device for row in rows):
        mine = [row for row in rows if row.device == device][:top]
        if mine:
            same = frozenset((row.class_, row.op, row.kernel) for row in mine)
            groups.setdefault(same, ([], mine))[0].append(device)
    return list(groups.values())


def add_op_rows(page: Page, rows: Sequence[OpRow], *, indent: int = 0) -> None:
    """A table of op rows; names are cut in the middle to the room there is."""
    columns = [
        Column("total", [page.styled(numbers.time(row.total_ps)) for row in rows], right=True),
        Column("share", [page.styled(numbers.share(row.share_ratio)) for row in rows], right=True),
        Column("count", [page.styled(numbers.count(row.count)) for row in rows], right=True),
        Column("class", [page.styled(row.class_, "dim") for row in rows]),
    ]
    while room_beside(page, columns) - indent < _NARROWEST_NAME and len(columns) > _ESSENTIAL:
        columns.pop()
    room = max(room_beside(page, columns) - indent, 1)
    if page.width >= SIDE_BY_SIDE:
        half = (room - GAP) // 2
        columns.append(Column("op", [Text(page.middle(_op(row), half)) for row in rows]))
        kernels = [
            Text(page.middle(_kernel(row), room - half - GAP, head=0.8), "dim") for row in rows
        ]
        columns.append(Column("kernel", kernels))
    else:
        columns = _stacked(page, columns, rows, room)
    add_columns(page, columns, indent=indent)


def _op(row: OpRow) -> str:
    return row.op or numbers.ABSENT


def _kernel(row: OpRow) -> str:
    """The kernel without what all of them begin with."""
    return (row.kernel or numbers.ABSENT).removeprefix("void ")


def _stacked(page: Page, columns: list[Column], rows: Sequence[OpRow], room: int) -> list[Column]:
    """Each row with its op, and its kernel on a second line where both are known."""
    names: list[Text] = []
    repeats: list[int] = []
    for row in rows:
        known = [Text(page.middle(row.op, room))] if row.op else []
        if row.kernel and row.kernel != row.op:
            name = page.middle(_kernel(row), room, head=0.8)
            known.append(Text(name, "dim" if known else ""))
        names += known or [page.styled(numbers.ABSENT)]
        repeats.append(max(len(known), 1))
    spread = [
        Column(
            column.heading,
            [
                part
                for cell, n in zip(column.cells, repeats, strict=True)
                for part in [cell, *[Text()] * (n - 1)]
            ],
            column.right,
        )
        for column in columns
    ]
    with_kernels = any(row.kernel for row in rows)
    return [*spread, Column("op, kernel below" if with_kernels else "op", names)]
