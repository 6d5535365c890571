"""Defines `traceview gate`: whether a run meets its conditions, as an exit code and in words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from traceview.base.errors import TraceviewError, UsageError
from traceview.base.location import Location
from traceview.cli.commands.baselines import remove as remove_baseline
from traceview.cli.commands.baselines import save as save_baseline
from traceview.cli.commands.baselines import show_list
from traceview.cli.errors import say
from traceview.cli.options import (
    Force,
    Output,
    Redact,
    Run,
    Salvage,
    Width,
    argument,
    flag,
    folder_of,
    format_option,
    given_options,
    logdir_of,
    option,
)
from traceview.cli.output import Target, format_of, write_file
from traceview.store.address import location_of

if TYPE_CHECKING:
    from traceview.comparison.gate.result import GateResult


class Format(str, Enum):
    """What the verdict can be written as."""

    terminal = "terminal"
    markdown = "markdown"
    json = "json"
    junit = "junit"


_BY_SUFFIX = {".md": Format.markdown, ".json": Format.json, ".xml": Format.junit}

_ALL_HOSTS: Final = "capture.absent_host_count == 0"

_WITH: Final = {
    "save": ("run", "salvage", "redact", "force"),
    "baselines": ("format_", "output", "force", "width"),
    "remove": (),
}
"""Options that act on baselines instead of judging a run, and the others that each of them takes besides --dir."""


def gate(
    context: typer.Context,
    subject: Annotated[
        Location | None,
        argument("[LOGDIR]", "Log directory, run, .xplane.pb or report.json.", parser=logdir_of),
    ] = None,
    require: Annotated[
        list[str] | None, option("CONDITION", "A condition that has to hold. Repeatable.")
    ] = None,
    budget: Annotated[
        Location | None,
        option("FILE", "TOML file with a list of conditions: require.", parser=location_of),
    ] = None,
    baseline: Annotated[
        str | None, option("NAME|PATH", "Compare with this, by default to step_time:+5%.")
    ] = None,
    strict: Annotated[
        bool,
        flag(
            "Fail on changes within noise, too; a row without a value leaves its condition unjudged.",
            "--strict",
        ),
    ] = False,
    save: Annotated[str | None, option("NAME", "Save the run as a baseline instead.")] = None,
    baselines: Annotated[bool, flag("List the baselines instead.", "--baselines")] = False,
    remove: Annotated[str | None, option("NAME", "Remove a baseline instead.")] = None,
    folder: Annotated[
        Path | None,
        option(
            "DIR",
            "Folder of baselines: .traceview/baselines by default.",
            "--dir",
            parser=folder_of,
        ),
    ] = None,
    require_all_hosts: Annotated[
        bool, flag("Fail if hosts of the run are missing or unreadable.", "--require-all-hosts")
    ] = False,
    run: Run = None,
    format_: Annotated[
        Format | None, format_option("terminal", "markdown", "json", "junit")
    ] = None,
    output: Output = None,
    junit: Annotated[
        Location | None, option("FILE", "Write JUnit XML, too; replaces FILE.", parser=location_of)
    ] = None,
    github: Annotated[
        bool, flag("Annotate and summarize for GitHub Actions, too.", "--github")
    ] = False,
    force: Force = False,
    redact: Redact = False,
    salvage: Salvage = False,
    width: Width = None,
) -> None:
    """Judge a run by conditions; the exit code is the verdict.

    0: all hold. 10: at least one fails. 7: none fails, but one cannot be judged.

    A condition is a key of the JSON report, an operator and a limit, such as busy_ratio >= 0.8 or
    state.input_ratio <= 5%; KEY[GPU:0] is of one device. Also: finding:CODE absent. Against a baseline KEY:+5% may rise
    by 5%; a slower step fails only beyond noise.

    Example: traceview gate logs/ --require 'step_time_ms <= 120'
    """
    from traceview.cli.progress import reading
    from traceview.comparison.gate.budget import asked_budget, baseline_of
    from traceview.comparison.gate.budget import gate as judge
    from traceview.report.given import report_at

    mode = _mode(context)
    if mode == "baselines":
        target = Target.of(output, force=force)
        format_ = format_ or format_of(target.path, _BY_SUFFIX, Format.terminal)
        if format_ not in (Format.terminal, Format.json):
            raise UsageError(f"--baselines writes no {format_.value}", hint="--format json")
        show_list(target, folder, width, as_json=format_ is Format.json)
        return
    if mode == "remove":
        remove_baseline(remove or "", folder)
        return
    if subject is None:
        raise UsageError("missing argument 'LOGDIR'", hint="see traceview gate --help")
    if mode == "save":
        save_baseline(
            save or "", subject, folder, run=run, salvage=salvage, redact=redact, force=force
        )
        return
    if redact:
        raise UsageError("--redact needs --save: a verdict names devices")
    target = Target.of(output, force=force, source=subject)
    format_ = format_ or format_of(target.path, _BY_SUFFIX, Format.terminal)
    conditions = [*(require or ()), *((_ALL_HOSTS,) if require_all_hosts else ())]
    asked = asked_budget(conditions, budget, baseline)
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


def _mode(context: typer.Context) -> str:
    """The option that acts on baselines, or ""; raises `UsageError` for an option that does not go with it."""
    given = dict(given_options(context))
    mode = next((mode for mode in _WITH if mode in given), "")
    subject = ("subject",) if mode == "save" else ()
    for name, shown in given.items() if mode else ():
        if name not in (mode, "folder", *subject, *_WITH[mode]):
            raise UsageError(f"{shown} and {given[mode]} exclude each other")
    return mode


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
        from traceview.comparison.gate.ci import summary

        target.write(summary(result))
    else:
        from secrets import token_hex

        from traceview.comparison.gate.result import gate_section

        token = token_hex(16)
        if is_guarded:
            target.write(f"::stop-commands::{token}\n")
        target.write_section(gate_section(result), width)
        if is_guarded:
            target.write(f"::{token}::\n")


def _junit(result: GateResult) -> bytes:
    from datetime import datetime, timezone
    from socket import gethostname

    from traceview.comparison.gate.ci import junit_xml

    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return junit_xml(result, timestamp=now, hostname=gethostname())


def _annotate(result: GateResult) -> None:
    from traceview.comparison.gate.ci import annotation_lines

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
    from traceview.comparison.gate.ci import summary

    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if not place:
        return
    try:
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(summary(result))
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or error
        raise UsageError(f"cannot write {place}: {reason}") from error
