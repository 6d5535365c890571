"""How long did the same step take on several hosts? One row per number, not one per host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from traceview.analysis.steps.compute import StepRow
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.columns import Column, add_columns

SHOWN: Final = 12
"""So many steps have a row each; of more the first and the last are shown."""

JOINED_FROM: Final = 3
"""Of two hosts each step has a row for either, one below the other."""

_WIDEST_NAME: Final = 24


def are_joined(rows: Sequence[StepRow]) -> bool:
    """Whether the steps are of many hosts that recorded their numbers, so that equal ones are one step."""
    return len({row.host for row in rows}) >= JOINED_FROM and all(
        row.recorded_number == row.number for row in rows
    )


def add_joined_steps(page: Page, rows: Sequence[StepRow]) -> None:
    """For each step on how many hosts it was recorded, its shortest and longest time there, and which that is."""
    by_number: dict[int, list[StepRow]] = {}
    for row in rows:
        by_number.setdefault(row.number, []).append(row)
    host_count = len({row.host for row in rows})
    steps = [by_number[number] for number in sorted(by_number)]
    left_out = len(steps) - SHOWN
    shown = steps if left_out <= 0 else [*steps[: SHOWN // 2], *steps[-SHOWN // 2 :]]
    ordered = [sorted(step, key=lambda row: row.duration_ps) for step in shown]
    columns = [
        Column("step", [page.styled(str(step[0].number)) for step in shown], right=True),
        Column("hosts", [page.styled(_hosts(step, host_count)) for step in shown], right=True),
        Column(
            "shortest", [page.styled(numbers.time(s[0].duration_ps)) for s in ordered], right=True
        ),
        Column(
            "longest", [page.styled(numbers.time(s[-1].duration_ps)) for s in ordered], right=True
        ),
        Column("on", [Text(_slowest(page, step)) for step in ordered]),
    ]
    notes = [_note(step) for step in shown]
    if any(notes):
        columns.append(Column("", [page.styled(note, "dim") for note in notes]))
    if left_out > 0:
        for place, column in enumerate(columns):
            column.cells.insert(SHOWN // 2, page.styled(page.ellipsis if place == 0 else "", "dim"))
    add_columns(page, columns)
    if left_out > 0:
        page.prose(page.styled(f"{left_out} steps in the middle are not shown.", "dim"))


def _hosts(step: Sequence[StepRow], host_count: int) -> str:
    return f"{len(step)} of {host_count}" if len(step) < host_count else str(host_count)


def _slowest(page: Page, ordered: Sequence[StepRow]) -> str:
    """The host on which the step took longest; of a tie none."""
    if len(ordered) > 1 and ordered[-1].duration_ps == ordered[-2].duration_ps:
        return numbers.ABSENT
    return page.middle(ordered[-1].host, _WIDEST_NAME)


def _note(step: Sequence[StepRow]) -> str:
    unused = sum(not row.used for row in step)
    return f"left out on {unused}" if unused else ""
