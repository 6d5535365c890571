"""How long was each step, and how busy were the devices in it?"""

from __future__ import annotations

from typing import Final

from traceview.analysis.steps.compute import StepRow, Steps
from traceview.render import numbers
from traceview.render.heading import found_steps
from traceview.render.markdown.blocks import Column, Section, bullets, table
from traceview.render.markdown.inline import code, plain, prose
from traceview.render.steps import UNSURE
from traceview.report.model import Report

SHOWN: Final = 24
"""Steps with a row each; of more the first and the last."""

SHOWN_DEVICES: Final = 8


def steps_section(report: Report) -> Section | None:
    """The statistics, and a row per step with the busy share of each device."""
    steps = report.results.steps
    if steps is None:
        return Section("Steps", (prose(report.skipped.get("steps", "no steps")),))
    facts = [
        plain(found_steps(steps)),
        f"{steps.used_count} of {steps.count} used for the statistics",
        f"median {numbers.time(steps.median_ps)}"
        + ("" if steps.iqr_ps is None else f", spread (IQR) {numbers.time(steps.iqr_ps)}"),
    ]
    if steps.cv_ratio is not None:
        facts.append(f"standard deviation over mean {plain(numbers.share(steps.cv_ratio))}")
    if steps.reliability == "low":
        facts.append(UNSURE)
    if steps.loop_iterations is not None:
        facts.append(f"a loop in the graph runs {steps.loop_iterations} times in each step")
    return Section("Steps", (bullets(facts), *_rows(steps)))


def _rows(steps: Steps) -> list[str]:
    rows = list(steps.steps)
    if len(rows) > SHOWN:
        rows = [*rows[: SHOWN // 2], *rows[-SHOWN // 2 :]]
    devices = list(dict.fromkeys(one.device for row in rows for one in row.devices))
    several = len({row.host for row in rows}) > 1
    shown = devices[:SHOWN_DEVICES] if not several else []
    blocks = [
        table(
            [
                Column("step", [str(row.number) for row in rows], right=True),
                Column("host", [code(row.host) if several else "" for row in rows]),
                Column("time", [numbers.time(row.duration_ps) for row in rows], right=True),
                *(
                    Column(
                        f"busy, {code(device)}", [_busy(row, device) for row in rows], right=True
                    )
                    for device in shown
                ),
                Column("", [_note(row) for row in rows]),
            ]
        )
    ]
    left = len(steps.steps) - len(rows)
    if left:
        blocks.append(f"{numbers.plural(left, 'step')} in the middle are not shown.")
    if len(devices) > len(shown):
        blocks.append(f"The busy share of {len(devices) - len(shown)} devices is in the JSON.")
    return blocks


def _busy(row: StepRow, device: str) -> str:
    found = next((one for one in row.devices if one.device == device), None)
    busy = None if found is None else row.duration_ps - found.idle_ps
    return plain(numbers.part(busy, row.duration_ps))


def _note(row: StepRow) -> str:
    notes = [] if row.kind == "train" else [plain(row.kind)]
    if row.recorded_number is not None and row.recorded_number != row.number:
        notes.append(f"recorded as {row.recorded_number}")
    if row.excluded:
        notes.append(f"left out: {prose(row.excluded)}")
    return "; ".join(notes)
