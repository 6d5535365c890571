"""How long was each step? One bar per step, and below it what each device did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from traceview.analyses.step_table import StepLine
from traceview.render import numbers
from traceview.render.columns import Column, add_columns, fitting
from traceview.render.idle import LOOKS
from traceview.render.page import Page

BAR_WIDTH: Final = 30
WIDEST_NAME: Final = 24


def add_step_lines(page: Page, rows: Sequence[StepLine]) -> None:
    """Step times over steps, then the parts of each step by device."""
    for host in dict.fromkeys(row.host for row in rows):
        of_host = [row for row in rows if row.host == host]
        page.heading(f"Step times of {host}")
        _add_times(page, of_host)
        for device in dict.fromkeys(row.device for row in of_host):
            page.heading(device)
            _add_parts(page, [row for row in of_host if row.device == device])


def _add_times(page: Page, rows: Sequence[StepLine]) -> None:
    steps = list({row.number: row for row in rows}.values())
    longest = max(step.duration_ps for step in steps) or 1
    full = "█" if page.unicode else "#"
    remarks = [step.excluded or (step.kind if step.kind != "train" else "") for step in steps]
    columns = [
        Column("step", [page.styled(str(step.number)) for step in steps], right=True),
        Column("time", [page.styled(numbers.time(step.duration_ps)) for step in steps], right=True),
        Column(
            "",
            [
                Text(full * max(round(BAR_WIDTH * step.duration_ps / longest), 1), _style(step))
                for step in steps
            ],
        ),
        Column("", [Text(page.middle(remark, 40), "dim") for remark in remarks], droppable=1),
    ]
    add_columns(page, fitting(page, columns))


def _style(step: StepLine) -> str:
    return "green" if step.used else "dim"


def _add_parts(page: Page, rows: Sequence[StepLine]) -> None:
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
    add_columns(page, kept)
    if len(kept) < len(columns):
        page.prose(page.styled("A wider terminal shows more columns.", "dim"))
