"""Every device as one row, as wide as the page allows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from rich.text import Text

from traceview.analysis.device_time.table import DeviceLine
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.balance import signed_share
from traceview.render.columns import ROWS_IN, Column, add_fitting
from traceview.render.devices import STATUS_WORDS

_WIDEST_NAME: Final = 24
_WIDEST_MODEL: Final = 28


def add_device_lines(page: Page, rows: Sequence[DeviceLine], others: Collection[str] = ()) -> None:
    """One row per device; columns that do not fit are left out, those that matter least first.

    Of `others`, devices that do not stand out, only the span of their parts is told.
    """
    page.gap()
    shown = [row for row in rows if row.device not in others]
    if shown:
        add_fitting(page, _columns(page, shown), rest=ROWS_IN)
    left = [row for row in rows if row.device in others]
    if left:
        parts = {
            "busy": [row.busy_ratio for row in left],
            "compute": [row.compute_ratio for row in left],
            "comm": [_part(row.exposed_collective_ps, row.window_ps) for row in left],
            "copies": [_part(_copies_ps(row), row.window_ps) for row in left],
        }
        told = ", ".join(f"{name} {numbers.shares(ratios)}" for name, ratios in parts.items())
        counted = numbers.plural(len(left), "other")
        page.prose(page.styled(f"{counted}: {told}. -o FILE.csv has all.", "dim"))


def _part(of: int | None, whole: int | None) -> float | None:
    return None if of is None or not whole else of / whole


def _columns(page: Page, rows: Sequence[DeviceLine]) -> list[Column]:
    def numeric(heading: str, texts: list[str], droppable: int = 0) -> Column:
        return Column(heading, [page.styled(text) for text in texts], True, droppable)

    statuses = [STATUS_WORDS.get(row.status, (row.status, "")) for row in rows]
    columns = [
        Column("device", [Text(page.middle(row.device, _WIDEST_NAME), "bold") for row in rows]),
        Column("status", [page.styled(*status) for status in statuses], droppable=2),
        numeric("busy", [numbers.share(row.busy_ratio) for row in rows]),
        numeric("compute", [numbers.share(row.compute_ratio) for row in rows]),
        numeric(
            "comm", [numbers.part(row.exposed_collective_ps, row.window_ps) for row in rows], 4
        ),
        numeric("copies", [numbers.part(_copies_ps(row), row.window_ps) for row in rows], 5),
        numeric("idle", [numbers.part(row.idle_ps, row.window_ps) for row in rows], 1),
        numeric("compute per step", [numbers.time(row.compute_ps_per_step) for row in rows], 6),
        numeric("vs others", [signed_share(row.longer_ratio) for row in rows], 3),
        numeric("kernels", [numbers.count(row.kernel_count) for row in rows], 8),
        numeric("starts later by", [numbers.time(row.start_lag_ps) for row in rows], 9),
    ]
    if any(row.memory_peak_bytes is not None for row in rows):
        peaks = [numbers.size(row.memory_peak_bytes) for row in rows]
        columns.append(numeric("peak mem", peaks, 7))
    if any(row.backward is not None for row in rows):
        told = [_yes_or_no(row.backward) for row in rows]
        columns.append(Column("gradients", [page.styled(text) for text in told], droppable=10))
    if any(row.model for row in rows):
        models = [page.middle(row.model or numbers.ABSENT, _WIDEST_MODEL) for row in rows]
        columns.append(Column("model", [Text(model) for model in models], droppable=11))
    return columns


def _yes_or_no(value: bool | None) -> str:
    return numbers.ABSENT if value is None else "yes" if value else "no"


def _copies_ps(row: DeviceLine) -> int | None:
    parts = (row.exposed_h2d_ps, row.exposed_d2h_ps, row.exposed_d2d_ps, row.exposed_memset_ps)
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
