"""What do the words on the page mean?"""

from __future__ import annotations

from traceview.render.definitions import CAUSES, TERMS
from traceview.render.idle import LOOKS
from traceview.render.markdown.blocks import Section, bullets
from traceview.render.markdown.inline import code, plain
from traceview.report.model import Report
from traceview.report.recoverable import RECOVERABLE_MEANING


def definitions_section(report: Report) -> Section:
    """The terms, the recoverable time, and the causes that occur on the page."""
    idle = report.results.idle
    occurring = {
        cause for row in (idle.devices if idle else ()) for cause, ps in row.causes.items() if ps
    }
    terms = [f"**{term}**: {plain(meaning)}" for term, meaning in TERMS]
    terms.append(f"**recoverable**: {plain(RECOVERABLE_MEANING)}")
    causes = [
        f"**{plain(LOOKS[cause].words)}** ({code(cause)}): {plain(meaning)}"
        for cause, meaning in CAUSES.items()
        if cause in occurring
    ]
    return Section("Definitions", (bullets(terms), bullets(causes)))
