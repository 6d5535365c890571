"""Lists the documents that a report can be written as: one entry each; the commands know no other list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from traceview.report.document import document_of
from traceview.report.model import Report
from traceview.report.saved import to_json

Render: TypeAlias = Callable[[Report], str]


class DocumentFormat(Struct, frozen=True):
    """One kind of document.

    `name`: what `--format` takes; `file_name`: how the file in the folder of a report is called, whose ending
    also names the format; `render`: the whole document, the same for the same report.
    """

    name: str
    file_name: str
    render: Render

    @property
    def suffix(self) -> str:
        """The ending of its files."""
        return "." + self.file_name.rpartition(".")[2]


def html(report: Report) -> str:
    """A page for a browser."""
    from traceview.document import html as printer

    return printer.render(lambda most_rows: document_of(report, most_rows=most_rows))


def notebook(report: Report) -> str:
    """A fragment of HTML for a notebook."""
    from traceview.document import html as printer

    return printer.render_notebook(document_of(report))


def markdown(report: Report) -> str:
    """A page for a ticket."""
    from traceview.document import markdown as printer

    return printer.render(document_of(report))


def svg(report: Report) -> str:
    """The timeline as one picture."""
    from traceview.document import svg as printer

    return printer.render(document_of(report))


DOCUMENTS: Final = (
    DocumentFormat("html", "report.html", html),
    DocumentFormat("markdown", "report.md", markdown),
    DocumentFormat("json", "report.json", to_json),
    DocumentFormat("svg", "timeline.svg", svg),
)
"""In the order in which they are written."""
