"""Which ops and kernels take the time of each device?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from shlex import quote
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from traceview.analysis.ops import OpRow
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.columns import GAP, Column, add_columns, add_left_out, room_beside
from traceview.render.device_names import joined
from traceview.report.model import Report, Source
from traceview.report.standing_out import standing_out

SIDE_BY_SIDE: Final = 110
"""From this width on op and kernel stand beside each other, else the kernel below the op."""

SHOWN_GROUPS: Final = 8
"""Groups of devices with the same ops that have a table each."""

_NARROWEST_NAME: Final = 30
_HEAD_OF_REST: Final = 0.8
_TOLD: Final = 4
"""So many characters from a difference on are enough to tell two names apart."""

_ESSENTIAL: Final = 2
"""Columns that stay beside the names however narrow the page is."""


def add_top_ops(page: Page, report: Report, top: int) -> None:
    """The first `top` rows of each device, and where the others are."""
    ops = report.results.ops
    if ops is None:
        page.heading("Top ops", f"{numbers.ABSENT} {report.skipped.get('ops', '')}")
        return
    if not top:
        return
    chosen = standing_out(report)
    groups = grouped([row for row in ops.rows if row.device in chosen], top)
    if not groups:
        page.heading("Top ops", f"{numbers.ABSENT} none in the window on the devices shown")
        return
    page.heading("Top ops", "by total time in the window; share is of the device's compute time")
    shown = 0
    for devices, rows in groups[:SHOWN_GROUPS]:
        shown += len(rows)
        others = f"  and the same ops on {joined(devices[1:])}, with their own times"
        page.prose(
            page.styled(devices[0], "bold") + page.styled(others if len(devices) > 1 else "", "dim")
        )
        add_op_rows(page, rows, indent=2)
    add_overlap_note(page, [row for _, rows in groups[:SHOWN_GROUPS] for row in rows])
    left_out = ops.row_count - shown
    if left_out:
        told = (
            f"{numbers.count(left_out)} of {numbers.plural(ops.row_count, 'row')} are not shown; "
        )
        page.prose(page.styled(f"{told}all of them: {command(report.source)}", "dim"))


def add_overlap_note(page: Page, rows: Sequence[OpRow]) -> None:
    """Why a share may be more than everything, if one of these is."""
    if any(row.share_ratio is not None and row.share_ratio > 1 for row in rows):
        page.prose(page.styled("a share may pass 100%: kernels of one op overlap", "dim"))


def command(source: Source, name: str = "ops") -> str:
    """What to type for the whole table of this run."""
    run = f" --run {quote(source.run.rpartition('/')[2])}" if source.other_runs else ""
    return f"traceview {name} {quote(source.logdir)}{run}"


def grouped(rows: Sequence[OpRow], top: int) -> list[tuple[list[str], list[OpRow]]]:
    """The first rows of each device; devices that have the same ops there are named together."""
    groups: dict[frozenset[tuple[str | None, ...]], tuple[list[str], list[OpRow]]] = {}
    for device in dict.fromkeys(row.device for row in rows):
        mine = [row for row in rows if row.device == device][:top]
        if mine:
            same = frozenset((row.class_, row.op, row.kernel) for row in mine)
            groups.setdefault(same, ([], mine))[0].append(device)
    return list(groups.values())


def add_op_tables(page: Page, rows: Sequence[OpRow]) -> None:
    """The rows of each device in their order, below its name."""
    for device in dict.fromkeys(row.device for row in rows):
        page.heading(device)
        add_op_rows(page, [row for row in rows if row.device == device])
    add_overlap_note(page, rows)


def add_op_rows(page: Page, rows: Sequence[OpRow], *, indent: int = 0) -> None:
    """A table of op rows; names are cut to the room there is, so that rows can be told apart."""
    columns = [
        Column("total", [page.styled(numbers.time(row.total_ps)) for row in rows], right=True),
        Column("share", [page.styled(numbers.share(row.share_ratio)) for row in rows], right=True),
        Column("count", [page.styled(numbers.count(row.count)) for row in rows], right=True),
        Column("class", [page.styled(row.class_, "dim") for row in rows]),
    ]
    names = Column("", [Text("x" * (indent + _NARROWEST_NAME))])
    wanted = [*columns, names]
    while room_beside(page, columns) - indent < _NARROWEST_NAME and len(columns) > _ESSENTIAL:
        columns.pop()
    kept = [*columns, names]
    room = max(room_beside(page, columns) - indent, 1)
    if page.width >= SIDE_BY_SIDE:
        half = (room - GAP) // 2
        ops = told_apart(page, {_op(row) for row in rows}, half)
        kernels = told_apart(page, {_kernel(row) for row in rows}, room - half - GAP, head=0.8)
        columns.append(Column("op", [Text(ops[_op(row)]) for row in rows]))
        columns.append(Column("kernel", [Text(kernels[_kernel(row)], "dim") for row in rows]))
    else:
        columns = _stacked(page, columns, rows, room)
    add_columns(page, columns, indent=indent)
    add_left_out(page, wanted, kept)


def _op(row: OpRow) -> str:
    return row.op or numbers.ABSENT


def _kernel(row: OpRow) -> str:
    """The kernel without what all of them begin with."""
    return (row.kernel or numbers.ABSENT).removeprefix("void ")


def told_apart(
    page: Page, names: Collection[str], width: int, *, head: float = 0.5
) -> dict[str, str]:
    """Each name in at most `width` columns; names that would look alike lose what they have in common."""
    shown = {name: page.middle(name, width, head=head) for name in names}
    for same in _alike(shown):
        shown |= _apart(page, same, width, "", 0)
    return shown


def _apart(page: Page, names: Collection[str], width: int, kept: str, begin: int) -> dict[str, str]:
    """Names that begin alike, from shortly before they differ on.

    `kept`: what stands in front, which tells them from others; `begin`: where what follows it begins.
    """
    differ = len(_common_start(names))
    start = max(min(names).rfind("/", 0, differ) + 1, differ - width // 5, begin)
    lead = kept + (page.ellipsis if start > begin else "")
    shown = {name: page.middle(lead + name[start:], width, head=_HEAD_OF_REST) for name in names}
    for same in _alike(shown):
        common = _common_start(same)
        end = min(differ + _TOLD, len(common))
        if end > differ and cell_len(lead) < width // 2:
            shown |= _apart(page, same, width, lead + common[start:end], end)
    return shown


def _alike(shown: dict[str, str]) -> list[list[str]]:
    """The names that are shown as the same text, together."""
    groups: dict[str, list[str]] = {}
    for name, text in shown.items():
        groups.setdefault(text, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _common_start(names: Collection[str]) -> str:
    first, last = min(names), max(names)
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return first[:length]


def _stacked(page: Page, columns: list[Column], rows: Sequence[OpRow], room: int) -> list[Column]:
    """Each row with its op, and its kernel on a second line where both are known."""
    names: list[Text] = []
    repeats: list[int] = []
    ops = told_apart(page, {_op(row) for row in rows}, room)
    kernels = told_apart(page, {_kernel(row) for row in rows}, room, head=0.8)
    for row in rows:
        known = [Text(ops[row.op])] if row.op else []
        if row.kernel and row.kernel != row.op:
            known.append(Text(kernels[_kernel(row)], "dim" if known else ""))
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
