"""As which documents can a report be written? One entry each; the commands know no other list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from traceview.report.model import Report

Render: TypeAlias = Callable[["Report"], "str | bytes"]


@dataclass(frozen=True)
class DocumentFormat:
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


def _html(report: Report) -> str:
    from traceview.render.html.document import render

    return render(report)


def _markdown(report: Report) -> str:
    from traceview.render.markdown.document import render

    return render(report)


def _json(report: Report) -> str:
    from traceview.render.json import render

    return render(report)


def _svg(report: Report) -> str:
    from traceview.render.svg import render

    return render(report)


DOCUMENTS: Final = (
    DocumentFormat("html", "report.html", _html),
    DocumentFormat("markdown", "report.md", _markdown),
    DocumentFormat("json", "report.json", _json),
    DocumentFormat("svg", "timeline.svg", _svg),
)
"""In the order in which they are written."""
