"""Lists the documents that a comparison can be written as, one function each."""

from __future__ import annotations

from traceview.comparison.document import document_of, sections_of
from traceview.comparison.model import Comparison
from traceview.document.figures import AlignedSteps
from traceview.document.json_text import dumped
from traceview.report.saved import schema_of


def markdown(comparison: Comparison) -> str:
    """A page for a ticket or a pull request."""
    from traceview.document.markdown import render_section

    return "\n".join(map(render_section, sections_of(comparison)))


def html(comparison: Comparison, steps: AlignedSteps | None = None) -> str:
    """A page for a browser, complete in one file; with the median `steps` where these are known."""
    from traceview.document import html as printer

    return printer.render(lambda _: document_of(comparison, steps))


def json(comparison: Comparison) -> str:
    """The data, two spaces of indent."""
    return dumped(comparison).decode()


def schema_text() -> str:
    """The JSON Schema of a comparison, made from the records."""
    return schema_of(Comparison, "traceview comparison")
