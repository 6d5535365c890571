"""How long was each step? One bar per step, and below it what each device did."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from rich.text import Text

from traceview.analysis.steps.table import StepLine
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.columns import (
    ROWS_IN,
    Column,
    add_columns,
    add_left_out,
    fitting,
    room_beside,
)
from traceview.render.idle import LOOKS

SHOWN: Final = 40
"""So many steps of a host have a row each; of more the first and the last are shown."""

BAR_WIDTH: Final = 30
LONGEST_BAR: Final = 4
"""A bar ends at so many medians, so that one very long step leaves the others something to see."""


def ends_of(rows: Sequence[StepLine]) -> list[StepLine]:
    """The rows of the first and the last steps of each host, `SHOWN` in all of each."""
    kept: list[StepLine] = []
    for host in _hosts(rows):
        of_host = [row for row in rows if row.host == host]
        steps = list(dict.fromkeys(row.number for row in of_host))
        if len(steps) > SHOWN:
            shown = {*steps[: SHOWN // 2], *steps[-SHOWN // 2 :]}
            of_host = [row for row in of_host if row.number in shown]
        kept += of_host
    return kept


def add_step_lines(page: Page, rows: Sequence[StepLine], others: Collection[str] = ()) -> None:
    """Step times over steps, then the parts of each step by device.

    Of `others`, devices that do not stand out, and of hosts that have no other device only the span is told.
    """
    shown = ends_of(rows)
    told = {row.host for row in rows if row.device not in others}
    for host in _hosts(rows):
        if host not in told:
            continue
        of_host = [row for row in shown if row.host == host]
        left_out = len(
            {row.number for row in rows if row.host == host} - {r.number for r in of_host}
        )
        page.heading(f"Step times of {host}")
        _add_times(page, of_host, bool(left_out))
        if left_out:
            page.prose(
                page.styled(
                    f"{numbers.plural(left_out, 'step')} in the middle are not shown: --steps A:B "
                    "shows some, -o steps.csv has all.",
                    "dim",
                )
            )
        for device in dict.fromkeys(row.device for row in of_host if row.device not in others):
            page.heading(device)
            _add_parts(page, [row for row in of_host if row.device == device], bool(left_out))
    if others:
        page.gap()
        page.prose(page.styled(_span(rows, others, told), "dim"))


def _span(rows: Sequence[StepLine], others: Collection[str], told: Collection[str]) -> str:
    """Between what the steps lie of devices and hosts that have no table."""
    left = [row for row in rows if row.device in others]
    parts = {
        "compute": numbers.shares(row.compute_ps / max(row.duration_ps, 1) for row in left),
        "idle": numbers.shares(row.idle_ps / max(row.duration_ps, 1) for row in left),
    }
    count = numbers.plural(len({row.device for row in left}), "other device")
    of_parts = ", ".join(f"{name} {shares} of a step" for name, shares in parts.items())
    hosts = [host for host in _hosts(rows) if host not in told]
    durations = numbers.times(row.duration_ps for row in left if row.host in hosts)
    of_hosts = f"; steps of {numbers.plural(len(hosts), 'other host')}: {durations}"
    return (
        f"{count}: {of_parts}{of_hosts if hosts else ''}. --device KEY or -o FILE.csv shows them."
    )


def _hosts(rows: Sequence[StepLine]) -> list[str]:
    return list(dict.fromkeys(row.host for row in rows))


def _add_times(page: Page, rows: Sequence[StepLine], is_cut: bool) -> None:
    steps = list({row.number: row for row in rows}.values())
    durations = sorted(step.duration_ps for step in steps)
    full_ps = min(durations[-1], LONGEST_BAR * durations[len(durations) // 2]) or 1
    remarks = [_remark(step) for step in steps]
    columns = [
        Column("step", [page.styled(str(step.number)) for step in steps], right=True),
        Column("time", [page.styled(numbers.time(step.duration_ps)) for step in steps], right=True),
    ]
    width = min(BAR_WIDTH, room_beside(page, columns) - len(page.ellipsis))
    columns += [
        Column("", [_bar(page, step, full_ps, width) for step in steps]),
        Column("", [Text(page.middle(remark, 40), "dim") for remark in remarks], droppable=1),
    ]
    _add_columns(page, fitting(page, columns), is_cut)


def _remark(step: StepLine) -> str:
    kind = "" if step.kind == "train" else step.kind
    excluded = f"left out: {step.excluded}" if step.excluded else ""
    return "; ".join(part for part in (kind, excluded) if part)


def _bar(page: Page, step: StepLine, full_ps: int, longest: int) -> Text:
    full = "█" if page.unicode else "#"
    width = max(min(round(longest * step.duration_ps / full_ps), longest), 1)
    end = page.ellipsis if step.duration_ps > full_ps else ""
    return Text(full * width + end, "green" if step.used else "dim")


def _add_columns(page: Page, columns: list[Column], is_cut: bool) -> None:
    """The table, with a row of its own for the steps in the middle that are left out."""
    if is_cut:
        for place, column in enumerate(columns):
            mark = page.text("…") if place == 0 else ""
            column.cells.insert(SHOWN // 2, page.styled(mark, "dim"))
    add_columns(page, columns)


def _add_parts(page: Page, rows: Sequence[StepLine], is_cut: bool) -> None:
    def shares(heading: str, values: Sequence[int | None], droppable: int = 0) -> Column:
        cells = [
            page.styled(numbers.part(value, row.duration_ps))
            for value, row in zip(values, rows, strict=True)
        ]
        return Column(heading, cells, right=True, droppable=droppable)

    copies = [
        row.exposed_h2d_ps + row.exposed_d2h_ps + row.exposed_d2d_ps + row.exposed_memset_ps
        for row in rows
    ]
    columns = [
        Column("step", [page.styled(str(row.number)) for row in rows], right=True),
        shares("compute", [row.compute_ps for row in rows]),
        shares("comm", [row.exposed_collective_ps for row in rows], 1),
        shares("copies", copies, 1),
        shares("idle", [row.idle_ps for row in rows]),
    ]
    totals = {cause: sum(getattr(row, f"{cause}_ps") or 0 for row in rows) for cause in LOOKS}
    ranked = sorted((cause for cause in LOOKS if totals[cause]), key=lambda c: -totals[c])
    for place, cause in enumerate(ranked, start=2):
        columns.append(shares(cause, [getattr(row, f"{cause}_ps") for row in rows], place))
    kept = fitting(page, columns)
    _add_columns(page, kept, is_cut)
    add_left_out(page, columns, kept, rest=ROWS_IN)
