"""Defines `traceview gate`: whether captures meet their conditions, as an exit code and in words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from traceview.base.errors import TraceviewError, UsageError
from traceview.base.location import Location
from traceview.cli.options import (
    Force,
    Output,
    Redact,
    Run,
    Salvage,
    Width,
    check_mode,
    flag,
    folder_of,
    format_option,
    option,
    place,
    place_argument,
)
from traceview.cli.output import (
    TERMINAL,
    Target,
    check_folder,
    format_of,
    say,
    write_file,
    write_folder,
    writing,
)
from traceview.cli.report_source import redacted_alike, reports_at

if TYPE_CHECKING:
    from traceview.comparison.model import GateResult
    from traceview.report.model import Report


_FORMATS: Final = ("terminal", "markdown", "json")

_ALL_HOSTS: Final = "absent_hosts <= 0"

_OF_SAVING: Final = ("subjects", "save", "folder", "run", "salvage", "redact", "force")
"""Options that --save takes."""

History = Annotated[
    Path | None,
    option(
        "DIR", "Saved reports of earlier runs, which show how much runs differ.", parser=folder_of
    ),
]


def gate(
    context: typer.Context,
    subjects: Annotated[
        list[Location],
        place_argument("LOGDIR...", "Log directory, run or report.json of each capture."),
    ],
    require: Annotated[
        list[str] | None, option("CONDITION", "A condition that has to hold. Repeatable.")
    ] = None,
    budget: Annotated[
        Location | None, place("FILE", "TOML file with a list of conditions: require.")
    ] = None,
    baseline: Annotated[
        str | None, option("NAME|PATH", "Compare with this, by default to step_time:+5%.")
    ] = None,
    history: History = None,
    all_hosts: Annotated[
        bool,
        flag("Require absent_hosts <= 0: no host is missing or unreadable.", "--require-all-hosts"),
    ] = False,
    save: Annotated[str | None, option("NAME", "Save the captures as a baseline instead.")] = None,
    folder: Annotated[
        Path | None,
        option(
            "DIR",
            "Folder of baselines: .traceview/baselines by default.",
            "--dir",
            parser=folder_of,
        ),
    ] = None,
    run: Run = None,
    format_: Annotated[str | None, format_option(*_FORMATS)] = None,
    output: Output = None,
    junit: Annotated[Location | None, place("FILE", "Write JUnit XML, too; replaces FILE.")] = None,
    github: Annotated[
        bool, flag("Annotate and summarize for GitHub Actions, too.", "--github")
    ] = False,
    force: Force = False,
    redact: Redact = False,
    salvage: Salvage = False,
    width: Width = None,
) -> None:
    """Judge a run by conditions; the exit code is the verdict.

    0: all hold. 10: one fails. 7: one cannot be judged. 9: no verdict, as the runs differ too much.

    A condition is a key with a limit: step_time_ms <= 120, busy_ratio >= 0.8, state.input_ratio <= 5%, memory_peak_gb <= 70,
    examples_per_second >= 900, absent_hosts <= 0, or finding:CODE absent. KEY:+5% may rise
    by 5% against the baseline.

    Example: traceview gate logs-1 logs-2 logs-3 --baseline main
    """
    if run is not None and len(subjects) > 1:
        raise UsageError("--run goes with one LOGDIR", hint="LOGDIR may be a run itself")
    if save is not None:
        check_mode(context, "--save", _OF_SAVING)
        reports = reports_at(subjects, run, salvage=salvage)
        _save(save, reports, folder, is_redacted=redact, force=force)
        return
    if redact:
        raise UsageError("--redact needs --save: a verdict names devices")
    from secrets import token_hex

    from traceview.comparison.gate import asked_conditions, baseline_of, judged
    from traceview.comparison.gate_document import annotation_lines, gate_section
    from traceview.comparison.history import earlier_levels
    from traceview.comparison.sides import Side

    target = Target.of(output, *subjects, force=force, width=width)
    format_ = format_of(format_, target.path, _FORMATS)
    required = [*(require or ()), *([_ALL_HOSTS] if all_hosts else [])]
    conditions, asked_baseline = asked_conditions(required, budget, baseline)
    before = baseline_of(asked_baseline, folder) if asked_baseline else None
    reports = reports_at(subjects, run, salvage=salvage)
    result = judged(
        Side.of(reports, str(subjects[0])),
        conditions,
        before,
        earlier=earlier_levels(history, reports) if history else (),
    )
    # GitHub reads commands from this output, and must see none in names of the trace.
    token = token_hex(16) if github and target.path is None and format_ == TERMINAL else ""
    if token:
        target.write(f"::stop-commands::{token}\n")
    target.write_record(result, [gate_section(result)], format_)
    if token:
        target.write(f"::{token}::\n")
    for line in annotation_lines(result) if github else ():
        Target(None).write(f"{line}\n")
    problems = list(_problems_beside(result, junit, subjects, has_summary=github))
    if problems and not result.exit_code:
        raise problems[0]
    for problem in problems:
        # What the gate says of the run matters more than a file beside it.
        say(f"error: {problem.message}")
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _problems_beside(
    result: GateResult, junit: Location | None, sources: list[Location], *, has_summary: bool
) -> Iterator[TraceviewError]:
    """Write the verdict to the files that are asked for beside the output, and say which cannot be written."""
    from traceview.comparison.gate_document import gate_section, junit_xml
    from traceview.document.markdown import render_section

    if junit is not None:
        try:
            Target.of(junit, *sources, force=True)
            write_file(junit, [junit_xml(result)])
        except TraceviewError as error:
            yield error
    if has_summary and (place := os.environ.get("GITHUB_STEP_SUMMARY")):
        try:
            with writing(place), Path(place).open("a", encoding="utf-8") as file:
                file.write(render_section(gate_section(result)))
        except TraceviewError as error:
            yield error


def _save(
    name: str, reports: list[Report], folder: Path | None, *, is_redacted: bool, force: bool
) -> None:
    """Save captures as a baseline."""
    from traceview.comparison.history import DEFAULT_FOLDER, FILES, checked_name, file_content
    from traceview.comparison.sides import Side
    from traceview.document.numbers import size

    if is_redacted:
        reports = redacted_alike(reports)
    contents = [file_content(report) for report in Side.of(reports).reports]
    place = (folder or DEFAULT_FOLDER) / checked_name(name)
    files = {file: (content,) for file, content in zip(FILES, contents, strict=False)}
    with writing(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    check_folder(place, FILES, force=force)
    write_folder(place, files)
    with writing(place):
        # Captures of another baseline of this name.
        for file in FILES[len(files) :]:
            (place / file).unlink(missing_ok=True)
    say(f"saved {place} ({size(sum(map(len, contents)))})")
