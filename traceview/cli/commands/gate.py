"""Defines `traceview gate`: whether captures meet their conditions, as an exit code and in words; and baselines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from traceview.base.errors import TraceviewError, UsageError
from traceview.base.location import Location
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
    from traceview.comparison.model import GateResult
    from traceview.report.model import Report


class Format(str, Enum):
    """What the verdict can be written as."""

    terminal = "terminal"
    markdown = "markdown"
    json = "json"
    junit = "junit"


_BY_SUFFIX = {".md": Format.markdown, ".json": Format.json, ".xml": Format.junit}

_ALL_HOSTS: Final = "capture.absent_host_count == 0"

_WITH: Final = {
    "save": ("subjects", "run", "salvage", "redact", "force"),
    "baselines": ("format_", "output", "force", "width"),
    "remove": (),
}
"""Options that act on baselines instead of judging a run, and what each of them takes besides --dir."""

History = Annotated[
    Path | None,
    option(
        "DIR", "Saved reports of earlier runs, which show how much runs differ.", parser=folder_of
    ),
]


def gate(
    context: typer.Context,
    subjects: Annotated[
        list[Location] | None,
        argument(
            "[LOGDIR]...", "Log directory, run or report.json of each capture.", parser=logdir_of
        ),
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
    history: History = None,
    strict: Annotated[
        bool,
        flag(
            "Judge changes without regard to noise; a row without a value leaves its condition unjudged.",
            "--strict",
        ),
    ] = False,
    save: Annotated[str | None, option("NAME", "Save the captures as a baseline instead.")] = None,
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

    0: all hold. 10: one fails. 7: one cannot be judged. 9: no verdict, for the runs differ too much to tell.

    A condition is a key of the JSON report, an operator and a limit, such as busy_ratio >= 0.8 or
    state.input_ratio <= 5%, or finding:CODE absent; KEY[GPU:0] is of one device. Against a baseline KEY:+5% may rise by 5%.

    Example: traceview gate logs-1 logs-2 logs-3 --baseline main
    """
    mode = _mode(context)
    if mode == "baselines":
        _list(Target.of(output, force=force), folder, format_, width)
        return
    if mode == "remove":
        _remove_baseline(remove or "", folder)
        return
    if not subjects:
        raise UsageError("missing argument 'LOGDIR'", hint="see traceview gate --help")
    if run is not None and len(subjects) > 1:
        raise UsageError("--run goes with one LOGDIR", hint="LOGDIR may be a run itself")
    if mode == "save":
        reports = _read(subjects, run, salvage=salvage)
        _save(save or "", reports, folder, is_redacted=redact, force=force)
        return
    if redact:
        raise UsageError("--redact needs --save: a verdict names devices")
    from traceview.comparison.gate import Subject, asked_budget, baseline_of, judged
    from traceview.comparison.history import earlier_levels

    target, *_ = [Target.of(output, force=force, source=subject) for subject in subjects]
    format_ = format_ or format_of(target.path, _BY_SUFFIX, Format.terminal)
    asked = asked_budget(
        [*(require or ()), *((_ALL_HOSTS,) if require_all_hosts else ())], budget, baseline
    )
    before = baseline_of(asked.baseline, folder) if asked.baseline else None
    reports = _read(subjects, run, salvage=salvage)
    result = judged(
        Subject(str(subjects[0]), tuple(reports)),
        asked.conditions,
        before,
        earlier=earlier_levels(history, reports) if history else (),
        strict=strict or asked.strict,
    )
    _write(target, format_, result, width, is_guarded=github and target.path is None)
    if github:
        _annotate(result)
    problems = list(_problems_beside(result, junit, subjects, has_summary=github))
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
    for name, shown in given.items() if mode else ():
        if name not in (mode, "folder", *_WITH[mode]):
            raise UsageError(f"{shown} and {given[mode]} exclude each other")
    return mode


def _read(subjects: list[Location], run: str | None, *, salvage: bool) -> list[Report]:
    from traceview.cli.progress import reading
    from traceview.report.given import report_at

    reports = []
    for subject in subjects:
        with reading(subject, run):
            reports.append(report_at(subject, run=run, salvage=salvage))
    return reports


