"""How long was each step, and how busy were the devices in it?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from traceview.analysis.steps.compute import StepRow, Steps
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.columns import GAP, Column, add_columns
from traceview.render.device_names import bare
from traceview.render.heading import found_steps
from traceview.render.joined_steps import add_joined_steps, are_joined
from traceview.report.model import Report

SHOWN: Final = 12
"""So many steps have a row each; of more the first and the last are shown."""

SPREAD_FROM: Final = 3
"""From so many used steps on their spread says something."""

_BASIS_WORDS: Final = {
    "device": "cut at the first device event of each, because the host runs ahead",
    "mixed": "cut differently on different hosts",
}
_WIDEST_NAME: Final = 14
UNSURE: Final = "Nothing marks these steps: their bounds come from what repeats, and may be off. Times over the whole window are not."


def add_steps(page: Page, report: Report) -> None:
    """The steps in a sentence, their statistics, and a small table."""
    steps = report.results.steps
    if steps is None:
        page.heading("Steps", f"{numbers.ABSENT} {report.skipped.get('steps', '')}")
        return
    page.heading("Steps", steps_summary(steps))
    spread = [
        f"spread (IQR) {numbers.time(steps.iqr_ps)}",
        f"std/mean {numbers.share(steps.cv_ratio)}",
    ]
    page.facts(
        [
            Text.assemble("median ", (page.text(numbers.time(steps.median_ps)), "bold")),
            *(spread if steps.used_count >= SPREAD_FROM else ["a spread needs three steps"]),
        ]
    )
    for remark in bound_remarks(steps):
        page.prose(page.styled(remark))
    _add_table(page, report, steps)


def steps_summary(steps: Steps) -> str:
    """How many steps were found, how, and how many are used."""
    parts = [found_steps(steps)]
    if steps.basis in _BASIS_WORDS and steps.method != "period":
        parts.append(_BASIS_WORDS[steps.basis])
    if steps.used_count < steps.count:
        parts.append(f"{steps.used_count} used for the statistics")
    return ", ".join(parts)


def bound_remarks(steps: Steps) -> Iterator[str]:
    """What has to be known of the bounds to read the numbers per step."""
    if steps.reliability == "low":
        yield UNSURE
    # A call of several steps is itself a loop in the graph.
    if steps.steps_per_call is not None and steps.steps_per_call > 1:
        yield (
            f"One step here is one call that makes up to {steps.steps_per_call} training steps "
            "(steps_per_execution); numbers per step are of the whole call."
        )
    elif steps.loop_iterations is not None:
        yield (
            f"A loop in the graph runs {steps.loop_iterations} times in each step. If it is the training "
            "loop, one step here is so many training steps, and numbers per step are of all of them."
        )


def _add_table(page: Page, report: Report, steps: Steps) -> None:
    # The same step of two hosts one below the other.
    rows = sorted(steps.steps, key=lambda row: row.number)
    if are_joined(rows):
        add_joined_steps(page, rows)
        return
    first, last = rows, list[StepRow]()
    if len(rows) > SHOWN:
        first, last = rows[: SHOWN // 2], rows[-SHOWN // 2 :]
    shown = [*first, *last]
    several_hosts = len({row.host for row in rows}) > 1
    working = list(dict.fromkeys(bare(key) for key in _working(report)))
    columns = [Column("step", [page.styled(number(row)) for row in shown], right=True)]
    if several_hosts:
        columns.append(Column("host", [Text(page.middle(row.host, _WIDEST_NAME)) for row in shown]))
    columns.append(
        Column("time", [page.styled(numbers.time(row.duration_ps)) for row in shown], right=True)
    )
    notes = [note(row) for row in shown]
    note_width = max((len(note) for note in notes), default=0)
    used = sum(column.width(page) + GAP for column in columns) + min(note_width, 24)
    busy = [_busy(page, shown, device) for device in working]
    fitted: list[Column] = []
    for column in busy:
        used += column.width(page) + GAP
        if used > page.width:
            break
        fitted.append(column)
    columns += fitted
    if note_width:
        room = page.width - sum(column.width(page) + GAP for column in columns)
        columns.append(
            Column("", [Text(page.middle(note, max(room, 12)), "dim") for note in notes])
        )
    _add_with_gap(page, columns, len(first), len(rows) - len(shown))
    _add_remarks(page, rows, len(working) - len(fitted), bool(note_width))


def _working(report: Report) -> list[str]:
    found = report.results.device_time
    rows = found.devices if found else ()
    return [row.device for row in rows if row.status in ("active", "marginal")]


def number(row: StepRow) -> str:
    """The number of a step, and the recorded one where that differs."""
    if row.recorded_number is not None and row.recorded_number != row.number:
        return f"{row.number} (recorded {row.recorded_number})"
    return str(row.number)


def note(row: StepRow) -> str:
    """What is special about a step; mostly nothing."""
    notes = [] if row.kind == "train" else [row.kind]
    if row.excluded:
        notes.append(f"left out: {row.excluded}")
    return "; ".join(notes)


def _busy(page: Page, rows: Sequence[StepRow], device: str) -> Column:
    cells = []
    for row in rows:
        mine = [one for one in row.devices if bare(one.device) == device]
        busy = row.duration_ps - mine[0].idle_ps if mine else None
        cells.append(page.styled(numbers.part(busy, row.duration_ps)))
    return Column(page.middle(device, _WIDEST_NAME), cells, right=True)


def _add_with_gap(page: Page, columns: list[Column], before: int, left_out: int) -> None:
    """The table, with a row of its own for the steps in the middle that are left out."""
    if left_out:
        for place, column in enumerate(columns):
            column.cells.insert(before, page.styled("…" if place == 0 else "", "dim"))
    add_columns(page, columns, indent=0)
    if left_out:
        page.prose(page.styled(f"{left_out} steps in the middle are not shown.", "dim"))


def _add_remarks(page: Page, rows: Sequence[StepRow], hidden: int, noted: bool) -> None:
    if hidden:
        page.prose(
            page.styled(
                f"Busy share of {hidden} more devices: a wider terminal or --format json.", "dim"
            )
        )
    reasons = Counter(row.excluded for row in rows if row.excluded)
    if reasons and not noted:
        told = "; ".join(f"{count} left out: {reason}" for reason, count in reasons.items())
        page.prose(page.styled(told, "dim"))
