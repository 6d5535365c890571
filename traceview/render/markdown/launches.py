"""How are the kernels of each GPU launched, and with which precision do they compute?"""

from __future__ import annotations

from typing import Final

from traceview.analysis.precision import DevicePrecision
from traceview.render import numbers
from traceview.render.markdown.blocks import Column, Section, table
from traceview.render.markdown.inline import code, plain
from traceview.report.model import Report

SHOWN: Final = 64
SHOWN_ORDINARY: Final = 5


def launches_section(report: Report) -> Section | None:
    """A row per GPU that ran kernels."""
    launches, precision = report.results.launches, report.results.precision
    if launches is None:
        return None
    of_device = {row.device: row for row in precision.devices} if precision else {}
    rows = launches.devices[:SHOWN]
    if not rows:
        return None
    precise = [of_device.get(row.device) for row in rows]
    overview = table(
        [
            Column("device", [code(row.device) for row in rows]),
            Column(
                "kernels per step",
                [numbers.count(row.kernels_per_step) for row in rows],
                right=True,
            ),
            Column("median", [numbers.time(row.kernel_median_ps) for row in rows], right=True),
            Column("delay", [numbers.time(row.delay_p50_ps) for row in rows], right=True),
            Column("95%", [numbers.time(row.delay_p95_ps) for row in rows], right=True),
            Column(
                "shorter than their launch",
                [plain(numbers.share(row.short_kernel_ratio)) for row in rows],
                right=True,
            ),
            Column("threads", [code(row.thread_mode or "") for row in rows]),
            Column("tensor cores", [_tensor_cores(one) for one in precise], right=True),
            Column("precision", [_precisions(one) for one in precise]),
        ]
    )
    told = "Delay: from a launch to its kernel, queue included."
    return Section("Launches and precision", (overview, told, *_ordinary(precise)))


def _tensor_cores(row: DevicePrecision | None) -> str:
    if row is None:
        return numbers.ABSENT
    return "none" if row.has_tensor_cores is False else plain(numbers.share(row.tensor_core_ratio))


def _precisions(row: DevicePrecision | None) -> str:
    if row is None:
        return numbers.ABSENT
    spent = sorted(row.precision_ps.items(), key=lambda item: -item[1])
    told = [f"{plain(numbers.part(ps, row.compute_ps))} {plain(name)}" for name, ps in spent if ps]
    return ", ".join(told) or numbers.ABSENT


def _ordinary(rows: list[DevicePrecision | None]) -> list[str]:
    """Products that could use tensor cores and do not, on the device where they take most."""
    known = [row for row in rows if row is not None and row.ordinary_ps]
    if not known:
        return []
    worst = max(known, key=lambda row: row.ordinary_ps or 0)
    shown = worst.ordinary_kernels[:SHOWN_ORDINARY]
    share = plain(numbers.part(worst.ordinary_ps, worst.compute_ps))
    return [
        f"{share} of the compute of {code(worst.device)} could use tensor cores and does not:",
        table(
            [
                Column("op", [code(one.op or "") for one in shown]),
                Column("kernel", [code(one.kernel, 80) for one in shown]),
                Column("precision", [plain(one.precision) for one in shown]),
                Column("total", [numbers.time(one.total_ps) for one in shown], right=True),
            ]
        ),
    ]
