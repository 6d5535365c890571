"""Makes the first screen of a report: what is wrong, what each device does in a step, and what to change."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

from traceview.analysis.anatomy.groups import anatomy_rows
from traceview.analysis.base import Finding
from traceview.analysis.capture.result import HARMLESS
from traceview.analysis.capture.section import measured_overhead
from traceview.analysis.context import View
from traceview.analysis.registry import TOPICS
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import CAUSES, QUALITIES, SEVERITIES, look_of
from traceview.report.action import action_of
from traceview.report.document import answer_of, devices_at_work, devices_of, view_of
from traceview.report.model import Report
from traceview.report.verdict import LEAST_LOSS_RATIO

MOST_FINDINGS: Final = 4

_COMMANDS: Final = {
    "balance": "balance",
    "collectives": "collectives",
    "device_time": "devices",
    "input": "input",
    "ops": "ops",
    "steps": "steps",
    "transfers": "transfers",
}
"""By topic the command that lists what its findings are about."""

_ADVISED: Final = re.compile(rf"traceview ({'|'.join(_COMMANDS.values())}) LOGDIR")
"""A command that the advice names comes before that of the topic."""

_COMMANDS_OF_PATH: Final = {
    "collective": "collectives",
    "h2d": "transfers",
    "d2h": "transfers",
    "d2d": "transfers",
    "memset": "transfers",
}
"""By class of activity on the critical path."""

_BEFORE_ANATOMY: Final = "reports of earlier versions lack it, traceview analyze LOGDIR shows it"

_KEPT_OPTIONS: Final = ("--window", "--steps")
"""Options that choose a part of the run, and that every command about it takes."""


def screen_of(report: Report, full_command: str = "") -> doc.Screen:
    """The first screen. `full_command`: prints all of the same report; without it the one that analyzes the run."""
    view = view_of(report, is_brief=True)
    answer = answer_of(report)
    named = _finding_of_answer(report, answer)
    rest = [finding for finding in report.findings if finding is not named]
    worth = [finding for finding in rest if _is_worth_a_line(finding)]
    shown = worth[:MOST_FINDINGS]
    anatomy = report.results.anatomy
    rows = anatomy_rows(anatomy) if anatomy else ()
    return doc.Screen(
        captured=tuple(_captured(report)),
        answer=answer,
        action=action_of(named.advice) if named else "",
        headline=devices_at_work(report, answer),
        anatomy=rows,
        anatomy_reason="" if rows else report.skipped.get("anatomy", _BEFORE_ANATOMY),
        findings=tuple(
            doc.ShortFinding(
                look_of(SEVERITIES, finding.severity),
                _with_cost(finding),
                action_of(finding.advice),
            )
            for finding in shown
        ),
        hidden_count=len(rest) - len(shown),
        quality=None
        if report.capture.quality == "ok"
        else look_of(QUALITIES, report.capture.quality),
        trust=tuple(_trust(report, view)),
        next_command=_next_command(report, view, named)
        or _next_command(report, view, next(iter(worth), None)),
        full_command=full_command or f"{_command(report, view, 'analyze')} --full",
    )


def _finding_of_answer(report: Report, answer: str) -> Finding | None:
    """The finding that the answer names: it begins with the title, and may add the cost."""
    return next(
        (
            finding
            for finding in report.findings
            if answer.startswith(numbers.capitalized(finding.title).rstrip("."))
        ),
        None,
    )


def _with_cost(finding: Finding) -> str:
    """The title with the cost, where that is known and the title does not say it."""
    time, share = numbers.time(finding.cost_ps_per_step), numbers.share(finding.cost_ratio)
    costs = []
    if finding.cost_ps_per_step and time not in finding.title:
        costs.append(f"{time} per step")
    if finding.cost_ratio and share not in finding.title:
        costs.append(share)
    return f"{finding.title} ({', '.join(costs)})" if costs else finding.title


def _is_worth_a_line(finding: Finding) -> bool:
    """Whether it is a problem: no information, unless it costs as much as one."""
    return finding.severity != "info" or (finding.cost_ratio or 0.0) >= LEAST_LOSS_RATIO


def _captured(report: Report) -> Iterator[str]:
    yield f"run {report.source.run}"
    hosts = report.capture.hosts
    if len(hosts) > 1:
        yield numbers.plural(len(hosts), "host")
    yield from devices_of(report)
    lengths = [window.end_ps - window.start_ps for window in report.windows]
    if lengths:
        yield f"window {numbers.time_range(lengths)}"


# How far the capture can be trusted


def _trust(report: Report, view: View) -> Iterator[str]:
    capture, steps = report.capture, report.results.steps
    limiting = [problem for problem in capture.problems if problem.code not in HARMLESS]
    problem = next(iter(limiting or capture.problems), None)
    if capture.quality == "ok" or problem is None:
        yield f"Capture: {capture.quality}"
        remark_count = len(capture.problems)
    else:
        yield f"Capture: {capture.quality}, {problem.text}"
        remark_count = len(capture.problems) - 1
    if steps is None:
        yield "no steps found"
    elif steps.used_count == steps.count:
        yield f"{numbers.plural(steps.count, 'step')} used"
    else:
        yield f"{numbers.plural(steps.used_count, 'step')} used of {numbers.count(steps.count)}"
    overhead = measured_overhead(view, capture.hosts)
    if overhead is not None:
        yield f"profiler overhead {numbers.share(overhead)}"
    if remark_count:
        yield numbers.plural(remark_count, "remark")


# Commands


def _next_command(report: Report, view: View, finding: Finding | None) -> str:
    """What shows more about the answer, else about the first finding; empty where nothing does."""
    if finding is not None:
        return _command_for(report, view, finding)
    cause = report.verdict.cause
    if cause is None or (report.verdict.cost_ratio or 0.0) < LEAST_LOSS_RATIO:
        return ""
    if cause in _COMMANDS_OF_PATH:
        return _command(report, view, _COMMANDS_OF_PATH[cause])
    return _gaps(report, view, cause) if cause in CAUSES else ""


def _command_for(report: Report, view: View, finding: Finding) -> str:
    topic = next(topic for topic in TOPICS if finding.code in [rule.code for rule in topic.rules])
    rule = next(rule for rule in topic.rules if rule.code == finding.code)
    advised = _ADVISED.search(finding.advice)
    name = advised[1] if advised else _COMMANDS.get(topic.name)
    if name is not None:
        return _command(report, view, name)
    if rule.idle_causes and report.results.idle is not None:
        cause = report.verdict.cause or ""
        return _gaps(report, view, cause if cause in rule.idle_causes else rule.idle_causes[0])
    return f"traceview explain {finding.code}"


def _gaps(report: Report, view: View, cause: str) -> str:
    return f"{_command(report, view, 'gaps')} --cause {cause}"


def _command(report: Report, view: View, name: str) -> str:
    """A command about the same part of the run as the report."""
    arguments = iter(report.command[3:])
    kept = [
        f" {option} {shlex.quote(value)}"
        for option, value in zip(arguments, arguments, strict=False)
        if option in _KEPT_OPTIONS
    ]
    return view.command(name) + "".join(kept)
