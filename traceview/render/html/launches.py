"""How are the kernels of each GPU launched, and with which precision do they compute?"""

from __future__ import annotations

from typing import Final

from traceview.analysis.precision import DevicePrecision
from traceview.render import numbers
from traceview.render.device_names import joined
from traceview.render.html.blocks import (
    Cell,
    Column,
    Section,
    Subheading,
    Table,
    View,
    counts,
    devices,
    names,
    notes,
    shares,
    table,
    times,
    words,
)
from traceview.render.launches import launch_remark, precision_parts, tensor_cores

SHOWN_ORDINARY: Final = 20


def launches_section(view: View) -> Section | None:
    """A row per GPU that ran kernels, and what is odd about its launches."""
    found = view.report.results.launches
    if found is None or not found.devices:
        return None
    rows = view.in_order(found.devices)
    remarks: dict[str, list[str]] = {}
    for row in rows:
        remarks.setdefault(launch_remark(row), []).append(row.device)
    overview = table(
        "Launches by device",
        [
            devices(view, [row.device for row in rows]),
            counts("kernels per step", [row.kernels_per_step for row in rows]),
            times("median kernel", [row.kernel_median_ps for row in rows]),
            times("median call", [row.call_median_ps for row in rows]),
            times("delay, median", [row.delay_p50_ps for row in rows]),
            times("delay, 95%", [row.delay_p95_ps for row in rows]),
            shares("shorter than their launch", [row.short_kernel_ratio for row in rows]),
            words("threads", [row.thread_mode or numbers.ABSENT for row in rows]),
        ],
        row_count=len(found.devices),
        rest="the JSON report",
    )
    told = [f"{joined(keys)}: {remark}." for remark, keys in remarks.items() if remark]
    return Section(
        "launches",
        "Launches",
        (*overview, *notes(told)),
        lead="Delay: from a launch to its kernel, queue included.",
    )


def precision_section(view: View) -> Section | None:
    """The compute time of each GPU by precision, and products that could use tensor cores and do not."""
    found = view.report.results.precision
    if found is None or not found.devices:
        return None
    rows = view.in_order(found.devices)
    cores = Column(
        "tensor cores",
        tuple(Cell(tensor_cores(row), row.tensor_core_ratio) for row in rows),
        is_number=True,
    )
    overview = table(
        "Compute time by precision",
        [
            devices(view, [row.device for row in rows]),
            times("compute", [row.compute_ps for row in rows]),
            cores,
            shares("16 bits or less", [row.low_precision_ratio for row in rows]),
            words("precision", [", ".join(precision_parts(row)) for row in rows]),
        ],
        row_count=len(found.devices),
        rest="the JSON report",
    )
    worst = max(rows, key=lambda row: row.ordinary_ps or 0)
    return Section("precision", "Precision", (*overview, *_ordinary(worst)))


def _ordinary(row: DevicePrecision) -> list[Subheading | Table]:
    """Of the device where they take most; the others run the same step."""
    if not row.ordinary_ps:
        return []
    kernels = row.ordinary_kernels[:SHOWN_ORDINARY]
    share = numbers.part(row.ordinary_ps, row.compute_ps)
    return [
        Subheading(f"{share} of the compute of {row.device} could use tensor cores and does not"),
        *table(
            "Products off the tensor cores",
            [
                names("op", [one.op for one in kernels]),
                names("kernel", [one.kernel for one in kernels]),
                words("precision", [one.precision for one in kernels]),
                counts("count", [one.count for one in kernels]),
                times("total", [one.total_ps for one in kernels]),
                shares("share", [one.share_ratio for one in kernels]),
            ],
            row_count=row.ordinary_kernel_count,
            rest="the JSON report",
        ),
    ]
