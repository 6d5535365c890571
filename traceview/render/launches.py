"""How are the kernels of each GPU launched, and with which precision do they compute?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from traceview.analysis.launches.compute import DeviceLaunches
from traceview.analysis.precision import DevicePrecision
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.columns import Column, add_columns, add_left_out, fitting, room_beside
from traceview.render.device_names import joined
from traceview.report.model import Report
from traceview.report.standing_out import standing_out

SHOWN_ORDINARY: Final = 3
"""Products off the tensor cores that are named."""

SHOWN_PRECISIONS: Final = 2
"""Precisions of a device that its row names, where the page is wide enough."""

TOLD_RATIO: Final = 0.01
"""Share of the launch calls, or of the time in them, from which something odd about them is told."""

_WIDEST_NAME: Final = 24


def add_launches(page: Page, report: Report) -> None:
    """A row per GPU that ran kernels, and what is odd; nothing where none did."""
    launches, precision = report.results.launches, report.results.precision
    if launches is None or precision is None:
        return
    of_device = {row.device: row for row in precision.devices}
    pairs = [(row, of_device[row.device]) for row in launches.devices if row.device in of_device]
    if not pairs:
        return
    page.heading("Launches and precision", "delay: from a launch to its kernel, queue included")
    chosen = standing_out(report)
    shown = [(row, precise) for row, precise in pairs if row.device in chosen]
    _add_rows(page, shown)
    if len(shown) < len(pairs):
        left = numbers.plural(len(pairs) - len(shown), "more GPU")
        page.prose(page.styled(f"{left}: --format json", "dim"))
    remarks: dict[str, list[str]] = {}
    for row, _ in shown:
        remarks.setdefault(launch_remark(row), []).append(row.device)
    for told, devices in remarks.items():
        if told:
            page.prose(page.styled(f"{joined(devices)}: {told}", "dim"))
    _add_ordinary(page, [precise for _, precise in pairs])


def _add_rows(page: Page, pairs: Sequence[tuple[DeviceLaunches, DevicePrecision]]) -> None:
    rows, precise = [row for row, _ in pairs], [one for _, one in pairs]

    def numeric(heading: str, texts: list[str], droppable: int = 0) -> Column:
        return Column(
            heading, [page.styled(text) for text in texts], right=True, droppable=droppable
        )

    columns = [
        Column("device", [Text(page.middle(row.device, _WIDEST_NAME), "bold") for row in rows]),
        numeric("kernels/step", [numbers.count(row.kernels_per_step) for row in rows], 1),
        numeric("median", [numbers.time(row.kernel_median_ps) for row in rows], 3),
        numeric("delay", [numbers.time(row.delay_p50_ps) for row in rows], 2),
        numeric("95%", [numbers.time(row.delay_p95_ps) for row in rows], 5),
        Column(
            "threads",
            [page.styled(row.thread_mode or numbers.ABSENT) for row in rows],
            droppable=4,
        ),
        numeric("tensor cores", [tensor_cores(one) for one in precise], 1),
    ]
    most = Column("precision", [page.styled(_most(one)) for one in precise])
    kept = fitting(page, [*columns, most])[:-1]
    told = Column("precision", [page.styled(_precisions(page, one)) for one in precise])
    add_columns(page, [*kept, told if told.width(page) <= room_beside(page, kept) else most])
    add_left_out(page, [*columns, most], [*kept, most])


def tensor_cores(row: DevicePrecision) -> str:
    """The share of compute on tensor cores; `none` where the GPU has none."""
    return "none" if row.has_tensor_cores is False else numbers.share(row.tensor_core_ratio)


def _most(row: DevicePrecision) -> str:
    """`97.1% fp32`: where most of the compute is."""
    return precision_parts(row)[0]


def _precisions(page: Page, row: DevicePrecision) -> str:
    """`97.1% fp32, 2.1% fp16 …`: the most first."""
    parts = precision_parts(row)
    return ", ".join(parts[:SHOWN_PRECISIONS]) + (
        f" {page.ellipsis}" if len(parts) > SHOWN_PRECISIONS else ""
    )


def precision_parts(row: DevicePrecision) -> list[str]:
    """`97.1% fp32` for each precision, the most first."""
    spent = sorted(row.precision_ps.items(), key=lambda item: -item[1])
    told = [f"{numbers.part(ps, row.compute_ps)} {name}" for name, ps in spent if ps]
    return told or [numbers.ABSENT]


def launch_remark(row: DeviceLaunches) -> str:
    """What is odd about the launches of a device, or of another kind than one kernel by one op of a graph."""
    contention, graphs, xla = row.contention, row.graphs, row.xla
    told = []
    blocked = row.blocked_call_count / row.call_count if row.call_count else 0.0
    if blocked >= TOLD_RATIO:
        told.append(f"{blocked:.0%} of the launches took over 100 µs")
    if contention.overlap_ratio is not None and contention.overlap_ratio >= TOLD_RATIO:
        told.append(
            f"{numbers.plural(contention.thread_count, 'thread')} launch at once for "
            f"{contention.overlap_ratio:.0%} of their launching"
        )
    if row.eager_call_count:
        told.append(f"{numbers.plural(row.eager_call_count, 'launch', 'launches')} by eager ops")
    if graphs.launch_count:
        opaque = f", {numbers.count(graphs.opaque_count)} opaque" if graphs.opaque_count else ""
        told.append(f"{numbers.plural(graphs.launch_count, 'CUDA graph')}{opaque}")
    if xla.kernel_count:
        told.append(f"{xla.compute_ratio:.0%} of compute in XLA programs")
    return "; ".join(told)


def _add_ordinary(page: Page, rows: Sequence[DevicePrecision]) -> None:
    """Products off the tensor cores, of the device where they take most; the others run the same step."""
    worst = max(rows, key=lambda row: row.ordinary_ps or 0)
    if not worst.ordinary_ps:
        return
    share = numbers.part(worst.ordinary_ps, worst.compute_ps)
    names = [
        f"{one.op or one.kernel} ({one.precision}, {numbers.time(one.total_ps)})"
        for one in worst.ordinary_kernels[:SHOWN_ORDINARY]
    ]
    left = worst.ordinary_kernel_count - len(names)
    more = f" and {numbers.count(left)} more" if left else ""
    page.prose(
        page.styled(
            f"{worst.device}: {share} of compute could use tensor cores and does not: "
            f"{', '.join(page.middle(name, page.width) for name in names)}{more}"
        )
    )
