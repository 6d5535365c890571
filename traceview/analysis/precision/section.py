"""Shows in which precision each GPU computes, and which products could use tensor cores and do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from traceview.analysis.context import View
from traceview.analysis.precision.result import PRECISIONS, DevicePrecision, Precision
from traceview.document import model as doc
from traceview.document import numbers

BRIEF_KERNELS: Final = 3
"""Kernels of a device in a brief document."""


def section(view: View, result: Precision) -> doc.Section | None:
    """The compute time of each GPU by precision, and the products off the tensor cores."""
    if not result.devices:
        return None
    rows, others = view.split(result.devices)
    everything = f"{view.command('analyze')} --format json"
    return doc.Section(
        "precision",
        "Precision",
        (
            *doc.table(
                "Compute time by precision",
                _columns(rows[: view.most_rows], _ranked(result.devices)),
                row_count=len(rows),
                rest=everything,
            ),
            *doc.remarks(_range(others)),
            *_ordinary(
                result.devices, BRIEF_KERNELS if view.is_brief else view.most_rows, everything
            ),
        ),
        lead=_lead(result),
    )


def _lead(result: Precision) -> str:
    if all(row.has_tensor_cores is False for row in result.devices):
        return "The GPUs have no tensor cores."
    return f"{numbers.share(result.tensor_core_ratio)} of the compute runs on tensor cores."


def _ranked(rows: Sequence[DevicePrecision]) -> list[str]:
    """The precisions that occur, the one with most compute time first."""
    totals = {name: sum(row.precision_ps.get(name, 0) for row in rows) for name in PRECISIONS}
    return sorted((name for name in totals if totals[name]), key=lambda name: -totals[name])


def _columns(rows: Sequence[DevicePrecision], ranked: Sequence[str]) -> Iterator[doc.Column]:
    yield doc.devices("device", [row.device for row in rows])
    yield doc.times("compute", [row.compute_ps for row in rows], priority=2)
    yield doc.shares(
        "tensor cores",
        ["none" if row.has_tensor_cores is False else row.tensor_core_ratio for row in rows],
        meaning="compute in kernels whose names show that they use tensor cores",
    )
    yield doc.shares("16 bits or less", [row.low_precision_ratio for row in rows], priority=1)
    for place, name in enumerate(ranked):
        parts = [doc.ratio(row.precision_ps.get(name, 0), row.compute_ps) for row in rows]
        yield doc.shares(name, parts, priority=place and place + 2)


def _range(rows: Sequence[DevicePrecision]) -> str | None:
    """The use of tensor cores of the devices without a row."""
    if not rows:
        return None
    cores = numbers.share_range(row.tensor_core_ratio for row in rows)
    low = numbers.share_range(row.low_precision_ratio for row in rows)
    count = numbers.plural(len(rows), "other GPU")
    return f"{count}: {cores} of the compute on tensor cores, {low} in 16 bits or less."


def _ordinary(rows: Sequence[DevicePrecision], most_rows: int, rest: str) -> tuple[doc.Block, ...]:
    """The products off the tensor cores of the device where they take most; the others run the same step."""
    worst = max(rows, key=lambda row: row.ordinary_ps or 0)
    if not worst.ordinary_ps:
        return ()
    kernels = worst.ordinary_kernels[:most_rows]
    share = numbers.share(doc.ratio(worst.ordinary_ps, worst.compute_ps))
    return (
        doc.Subheading(
            f"{share} of the compute on {worst.device} could use tensor cores and does not"
        ),
        *doc.table(
            "Products off the tensor cores",
            (
                doc.names("op", [kernel.op for kernel in kernels]),
                doc.names("type", [kernel.op_type for kernel in kernels], priority=4),
                doc.names("kernel", [kernel.kernel for kernel in kernels], priority=3),
                doc.words("precision", [kernel.precision for kernel in kernels]),
                doc.counts("count", [kernel.count for kernel in kernels], priority=2),
                doc.times("total", [kernel.total_ps for kernel in kernels]),
                doc.shares("share", [kernel.share_ratio for kernel in kernels], priority=1),
            ),
            row_count=worst.ordinary_kernel_count,
            rest=rest,
        ),
    )
