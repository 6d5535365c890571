"""Says of a report when and on what its run was recorded."""

from __future__ import annotations

from traceview.report.model import Report


def started_ns(report: Report | None) -> int | None:
    """When the run was recorded, Unix nanoseconds; None where that is not known."""
    hosts = report.capture.hosts if report else ()
    starts = [host.profile_start_ns for host in hosts if host.profile_start_ns is not None]
    return min(starts, default=None)


def devices_of(report: Report | None) -> str:
    """The devices in use: `4 × Tesla V100`; empty without any."""
    times = report.results.device_time if report else None
    rows = [row for row in times.devices if row.is_in_use] if times else []
    models = [row.model or row.kind for row in rows]
    return ", ".join(f"{models.count(model)} × {model}" for model in dict.fromkeys(models))
