"""Makes the first screen of a report: what is wrong, what each device does in a step, and what to change."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.anatomy.groups import anatomy_rows
from traceview.analysis.base import Finding, Rule
from traceview.analysis.capture.result import HARMLESS, WITHOUT_DEVICE
from traceview.analysis.capture.section import measured_overhead
from traceview.analysis.context import Analysis, View
from traceview.analysis.idle_python import PYTHON_LINE
from traceview.analysis.registry import TOPICS
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import CAUSES, QUALITIES, SEVERITIES, Look, look_of
from traceview.report.action import actions_of
from traceview.report.document import view_of
from traceview.report.model import Report
from traceview.report.summary import anatomy_remark, answer_of, devices_at_work, devices_of
from traceview.report.verdict import LEAST_LOSS_RATIO, title_with_cost
from traceview.shell_quote import shell_word

MOST_FINDINGS: Final = 4

NO_PROBLEM: Final = "No problem found"
"""How the answer begins where information is all there is; the screen does not contradict it."""

LARGEST_COST: Final = Look("largest-cost", "costs most", ink="bold")
"""Stands before an answer that is information, where findings of more severity follow: those cost less."""

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

_OF_TABLE: Final = ("--window", "--steps")
"""Options that choose a part of the run, and that every command about it takes."""

_OF_REPORT: Final = (*_OF_TABLE, "--select", "--ignore", "--baseline")


class Invocation(Struct, frozen=True):
    """How a report was asked for, so that the commands of its screen read the same run.

    `logdir`: the path as it was typed, which may be that of one run or file; empty where nobody typed one. `is_salvaged`:
    `--salvage` was given. `options`: further ones of `analyze`. `full_command`: prints all of the report, if that is not
    `analyze`.
    """

    logdir: str = ""
    is_salvaged: bool = False
    options: str = ""
    full_command: str = ""


def screen_of(report: Report, invocation: Invocation | None = None) -> doc.Screen:
    """The first screen."""
    asked = invocation or Invocation()
    view = view_of(report, is_brief=True)
    commands = _Commands(
        report,
        replace(view, logdir=asked.logdir or view.logdir),
        " --salvage" if asked.is_salvaged else "",
    )
    answer = answer_of(report)
    named = _finding_of_answer(report, answer)
    rest = [finding for finding in report.findings if finding is not named]
    is_healthy = answer.startswith(NO_PROBLEM)
    worth = [finding for finding in rest if not is_healthy and _is_worth_a_line(finding)]
    shown = worth[:MOST_FINDINGS]
    anatomy = report.results.anatomy
    rows = anatomy_rows(anatomy) if anatomy else ()
    return doc.Screen(
        captured=tuple(_captured(report)),
        answer=answer,
        label=_label(named, shown),
        place=_line_of_python(named),
        actions=_actions(commands.view, named) if named else (),
        headline=devices_at_work(report, answer),
        anatomy=rows,
        anatomy_remark=anatomy_remark(report),
        anatomy_reason="" if rows else report.skipped.get("anatomy", _BEFORE_ANATOMY),
        findings=tuple(
            doc.ShortFinding(
                look_of(SEVERITIES, finding.severity),
                title_with_cost(finding),
                _actions(commands.view, finding),
            )
            for finding in shown
        ),
        hidden_count=len(rest) - len(shown),
        quality=None
        if report.capture.quality == "ok"
        else look_of(QUALITIES, report.capture.quality),
        trust=tuple(_trust(report, view)),
        next_command=commands.about_answer(named) or commands.about_finding(*worth[:1]),
        full_command=asked.full_command
        or f"{commands.of_run('analyze', _OF_REPORT)}{asked.options} --full",
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


def _line_of_python(finding: Finding | None) -> str:
    """`Python: train.py:87 in on_train_batch_end (72.0% of the sampled time)`; empty if it was not sampled."""
    sampled = [row for row in (finding.evidence if finding else ()) if row.metric == PYTHON_LINE]
    return "; ".join(
        f"Python: {row.value}{f' ({row.where})' if row.where else ''}" for row in sampled
    )


def _label(named: Finding | None, shown: Sequence[Finding]) -> Look | None:
    """How urgent the finding of the answer is, where that does not go without saying."""
    if named is None or named.severity != "info":
        return None
    if any(finding.severity != "info" for finding in shown):
        return LARGEST_COST
    return look_of(SEVERITIES, "info")


def _actions(view: View, finding: Finding) -> tuple[str, ...]:
    """What to do first, in more and in fewer words; a path in a command may have what ends a clause of advice."""
    return tuple(map(view.commands.filled, actions_of(finding.advice)))


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
    causes = WITHOUT_DEVICE if capture.quality == "unusable" else ()
    worst_first = sorted(capture.problems, key=lambda p: (p.code not in causes, p.code in HARMLESS))
    problem = next(iter(worst_first), None)
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
        yield f"the profiler makes steps {numbers.share(overhead)} longer"
    if remark_count:
        yield numbers.plural(remark_count, "remark")


# Commands


class _Commands(Struct, frozen=True):
    """The commands about the same part of the same run as a report. `options`: what all of them need besides."""

    report: Report
    view: View
    options: str

    def about_answer(self, finding: Finding | None) -> str:
        """What shows more about the finding of the answer, else about the loss that it names; empty without any."""
        if finding is not None:
            return self.about_finding(finding)
        verdict = self.report.verdict
        if verdict.cause is None or (verdict.cost_ratio or 0.0) < LEAST_LOSS_RATIO:
            return ""
        if verdict.cause in _COMMANDS_OF_PATH:
            return self.of_run(_COMMANDS_OF_PATH[verdict.cause])
        return self._gaps(verdict.cause) if verdict.cause in CAUSES else ""

    def about_finding(self, *findings: Finding) -> str:
        """What shows more about the first finding; empty without one."""
        if not findings:
            return ""
        (finding,) = findings
        topic = next((topic for topic in TOPICS if _rule_of(topic, finding)), None)
        rule = _rule_of(topic, finding) if topic else None
        if topic is None or rule is None:
            return ""  # of a later version
        advised = _ADVISED.search(finding.advice)
        name = advised[1] if advised else _COMMANDS.get(topic.name)
        if name is not None:
            return self.of_run(name)
        if rule.idle_causes and self.report.results.idle is not None:
            cause = self.report.verdict.cause or ""
            return self._gaps(cause if cause in rule.idle_causes else rule.idle_causes[0])
        if "input" in rule.idle_causes and self.report.results.input is not None:
            return self.of_run("input")
        return f"traceview explain {finding.code}"

    def of_run(self, name: str, kept: Collection[str] = _OF_TABLE) -> str:
        """A command with those of the options of the report that it takes."""
        arguments = iter(self.report.command[3:])
        options = [
            f" {option} {shell_word(value)}"
            for option, value in zip(arguments, arguments, strict=False)
            if option in kept
        ]
        return self.view.command(name) + "".join(options) + self.options

    def _gaps(self, cause: str) -> str:
        return f"{self.of_run('gaps')} --cause {cause}"


def _rule_of(topic: Analysis[Any], finding: Finding) -> Rule | None:
    return next((rule for rule in topic.rules if rule.code == finding.code), None)
