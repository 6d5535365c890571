"""Makes what a document begins with: the headline, the one thing to do, a bar per device, and what else is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from traceview.analysis.gpu_time.device_states import anatomy_rows
from traceview.analysis.gpu_time.steps import found_steps
from traceview.analysis.machine.capture import measured_overhead
from traceview.analysis.machine.capture_quality import HARMLESS, WITHOUT_DEVICE
from traceview.analysis.machine.environment import job_facts
from traceview.analysis.measures.context import View
from traceview.analysis.measures.device_report import time_words
from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import Finding
from traceview.analysis.rules.rule import LIMIT
from traceview.analysis.rules.sentences import shown_finding
from traceview.base.text import shell_command, shell_word
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.phrase import Sentence, Token, device, names, phrase
from traceview.document.vocabulary import (
    DEVICE_KINDS,
    QUALITIES,
    SEVERITIES,
    VERDICT_STATUSES,
    WINDOWS,
    look_of,
)
from traceview.ledger.states import BY_KEY
from traceview.report.command import table_of
from traceview.report.model import Report
from traceview.report.verdict import phrases_of_verdict

MOST_FINDINGS: Final = 2
"""Findings beside that of the headline."""

_COMPUTE_LEADS: Final = 0.5
"""Share of the GPU time from which on it is said what the compute consists of."""

_OF_TABLE: Final = ("--window", "--steps")
"""Options that choose a part of the run, and that every command about it takes."""

_SHOWN_RUNS: Final = 3
_LISTED_WINDOWS: Final = 3
"""Of more hosts the shortest and the longest window are shown."""


class Invocation(Struct, frozen=True):
    """How a report was asked for, so that the commands in it read the same run.

    `logdir`: the path as it was typed, which may be that of one run or file; empty where nobody typed one. `is_salvaged`:
    `--salvage` was given. `options`: further ones of `analyze`. `full_command`: prints all of the report, if that is not
    `analyze`.
    """

    logdir: str = ""
    is_salvaged: bool = False
    options: str = ""
    full_command: str = ""


def summary_of(report: Report, view: View, asked: Invocation) -> doc.Summary:
    """The summary. `view`: of the report, with the path that was typed."""
    commands = _Commands(report, view, " --salvage" if asked.is_salvaged else "")
    verdict, quality = report.verdict, report.capture.quality
    headline, action = phrases_of_verdict(report)
    named = report.leading
    rest = [pair for pair in enumerate(report.findings, 1) if pair[1] is not named]
    shown = [pair for pair in rest if is_worth_a_line(pair[1])][:MOST_FINDINGS]
    return doc.Summary(
        run=report.source.run,
        answer=headline,
        captured=tuple(_captured(report)),
        about=tuple(_about(report)),
        label=look_of(SEVERITIES, named.severity)
        if named
        else look_of(VERDICT_STATUSES, verdict.status),
        action=view.commands.filled(action),
        anatomy=anatomy_rows(report.results.ledger.devices if report.results.ledger else ()),
        anatomy_reason=report.skipped.get("ledger", ""),
        compute=tuple(_compute(report)),
        findings=tuple(
            shown_finding(number, finding, RULES[finding.code], view.commands)
            for number, finding in shown
        ),
        hidden_count=len(rest) - len(shown),
        quality=None if quality == "ok" else look_of(QUALITIES, quality),
        trust=tuple(_trust(report, view)),
        remarks=tuple(_remarks(report)),
        next_command=commands.about(named) if named else "",
        full_command=asked.full_command or f"{commands.of_run('analyze')}{asked.options} --full",
        command=shell_command(report.command),
    )


def is_worth_a_line(finding: Finding) -> bool:
    """Whether it is a problem: it costs enough of the GPU time, or is none of information."""
    if finding.loss is None:
        return finding.severity != "info"
    return finding.loss.gpu_time_ratio >= LIMIT


# What was recorded


def _captured(report: Report) -> Iterator[Sentence]:
    yield phrase("run ", device(report.source.run))
    hosts = report.capture.hosts
    if len(hosts) > 1:
        yield numbers.plural(len(hosts), "host")
    yield from _devices(report)
    lengths = [window.end_ps - window.start_ps for window in report.windows]
    if lengths:
        yield f"window {numbers.time_range(lengths)}"


def _devices(report: Report) -> Iterator[Sentence]:
    """How many devices there are of each model."""
    rows = report.results.device_time.devices if report.results.device_time else ()
    if len(rows) == 1 and rows[0].kind == "replica":
        # One alone is no replica of anything.
        yield "1 × CPU"
        return
    models = Counter(row.model or look_of(DEVICE_KINDS, row.kind).words for row in rows)
    yield from (phrase(f"{count} × ", device(model)) for model, count in models.items())


def _about(report: Report) -> Iterator[Sentence]:
    """Where and when the run was recorded, how its steps and windows were found, and the job."""
    hosts, files = report.capture.hosts, report.source.files
    if len(hosts) == 1:
        yield phrase("host ", device(hosts[0].host))
    elif hosts:
        yield numbers.plural(len(hosts), "host")
    yield from _devices(report)
    size = numbers.size(sum(file.bytes for file in files))
    events = numbers.plural(sum(file.event_count for file in files), "event")
    yield f"{numbers.plural(len(files), 'file')}, {size}, {events}"
    yield found_steps(report.results.steps) if report.results.steps else "no steps found"
    if report.windows:
        yield _window_words(report)
    starts = [host.profile_start_ns for host in hosts if host.profile_start_ns is not None]
    date = numbers.date(min(starts, default=None))
    yield f"profiled {date}" if date else "date not recorded"
    if report.results.environment:
        yield from job_facts(report.results.environment)


def _window_words(report: Report) -> Sentence:
    """How long the windows are, and what they are."""
    lengths = sorted(window.end_ps - window.start_ps for window in report.windows)
    kinds = dict.fromkeys(window.kind for window in report.windows)
    if 1 < len(report.windows) <= _LISTED_WINDOWS and (lengths[0] < lengths[-1] or len(kinds) > 1):
        each = (
            (
                device(window.host),
                f" {numbers.time(window.end_ps - window.start_ps)} ({window.kind})",
                ", " if place < len(report.windows) else None,
            )
            for place, window in enumerate(report.windows, 1)
        )
        return phrase("windows: ", *(part for parts in each for part in parts))
    words = " or ".join(look_of(WINDOWS, kind).words for kind in kinds)
    return f"window {numbers.time_range(lengths)} ({words})"


def _remarks(report: Report) -> Iterator[Sentence]:
    others = report.source.other_runs
    if others:
        shown = names(others, _SHOWN_RUNS)
        yield phrase(f"One of {len(others) + 1} runs; `--run NAME` chooses another: ", shown)


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
        yield phrase(f"Capture: {capture.quality}, ", Token(problem.sentence))
        remark_count = len(capture.problems) - 1
    if steps is None:
        yield "no steps found"
    elif steps.used_count == steps.count:
        yield f"{numbers.plural(steps.count, 'step')} used"
    else:
        yield f"{numbers.plural(steps.used_count, 'step')} used of {numbers.count(steps.count)}"
    unknown = report.verdict.unknown_ratio or 0.0
    if unknown >= LIMIT:
        yield f"{numbers.percent(unknown)} of the {time_words(report.results.device_time)} has no recorded cause"
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

    def of_run(self, name: str) -> str:
        """A command with those of the options of the report that it takes."""
        arguments = iter(self.report.command[3:])
        options = [
            f" {option} {shell_word(value)}"
            for option, value in zip(arguments, arguments, strict=False)
            if option in _OF_TABLE
        ]
        return self.view.command(name) + "".join(options) + self.options
