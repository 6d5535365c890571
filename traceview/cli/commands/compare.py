"""Defines `traceview compare`, `traceview gate` and `traceview history`: what changed between runs, and whether it may."""

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
    argument,
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


_COMPARE_FORMATS: Final = ("terminal", "markdown", "html", "json")
_ARGUMENT: Final = "Log directory, a run in it, or a saved report.json."


_OF_SCALING: Final = (
    *("before", "after", "further", "scaling"),
    *("format_", "output", "force", "width"),
)
"""Options that `--scaling` takes."""


def compare(
    context: typer.Context,
    before: Annotated[
        Location | None, place_argument("[BEFORE]", f"Capture before the change. {_ARGUMENT}")
    ] = None,
    after: Annotated[Location | None, place_argument("[AFTER]", "Capture after it.")] = None,
    further: Annotated[
        list[Location] | None, place_argument("[RUN]...", "Further runs, with --scaling.")
    ] = None,
    more_before: Annotated[
        list[Location] | None,
        place("PATH", "Another capture before the change. Repeatable.", "--before"),
    ] = None,
    more_after: Annotated[
        list[Location] | None, place("PATH", "Another capture after it. Repeatable.", "--after")
    ] = None,
    scaling: Annotated[
        bool, flag("Compare runs on different numbers of devices instead.", "--scaling")
    ] = False,
    history: History = None,
    format_: Annotated[str | None, format_option(*_COMPARE_FORMATS)] = None,
    output: Output = None,
    force: Annotated[
        bool, flag("Compare even if devices or batches differ. Replace FILE.", "--force")
    ] = False,
    redact: Redact = False,
    width: Width = None,
) -> None:
    """Show whether a change made the step faster, and why.

    A difference within the noise of runs is no change; three captures of each side measure that noise. Runs on other
    devices or of another batch are refused: exit code 7.

    Example: traceview compare logs/before logs/after -o comparison.html
    """
    if scaling:
        check_mode(context, "--scaling", _OF_SCALING)
        runs = [run for run in (before, after, *(further or ())) if run is not None]
        target = Target.of(output, *runs, force=force, width=width)
        from traceview.comparison.scaling import scaled_runs, scaling_section

        scaled = scaled_runs(reports_at(runs), force=force)
        format_ = format_of(format_, target.path, _COMPARE_FORMATS)
        target.write_record(scaled, [scaling_section(scaled)], format_, title="scaling")
        return
    if further:
        raise UsageError(
            f"compare takes BEFORE and AFTER, not {2 + len(further)} runs",
            hint="--before PATH and --after PATH for more captures of a side; --scaling for other numbers of devices",
        )
    from traceview.comparison.build import compare as build
    from traceview.comparison.document import screen_of, sections_of, to_html
    from traceview.comparison.history import earlier_levels

    sides = [
        [*([first] if first is not None else []), *(more or [])]
        for first, more in ((before, more_before), (after, more_after))
    ]
    for name, side in zip(("BEFORE", "AFTER"), sides, strict=True):
        if not side:
            raise UsageError(
                f"{name} is missing", hint="traceview compare BEFORE AFTER, each a log directory"
            )
    target = Target.of(output, *sides[0], *sides[1], force=force, width=width)
    format_ = format_of(format_, target.path, _COMPARE_FORMATS)
    reports = reports_at([*sides[0], *sides[1]])
    earlier = earlier_levels(history, reports) if history else ()
    if redact:
        reports = redacted_alike(reports)
    count = len(sides[0])
    comparison = build(reports[:count], reports[count:], earlier=earlier, force=force)
    if format_ == "html":
        target.write(to_html(comparison).encode())
        return
    is_screen = format_ == TERMINAL and target.path is None
    sections = screen_of(comparison) if is_screen else sections_of(comparison)
    target.write_record(comparison, sections, format_)


_GATE_FORMATS: Final = ("terminal", "markdown", "json")

