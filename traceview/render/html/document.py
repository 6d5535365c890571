"""The report as one page for a browser: the answer first, then what an expert needs to check it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from traceview.render.asset_files import D3, STYLES, asset, script
from traceview.render.html.balance import balance_section
from traceview.render.html.blocks import Build, Section, View
from traceview.render.html.capture import capture_section, outside_view_section
from traceview.render.html.collectives import collectives_section
from traceview.render.html.definitions import CAUSE_MEANINGS, MEANINGS, meanings
from traceview.render.html.devices import devices_section
from traceview.render.html.environment import environment_section
from traceview.render.html.findings import findings_section
from traceview.render.html.idle import gaps_section, idle_section
from traceview.render.html.input import input_section
from traceview.render.html.launches import launches_section, precision_section
from traceview.render.html.ops import ops_section
from traceview.render.html.placement import placement_section
from traceview.render.html.places import device_ids, numbered_gaps
from traceview.render.html.shown import breakable, prose, shown
from traceview.render.html.steps import steps_section
from traceview.render.html.summary import summary
from traceview.render.html.timeline import has_timeline, timeline
from traceview.render.html.transfers import transfers_section
from traceview.report.model import Report

MOST_BYTES: Final = 1_500_000
"""A page of this size is attached to a ticket and opened without a thought."""

ROWS: Final = (300, 128, 64, 32, 16, 8, 4)
"""Rows of a table: the first of these with which the page fits."""

SECTIONS: Final[tuple[Build, ...]] = (
    environment_section,
    devices_section,
    steps_section,
    idle_section,
    gaps_section,
    input_section,
    transfers_section,
    launches_section,
    precision_section,
    collectives_section,
    balance_section,
    placement_section,
    ops_section,
    outside_view_section,
    capture_section,
)
"""What comes below the timeline and the findings, in the order of the page."""


@dataclass(frozen=True)
class Script:
    """JavaScript of ours, and what the browser checks it by: nothing else on the page may run."""

    source: Markup

    @property
    def digest(self) -> str:
        """As a content security policy names it."""
        found = hashlib.sha256(self.source.encode()).digest()
        return f"'sha256-{base64.b64encode(found).decode()}'"


def render(report: Report, most_bytes: int = MOST_BYTES) -> str:
    """The whole page, the same for the same report, in at most `most_bytes` bytes as far as rows can be left out."""
    page = ""
    drawn = timeline(report)
    for most_rows in ROWS:
        page = _rendered(report, most_rows, drawn)
        if len(page.encode()) <= most_bytes:
            break
    return page


def _rendered(report: Report, most_rows: int, drawn: Markup) -> str:
    lanes = report.results.lanes
    view = View(
        report=report,
        most_rows=most_rows,
        gaps=numbered_gaps(report)[:most_rows],
        device_ids=dict(islice(device_ids(report).items(), most_rows)),
        drawn=frozenset(one.device for one in lanes.devices) if lanes else frozenset(),
    )
    first, *others = _scripts(is_live=has_timeline(report))
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            summary=summary(view),
            findings=findings_section(view),
            timeline=drawn,
            sections=list(_sections(view)),
            terms=MEANINGS,
            causes=CAUSE_MEANINGS,
            styles=[Markup(asset(name)) for name in STYLES],
            first_script=first,
            scripts=others,
            script_digests=" ".join(one.digest for one in (first, *others)),
        )
    )


def _sections(view: View) -> Iterator[Section]:
    for build in SECTIONS:
        section = build(view)
        if section is not None:
            yield section


@cache
def _scripts(*, is_live: bool) -> tuple[Script, ...]:
    """In the order in which they run, the first before anything is drawn."""
    sources = [script("theme"), script("page")]
    if is_live:
        sources += [asset(D3), script("timeline")]
    return tuple(Script(Markup(source)) for source in sources)


@cache
def environment() -> Environment:
    """How templates are filled: everything is escaped, and made sanitize before that."""
    made = Environment(
        loader=PackageLoader("traceview.render.html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals["meanings"] = meanings
    made.filters["breakable"] = breakable
    made.filters["prose"] = prose
    return made
