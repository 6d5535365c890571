"""What of a report is about some of its devices only?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

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
    device_time, steps, timeline, ops = (
        results.device_time,
        results.steps,
        results.timeline,
        results.ops,
    )
    if device_time:
        device_time = replace(device_time, devices=tuple(r for r in rows if r.device in kept))
    if steps:
        steps = replace(
            steps,
            steps=tuple(
                replace(step, devices=tuple(d for d in step.devices if d.device in kept))
                for step in steps.steps
            ),
        )
    if timeline:
        timeline = replace(timeline, devices=tuple(d for d in timeline.devices if d.device in kept))
    if ops:
        op_rows = tuple(row for row in ops.rows if row.device in kept)
        ops = replace(ops, rows=op_rows, left_out_count=ops.row_count - len(op_rows))
    findings = tuple(
        finding
        for finding in report.findings
        if not finding.devices or not set(finding.devices).isdisjoint(kept)
    )
    left_out = tuple(one.code for one in report.findings if one not in findings)
    return replace(
        report,
        results=replace(results, device_time=device_time, steps=steps, timeline=timeline, ops=ops),
        findings=findings,
        left_out_findings=report.left_out_findings + left_out,
    )


def _names_of(key: str) -> tuple[str, ...]:
    bare = key.rpartition("/")[2]
    return key, bare, bare.rpartition(":")[2]
