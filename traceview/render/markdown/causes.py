"""Why did the devices wait?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analysis.between_steps import BetweenSteps
from traceview.analysis.idle.compute import Gap, IdleRow
from traceview.render import numbers
from traceview.render.device_names import joined
from traceview.render.idle import BETWEEN_WORDS, LOOKS
from traceview.render.markdown.blocks import Column, Section, bullets, table
from traceview.render.markdown.devices import shown_devices
from traceview.render.markdown.inline import code, plain
from traceview.report.model import Report

SHOWN: Final = 64
SHOWN_GAPS: Final = 10


def causes_section(report: Report) -> Section | None:
    """The share of the window that each cause has on each device."""
    idle = report.results.idle
    if idle is None:
        return None
    waited = [row for row in idle.devices if row.idle_ps]
    unused = [row.device for row in waited if "unused" in row.causes]
    used = [row for row in waited if "unused" not in row.causes]
    shown = shown_devices(report)
    rows = [row for row in used if row.device in shown]
    idle_ones = f"No kernel ran on {code(joined(unused))}." if unused else ""
    if not rows:
        told = idle_ones or "No device waited."
        return Section("Why the devices waited", (told,), folded=False)
    found = report.results.device_time
    windows = {row.device: row.window_ps for row in found.devices} if found else {}
    told = "Shares are of the window; the causes add up to the idle share."
    blocks = (_shares(rows, windows), told, _others(used, rows, windows), idle_ones)
    return Section("Why the devices waited", blocks, folded=False)


def _others(
    every: Sequence[IdleRow], shown: Sequence[IdleRow], windows: dict[str, int | None]
) -> str:
    others = [row for row in every if row not in shown]
    if not others:
        return ""
    ratios = [row.idle_ps / (windows.get(row.device) or row.idle_ps) for row in others]
    return f"{numbers.plural(len(others), 'other device')}: idle {plain(numbers.shares(ratios))}."


def gaps_section(report: Report) -> Section | None:
    """The longest gaps, with the host events that show why."""
    idle = report.results.idle
    gaps = sorted(
        (
            (gap, row.device)
            for row in (idle.devices if idle else ())
            if "unused" not in row.causes
            for gap in row.gaps
        ),
        key=lambda pair: -pair[0].duration_ps,
    )[:SHOWN_GAPS]
    if not gaps:
        return None
    told = "Longest first; `traceview gaps` lists all."
    return Section("Longest gaps", (_gaps(gaps), told))


def between_steps_section(report: Report) -> Section | None:
    """What ran between the steps of each host that marks them."""
    found = report.results.between_steps
    rows = [
        (host, kind, length)
        for host in (found.hosts if found else ())
        for kind, length in sorted(host.parts_ps.items(), key=lambda part: -part[1])
        if length
    ][:SHOWN]
    if not rows:
        return None
    several = len({host.host for host, _, _ in rows}) > 1
    hosts = {host.host: host for host, _, _ in rows}
    spans = [
        f"{code(name)}: {numbers.time(host.total_ps // host.count)} on average, "
        f"{numbers.plural(host.count, 'time')}"
        for name, host in hosts.items()
    ]
    return Section("Between steps", (bullets(spans), _parts(rows, several=several)))


def _parts(rows: Sequence[tuple[BetweenSteps, str, int]], *, several: bool) -> str:
    return table(
        [
            Column("host", [code(host.host) if several else "" for host, _, _ in rows]),
            Column("what ran", [plain(BETWEEN_WORDS.get(kind, kind)) for _, kind, _ in rows]),
            Column(
                "each time",
                [numbers.time(length // host.count) for host, _, length in rows],
                right=True,
            ),
            Column(
                "share",
                [plain(numbers.part(length, host.total_ps)) for host, _, length in rows],
                right=True,
            ),
            Column(
                "mostly",
                [" ".join(map(code, host.names.get(kind, ())[:2])) for host, kind, _ in rows],
            ),
        ]
    )


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
                    plain(LOOKS[cause].words if cause in LOOKS else cause),
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
            Column("host thread and event", [_host(gap) for gap in shown]),
            Column("after", [code(gap.before, 80) if gap.before else "" for gap in shown]),
            Column("before", [code(gap.after, 80) if gap.after else "" for gap in shown]),
        ]
    )


def _host(gap: Gap) -> str:
    if not gap.host_event:
        return ""
    return f"{code(gap.thread or '', 40)} {code(gap.host_event, 80)}"
