"""Reduces a report to some of its devices."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import replace

from traceview.base.errors import UsageError
from traceview.report.model import Report


def chosen_devices(known: Sequence[str], wanted: Collection[str]) -> tuple[str, ...]:
    """The keys among `known` that `wanted` names: by key, by name without the host, or by number.

    Raises `UsageError` for a name that fits no device, and lists the devices.
    """
    chosen: set[str] = set()
    for name in wanted:
        keys = [key for key in known if name in _names_of(key)]
        if not keys:
            hint = f"there are {', '.join(known)}" if known else "the trace has no devices"
            raise UsageError(f"no device is called {name!r}", hint=hint)
        chosen.update(keys)
    return tuple(key for key in known if key in chosen)


def only_devices(report: Report, wanted: Collection[str]) -> Report:
    """The report with the rows of these devices only, and without the findings about other devices.

    Verdict, steps and capture stay those of the whole run. Raises `UsageError` as `chosen_devices` does.
    """
    results = report.results
    rows = results.device_time.devices if results.device_time else ()
    kept = chosen_devices([row.device for row in rows], wanted)
    filtered = {
        name: _of_devices(getattr(results, name), kept) for name in results.__struct_fields__
    }
    if results.ops:
        op_rows = tuple(row for row in results.ops.rows if row.device in kept)
        filtered["ops"] = replace(results.ops, rows=op_rows)
    if results.steps:
        steps = tuple(_of_devices(step, kept) for step in results.steps.steps)
        filtered["steps"] = replace(results.steps, steps=steps)
    findings = tuple(
        finding
        for finding in report.findings
        if not finding.devices or not set(finding.devices).isdisjoint(kept)
    )
    left_out = tuple(finding.code for finding in report.findings if finding not in findings)
    return replace(
        report,
        results=replace(results, **filtered),
        findings=findings,
        left_out_findings=report.left_out_findings + left_out,
    )


def _of_devices(result: Any, kept: Collection[str]) -> Any:
    """A result with the rows of these devices; unchanged if it has no rows by device."""
    rows = getattr(result, "devices", None)
    if not isinstance(rows, tuple) or not all(hasattr(row, "device") for row in rows):
        return result
    return replace(result, devices=tuple(row for row in rows if row.device in kept))


def _names_of(key: str) -> tuple[str, ...]:
    bare = key.rpartition("/")[2]
    return key, bare, bare.rpartition(":")[2]
