"""How far can the capture be trusted, what did the driver see, and from which files is it?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analysis.capture.compute import HostCapture
from traceview.render import numbers
from traceview.render.hosts import offset
from traceview.render.markdown.blocks import Column, Section, bullets, table
from traceview.render.markdown.inline import code, plain, prose
from traceview.report.model import Report

SHOWN_PROBLEMS: Final = 20
SHOWN_FILES: Final = 16
SHOWN_DEVICES: Final = 64
SHOWN_SKIPPED: Final = 20


def capture_section(report: Report) -> Section | None:
    """Problems, analyses that could not be made, and the files with their checksums."""
    capture = report.capture
    several = len(capture.hosts) > 1
    problems = [
        f"{code(one.code)}: {prose(one.text)}"
        + (f" (host {code(one.host)})" if several and one.host else "")
        for one in capture.problems[:SHOWN_PROBLEMS]
    ]
    left = len(capture.problems) - SHOWN_PROBLEMS
    if left > 0:
        problems.append(f"{numbers.plural(left, 'more problem')}: in the JSON")
    skipped = [
        f"{code(name)} was not made: {prose(reason)}"
        for name, reason in list(report.skipped.items())[:SHOWN_SKIPPED]
    ]
    quality = f"Quality: **{plain(capture.quality)}**."
    return Section(
        "Capture quality",
        (quality, bullets([*problems, *skipped]), _hosts(report), _files(report)),
    )


def _hosts(report: Report) -> str:
    hosts = report.capture.hosts[:SHOWN_FILES]
    return table(
        [
            Column("host", [code(one.host) for one in hosts]),
            Column("recorded", [numbers.time(one.duration_ps) for one in hosts], right=True),
            Column("events", [numbers.count(one.event_count) for one in hosts], right=True),
            Column(
                "on devices", [numbers.count(one.device_event_count) for one in hosts], right=True
            ),
            Column(
                "dropped", [numbers.count(one.dropped_event_count) for one in hosts], right=True
            ),
            Column(
                "without launch",
                [plain(numbers.share(one.unlinked_ratio)) for one in hosts],
                right=True,
            ),
            *(_beside_others(hosts) if len(hosts) > 1 else ()),
        ]
    )


def _beside_others(hosts: Sequence[HostCapture]) -> list[Column]:
    """What each host is for, how far its clock was moved, and how many steps it lacks."""
    columns = [
        Column("role", [plain(one.role or numbers.ABSENT) for one in hosts]),
        Column(
            "clock moved by",
            [numbers.ABSENT if one.clock is None else offset(one.clock) for one in hosts],
            right=True,
        ),
        Column(
            "steps missing",
            [numbers.count(len(one.missing_steps)) for one in hosts],
            right=True,
        ),
    ]
    return [column for column in columns if column.heading != "role" or any(h.role for h in hosts)]


def _files(report: Report) -> str:
    files = report.source.files[:SHOWN_FILES]
    return table(
        [
            Column("file", [code(one.name) for one in files]),
            Column("size", [numbers.size(one.bytes) for one in files], right=True),
            Column("sha256", [code(one.sha256 or "", 80) for one in files]),
            Column(
                "",
                [f"same as {code(one.duplicate_of)}" if one.duplicate_of else "" for one in files],
            ),
        ]
    )


def outside_view_section(report: Report) -> Section | None:
    """What NVML said of each GPU beside the trace; nothing where nobody asked it."""
    view = report.results.outside_view
    if view is None or not view.devices:
        return None
    rows = view.devices[:SHOWN_DEVICES]
    overview = table(
        [
            Column("device", [code(row.device) for row in rows]),
            Column(
                "busy by NVML",
                [plain(numbers.share(row.nvml_busy_ratio)) for row in rows],
                right=True,
            ),
            Column(
                "by the trace",
                [plain(numbers.share(row.trace_busy_ratio)) for row in rows],
                right=True,
            ),
            Column(
                "held back", [plain(numbers.share(row.throttled_ratio)) for row in rows], right=True
            ),
            Column("memory", [numbers.size(row.memory_used_bytes) for row in rows], right=True),
            Column(
                "other processes",
                [
                    numbers.ABSENT
                    if row.other_processes is None
                    else numbers.count(len(row.other_processes))
                    for row in rows
                ],
                right=True,
            ),
        ]
    )
    reasons = dict.fromkeys(
        reason for row in rows for reason in (row.not_compared, row.others_unknown) if reason
    )
    return Section(
        "Seen from outside", (overview, bullets(map(prose, list(reasons)[:SHOWN_SKIPPED])))
    )
