"""Lists the documents that a report can be written as: one entry each; the commands know no other list.

Commands import it at their start for the names, so each document imports what makes it when it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from traceview.report.model import Report


class DocumentFormat(Struct, frozen=True):
    """One kind of document.

    `name`: what `--format` takes; `file_name`: how the file in the folder of a report is called, whose ending
    also names the format; `render`: the whole document, the same for the same report.
    """

    name: str
    file_name: str
    render: Callable[[Report], str]

    @property
    def suffix(self) -> str:
        """The ending of its files."""
        return "." + self.file_name.rpartition(".")[2]


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


DOCUMENTS: Final = (
    DocumentFormat("html", "report.html", html),
    DocumentFormat("markdown", "report.md", markdown),
    DocumentFormat("json", "report.json", json),
)
"""In the order in which they are written."""
