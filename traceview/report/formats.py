"""Lists the documents that a report can be written as, and reads the report that a path leads to.

Commands import it at their start, so each part imports what it needs when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from traceview.base.location import Location

if TYPE_CHECKING:
    from traceview.report.model import Report


def html(report: Report) -> str:
    """A page for a browser."""
    from traceview.document.html import printer
    from traceview.report.document import document_of

    return printer.render(lambda most_rows: document_of(report, most_rows=most_rows))


def markdown(report: Report) -> str:
    """A page for a ticket, and for a notebook."""
    from traceview.document import markdown as printer
    from traceview.report.document import document_of

    return printer.render(document_of(report))


def json(report: Report) -> str:
    """The data, which `traceview analyze` reads again."""
    from traceview.report.saved import to_json

    return to_json(report)


DOCUMENTS: Final[Mapping[str, Callable[[Report], str]]] = {
    "html": html,
    "markdown": markdown,
    "json": json,
}
"""By `--format` what makes the document, in the order in which they are written."""

FILES: Final = {"html": "report.html", "markdown": "report.md", "json": "report.json"}
"""The names of the files in the folder of a report; their endings name the formats, too."""

SAVED: Final = (".json", ".json.gz")
"""Endings of saved reports."""


def is_saved_report(path: Location) -> bool:
    """Whether a path names a file of a saved report rather than a trace."""
    return path.name.lower().endswith(SAVED) and not path.is_dir()


def report_in(place: Location) -> Location:
    """The saved report in a folder that `traceview report` wrote, and that holds no trace; else the place itself."""
    # A name that no file can have leads to none.
    with suppress(OSError):
        if isinstance(place, Path) and not (place / "plugins").exists():
            report = place / FILES["json"]
            return report if report.is_file() and not any(place.glob("*.xplane.pb")) else place
    return place


def report_at(path: Location, *, run: str | None = None, salvage: bool = False) -> Report:
    """The report that is saved in a file, or that a log directory, a run or a trace leads to.

    Raises what `load_report` and `load` raise.
    """
    path = report_in(path)
    if is_saved_report(path):
        from traceview.report.saved import load_report

        return load_report(path)
    from traceview.report.build import analyze
    from traceview.trace.reading.load import load

    return analyze(load(path, run=run, salvage=salvage))
