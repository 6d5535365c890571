"""Makes the chart of copies to the devices: how fast they were, beside what the link of each GPU carries."""

from __future__ import annotations

from collections.abc import Sequence

from traceview.analysis.transfers.result import DeviceTransfers
from traceview.document.figures import Speed, Speeds


def speeds(rows: Sequence[DeviceTransfers]) -> tuple[Speeds, ...]:
    """A bar per GPU whose copies have a recorded size; nothing without any."""
    known = tuple(
        Speed(row.device, row.directions.h2d.bytes_per_second, row.link_bytes_per_second)
        for row in rows
        if row.directions.h2d.bytes_per_second is not None
    )
    return (Speeds("copies to the device while they run", known),) if known else ()
