"""Reads the saved reports of a folder, in the order in which their runs were recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from traceview.base.errors import TraceFormatError, TraceNotFoundError
from traceview.report.given import is_saved_report
from traceview.report.identity import started_ns, traces_of
from traceview.report.model import Report
from traceview.report.saved import load_report

_SIDECAR: Final = ".traceview.json"


class SavedReport(Struct, frozen=True):
    """A report and the file that it was read from."""

    path: Path
    report: Report


class Folder(Struct, frozen=True):
    """The reports of a folder, oldest first. `unreadable`: files with an ending of reports that are none, and why;
    `repeated`: files with a report on a run that another file has a report on.
    """

    path: Path
    reports: tuple[SavedReport, ...]
    unreadable: tuple[tuple[Path, str], ...] = ()
    repeated: tuple[Path, ...] = ()


def saved_reports(folder: Path) -> Folder:
    """The reports in a folder and in the folders in it.

    Raises `TraceNotFoundError` where there is no report, and `TraceFormatError` where none can be read.
    """
    if not folder.is_dir():
        if is_saved_report(folder) and folder.is_file():
            load_report(folder)  # raises where it is another document, and says which
        problem = (
            "a file, where a folder of files is needed" if folder.exists() else "no such folder"
        )
        raise TraceNotFoundError(
            f"{folder}: {problem}", hint="traceview history DIR, a folder with saved reports"
        )
    reports, unreadable = [], []
    for path in _candidates(folder):
        try:
            reports.append(SavedReport(path, load_report(path)))
        except (TraceFormatError, TraceNotFoundError) as error:
            unreadable.append((path, error.message.removeprefix(f"{path}: ")))
    if not reports and unreadable:
        load_report(unreadable[0][0])
    if not reports:
        raise TraceNotFoundError(
            f"{folder}: no saved report in it",
            hint="traceview report LOGDIR --format json -o FOLDER/NAME.json saves one",
        )
    reports.sort(key=_age)
    known: dict[frozenset[str], SavedReport] = {}
    repeated = []
    for saved in reports:
        traces = traces_of(saved.report)
        if traces and known.setdefault(traces, saved) is not saved:
            repeated.append(saved.path)
    kept = tuple(saved for saved in reports if saved.path not in repeated)
    return Folder(folder, kept, tuple(unreadable), tuple(repeated))


def _candidates(folder: Path) -> Iterator[Path]:
    for path in sorted((*folder.glob("*"), *folder.glob("*/*"))):
        if is_saved_report(path) and path.is_file() and not path.name.endswith(_SIDECAR):
            yield path


def _age(saved: SavedReport) -> tuple[bool, int, str]:
    """Runs without a recorded time come last, by the names of their files."""
    started = started_ns(saved.report)
    return started is None, started or 0, str(saved.path)
