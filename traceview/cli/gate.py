"""Defines `traceview gate`: whether a run meets its conditions, as an exit code and in words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traceview.cli.errors import say
from traceview.cli.options import (
    FORMAT_OPTION,
    Force,
    MaxMemory,
    Output,
    Run,
    Salvage,
    Subject,
    Width,
    folder_of,
)
from traceview.cli.output import Target, format_of, write_file
from traceview.errors import TraceviewError, UsageError
from traceview.location import Location
from traceview.store.address import location_of

if TYPE_CHECKING:
    from traceview.gate.result import GateResult


class Format(str, Enum):
    """What the verdict can be written as."""

    terminal = "terminal"
    markdown = "markdown"
    json = "json"
    junit = "junit"


_BY_SUFFIX = {".md": Format.markdown, ".json": Format.json, ".xml": Format.junit}


def gate(
    subject: Subject,
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require",
            "--fail-on",
            metavar="CONDITION",
            help="A condition that has to hold. May be repeated. --fail-on is another name: the gate fails on what does "
            "not hold.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        Location | None,
        typer.Option(
            "--budget",
            metavar="FILE",
            parser=location_of,
            help="A TOML file whose list require has conditions.",
            show_default=False,
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="NAME|PATH",
            help="What changes are compared with: a baseline by its name, a saved report, or a log directory. "
            "If no condition is about a change, the gate asks for step_time:+5% as well.",
            show_default=False,
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            parser=folder_of,
            help="Folder of the baselines; by default .traceview/baselines.",
            show_default=False,
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Fail on a change past its limit even within noise, and do not judge a condition some of whose rows "
            "have no value.",
        ),
    ] = False,
    run: Run = None,
    salvage: Salvage = False,
    format_: Annotated[
        Format | None,
        FORMAT_OPTION,
    ] = None,
    output: Output = None,
    junit: Annotated[
        Location | None,
        typer.Option(
            "--junit",
            metavar="FILE",
            parser=location_of,
            help="Write the verdict as JUnit XML as well; replaces FILE.",
            show_default=False,
        ),
    ] = None,
    github: Annotated[
        bool,
        typer.Option(
            "--github",
            help="Print annotations for GitHub Actions as well, and append to $GITHUB_STEP_SUMMARY.",
        ),
    ] = False,
    force: Force = False,
    width: Width = None,
    max_memory: MaxMemory = None,
) -> None:
    """Judge a run by conditions; the exit code is the verdict.

    0: all conditions hold. 10: at least one fails. 7: none fails, but one cannot be judged, because the run has no steps for
    instance.

    A condition is a key, an operator and a limit. Short keys are step_time, busy_ratio, idle_ratio, idle.CAUSE_ratio and
    examples_per_second; all keys of the JSON report work, too. Every device has to meet a condition; KEY[GPU:0] is about one.
    A unit ends the key (step_time_ms) or follows the limit (120 ms).

    Against a baseline, KEY:+5% may rise by so much and KEY:-5% may fall. A slower step fails only if the difference is
    beyond noise.

    Example: traceview gate logs/ --require 'step_time_ms <= 120' --require 'finding:unused-gpu absent'
    """
    from traceview.cli.progress import reading
    from traceview.gate.run import asked_budget, baseline_of
    from traceview.gate.run import gate as judge
    from traceview.report.given import report_at

    target = Target.of(output, force=force, source=subject)
    format_ = format_ or format_of(target.path, _BY_SUFFIX, Format.terminal)
    asked = asked_budget(require or (), budget, baseline)
    with reading(subject, run):
        before = baseline_of(asked.baseline, folder) if asked.baseline else None
        report = report_at(subject, run=run, salvage=salvage)
        result = judge(str(subject), report, asked, before, strict=strict)
    _write(target, format_, result, width, is_guarded=github and target.path is None)
    if github:
        _annotate(result)
    problems = list(_problems_beside(result, junit, subject, has_summary=github))
    if problems and not result.exit_code:
        raise problems[0]
    for problem in problems:
        # What the gate says of the run matters more than a file beside it.
        say(f"error: {problem.message}")
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _write(
    target: Target, format_: Format, result: GateResult, width: int | None, *, is_guarded: bool
) -> None:
    """The verdict. `is_guarded`: GitHub reads commands from this output, and must see none in names of the trace."""
    if format_ is Format.json:
        from traceview.document.json_text import dumped

        target.write(dumped(result))
    elif format_ is Format.junit:
        target.write(_junit(result))
    elif format_ is Format.markdown:
        from traceview.gate.github import summary

        target.write(summary(result))
    else:
        from secrets import token_hex

        from traceview.gate.section import gate_section

        token = token_hex(16)
        if is_guarded:
            target.write(f"::stop-commands::{token}\n")
        target.write_section(gate_section(result), width)
        if is_guarded:
            target.write(f"::{token}::\n")


def _junit(result: GateResult) -> bytes:
    from datetime import datetime, timezone
    from socket import gethostname

    from traceview.gate.junit import junit_xml

    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return junit_xml(result, timestamp=now, hostname=gethostname())


def _annotate(result: GateResult) -> None:
    from traceview.gate.github import annotation_lines

    for line in annotation_lines(result):
        Target(None).write(f"{line}\n")


def _problems_beside(
    result: GateResult, junit: Location | None, source: Location, *, has_summary: bool
) -> Iterator[TraceviewError]:
    """Write the verdict to the files that are asked for beside the output, and say which cannot be written."""
    if junit is not None:
        try:
            Target.of(junit, force=True, source=source)
            write_file(junit, [_junit(result)])
        except TraceviewError as error:
            yield error
    if has_summary:
        try:
            _append_summary(result)
        except TraceviewError as error:
            yield error


def _append_summary(result: GateResult) -> None:
    from traceview.gate.github import summary

    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if not place:
        return
    try:
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(summary(result))
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or error
        raise UsageError(f"cannot write {place}: {reason}") from error