def _write(
    target: Target, format_: Format, result: GateResult, width: int | None, *, is_guarded: bool
) -> None:
    """The verdict. `is_guarded`: GitHub reads commands from this output, and must see none in names of the trace."""
    from traceview.comparison.gate_document import gate_section, summary

    if format_ is Format.json:
        from traceview.document.json_text import dumped

        target.write(dumped(result))
    elif format_ is Format.junit:
        target.write(_junit(result))
    elif format_ is Format.markdown:
        target.write(summary(result))
    else:
        from secrets import token_hex

        token = token_hex(16)
        if is_guarded:
            target.write(f"::stop-commands::{token}\n")
        target.write_section(gate_section(result), width)
        if is_guarded:
            target.write(f"::{token}::\n")


def _junit(result: GateResult) -> bytes:
    from datetime import datetime, timezone
    from socket import gethostname

    from traceview.comparison.gate_document import junit_xml

    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return junit_xml(result, timestamp=now, hostname=gethostname())


def _annotate(result: GateResult) -> None:
    from traceview.comparison.gate_document import annotation_lines

    for line in annotation_lines(result):
        Target(None).write(f"{line}\n")


def _problems_beside(
    result: GateResult, junit: Location | None, sources: list[Location], *, has_summary: bool
) -> Iterator[TraceviewError]:
    """Write the verdict to the files that are asked for beside the output, and say which cannot be written."""
    if junit is not None:
        try:
            for source in sources:
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
    from traceview.comparison.gate_document import summary

    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if not place:
        return
    try:
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(summary(result))
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or error
        raise UsageError(f"cannot write {place}: {reason}") from error


# Baselines


def _save(
    name: str, reports: list[Report], folder: Path | None, *, is_redacted: bool, force: bool
) -> None:
    """Save captures as a baseline, without their timelines and single gaps."""
    from traceview.comparison.baselines import DEFAULT_FOLDER, new_paths, paths_of, reduced
    from traceview.comparison.sides import distinct
    from traceview.document.json_text import encoded
    from traceview.document.numbers import size

    place = folder or DEFAULT_FOLDER
    if is_redacted:
        from traceview.report.pseudonyms import Pseudonyms
        from traceview.report.redaction import redacted

        names = Pseudonyms()
        reports = [redacted(report, names) for report in reports]
    contents = [encoded(reduced(report)) + b"\n" for report in distinct(reports)]
    paths = new_paths(place, name, len(contents), force=force)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {place}: {error.strerror or error}") from error
    for path, content in zip(paths, contents, strict=True):
        write_file(path, [content])
        say(f"saved {path} ({size(len(content))})")
    for stale in paths_of(place, name)[len(paths) :]:
        _remove(stale)


def _list(target: Target, folder: Path | None, format_: Format | None, width: int | None) -> None:
    """List the baselines of a folder: devices, captures, step time and size."""
    from traceview.comparison.baselines import DEFAULT_FOLDER, baseline_section, baselines_in

    format_ = format_ or format_of(target.path, _BY_SUFFIX, Format.terminal)
    if format_ not in (Format.terminal, Format.json):
        raise UsageError(f"--baselines writes no {format_.value}", hint="--format json")
    place = folder or DEFAULT_FOLDER
    if folder is not None and not place.is_dir():
        raise UsageError(f"{place} is no folder")
    known = baselines_in(place)
    if format_ is Format.json:
        from traceview.document.json_text import dumped

        target.write(dumped({"baselines": [_data(row) for row in known]}))
    else:
        target.write_section(baseline_section(place, known), width)


def _data(baseline: Any) -> dict[str, Any]:
    from traceview.comparison.sides import step_time_ps
    from traceview.report.model import devices_of, started_ns

    report = baseline.first
    steps = report.results.steps if report else None
    return {
        "name": baseline.name,
        "paths": [str(path) for path in baseline.paths],
        "bytes": baseline.byte_count,
        "damage": baseline.damage or None,
        "started_ns": started_ns(report),
        "devices": devices_of(report),
        "mean_step_ps": step_time_ps(report) if report else None,
        "step_count": steps.used_count if steps else None,
    }


def _remove_baseline(name: str, folder: Path | None) -> None:
    from traceview.comparison.baselines import DEFAULT_FOLDER, paths_called

    for path in paths_called(folder or DEFAULT_FOLDER, name):
        _remove(path)
        say(f"removed {path}")


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        raise UsageError(f"cannot remove {path}: {error.strerror or error}") from error
