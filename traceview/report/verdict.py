"""Sums a report up: a headline, the numbers to remember, and the largest cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analysis.base import Finding
from traceview.analysis.capture.result import Capture
from traceview.analysis.device_time.result import DeviceTime
from traceview.analysis.steps.result import Steps
from traceview.document import numbers
from traceview.report.model import Verdict, VerdictNumber
from traceview.trace.model import Trace
from traceview.trace.roles import missing_tasks

_NAMED_TASKS: Final = 4
_NAMED_DEVICES: Final = 8
"""The names of more devices at work are left out; devices that do not work are named or counted."""

LEAST_BUSY: Final = 0.5
"""Devices that are busy for less of the time on average have a problem, whether or not its cost is known."""

_STATUS_WORDS: Final = {
    "marginal": "computed little",
    "copy_only": "only copied data",
    "memory_only": "held memory and ran nothing",
    "empty": "recorded nothing",
}

_WORDS: Final = {
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
    is_healthy = (
        capture.quality == "ok"
        and all(finding.severity == "info" for finding in findings)
        and all(row.status == "active" for row in device_time.devices)
        and (_mean_busy_ratio(device_time) or 0.0) >= LEAST_BUSY
    )
    return Verdict(
        _healthy(device_time) if is_healthy else _headline(trace, capture, device_time),
        _numbers(device_time, steps),
        _largest_cost(findings),
    )


def _healthy(device_time: DeviceTime) -> str:
    noun, _ = _words_of(device_time)
    busy = numbers.share(_mean_busy_ratio(device_time))
    return f"No problem found: {numbers.plural(len(device_time.devices), noun)}, {busy} busy."


def _words_of(device_time: DeviceTime) -> tuple[str, str]:
    kinds = {row.kind for row in device_time.devices}
    return _WORDS[kinds.pop() if len(kinds) == 1 else "other"]


def _mean_busy_ratio(device_time: DeviceTime) -> float | None:
    ratios = [row.busy_ratio for row in device_time.devices if row.busy_ratio is not None]
    return sum(ratios) / len(ratios) if ratios else None


def _largest_cost(findings: Sequence[Finding]) -> str | None:
    costly = [finding for finding in findings if finding.severity != "info" and finding.cost_ratio]
    return max(costly, key=lambda finding: finding.cost_ratio or 0.0).title if costly else None


def _headline(trace: Trace, capture: Capture, device_time: DeviceTime) -> str:
    rows = device_time.devices
    if not rows:
        return "No device was recorded: nothing can be said about GPUs."
    if capture.quality == "unusable":
        return f"{numbers.plural(len(rows), 'device')} visible, none with a recorded event."
    noun, verb = _words_of(device_time)
    working = [row for row in rows if row.is_in_use]
    sentence = f"{len(working)} of {numbers.plural(len(rows), noun)} {verb}"
    if [row.kind for row in working] == ["replica"] and len(rows) == 1:
        # One alone is no replica of anything.
        sentence = f"The CPU {verb}, as {rows[0].device}; no GPU was recorded"
    if 0 < len(working) < len(rows) and len(working) <= _NAMED_DEVICES:
        sentence += f" ({numbers.listed([row.device for row in working])})"
    for status, words in _STATUS_WORDS.items():
        same = [row for row in rows if row.status == status]
        if same:
            sentence += f"; {same[0].device if len(same) == 1 else len(same)} {words}"
    return sentence + _unknown_hosts(trace, device_time) + _missing(trace, capture) + "."


def _unknown_hosts(trace: Trace, device_time: DeviceTime) -> str:
    """Hosts whose devices are not known, because their files are damaged."""
    known = {row.host for row in device_time.devices}
    unknown = [
        file.host for file in trace.files if file.duplicate_of is None and file.host not in known
    ]
    return f"; nothing is known of {numbers.listed(unknown)}" if unknown else ""


def _missing(trace: Trace, capture: Capture) -> str:
    """Processes that make their steps together with those of the run, and were not recorded."""
    tasks = [
        str(task) for task in missing_tasks(trace.hosts) if str(task) in capture.unrecorded_tasks
    ]
    verb = "was" if len(tasks) == 1 else "were"
    return f"; {numbers.listed(tasks, _NAMED_TASKS)} {verb} not recorded" if tasks else ""


def _numbers(device_time: DeviceTime, steps: Steps | None) -> tuple[VerdictNumber, ...]:
    known = [(row, row.busy_ratio) for row in device_time.devices if row.busy_ratio is not None]
    least = min((busy_ratio for row, busy_ratio in known if row.is_in_use), default=None)
    visible_count = len(known)
    step_count = steps.used_count if steps else 0
    of_steps = f" of {numbers.plural(step_count, 'step')}" if step_count else ""
    return (
        VerdictNumber(
            "median_step_ps",
            f"step time, median{of_steps}",
            steps.median_ps if steps else None,
        ),
        VerdictNumber("least_busy_ratio", "busy, least busy device in use", least),
        VerdictNumber(
            "mean_busy_ratio",
            f"busy, mean of all {visible_count} visible" if visible_count > 1 else "busy, mean",
            _mean_busy_ratio(device_time),
        ),
    )
