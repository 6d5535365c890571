"""Prints documents as one HTML page that needs nothing else: the answer first, then what an expert checks it with."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Final, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec import Struct

from traceview.document import cells, numbers
from traceview.document.asset_files import PAGE_SCRIPT, THEME_SCRIPT, TIMELINE_SCRIPT, asset
from traceview.document.code_in_prose import pieces
from traceview.document.model import (
    Bar,
    Block,
    Column,
    Document,
    Findings,
    Link,
    Section,
    Span,
    Table,
    Timeline,
    Value,
)
from traceview.document.page import Page
from traceview.document.sanitize import encodable, sanitize
from traceview.document.strip import strip_lines
from traceview.document.timeline import STYLES, figure
from traceview.document.vocabulary import Look

MOST_BYTES: Final = 1_500_000
"""A page of this size is attached to a ticket and opened without a thought."""

ROWS: Final = (300, 128, 64, 32, 16, 8, 4)
"""Rows of a table: the first of these with which the page fits."""

NOTEBOOK_FINDINGS: Final = 20

LONGEST_NAME: Final = 160
"""Characters of a name in a table; the middle of a longer one is left out."""

LONGEST_TEXT: Final = 1200
"""Characters of anything else."""

FILTER_FROM: Final = 10
"""A table with so many rows has an input to filter them."""

LONG_FROM: Final = 25
"""A table with so many rows scrolls below its headings, so that the page stays one to find one's way in."""

_WIDEST_TEXT: Final = 44
"""Characters after which the text of a cell may be broken."""

_STRIP_WIDTH: Final = 120

_B = TypeVar("_B", bound=Block)

DocumentOf = Callable[[int], Document]
"""A document with so many rows per table at most."""


def render(document_of: DocumentOf, most_bytes: int = MOST_BYTES) -> str:
    """The whole page, the same for the same report, in at most `most_bytes` bytes as far as rows can be left out."""
    page = ""
    for most_rows in ROWS:
        page = _Page(document_of(most_rows)).render()
        if len(page.encode()) <= most_bytes:
            break
    return page


def render_notebook(document: Document) -> str:
    """A fragment without scripts, ids and links: the answer, the findings, and the time of each device.

    Its style holds for what is inside it only, and takes the colours of text and background from the notebook, which
    may be light or dark whatever the system is.
    """
    return _Page(document).render_notebook()


