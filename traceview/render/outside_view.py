"""What did the GPUs' driver see while the profile ran, and does the trace agree?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from traceview.analysis.nvml.compute import OutsideViewRow
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.columns import Column, add_fitting
from traceview.render.device_names import joined
from traceview.report.model import Report

SHOWN: Final = 16
"""GPUs with a row each."""

_WIDEST_NAME: Final = 24


def add_outside_view(page: Page, report: Report) -> None:
    """A row per GPU, and what could not be compared; nothing where nobody looked."""
    view = report.results.outside_view
    if view is None:
        return
    rows = view.devices
    fewest, most = min(r.sample_count for r in rows), max(r.sample_count for r in rows)
    counted = numbers.plural(most, "sample") if fewest == most else f"{fewest} to {most} samples"
    page.heading("Seen from outside", f"by NVML, in the whole recording, {counted} per GPU")
    add_fitting(page, _columns(page, rows[:SHOWN]))
    if len(rows) > SHOWN:
        page.prose(page.styled(f"{len(rows) - SHOWN} more GPUs: --format json", "dim"))
    _add_reasons(page, "Busy not compared", [(r.device, r.not_compared) for r in rows])
    _add_reasons(page, "Other processes not known", [(r.device, r.others_unknown) for r in rows])
    for host, reason in list(view.absent.items())[:SHOWN]:
        page.prose(page.styled(f"Not seen from outside: {host}: {reason}.", "dim"))


def _columns(page: Page, rows: Sequence[OutsideViewRow]) -> list[Column]:
    def numeric(heading: str, texts: list[str], droppable: int = 0) -> Column:
        return Column(
            heading, [page.styled(text) for text in texts], right=True, droppable=droppable
        )

    return [
        Column("device", [Text(page.middle(row.device, _WIDEST_NAME), "bold") for row in rows]),
        numeric("busy: NVML", [numbers.share(row.nvml_busy_ratio) for row in rows]),
        numeric("trace", [numbers.share(row.trace_busy_ratio) for row in rows]),
        numeric("held back", [numbers.share(row.throttled_ratio) for row in rows]),
        numeric("SM clock", [sm_clock(row) for row in rows], 1),
        numeric("power", [power(row) for row in rows], 3),
        numeric("memory", [memory_share(row) for row in rows], 4),
        numeric("others", [others(row) for row in rows], 2),
    ]


def sm_clock(row: OutsideViewRow) -> str:
    """The median clock, and the highest there is."""
    if row.sm_clock_hz is None:
        return numbers.ABSENT
    most = f" of {row.sm_clock_max_hz / 1e6:.0f}" if row.sm_clock_max_hz is not None else ""
    return f"{row.sm_clock_hz / 1e6:.0f}{most} MHz"


def power(row: OutsideViewRow) -> str:
    """The mean power, and its limit."""
    if row.power_watts is None:
        return numbers.ABSENT
    most = f" of {row.power_limit_watts:.0f}" if row.power_limit_watts is not None else ""
    return f"{row.power_watts:.0f}{most} W"


def memory_share(row: OutsideViewRow) -> str:
    """The memory in use as a share of all, else in bytes."""
    if row.memory_used_bytes is None or row.memory_total_bytes is None:
        return numbers.size(row.memory_used_bytes)
    return numbers.part(row.memory_used_bytes, row.memory_total_bytes)


def others(row: OutsideViewRow) -> str:
    """How many processes of others there were."""
    if row.other_processes is None:
        return numbers.ABSENT
    return numbers.plural(len(row.other_processes), "process", "processes")


def _add_reasons(page: Page, label: str, told: Sequence[tuple[str, str | None]]) -> None:
    """The same reason once, for all GPUs that have it."""
    reasons: dict[str, list[str]] = {}
    for device, reason in told:
        if reason is not None:
            reasons.setdefault(reason, []).append(device)
    for reason, devices in list(reasons.items())[:SHOWN]:
        page.prose(page.styled(f"{label}: {joined(devices)}: {reason}.", "dim"))
