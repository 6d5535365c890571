"""How long was each step, and how busy were the devices in it?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analysis.steps.compute import StepRow, Steps
from traceview.render import numbers
from traceview.render.html.blocks import (
    Cell,
    Column,
    Section,
    Table,
    View,
    facts,
    names,
    notes,
    numeric,
    places,
    shares,
    table,
    times,
    words,
)
from traceview.render.html.places import Place, window_starts
from traceview.render.steps import SPREAD_FROM, bound_remarks, note, number, steps_summary

SHOWN_DEVICES: Final = 8
"""Devices with a column each; of more there is the least busy one and the mean."""


def steps_section(view: View) -> Section:
    """The statistics, and a row per step with the busy share of the devices."""
    steps = view.report.results.steps
    if steps is None:
        return Section("steps", "Steps", (), lead=view.report.skipped.get("steps", "No steps."))
    spread = (
        (
            f"spread (IQR) {numbers.time(steps.iqr_ps)}",
            f"standard deviation over mean {numbers.share(steps.cv_ratio)}",
        )
        if steps.used_count >= SPREAD_FROM
        else ("a spread needs three steps",)
    )
    return Section(
        "steps",
        "Steps",
        (
            *facts(f"median {numbers.time(steps.median_ps)}", *spread),
            *notes(bound_remarks(steps)),
            *_table(view, steps),
        ),
        lead=f"{steps_summary(steps)}.",
        terms=("step", "busy"),
    )


def _table(view: View, steps: Steps) -> list[Table]:
    # The same step of several hosts one below the other.
    every = sorted(steps.steps, key=lambda row: row.number)
    rows = every[: view.most_rows]
    several = len({row.host for row in every}) > 1
    return table(
        "Steps",
        [
            Column("step", tuple(Cell(number(row), row.number, look="name") for row in rows)),
            names("host", [row.host if several else None for row in rows]),
            places(view, _places(view, rows)),
            times("time", [row.duration_ps for row in rows]),
            *_busy(rows),
            words("remark", [note(row) for row in rows]),
        ],
        row_count=len(every),
        rest=view.command("steps"),
    )


def _busy(rows: Sequence[StepRow]) -> list[Column]:
    keys = list(dict.fromkeys(one.device for row in rows for one in row.devices))
    ratios = [
        {
            one.device: (row.duration_ps - one.idle_ps) / row.duration_ps
            for one in row.devices
            if row.duration_ps
        }
        for row in rows
    ]
    if len(keys) <= SHOWN_DEVICES:
        return [shares(f"busy, {key}", [of_row.get(key) for of_row in ratios]) for key in keys]
    least = [min(of_row.values(), default=None) for of_row in ratios]
    mean = [sum(of_row.values()) / len(of_row) if of_row else None for of_row in ratios]
    return [
        shares("busy, least busy device", least),
        shares("busy, mean", mean),
        numeric("devices", [len(of_row) for of_row in ratios], lambda count: f"{count:,.0f}"),
    ]


def _places(view: View, rows: Sequence[StepRow]) -> list[Place | None]:
    """Each step on the first device of its host."""
    starts = window_starts(view.report)
    found: list[Place | None] = []
    for row in rows:
        device = next((one.device for one in row.devices if one.device in starts), None)
        begin = None if device is None else row.start_ps - starts[device]
        found.append(
            None
            if device is None or begin is None
            else Place(device, begin, begin + row.duration_ps)
        )
    return found
