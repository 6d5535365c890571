"""Why did the devices wait?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analyses.idle import Gap, IdleRow
from traceview.render import numbers
from traceview.render.idle import LOOKS
from traceview.render.markdown.blocks import Column, Section, table
from traceview.render.markdown.inline import code, plain
from traceview.report.model import Report

SHOWN: Final = 64
SHOWN_GAPS: Final = 10


def causes_section(report: Report) -> Section | None:
    """The share of the window that each cause has on each device, and the longest gaps."""
    idle = report.results.idle
    if idle is None:
        return None
    rows = [row for row in idle.devices if row.idle_ps][:SHOWN]
    if not rows:
        return Section("Why the devices waited", ("No device waited.",), folded=False)
    found = report.results.device_time
    windows = {row.device: row.window_ps for row in found.devices} if found else {}
    blocks = [_shares(rows, windows), "Shares are of the window; they add up to the idle share."]
    gaps = sorted(
        ((gap, row.device) for row in rows if "unused" not in row.causes for gap in row.gaps),
        key=lambda pair: -pair[0].duration_ps,
    )[:SHOWN_GAPS]
    if gaps:
        blocks += ["The longest gaps:", _gaps(gaps)]
    return Section("Why the devices waited", tuple(blocks), folded=False)


def _shares(rows: Sequence[IdleRow], windows: dict[str, int | None]) -> str:
    totals: dict[str, int] = {}
    for row in rows:
        for cause, length in row.causes.items():
            totals[cause] = totals.get(cause, 0) + length
    ranked = sorted((cause for cause in totals if totals[cause]), key=lambda one: -totals[one])

    def share(part: int, row: IdleRow) -> str:
        return plain(numbers.part(part, windows.get(row.device)))

    return table(
        [
            Column("device", [code(row.device) for row in rows]),
            Column("idle", [share(row.idle_ps, row) for row in rows], right=True),
            Column("gaps", [numbers.count(row.gap_count) for row in rows], right=True),
            Column("longest", [numbers.time(row.longest_gap_ps) for row in rows], right=True),
            *(
                Column(
                    code(cause, 20),
                    [share(row.causes.get(cause, 0), row) for row in rows],
                    right=True,
                )
                for cause in ranked
            ),
        ]
    )


def _gaps(gaps: Sequence[tuple[Gap, str]]) -> str:
    shown = [gap for gap, _ in gaps]
    return table(
        [
            Column("device", [code(device) for _, device in gaps]),
            Column("start", [numbers.time(gap.start_ps) for gap in shown], right=True),
            Column("length", [numbers.time(gap.duration_ps) for gap in shown], right=True),
            Column(
                "step", ["" if gap.step is None else str(gap.step) for gap in shown], right=True
            ),
            Column(
                "mostly",
                [
                    plain(LOOKS[one.cause].words if one.cause in LOOKS else one.cause)
                    for one in shown
                ],
            ),
            Column("host", [_host(gap) for gap in shown]),
            Column("after", [code(gap.before, 80) if gap.before else "" for gap in shown]),
            Column("before", [code(gap.after, 80) if gap.after else "" for gap in shown]),
        ]
    )


def _host(gap: Gap) -> str:
    if not gap.host_event:
        return ""
    return f"{code(gap.thread or '', 40)} {code(gap.host_event, 80)}"
