"""Lists the documents that a comparison can be written as, one function each."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from traceview.analysis.base import Skipped
from traceview.comparison.document import document_of, sections_of
from traceview.comparison.model import Comparison
from traceview.document.figures import AlignedSteps
from traceview.document.json_text import dumped
from traceview.document.model import Section


def markdown(comparison: Comparison, *, further: Sequence[Section] = ()) -> str:
    """A page for a ticket or a pull request; `further` sections follow the verdict."""
    from traceview.document.markdown import render_section

    first, *details = sections_of(comparison)
    return "\n".join(map(render_section, (first, *further, *details)))


def html(
    comparison: Comparison,
    steps: AlignedSteps | Skipped | None = None,
    *,
    further: Sequence[Section] = (),
) -> str:
    """A page for a browser, complete in one file; with the median `steps`, or why they are not drawn. `further` sections
    follow the verdict.
    """
    from traceview.document import html as printer

    document = document_of(comparison, steps)
    document = replace(document, sections=(*further, *document.sections))
    return printer.render(lambda _: document)


def json(comparison: Comparison) -> str:
    """The data, two spaces of indent."""
    return dumped(comparison).decode()