_OF_SAVING: Final = ("subjects", "save", "run", "salvage", "redact", "force")
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
        str | None, option("NAME|PATH", "Compare with this; requires step_time:+5% by default.")
    ] = None,
    history: History = None,
    save: Annotated[
        str | None, option("NAME|PATH", "Save the captures as a baseline instead.")
    ] = None,
    run: Run = None,
    format_: Annotated[str | None, format_option(*_GATE_FORMATS)] = None,
    output: Output = None,
    junit: Annotated[Location | None, place("FILE", "Also write JUnit XML; replaces FILE.")] = None,
    github: Annotated[
        bool, flag("Also write annotations and a summary for GitHub Actions.", "--github")
    ] = False,
    force: Force = False,
    redact: Redact = False,
    salvage: Salvage = False,
    width: Width = None,
) -> None:
    """Judge a run by conditions; the exit code is the verdict.

    Exit codes: 0: all hold. 10: one fails. 7: one cannot be judged. 9: no verdict, as the runs differ too much.

    A condition is a key with a limit: step_time_ms <= 120, busy_ratio >= 0.8, state.input_ratio <= 5%, memory_peak_gb <= 70,
    examples_per_second >= 900, or finding:CODE absent. KEY:+5% allows a rise of 5% over the baseline. A run that lacks
    hosts fails without absent_hosts <= 1.

    Example: traceview gate logs-1 logs-2 logs-3 --baseline main
    """
    if run is not None and len(subjects) > 1:
        raise UsageError("--run goes with one LOGDIR", hint="LOGDIR may be a run itself")
    if save is not None:
        check_mode(context, "--save", _OF_SAVING)
        reports = reports_at(subjects, run, salvage=salvage)
        _save(save, reports, is_redacted=redact, force=force)
        return
    if redact:
        raise UsageError("--redact needs --save: a verdict names devices")
    from secrets import token_hex

    from traceview.comparison.gate import asked_conditions, judged
    from traceview.comparison.gate_document import annotation_lines, gate_section
    from traceview.comparison.history import baseline_at, earlier_levels
    from traceview.comparison.sides import Side

    target = Target.of(output, *subjects, force=force, width=width)
    format_ = format_of(format_, target.path, _GATE_FORMATS)
    conditions, asked_baseline = asked_conditions(require or (), budget, baseline)
    before = Side.of(baseline_at(asked_baseline), asked_baseline) if asked_baseline else None
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


def _save(name: str, reports: list[Report], *, is_redacted: bool, force: bool) -> None:
    from traceview.comparison.history import FILES, baseline_place, file_content
    from traceview.comparison.sides import Side
    from traceview.document.numbers import size

    if is_redacted:
        reports = redacted_alike(reports)
    contents = [file_content(report) for report in Side.of(reports).reports]
    place = baseline_place(name)
    if not isinstance(place, Path):
        raise UsageError(f"--save {name}: a baseline is a folder on this machine")
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


_HISTORY_FORMATS: Final = ("terminal", "markdown", "html", "csv", "json")


def history(
    folder: Annotated[
        Path, argument("DIR", "A folder of saved reports or baselines.", parser=folder_of)
    ],
    format_: Annotated[str | None, format_option(*_HISTORY_FORMATS)] = None,
    output: Output = None,
    force: Force = False,
    width: Width = None,
) -> None:
    """List saved reports in order, with the changes of the step time.

    Runs on the same devices with the same batch size are a series. Marks show changes; at most 5% of
    the series without a change get one.

    Example: traceview history reports/ -o history.html
    """
    from traceview.comparison.history import HistoryRow, history_of, history_section

    target = Target.of(output, force=force, width=width)
    format_ = format_of(format_, target.path, _HISTORY_FORMATS)
    made = history_of(folder)
    if format_ == "csv":
        from traceview.report.tables import csv_of
        from traceview.trace.device.table import record_columns, table

        rows = table("history", *record_columns(HistoryRow, made.rows))
        target.write_parts(csv_of(rows, is_escaped=target.is_terminal))
        return
    title = f"history of {folder}"
    target.write_record(made, [history_section(made)], format_, title=title)
