"""Checks that the sentences of a report say what its numbers say: verdict, titles, evidence and tables.

A check passes over what a report does not hold: findings that were not asked for, devices that were left out, and what
earlier versions did not write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isclose
from typing import Final

from traceview.analysis.base import Evidence, Finding
from traceview.analysis.idle.profiler_time import PROFILER_PS, without_profiler
from traceview.document import numbers
from traceview.report.absent import is_lost
from traceview.report.disagreement import Disagreement
from traceview.report.model import Report
from traceview.report.recoverable import recoverable, typical_step_ps
from traceview.robust import median_ps
from traceview.trace.cause import Cause

_TIME_PER_STEP: Final = re.compile(
    r"\d[\d.,]* (?:ps|ns|µs|ms|s)(?= per step\b| of the (?:mean|median) )"
)
_SHARE: Final = re.compile(r"(?<=\()\d[\d.]*%(?=\))|\d[\d.]*%(?= of the (?:mean|median) )")
_STEP: Final = re.compile(r"(?<= of the )(?:mean|median) \d[\d.,]* (?:ps|ns|µs|ms|s)(?= step)")
"""How a title states its cost; it may hold names, which may look like that as well."""
_TIME: Final = re.compile(r"\d[\d.,]* (?:ps|ns|µs|ms|s)\b")
_PARTS: Final = re.compile(r"%\): ([^;]*)")
_ON_OTHERS: Final = re.compile(r"; up to (\d[\d.,]* (?:ps|ns|µs|ms|s)) on other devices")
_COST: Final = re.compile(r"\bThe cost is\b")

_CAUSES: Final = frozenset(cause.key for cause in Cause)
_MOVED: Final = (Cause.CALLBACK.key, Cause.CHECKPOINT.key)
"""Causes of which a part counts as the other one where variables are saved."""

_PART_OF: Final[Mapping[str, str]] = {
    "input_wait_ps": Cause.INPUT.key,
    "lock_wait_ps": "",
    "slowed_ops_ps": "",
    "slowed_dispatch_ps": "",
    "saving_ps": Cause.CHECKPOINT.key,
    "saving_python_ps": "",
}
"""Evidence that is a part of the cost, and the cause of idle time that it is all of."""

_IDLE_RATIO: Final = re.compile(r"idle_(\w+)_ratio")


def step_times(report: Report) -> Iterator[Disagreement]:
    """Count and median are those of the used steps."""
    steps = report.results.steps
    if steps is None:
        return
    used = [step.duration_ps for step in steps.steps if step.used]
    if steps.used_count != len(used):
        yield Disagreement("$.results.steps.used_count", "is not the number of used steps")
    if steps.median_ps != median_ps(used):
        yield Disagreement("$.results.steps.median_ps", "is not the median of the used steps")


def verdict(report: Report) -> Iterator[Disagreement]:
    """The headline is of the finding that the verdict names, and costs what that costs."""
    said, findings = report.verdict, report.findings
    if said.devices is None:
        return  # written by an earlier version
    is_left_out = said.finding in report.left_out_findings
    named = [] if is_left_out else [row for row in findings if row.code == said.finding]
    if named and not any(
        (finding.cost_ps_per_step, finding.cost_ratio) == (said.cost_ps_per_step, said.cost_ratio)
        or (not finding.cost_ratio and said.cost_ratio is None)
        for finding in named
    ):
        yield Disagreement("$.verdict.cost_ratio", f"is not that of {said.finding}")
    if named and not any(_is_headline(said.headline, finding.title) for finding in named):
        yield Disagreement("$.verdict.headline", f"is not about {said.finding}")
    path = report.results.path
    if said.finding is None and said.cause is not None and path is not None:
        about = [row.cost_ratio for row in findings if said.cause in row.path_causes]
        lost = [path.share_by_cause.get(said.cause, 0.0), *about]
        is_known = any(_is_ratio(ratio, said.cost_ratio) for ratio in lost)
        if not is_known and not report.left_out_findings:
            yield Disagreement("$.verdict.cost_ratio", f"is not what {said.cause} costs")
    if said.headline.startswith("No problem found") and any(
        finding.severity != "info" for finding in findings
    ):
        yield Disagreement("$.verdict.headline", "finds no problem, and a finding is one")
    median = next((row.value for row in said.numbers if row.key == "median_step_ps"), None)
    if median != (report.results.steps.median_ps if report.results.steps else None):
        yield Disagreement("$.verdict.numbers", "have another median step than results.steps")


def titles(report: Report) -> Iterator[Disagreement]:
    """A title states the cost of its finding."""
    for place, finding in enumerate(report.findings):
        if finding.cost_statistic is None:
            continue
        ps, ratio = finding.cost_ps_per_step, finding.cost_ratio
        step = f"{finding.cost_statistic} {numbers.time(ps / ratio)}" if ps and ratio else ""
        for pattern, shown, what in (
            (_TIME_PER_STEP, numbers.time(ps), "cost"),
            (_SHARE, numbers.share(ratio), "cost"),
            (_STEP, step, "step"),
        ):
            stated = pattern.findall(finding.title)
            if stated and shown not in stated:
                yield Disagreement(
                    f"$.findings[{place}].title", f"states another {what} than {shown}"
                )


def bounds(report: Report) -> Iterator[Disagreement]:
    """A finding whose cost is a bound says which one, and no other does."""
    for place, finding in enumerate(report.findings):
        if finding.cost_ratio is None or finding.cost_statistic is None:
            continue  # without a cost or steps, or written by an earlier version
        for bound in ("upper", "lower"):
            says_so = (
                f"The cost is {'an' if bound == 'upper' else 'a'} {bound} bound"
                in finding.explanation
            )
            if says_so and finding.cost_bound is None:
                continue  # written by an earlier version
            if says_so is not (finding.cost_bound == bound):
                yield Disagreement(
                    f"$.findings[{place}].cost_bound", "is not what the explanation says"
                )


def evidence(report: Report) -> Iterator[Disagreement]:
    """The evidence for idle time is its cost, and both are what the tables say."""
    path, idle = report.results.path, report.results.idle
    rows = {row.device: row for row in idle.devices} if idle else {}
    steps = report.results.steps
    used = [step.duration_ps for step in steps.steps if step.used] if steps else []
    for place, finding in enumerate(report.findings):
        if finding.cost_statistic is None:
            continue  # without steps, or written by an earlier version
        where = f"$.findings[{place}]"
        for number, row in enumerate(finding.evidence):
            if not _is_ratio(row.value, _stated(row, finding, report)):
                yield Disagreement(f"{where}.evidence[{number}].value", "is not the cost")
        if finding.cost_statistic != "mean" or finding.cost_ps_per_step is None or not used:
            continue
        if finding.code == "unexplained-idle" and path is not None:
            unexplained_ps = path.mean_by_cause.get(Cause.UNATTRIBUTED.key, 0)
            # Steps of hosts without a device have no path: its mean may exceed theirs.
            if finding.cost_ps_per_step != min(unexplained_ps, sum(used) // len(used)):
                yield Disagreement(f"{where}.cost_ps_per_step", "is not that of results.path")
        for row in finding.evidence:
            cause = _IDLE_RATIO.fullmatch(row.metric)
            of = rows.get(row.where)
            if cause is None or of is None or of.causes_per_step is None:
                continue
            if cause[1] not in _CAUSES:
                continue  # written by an earlier version
            least_ps, most_ps = _table_ps(of.causes_per_step, cause[1])
            mean_ps = sum(used) // len(used)
            if not min(least_ps, mean_ps) <= finding.cost_ps_per_step <= min(most_ps, mean_ps):
                yield Disagreement(
                    f"{where}.cost_ps_per_step", f"is not {cause[1]} of {row.where} in results.idle"
                )


def costless(report: Report) -> Iterator[Disagreement]:
    """Only a finding with a cost says what the cost is."""
    for place, finding in enumerate(report.findings):
        if _COST.search(finding.explanation) and finding.cost_ratio is None:
            yield Disagreement(f"$.findings[{place}].explanation", "says what a cost is that is 0")


def straggler(report: Report) -> Iterator[Disagreement]:
    """How much longer a straggler computes is the ratio of the mean times of its steps, and so says its title."""
    balance, steps = report.results.balance, report.results.steps
    late = balance.straggler if balance else None
    if balance is None or late is None or late.mean_longer_ratio is None:
        return
    for place, finding in enumerate(report.findings):
        stated = f"({numbers.signed_share(late.mean_longer_ratio)} vs. the others)"
        if finding.code == "straggler-gpu" and stated not in finding.title:
            yield Disagreement(f"$.findings[{place}].title", f"states another ratio than {stated}")
    compared = {row.device for row in balance.devices if row.longer_ratio is not None}
    own_ps = others_ps = 0
    for step in steps.steps if steps else ():
        of_devices = {row.device: row.compute_ps for row in step.devices if row.device in compared}
        if step.used and of_devices.keys() != compared:
            return  # of several hosts, or of some devices only
        if step.used:
            own_ps += of_devices.pop(late.device)
            others_ps += median_ps(list(of_devices.values())) or 0
    # The median of an even number of devices is rounded down in each step.
    rows = {row.device: row.mean_longer_ratio for row in balance.devices}
    if rows.get(late.device) not in (None, late.mean_longer_ratio):
        yield Disagreement("$.results.balance.devices", f"have another ratio of {late.device}")
    if others_ps and not isclose(own_ps / others_ps - 1, late.mean_longer_ratio, abs_tol=1e-6):
        yield Disagreement(
            "$.results.balance.straggler.mean_longer_ratio", "is not the ratio of the mean times"
        )


def parts(report: Report) -> Iterator[Disagreement]:
    """The parts of a cost add up to it, are what the tables say, and are those that the title names."""
    idle = report.results.idle
    rows = {row.device: row.causes_per_step or {} for row in idle.devices} if idle else {}
    step_ps = typical_step_ps(report.results.steps) or 0
    for place, finding in enumerate(report.findings):
        where, shown = f"$.findings[{place}]", _PARTS.search(finding.title)
        found = [row for row in finding.evidence if row.metric in _PART_OF]
        values = [row.value for row in found if isinstance(row.value, int)]
        cost_ps = finding.cost_ps_per_step
        if not values or cost_ps is None:
            continue
        # Each mean is rounded down by itself, and a cost is at most the step.
        if not min(sum(values), step_ps) <= cost_ps <= sum(values) + len(values):
            yield Disagreement(f"{where}.evidence", "does not add up to the cost")
        for row in found:
            cause, of = _PART_OF[row.metric], rows.get(row.where)
            if cause and of is not None and row.value != of.get(cause, 0):
                yield Disagreement(f"{where}.evidence", f"has other {cause} than results.idle")
        stated = _TIME.findall(shown[1]) if shown else []
        if not set(stated) <= {numbers.time(value) for value in values}:
            yield Disagreement(f"{where}.title", "names other parts than its evidence")


def longest(report: Report) -> Iterator[Disagreement]:
    """Where other devices wait longer than the one of a finding, its title names the longest wait of the table."""
    idle = report.results.idle
    rows = {row.device: row for row in idle.devices} if idle else {}
    for place, finding in enumerate(report.findings):
        stated = _ON_OTHERS.search(finding.title)
        for item in finding.evidence:
            cause, own = _IDLE_RATIO.fullmatch(item.metric), rows.get(item.where)
            if stated is None or cause is None or own is None or cause[1] in _MOVED:
                continue
            others = [row for row in rows.values() if row.host == own.host and row is not own]
            waits = [(row.causes_per_step or {}).get(cause[1], 0) for row in others]
            if stated[1] != numbers.time(max(waits, default=0)):
                yield Disagreement(
                    f"$.findings[{place}].title", "names another wait than results.idle has"
                )


def spread(report: Report) -> Iterator[Disagreement]:
    """The spread of a finding is the interquartile range of the step times, if it leaves no steps out."""
    steps = report.results.steps
    if steps is None or steps.evaluations or steps.optimizer_steps or not steps.median_ps:
        return
    for place, finding in enumerate(report.findings):
        for item in finding.evidence:
            if item.metric == "spread_ratio" and not _is_ratio_of(
                item.value, steps.iqr_ps, steps.median_ps
            ):
                yield Disagreement(
                    f"$.findings[{place}].evidence", "has another spread than results.steps"
                )


def profiler(report: Report) -> Iterator[Disagreement]:
    """A cost and what it leaves out for the profiler are, together, the idle time that the tables give."""
    idle = report.results.idle
    rows = {row.device: row.causes_per_step or {} for row in idle.devices} if idle else {}
    for place, finding in enumerate(report.findings):
        for number, row in enumerate(finding.evidence):
            if row.metric != PROFILER_PS or row.where not in rows or not finding.cost_ps_per_step:
                continue
            recorded_ps = rows[row.where].get(Cause.HOST_COMPUTE.key, 0)
            left_ps = recorded_ps - finding.cost_ps_per_step
            if not isinstance(row.value, int) or abs(row.value - left_ps) > 1:
                yield Disagreement(
                    f"$.findings[{place}].evidence[{number}].value",
                    f"and the cost are not {Cause.HOST_COMPUTE.key} of {row.where} in results.idle",
                )


def most(report: Report) -> Iterator[Disagreement]:
    """What one change can recover is no less than any cost, bound or loss, and no more than the step."""
    whole, step_ps = recoverable(report), typical_step_ps(report.results.steps)
    if whole is None or whole.ps_per_step is None or step_ps is None or is_lost(report, "path"):
        return
    if whole.ps_per_step > step_ps:
        yield Disagreement("$.results.path.mean_by_cause", "lets more be recoverable than the step")
    for place, finding in enumerate(report.findings):
        if (finding.cost_ps_per_step or 0) > whole.ps_per_step:
            yield Disagreement(
                f"$.findings[{place}].cost_ps_per_step", "is more than what is recoverable"
            )
    balance, path = report.results.balance, report.results.path
    for place, bound in enumerate(balance.what_if if balance else ()):
        if bound.shown_ps > whole.ps_per_step:
            yield Disagreement(
                f"$.results.balance.what_if[{place}]", "saves more than what is recoverable"
            )
    for cause, ps in path.mean_by_cause.items() if path else ():
        of_profiler = without_profiler(report.findings, cause, ps)
        own_ps = ps - of_profiler.path_ps if of_profiler else ps
        if cause != "compute" and own_ps > whole.ps_per_step:
            yield Disagreement(
                "$.results.path.mean_by_cause", f"has more {cause} than what is recoverable"
            )


def tables(report: Report) -> Iterator[Disagreement]:
    """What several tables say of a device is the same."""
    results = report.results
    idle = {row.device: row for row in results.idle.devices} if results.idle else {}
    times = {row.device: row for row in results.device_time.devices} if results.device_time else {}
    for device in idle.keys() & times.keys():
        if idle[device].idle_ps != times[device].idle_ps:
            yield Disagreement(
                "$.results.idle.devices", f"have another idle_ps of {device} than device_time"
            )
    for place, row in enumerate(results.anatomy.devices if results.anatomy else ()):
        of = idle.get(row.device)
        if of is None or of.causes_per_step is None or not row.step_count:
            continue
        for cause in row.idle.keys() | of.causes_per_step.keys():
            if abs(row.idle.get(cause, 0) - of.causes_per_step.get(cause, 0)) > 1:
                yield Disagreement(
                    f"$.results.anatomy.devices[{place}].idle",
                    f"has other {cause} than results.idle",
                )


def _table_ps(causes_ps: Mapping[str, int], cause: str) -> tuple[int, int]:
    """The least and the most that a finding about a cause may cost: callbacks around a save cost as a part of it."""
    own_ps, callback_ps = causes_ps.get(cause, 0), causes_ps.get(Cause.CALLBACK.key, 0)
    if cause == Cause.CHECKPOINT.key:
        # Each mean is rounded down by itself.
        return own_ps, own_ps + callback_ps + 1
    return 0 if cause == Cause.CALLBACK.key else own_ps, own_ps


def _is_headline(headline: str, title: str) -> bool:
    sentence = numbers.sentence(title)
    return headline == sentence or headline.startswith(f"{sentence.rstrip('.')} (")


def _stated(row: Evidence, finding: Finding, report: Report) -> float | None:
    """The share that a value has to be; of the steps that the window cuts the path has another one than the cost."""
    if row.metric == "unexplained_ratio":
        return report.results.path.unexplained_ratio if report.results.path else None
    return finding.cost_ratio if _IDLE_RATIO.fullmatch(row.metric) else None


def _is_ratio_of(value: object, part_ps: int | None, whole_ps: int) -> bool:
    """Whether a value is the ratio of two times, of which the first was rounded down."""
    return (
        part_ps is not None
        and isinstance(value, float)
        and isclose(value, part_ps / whole_ps, abs_tol=1 / whole_ps, rel_tol=1e-9)
    )


def _is_ratio(value: int | float | str | None, ratio: float | None) -> bool:
    return ratio is None or (isinstance(value, (int, float)) and isclose(value, ratio))
