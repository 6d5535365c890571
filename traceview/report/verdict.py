"""What is the answer in one sentence?"""

from __future__ import annotations

from collections.abc import Sequence

from traceview.analysis.base import Finding
from traceview.analysis.capture.result import Capture
from traceview.analysis.device_time.result import DeviceTime, DeviceTimeRow
from traceview.analysis.steps.result import Steps
from traceview.document import numbers
from traceview.report.model import Verdict, VerdictNumber
from traceview.trace.model import Trace
from traceview.trace.roles import missing_tasks

_NAMED = 4
"""Of more processes that were not recorded the first are named."""

_NAMED_DEVICES = 8
"""More devices at work are not named: those that are not at work are told."""

_STATUS_WORDS = {
    "marginal": "computed little",
    "copy_only": "only copied data",
    "memory_only": "held memory and ran nothing",
    "empty": "recorded nothing",
}

_WORDS = {
    "gpu": ("GPU", "ran kernels"),
    "replica": ("replica", "ran ops"),
    "tpu": ("TPU", "ran ops"),
    "other": ("device", "computed"),
}
"""What devices of one kind are called and do; `other` also for several kinds side by side."""


def verdict_of(
    trace: Trace,
    capture: Capture,
    device_time: DeviceTime | None,
    steps: Steps | None,
    findings: Sequence[Finding],
) -> Verdict:
    """The headline, its numbers, and what costs most of `findings`."""
    device_time = device_time or DeviceTime((), ())
    return Verdict(
        _headline(trace, capture, device_time),
        _numbers(device_time, steps),
        _largest_cost(findings),
    )


def _largest_cost(findings: Sequence[Finding]) -> str | None:
    costing = [one for one in findings if one.severity != "info" and one.cost_ratio]
    return max(costing, key=lambda one: one.cost_ratio or 0.0).title if costing else None


def _headline(trace: Trace, capture: Capture, device_time: DeviceTime) -> str:
    rows = device_time.devices
    if not rows:
        return "No device was recorded: nothing can be said about GPUs."
    if capture.quality == "unusable":
        return f"{numbers.plural(len(rows), 'device')} visible, none with a recorded event."
    kinds = {row.kind for row in rows}
    noun, verb = _WORDS[kinds.pop()] if len(kinds) == 1 else _WORDS["other"]
    working = [row for row in rows if row.status in ("active", "marginal")]
    sentence = f"{len(working)} of {numbers.plural(len(rows), noun)} {verb}"
    if [row.kind for row in working] == ["replica"] and len(rows) == 1:
        # One alone is no replica of anything.
        sentence = f"The CPU {verb}, as {rows[0].device}; no GPU was recorded"
    if 0 < len(working) < len(rows) and len(working) <= _NAMED_DEVICES:
        sentence += f" ({numbers.listed([row.device for row in working])})"
    for status, words in _STATUS_WORDS.items():
        having = [row for row in rows if row.status == status]
        if having:
            sentence += f"; {_count(having)} {words}"
    return sentence + _unknown_hosts(trace, device_time) + _missing(trace, capture) + "."


def _unknown_hosts(trace: Trace, device_time: DeviceTime) -> str:
    """Hosts of the run of whose devices nothing is known, because their files are damaged."""
    known = {row.host for row in device_time.devices}
    unknown = [f.host for f in trace.files if f.duplicate_of is None and f.host not in known]
    return f"; nothing is known of {numbers.listed(unknown)}" if unknown else ""


def _missing(trace: Trace, capture: Capture) -> str:
    """Processes that make their steps together with those of the run, and were not recorded."""
    tasks = [
        str(task) for task in missing_tasks(trace.hosts) if str(task) in capture.unrecorded_tasks
    ]
    verb = "was" if len(tasks) == 1 else "were"
    return f"; {numbers.listed(tasks, _NAMED)} {verb} not recorded" if tasks else ""


def _count(rows: list[DeviceTimeRow]) -> str:
    return rows[0].device if len(rows) == 1 else str(len(rows))


def _numbers(device_time: DeviceTime, steps: Steps | None) -> tuple[VerdictNumber, ...]:
    working = [
        row
        for row in device_time.devices
        if row.status in ("active", "marginal") and row.busy_ratio is not None
    ]
    least = min((row.busy_ratio or 0.0 for row in working), default=None)
    visible = [row.busy_ratio for row in device_time.devices if row.busy_ratio is not None]
    mean = sum(visible) / len(visible) if visible else None
    count = steps.used_count if steps else 0
    return (
        VerdictNumber(
            "median_step_ps",
            f"step time, median of {numbers.plural(count, 'step')}"
            if count
            else "step time, median",
            steps.median_ps if steps else None,
        ),
        VerdictNumber("least_busy_ratio", "busy, least busy device in use", least),
        VerdictNumber(
            "mean_busy_ratio",
            f"busy, mean of all {len(visible)} visible" if len(visible) > 1 else "busy, mean",
            mean,
        ),
    )
