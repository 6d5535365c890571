"""Saves, lists and removes the baselines of `traceview gate`: small reports in files that can be committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from traceview.base.errors import UsageError
from traceview.base.location import Location
from traceview.cli.output import Target, write_file


def save(
    name: str,
    subject: Location,
    folder: Path | None,
    *,
    run: str | None,
    salvage: bool,
    redact: bool,
    force: bool,
) -> None:
    """Save the report of a run as a baseline, without its timeline and single gaps.

    Raises `ComparisonError` for a run without steps: there would be nothing to compare with.
    """
    from traceview.cli.progress import reading
    from traceview.comparison.baselines import DEFAULT_FOLDER, other_file, place_of, small_file
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


def show_list(target: Target, folder: Path | None, width: int | None, *, as_json: bool) -> None:
    """List the baselines of a folder: devices, step time and size."""
    from traceview.comparison.baselines import DEFAULT_FOLDER, baseline_section, baselines_in

    place = folder or DEFAULT_FOLDER
    if folder is not None and not place.is_dir():
        raise UsageError(f"{place} is no folder")
    known = baselines_in(place)
    if as_json:
        from traceview.document.json_text import dumped

        target.write(dumped({"baselines": [_data(row) for row in known]}))
    else:
        target.write_section(baseline_section(place, known), width)


def _data(baseline: Any) -> dict[str, Any]:
    from traceview.comparison.captures import step_time_ps
    from traceview.report.model import devices_of, started_ns

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


def remove(name: str, folder: Path | None) -> None:
    """Remove a baseline."""
    from traceview.comparison.baselines import DEFAULT_FOLDER, paths_called

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
