"""Makes the first screen of a report: the headline, the one thing to do, a bar per device, and what else is lost."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.gpu_time.device_states import anatomy_rows
from traceview.analysis.machine.capture.result import HARMLESS, WITHOUT_DEVICE
from traceview.analysis.machine.capture.section import measured_overhead
from traceview.analysis.measures.context import View
from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import Finding
from traceview.analysis.rules.rule import LIMIT
from traceview.analysis.rules.sentences import sentences_of
from traceview.base.text import shell_word
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.phrase import Sentence, Token, device, ended, phrase
from traceview.document.vocabulary import QUALITIES, SEVERITIES, VERDICT_STATUSES, look_of
from traceview.ledger.states import BY_KEY
from traceview.report.command import table_of
from traceview.report.document import devices_of, view_of
from traceview.report.model import Report
from traceview.report.verdict import phrases_of_verdict

MOST_FINDINGS: Final = 2
"""Findings beside that of the headline."""

_COMPUTE_LEADS: Final = 0.5
"""Share of the GPU time from which on it is said what the compute consists of."""

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
    verdict, filled = report.verdict, commands.view.commands.filled
    headline, action = phrases_of_verdict(report)
    named = next((row for row in report.findings if row.code == verdict.finding), None)
    rest = [finding for finding in report.findings if finding is not named]
    shown = [finding for finding in rest if is_worth_a_line(finding)][:MOST_FINDINGS]
    return doc.Screen(
        captured=tuple(_captured(report)),
        answer=headline,
        label=look_of(SEVERITIES, verdict.severity)
        if verdict.severity
        else look_of(VERDICT_STATUSES, verdict.status),
        action=filled(action),
        anatomy=anatomy_rows(report.results.ledger),
        anatomy_reason=report.skipped.get("ledger", ""),
        compute=tuple(_compute(report)),
        findings=tuple(
            doc.ShortFinding(
                look_of(SEVERITIES, finding.severity),
                ended(sentences["title"]),
                filled(sentences["action"]),
            )
            for finding, sentences in (
                (finding, sentences_of(finding, RULES.get(finding.code))) for finding in shown
            )
        ),
        hidden_count=len(rest) - len(shown),
        quality=None
        if report.capture.quality == "ok"
        else look_of(QUALITIES, report.capture.quality),
        trust=tuple(_trust(report, view)),
        next_command=commands.about(named) if named else "",
        full_command=asked.full_command
        or f"{commands.of_run('analyze', _OF_REPORT)}{asked.options} --full",
    )


def is_worth_a_line(finding: Finding) -> bool:
    """Whether it is a problem: it costs enough of the GPU time, or is none of information."""
    if finding.loss is None:
        return finding.severity != "info"
    return finding.loss.gpu_time_ratio >= LIMIT


def _captured(report: Report) -> Iterator[Sentence]:
    yield phrase("run ", device(report.source.run))
    hosts = report.capture.hosts
    if len(hosts) > 1:
        yield numbers.plural(len(hosts), "host")
    yield from devices_of(report)
    lengths = [window.end_ps - window.start_ps for window in report.windows]
    if lengths:
        yield f"window {numbers.time_range(lengths)}"


def _compute(report: Report) -> Iterator[Sentence]:
    """The types of ops that devices computed longest, where they compute most of the time."""
    compute = report.results.compute
    if compute is not None and (report.verdict.compute_ratio or 0.0) >= _COMPUTE_LEADS:
        for place, row in enumerate(compute.op_types):
            share = numbers.percent(row.compute_ratio)
            yield phrase("" if place else "most compute: ", Token(row.op_type), f" {share}")


# How far the capture can be trusted


def _trust(report: Report, view: View) -> Iterator[Sentence]:
    capture, steps = report.capture, report.results.steps
    causes = WITHOUT_DEVICE if capture.quality == "unusable" else ()
    worst_first = sorted(capture.problems, key=lambda p: (p.code not in causes, p.code in HARMLESS))
    problem = next(iter(worst_first), None)
    if capture.quality == "ok" or problem is None:
        yield f"Capture: {capture.quality}"
        remark_count = len(capture.problems)
    else:
        yield phrase(f"Capture: {capture.quality}, ", Token(problem.text))
        remark_count = len(capture.problems) - 1
    if steps is None:
        yield "no steps found"
    elif steps.used_count == steps.count:
        yield f"{numbers.plural(steps.count, 'step')} used"
    else:
        yield f"{numbers.plural(steps.used_count, 'step')} used of {numbers.count(steps.count)}"
    unknown = report.verdict.unknown_ratio or 0.0
    if unknown >= LIMIT:
        yield f"{numbers.percent(unknown)} of the GPU time has no recorded cause"
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

    def about(self, finding: Finding) -> str:
        """The command that shows the evidence of a finding."""
        state = BY_KEY.get(finding.loss.states[0]) if finding.loss and finding.loss.states else None
        # Gaps are of devices, which a run of ops outside of graphs has not.
        if state is None or not finding.devices:
            return f"traceview explain {finding.code}"
        table, option = table_of(state)
        return f"{self.of_run(f'show {table}')}{option}"

    def of_run(self, name: str, kept: Collection[str] = _OF_TABLE) -> str:
        """A command with those of the options of the report that it takes."""
        arguments = iter(self.report.command[3:])
        options = [
            f" {option} {shell_word(value)}"
            for option, value in zip(arguments, arguments, strict=False)
            if option in kept
        ]
        return self.view.command(name) + "".join(options) + self.options
