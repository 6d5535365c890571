"""Shows how the kernels of each GPU are launched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from traceview.analysis.context import View
from traceview.analysis.launches.result import BLOCKED_CALL_PS, DeviceLaunches, Launches
from traceview.document import model as doc
from traceview.document import numbers

NOTABLE_RATIO: Final = 0.01
"""Share of the launch calls, or of the time in them, from which a note says that they are slow."""


def section(view: View, result: Launches) -> doc.Section | None:
    """A row per GPU that ran kernels, and notes on launches that are slow or no launches of single kernels."""
    if not result.devices:
        return None
    rows, others = view.split(result.devices)
    return doc.Section(
        "launches",
        "Launches",
        (
            *_launches(
                rows[: view.most_rows], len(rows), f"{view.command('analyze')} --format json"
            ),
            *doc.remarks(_range(others)),
            *doc.notes(*_notes(result.devices)),
        ),
        lead="Delay: from a launch call to the start of its kernel, with the wait in the queue of the stream.",
    )


def _launches(rows: Sequence[DeviceLaunches], row_count: int, rest: str) -> tuple[doc.Table, ...]:
    return doc.table(
        "Launches by device",
        (
            doc.devices("device", [row.device for row in rows]),
            doc.counts("kernels per step", [row.kernels_per_step for row in rows], priority=1),
            doc.counts("kernels", [row.kernel_count for row in rows], priority=8),
            doc.times("median kernel", [row.kernel_median_ps for row in rows], priority=3),
            doc.times("median call", [row.call_median_ps for row in rows], priority=7),
            doc.times("median delay", [row.delay_p50_ps for row in rows]),
            doc.times("p95 delay", [row.delay_p95_ps for row in rows], priority=5),
            doc.shares(
                "kernels shorter than launch",
                [row.short_kernel_ratio for row in rows],
                priority=6,
                meaning="launch calls whose kernels together ran shorter than the call itself",
            ),
            doc.names(
                "thread mode",
                [row.thread_mode for row in rows],
                priority=4,
                meaning="TF_GPU_THREAD_MODE",
            ),
        ),
        row_count=row_count,
        rest=rest,
    )


def _range(rows: Sequence[DeviceLaunches]) -> str | None:
    """The delays of the devices without a row."""
    if not rows:
        return None
    delays = numbers.time_range(row.delay_p50_ps for row in rows)
    return f"{numbers.plural(len(rows), 'other GPU')}: median delay {delays}."


def _notes(devices: Sequence[DeviceLaunches]) -> Iterator[str]:
    """A sentence for each kind of unusual launches, with the devices that have them."""
    rows = [row for row in devices if (_blocked_ratio(row) or 0.0) >= NOTABLE_RATIO]
    if rows:
        yield (
            f"Blocked launches on {_keys(rows)}: {numbers.share_range(map(_blocked_ratio, rows))} of the calls took "
            f"more than {numbers.time(BLOCKED_CALL_PS)}."
        )
    rows = [row for row in devices if (row.contention.overlap_ratio or 0.0) >= NOTABLE_RATIO]
    if rows:
        most = max(row.contention.thread_count for row in rows)
        overlaps = numbers.share_range(row.contention.overlap_ratio for row in rows)
        yield (
            f"Up to {most} threads launch the kernels of {_keys(rows)}, two or more at once for {overlaps} of the time "
            "in launch calls."
        )
    rows = [row for row in devices if row.eager_call_count]
    if rows:
        count = sum(row.eager_call_count or 0 for row in rows)
        yield f"Eager ops made {numbers.plural(count, 'launch', 'launches')} on {_keys(rows)}, outside of any graph."
    rows = [row for row in devices if row.graphs.launch_count]
    if rows:
        count = sum(row.graphs.launch_count for row in rows)
        opaque_count = sum(row.graphs.opaque_count for row in rows)
        opaque = f"; {numbers.count(opaque_count)} recorded without kernels" if opaque_count else ""
        yield f"{numbers.plural(count, 'CUDA graph')} launched on {_keys(rows)}{opaque}."
    rows = [row for row in devices if row.xla.kernel_count]
    if rows:
        shares_of_compute = numbers.share_range(row.xla.compute_ratio for row in rows)
        yield f"XLA programs take {shares_of_compute} of the compute on {_keys(rows)}."


def _blocked_ratio(row: DeviceLaunches) -> float | None:
    return doc.ratio(row.blocked_call_count, row.call_count)


def _keys(rows: Sequence[DeviceLaunches]) -> str:
    return numbers.joined_devices(row.device for row in rows)
