"""Sums a report up: what costs most, in one sentence, and the numbers to remember."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from traceview.analysis.anatomy.groups import WITH_WAITS, waits_in_collectives
from traceview.analysis.base import Finding
from traceview.analysis.capture.result import Capture, why_no_device
from traceview.analysis.cost import cost_words
from traceview.analysis.device_time.result import DeviceTime
from traceview.analysis.idle.profiler_time import without_profiler
from traceview.analysis.registry import RULES, Results
from traceview.analysis.steps.result import Steps
from traceview.document import numbers
from traceview.document.vocabulary import PATH_PARTS, look_of
from traceview.report.model import Verdict, VerdictNumber
from traceview.trace.cause import Cause
from traceview.trace.damage import is_damaged_throughout
from traceview.trace.model import Trace
from traceview.trace.roles import missing_tasks

_NAMED_TASKS: Final = 4
_NAMED_DEVICES: Final = 8
"""The names of more devices at work are left out; devices that do not work are named or counted."""

LEAST_LOSS_RATIO: Final = 0.03
"""What costs less of a step is no problem."""

UNEXPLAINED_FACTOR: Final = 2
"""Time without a recorded cause is named first if it is this many times the largest loss that has one."""

UNEXPLAINED: Final = Cause.UNATTRIBUTED.key

_STATUS_WORDS: Final = {
    "marginal": "computed far less than the busiest",
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


class Loss(Struct, frozen=True):
    """What a step loses: a finding about it, what it is on the path, and its cost."""

    finding: Finding | None
    cause: str | None
    ps_per_step: int | None
    ratio: float

    @property
    def is_unexplained(self) -> bool:
        """Whether nothing is known of it: idle time without a recorded cause may be a finding about a device as well."""
        is_named = self.finding is not None and self.finding.code != "unexplained-idle"
        return self.cause == UNEXPLAINED and not is_named


def verdict_of(
    trace: Trace, capture: Capture, results: Results, findings: Sequence[Finding]
) -> Verdict:
    """What costs most of the findings and on the critical path, and the numbers to remember."""
    device_time = results.device_time or DeviceTime((), ())
    devices = _devices(trace, capture, device_time, _excused(results, findings))
    largest = largest_loss(losses(results, findings))
    first = findings[0] if findings else None
    if first is not None and first.severity == "critical" and not first.cost_ratio:
        # Costs mean little where devices are missing, or only one of them learns.
        largest = Loss(first, None, None, 0.0)
        headline = numbers.sentence(first.title)
    elif largest is not None and largest.finding is not None and largest.ratio >= LEAST_LOSS_RATIO:
        headline = _of_finding(largest.finding)
    elif capture.quality == "unusable" or not device_time.devices:
        headline = devices
    else:
        is_healthy = (
            capture.quality == "ok"
            and all(finding.severity == "info" for finding in findings)
            and all(row.status == "active" for row in device_time.devices)
            and (largest is None or largest.ratio < LEAST_LOSS_RATIO)
        )
        headline = _of_devices(results, largest, _profiler_ratio(capture))
        problems = [finding for finding in findings if finding.severity != "info"]
        if problems:
            headline += f" {_besides(problems)}"
        else:
            headline = f"{'No problem found' if is_healthy else 'No clear problem'}: {headline}"
    finding = largest.finding if largest and _is_named(largest) else None
    return Verdict(
        headline,
        _numbers(device_time, results.steps),
        _largest_cost(findings),
        finding=finding.code if finding else None,
        cause=largest.cause if largest else None,
        cost_ps_per_step=largest.ps_per_step if largest else None,
        cost_ratio=(largest.ratio or None) if largest else None,
        unexplained_ratio=results.path.unexplained_ratio if results.path else None,
        devices=devices,
    )


def _is_named(loss: Loss) -> bool:
    """Whether its finding is named: it costs enough, or is critical without a known cost."""
    return loss.ratio >= LEAST_LOSS_RATIO or loss.ps_per_step is None is loss.cause


def losses(results: Results, findings: Sequence[Finding]) -> list[Loss]:
    """What findings cost, and what else of the path is no compute.

    A finding that is information only counts where it is about the path: few steps make it so, not its cost.
    """
    mean = results.path.mean_by_cause if results.path else {}
    share = results.path.share_by_cause if results.path else {}
    known, explained = [], {"compute"}
    for finding in findings:
        causes, ratio = finding.path_causes, finding.cost_ratio
        if ratio and (finding.severity != "info" or causes):
            known.append(Loss(finding, _cause(finding, share), finding.cost_ps_per_step, ratio))
            # What is much larger than the finding has another reason as well.
            explained.update(
                cause
                for cause in causes
                if _own_share(finding, cause, share.get(cause, 0.0), mean) <= 2 * ratio
            )
    known += [
        Loss(None, cause, mean.get(cause, 0) if results.steps else None, ratio)
        for cause, ratio in share.items()
        if cause not in explained
    ]
    return known


def _own_share(
    finding: Finding, cause: str, ratio: float, mean_by_cause: Mapping[str, int]
) -> float:
    """The share of a cause on the path, without the time of the profiler that the finding leaves out."""
    mean_ps = mean_by_cause.get(cause, 0)
    less = without_profiler([finding], cause, mean_ps)
    return ratio if less is None else (mean_ps - less.path_ps) / less.step_ps


def largest_loss(known: Sequence[Loss]) -> Loss | None:
    """The loss that is named first: the largest one with a cause, unless much more has none."""

    def largest(of: Sequence[Loss]) -> Loss | None:
        return max(of, key=lambda loss: loss.ratio, default=None)

    caused = largest([loss for loss in known if not loss.is_unexplained])
    unexplained = largest([loss for loss in known if loss.is_unexplained])
    if caused is None or unexplained is None:
        return caused or unexplained
    factor = UNEXPLAINED_FACTOR if caused.ratio >= LEAST_LOSS_RATIO else 1
    return unexplained if unexplained.ratio >= factor * caused.ratio else caused


def _cause(finding: Finding, share: Mapping[str, float]) -> str | None:
    """The largest part of the path that a finding is about; what its rule is about before what it shows as besides."""
    rule = RULES.get(finding.code)
    usual = (rule.path_causes or rule.idle_causes) if rule else ()
    causes = [cause for cause in finding.path_causes if cause in share]
    return max(
        [cause for cause in causes if cause in usual] or causes,
        key=lambda cause: share[cause],
        default=None,
    )


def _of_finding(finding: Finding) -> str:
    """The title with the cost, if it does not say it already."""
    return numbers.sentence(title_with_cost(finding))


def title_with_cost(finding: Finding) -> str:
    """The title; what it does not say of the cost follows in parentheses."""
    share = numbers.share(finding.cost_ratio)
    has_time = (
        not finding.cost_ps_per_step or numbers.time(finding.cost_ps_per_step) in finding.title
    )
    has_share = not finding.cost_ratio or share in finding.title
    if has_time and has_share:
        return finding.title
    of_step = cost_words(finding.cost_ps_per_step, finding.cost_ratio, finding.cost_statistic)
    costs = [] if has_time else [of_step]
    return f"{finding.title} ({', '.join([*costs, *([] if has_share else [share])])})"


def _besides(problems: Sequence[Finding]) -> str:
    """What the listed problems are, where the largest loss is none of them."""
    if len(problems) > 1:
        return "The listed problems are others."
    (problem,) = problems
    if not problem.cost_ratio:
        return f"The listed problem, {problem.code}, is another one."
    return f"The listed problem, {problem.code}, costs {numbers.share(problem.cost_ratio)}."


def _profiler_ratio(capture: Capture) -> float:
    """The share of a step that the profiler took on the host where that was most; 0 where it was not measured."""
    overhead = max((host.overhead_ratio or 0.0 for host in capture.hosts), default=0.0)
    return overhead / (1 + overhead) if overhead > 0 else 0.0


def _of_devices(results: Results, largest: Loss | None, profiler_ratio: float) -> str:
    """How many devices are how busy, and the largest loss that no finding is about.

    `profiler_ratio`: the share of a step that the profiler took. Without it the host may work little for ops.
    """
    device_time = results.device_time or DeviceTime((), ())
    rows = device_time.devices
    kinds = {row.kind for row in rows}
    noun, _ = _WORDS[kinds.pop() if len(kinds) == 1 else "other"]
    # A replica alone is no replica of anything.
    is_cpu = len(rows) == 1 and rows[0].kind == "replica"
    devices = "1 CPU" if is_cpu else numbers.plural(len(rows), noun)
    waits = f", {WITH_WAITS}" if waits_in_collectives(results.anatomy) else ""
    sentence = f"{devices}, {numbers.share(_mean_busy_ratio(device_time))} busy{waits}"
    if largest is None:
        return f"{sentence}."
    words = look_of(PATH_PARTS, largest.cause).words if largest.cause else ""
    if largest.finding is not None and not words:
        words = largest.finding.code
    is_recording = largest.cause == Cause.HOST_COMPUTE.key and profiler_ratio > largest.ratio
    recorded = " with the time of the profiler" if is_recording else ""
    return f"{sentence}; largest loss: {words}, {numbers.share(largest.ratio)}{recorded}."


def _mean_busy_ratio(device_time: DeviceTime) -> float | None:
    ratios = [row.busy_ratio for row in device_time.devices if row.busy_ratio is not None]
    return sum(ratios) / len(ratios) if ratios else None


def _largest_cost(findings: Sequence[Finding]) -> str | None:
    costly = [finding for finding in findings if finding.severity != "info" and finding.cost_ratio]
    return max(costly, key=lambda finding: finding.cost_ratio or 0.0).title if costly else None


def _excused(results: Results, findings: Sequence[Finding]) -> frozenset[str]:
    """Devices that compute as much as they have to: their finding is that another one takes longer."""
    balance = results.balance
    late = balance.straggler if balance else None
    is_finding = any(finding.code == "straggler-gpu" for finding in findings)
    if balance is None or late is None or late.wait_ps_per_step is not None or not is_finding:
        return frozenset()
    return frozenset(row.device for row in balance.devices if row.longer_ratio is not None)


def _devices(
    trace: Trace, capture: Capture, device_time: DeviceTime, excused: Collection[str]
) -> str:
    """Which devices worked; of `excused` ones it does not say that they computed little."""
    rows = device_time.devices
    if not rows:
        return f"No device {'is readable' if is_damaged_throughout(trace) else 'was recorded'}: {why_no_device(trace)}."
    if capture.quality == "unusable":
        return f"{numbers.plural(len(rows), 'device')} visible, none with a recorded event."
    kinds = {row.kind for row in rows}
    noun, verb = _WORDS[kinds.pop() if len(kinds) == 1 else "other"]
    working = [row for row in rows if row.is_in_use]
    if is_damaged_throughout(trace):
        # The lost part may hold more devices, and what those did that are here.
        names = f" ({numbers.listed([row.device for row in working])})" if working else ""
        readable = numbers.plural(len(rows), noun)
        return f"Of {readable} in what is readable, {len(working) or 'none'} {verb}{names if len(working) <= _NAMED_DEVICES else ''}."
    sentence = f"{len(working)} of {numbers.plural(len(rows), noun)} {verb}"
    if [row.kind for row in working] == ["replica"] and len(rows) == 1:
        # One alone is no replica of anything.
        sentence = f"The CPU {verb}, as {rows[0].device}; no GPU was recorded"
    if 0 < len(working) < len(rows) and len(working) <= _NAMED_DEVICES:
        sentence += f" ({numbers.listed([row.device for row in working])})"
    for status, words in _STATUS_WORDS.items():
        same = [
            row
            for row in rows
            if row.status == status and not (status == "marginal" and row.device in excused)
        ]
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
    unrecorded = frozenset(capture.unrecorded_tasks)
    tasks = [str(task) for task in missing_tasks(trace.hosts) if str(task) in unrecorded]
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
        VerdictNumber("least_busy_ratio", "busy, on the least busy device in use", least),
        VerdictNumber(
            "mean_busy_ratio",
            f"busy, mean of the {visible_count} visible devices"
            if visible_count > 1
            else "busy, mean",
            _mean_busy_ratio(device_time),
        ),
    )
