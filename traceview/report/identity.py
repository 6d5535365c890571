"""Says of a report when and on what its run was recorded, and which traces it is about."""

from __future__ import annotations

from traceview.report.model import Report


def started_ns(report: Report | None) -> int | None:
    """When the run was recorded, Unix nanoseconds; None where that is not known."""
    hosts = report.capture.hosts if report else ()
    starts = [host.profile_start_ns for host in hosts if host.profile_start_ns is not None]
    return min(starts, default=None)


def traces_of(report: Report) -> frozenset[str]:
    """The checksums of the traces of the run, which tell it from every other run; empty where one is not known."""
    sums = [file.sha256 for file in report.source.files]
    return frozenset(known for known in sums if known) if None not in sums else frozenset()


def devices_of(report: Report | None) -> str:
    """The devices in use: `4 × Tesla V100`; empty without any."""
    times = report.results.device_time if report else None
    rows = [row for row in times.devices if row.is_in_use] if times else []
    models = [row.model or row.kind for row in rows]
    return ", ".join(f"{models.count(model)} × {model}" for model in dict.fromkeys(models))