class Script(Struct, frozen=True):
    """JavaScript of ours, and what the browser checks it by: nothing else on the page may run."""

    source: Markup

    @property
    def digest(self) -> str:
        """As a content security policy names it."""
        digest = hashlib.sha256(self.source.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"


class _Page:
    """A document, and where on its page everything is that links lead to."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._ids = _ids(document)
        timeline = next(_blocks(document, Timeline), None)
        self._drawn: frozenset[str] = frozenset()
        if timeline is not None and timeline.lanes is not None:
            self._drawn = frozenset(device.device for device in timeline.lanes.devices)

    def render(self) -> str:
        scripts = [PAGE_SCRIPT, *([TIMELINE_SCRIPT] if self._drawn else [])]
        first, *others = (Script(Markup(source())) for source in (THEME_SCRIPT, *scripts))
        template = self._environment().get_template("page.html.j2")
        return template.render(
            document=self._document,
            summary=self._document.summary,
            sections=self._document.sections,
            styles=[Markup(asset(name)) for name in (*STYLES, "page.css")],
            first_script=first,
            scripts=others,
            script_digests=" ".join(script.digest for script in (first, *others)),
        )

    def render_notebook(self) -> str:
        findings = next(_blocks(self._document, Findings), Findings(()))
        devices = next(
            (section for section in self._document.sections if section.id == "devices"), None
        )
        template = self._environment().get_template("notebook.html.j2")
        return template.render(
            summary=self._document.summary,
            findings=findings.findings[:NOTEBOOK_FINDINGS],
            hidden_count=len(findings.findings[NOTEBOOK_FINDINGS:]) + findings.hidden_count,
            tables=[
                block for block in (devices.blocks if devices else ()) if isinstance(block, Table)
            ][:1],
        )

    def _environment(self) -> Environment:
        """How templates are filled: everything is escaped, and made sanitize before that."""
        environment = _base_environment().overlay()
        environment.filters["cell"] = self._cell
        environment.filters["link"] = self._link
        environment.globals["place"] = self._place
        environment.globals["ids"] = self._ids
        environment.globals["definitions_of"] = self._definitions
        return environment

    def _definitions(self, section: Section) -> list[tuple[str, str]]:
        known = {
            term: meaning for _, terms in self._document.definitions for term, meaning in terms
        }
        return [(term, known[term]) for term in section.terms if term in known]

    def _link(self, link: Link) -> Markup:
        target = self._ids.get(link.anchor)
        if target is None:
            return escape(shown(link.text))
        return Markup('<a href="#{}">{}</a>').format(target, shown(link.text))

    def _place(self, span: Span | None, text: str) -> Markup:
        """A link that shows a span on the timeline; nothing where its device is not drawn."""
        if span is None or span.device not in self._drawn:
            return Markup("")
        return Markup(
            '<a class="show" href="#timeline" data-device="{}" data-start="{}" data-end="{}">{}</a>'
        ).format(cut(span.device, LONGEST_TEXT), span.start_ps, span.end_ps, text)

    def _cell(self, value: Value, text: str, column: Column) -> Markup:
        """What stands in a cell."""
        if isinstance(value, Bar):
            return _bar(value)
        if isinstance(value, Span):
            return self._place(value, "show")
        if isinstance(value, tuple):
            return Markup(", ").join(map(self._link, value))
        if column.kind in ("name", "device") and not cells.is_absent(text):
            written = breakable(cut(text, LONGEST_NAME))
            target = self._ids.get(f"device {value}") if column.kind == "device" else None
            return Markup('<a href="#{}">{}</a>').format(target, written) if target else written
        return prose(text) if column.kind == "words" else escape(shown(text))


def _blocks(document: Document, kind: type[_B]) -> Iterator[_B]:
    for section in document.sections:
        yield from (block for block in section.blocks if isinstance(block, kind))


def _ids(document: Document) -> dict[str, str]:
    """By anchor the id of its element: the kind of the anchor and a number, whatever is in a recorded name."""
    anchors = [
        anchor
        for section in document.sections
        for block in section.blocks
        for anchor in _anchors(block)
    ]
    ids: dict[str, str] = {}
    counts: dict[str, int] = {}
    for anchor in anchors:
        if anchor not in ids:
            kind = anchor.partition(" ")[0]
            counts[kind] = counts.get(kind, 0) + 1
            ids[anchor] = f"{kind}-{counts[kind]}"
    return ids | {section.id: section.id for section in document.sections}


def _anchors(block: Block) -> Sequence[str]:
    if isinstance(block, Table):
        return block.anchors
    if isinstance(block, Findings):
        return [finding.anchor for finding in block.findings]
    return ()


@cache
def _base_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("traceview.document"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "breakable": breakable,
        "figure": figure,
        "kind": lambda block: type(block).__name__,
        "legend": _legend,
        "prose": prose,
        "rows": _rows,
        "sort_key": _sort_key,
        "strips": _strips,
        "visible": _visible,
    }
    environment.globals |= {
        "filter_from": FILTER_FROM,
        "least_width": _least_width,
        "long_from": LONG_FROM,
    }
    return environment


# Tables


def _visible(table: Table) -> list[tuple[Column, list[str]]]:
    return [(column, cells.texts(column)) for column in table.columns]


def _rows(columns: Sequence[tuple[Column, list[str]]]) -> Iterator[list[tuple[Column, Value, str]]]:
    for place in range(len(columns[0][1])):
        yield [(column, column.values[place], texts[place]) for column, texts in columns]


def _least_width(column: Column, texts: Sequence[str]) -> int:
    """Characters that a column of text should not be narrower than; 0 where that is left to the table."""
    longest = max(map(len, texts), default=0)
    return 0 if column.is_numeric else min(longest, _WIDEST_TEXT)


def _sort_key(value: Value) -> str | None:
    """The value that rows are sorted by: more digits of a ratio than are shown, and whole numbers whole."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if isinstance(value, int) else None


def _bar(bar: Bar) -> Markup:
    title = ", ".join(f"{part.look.words} {numbers.share(part.ratio)}" for part in bar.parts)
    pieces_ = Markup("").join(
        Markup('<i class="part {}" style="width:{}%"></i>').format(
            part.look.style, f"{100 * part.ratio * bar.ratio:.2f}"
        )
        for part in bar.parts
    )
    return Markup('<span class="bar" role="img" title="{}">{}</span>').format(title, pieces_)


def _legend(table: Table) -> list[Look]:
    """The looks of the parts of its bars, the most frequent first."""
    totals: dict[Look, float] = {}
    for column in table.columns:
        for value in column.values:
            for part in value.parts if isinstance(value, Bar) else ():
                totals[part.look] = totals.get(part.look, 0.0) + part.ratio
    return sorted(totals, key=lambda look: -totals[look])


def _strips(block: Block) -> str:
    page = Page(_STRIP_WIDTH)
    strip_lines(page, block)  # type: ignore[arg-type]
    return page.render().strip("\n")


# Text: on one line, without characters that hide or reorder, and never endless


def shown(value: object) -> object:
    """What a template writes for a value: text is made sanitize and cut; markup of our own stays as it is."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return cut(value, LONGEST_TEXT)


def cut(text: str, most: int) -> str:
    """At most `most` characters of `text`, from both ends, with the length of the whole stated."""
    if len(text) <= most:
        return sanitize(encodable(text))
    head = most * 2 // 3
    left = sanitize(encodable(text[:head]))
    right = sanitize(encodable(text[head - most :]))
    return f"{left}…{right} ({numbers.plural(len(text), 'character')})"


def breakable(text: str) -> Markup:
    """A path or a dotted name that may be broken after its separators; what is copied stays the same."""
    safe = escape(text)
    for separator in ("/", "::", "_"):
        safe = safe.replace(separator, Markup(f"{separator}<wbr>"))
    return safe


def prose(text: str) -> Markup:
    """A sentence in which calls, command lines and names are set as code."""
    code = Markup("<code>{}</code>")
    return Markup().join(
        code.format(piece.text) if piece.is_code else escape(piece.text)
        for piece in pieces(cut(text, LONGEST_TEXT))
    )
