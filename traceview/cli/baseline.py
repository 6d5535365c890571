"""Defines `traceview baseline`: saves, lists, shows and removes the reports that a gate compares with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from traceview.cli.options import Full, MaxMemory, Redact, Run, Salvage, Subject, Width, folder_of
from traceview.cli.output import Target, write_file
from traceview.errors import UsageError
from traceview.shell_quote import shell_path

HELP: Final = """Save, list, show and remove baselines.

A baseline is a small report, of at most 100 kB, in a file that can be committed: .traceview/baselines/NAME.json. It holds
what gate, compare and history need, and no trace.

Example: traceview baseline save main logs/
"""


class Format(str, Enum):
    """What the list can be written as."""

    terminal = "terminal"
    json = "json"


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the baseline.", show_default=False)
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        parser=folder_of,
        help="Folder of the baselines; by default .traceview/baselines.",
        show_default=False,
    ),
]


def save(
    name: Name,
    subject: Subject,
    folder: Folder = None,
    run: Run = None,
    salvage: Salvage = False,
    redact: Redact = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the baseline of this name.")
    ] = False,
    max_memory: MaxMemory = None,
) -> None:
    """Save the report of a run as a baseline.

    The file holds step times, what the steps consist of, ops and findings; the timeline and the single gaps are left
    out. A run without steps is refused, for there would be nothing to compare with.

    Example: traceview baseline save main logs/
    """
    from traceview.baseline.folder import (
        DEFAULT_FOLDER,
        other_file,
        place_of,
        small_file,
    )
    from traceview.cli.progress import reading
    from traceview.report.given import report_at

    place = folder or DEFAULT_FOLDER
    place_of(place, name, "", force=force)
    with reading(subject, run):
        report = report_at(subject, run=run, salvage=salvage)
    if redact:
        from traceview.report.redaction import redacted

        report = redacted(report)
    small = small_file(report)
    path = place_of(place, name, small.suffix, force=force)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {place}: {error.strerror or error}") from error
    write_file(path, [small.content])
    stale = other_file(place, name, path)
    if stale is not None:
        _remove(stale)
    typer.echo(f"traceview: saved {path} ({_size(len(small.content))})", err=True)


def list_(
    folder: Folder = None,
    format_: Annotated[Format, typer.Option("--format", help="How to write it.")] = Format.terminal,
    width: Width = None,
) -> None:
    """List the baselines: devices, step time and size.

    Example: traceview baseline list
    """
    from traceview.baseline.folder import DEFAULT_FOLDER, baselines_in
    from traceview.baseline.section import baseline_section

    place = folder or DEFAULT_FOLDER
    if folder is not None and not place.is_dir():
        raise UsageError(f"{place} is no folder")
    known = baselines_in(place)
    target = Target(None)
    if format_ is Format.json:
        from traceview.document.json_text import dumped

        target.write(dumped({"baselines": [_data(row) for row in known]}))
    else:
        target.write_section(baseline_section(place, known), width)


def _data(baseline: Any) -> dict[str, Any]:
    from traceview.comparison.mean_step import step_time_ps
    from traceview.report.identity import devices_of, started_ns

    report = baseline.report
    steps = report.results.steps if report else None
    return {
        "name": baseline.name,
        "path": str(baseline.path),
        "bytes": baseline.byte_count,
        "damage": baseline.damage or None,
        "started_ns": started_ns(report),
        "devices": devices_of(report),
        "mean_step_ps": step_time_ps(report) if report else None,
        "step_count": steps.used_count if steps else None,
    }


def show(name: Name, folder: Folder = None, full: Full = False, width: Width = None) -> None:
    """Show a baseline as analyze shows a run.

    Example: traceview baseline show main
    """
    from traceview.baseline.folder import DEFAULT_FOLDER, baseline_called
    from traceview.report.screen import Invocation

    known = baseline_called(folder or DEFAULT_FOLDER, name)
    assert known.report is not None  # one that cannot be read is an error
    command = f"traceview render {shell_path(known.path)} --full"
    Target(None).write_report(
        known.report, width, is_full=full, invocation=Invocation(full_command=command)
    )


def rm(name: Name, folder: Folder = None) -> None:
    """Remove a baseline.

    Example: traceview baseline rm main
    """
    from traceview.baseline.folder import DEFAULT_FOLDER, paths_called

    for path in paths_called(folder or DEFAULT_FOLDER, name):
        _remove(path)
        typer.echo(f"traceview: removed {path}", err=True)


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        raise UsageError(f"cannot remove {path}: {error.strerror or error}") from error


def _size(byte_count: int) -> str:
    from traceview.document import numbers

    return numbers.size(byte_count)


COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "save": save,
    "list": list_,
    "show": show,
    "rm": rm,
}
