"""What of a report is about some of its devices only?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import replace

from traceview.errors import UsageError
from traceview.report.model import Report


def chosen_devices(known: Sequence[str], wanted: Collection[str]) -> tuple[str, ...]:
    """Those of the keys `known` that are meant by `wanted`: keys, names without their host, or bare numbers.

    Raises `UsageError` for one that means none of them, and says which there are.
    """
    chosen: set[str] = set()
    for name in wanted:
        meant = [key for key in known if name in _names_of(key)]
        if not meant:
            there = f"there are {', '.join(known)}" if known else "the trace has no devices"
            raise UsageError(f"no device is called {name!r}", hint=there)
        chosen.update(meant)
    return tuple(key for key in known if key in chosen)


def only_devices(report: Report, wanted: Collection[str]) -> Report:
    """The report with the rows of these devices, and the findings that are about one of them or about none.

    The verdict, the steps and the capture stay those of the whole run. Raises `UsageError` as
    `chosen_devices` does.
    """
    results = report.results
    rows = results.device_time.devices if results.device_time else ()
    kept = chosen_devices([row.device for row in rows], wanted)
    found = {name: _of_devices(getattr(results, name), kept) for name in results.__struct_fields__}
    if results.ops:
        op_rows = tuple(row for row in results.ops.rows if row.device in kept)
        left_out = results.ops.row_count - len(op_rows)
        found["ops"] = replace(results.ops, rows=op_rows, left_out_count=left_out)
    if results.steps:
        steps = tuple(_of_devices(step, kept) for step in results.steps.steps)
        found["steps"] = replace(results.steps, steps=steps)
    findings = tuple(
        finding
        for finding in report.findings
        if not finding.devices or not set(finding.devices).isdisjoint(kept)
    )
    unshown = tuple(one.code for one in report.findings if one not in findings)
    return replace(
        report,
        results=replace(results, **found),
        findings=findings,
        left_out_findings=report.left_out_findings + unshown,
    )


def _of_devices(result: Any, kept: Collection[str]) -> Any:
    """A result with the rows of `devices` that are about one of these; others have none."""
    rows = getattr(result, "devices", None)
    if not isinstance(rows, tuple) or not all(hasattr(row, "device") for row in rows):
        return result
    return replace(result, devices=tuple(row for row in rows if row.device in kept))


def _names_of(key: str) -> tuple[str, ...]:
    bare = key.rpartition("/")[2]
    return key, bare, bare.rpartition(":")[2]
