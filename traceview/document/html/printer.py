"""Prints documents as one HTML page that needs nothing else: the answer first, then what an expert checks it with."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec import structs

from traceview.base.version import VERSION
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import cell_texts, is_absent
from traceview.document.figures import legend, merged_sentence
from traceview.document.html import parts
from traceview.document.html.parts import name as name_text
from traceview.document.html.parts import prose, shown
from traceview.document.page import Page
from traceview.document.phrase import Sentence
from traceview.document.terminal import strip_lines
from traceview.document.vocabulary import COLOURS

MOST_BYTES: Final = 1_500_000
"""A page of this size is attached to a ticket and opened without a thought."""

ROWS: Final = (300, 128, 64, 32, 16, 8, 4)
"""Rows of a table: the first of these with which the page fits."""

FILTER_FROM: Final = 10
"""A table with so many rows has an input to filter them."""

LONG_FROM: Final = 25
"""A table with so many rows scrolls below its headings, so that the page stays one to find one's way in."""

_WIDEST_TEXT: Final = 10
"""Characters after which the text of a cell may be broken."""

_PAGE_WIDTH: Final = 126
_USUAL_WIDTH: Final = 11
_WIDTHS: Final = {"device": 14, "look": 16, "words": 18, "span": 7}
_NARROWEST_NAME: Final = 11
"""Characters of a table beside the contents at 1280 pixels, and of its columns by kind."""

_STRIP_WIDTH: Final = 120


def render(document_of: Callable[[int], doc.Document], most_bytes: int = MOST_BYTES) -> str:
    """The whole page, the same for the same report, in at most `most_bytes` bytes as far as rows can be left out.

    `document_of`: the document with so many rows per table at most.
    """
    page = ""
    for most_rows in ROWS:
        page = _Page(document_of(most_rows)).render()
        if len(page.encode()) <= most_bytes:
            break
    return page


def render_sections(title: str, headline: Sentence, sections: Sequence[doc.Section]) -> str:
    """A page of sections that belong to no single run. `headline`: what they say in one sentence, once on the page."""
    summary = doc.Summary(title, headline)
    below = tuple(structs.replace(section, lead="", is_folded=False) for section in sections)
    return _Page(doc.Document(VERSION, summary, below)).render()


class _Page:
    """A document as a page, on which links lead to rows, findings and spans of the timeline."""

    def __init__(self, document: doc.Document) -> None:
        self._document = document
        self._ids = _ids(document)
        block = document.block(doc.Timeline)
        self.drawn = block.drawn if block else {}

    def render(self) -> str:
        """The whole page; what a template writes is sanitized and escaped there."""
        scripts = [script("theme"), script("page")]
        if self.drawn:
            scripts.append(script("timeline"))
        sections = self._document.sections
        template = _templates().get_template("page.html.j2")
        return template.render(
            page=self,
            document=self._document,
            sections=[section for section in sections if not section.is_folded],
            folded=[section for section in sections if section.is_folded],
            ids=self._ids,
            styles=list(map(Markup, (colours(), bar_colours(), *map(asset, STYLES)))),
            scripts=list(map(Markup, scripts)),
            script_digests=" ".join(map(_digest, scripts)),
        )

    def strips(self, block: doc.Strips) -> Markup:
        """The strips, in the place of a timeline that is not drawn or where no script may run."""
        page = Page(_STRIP_WIDTH)
        strip_lines(page, block)
        return escape(page.render().strip("\n"))

    def texts_of(self, table: doc.Table) -> list[tuple[doc.Column, list[str]]]:
        """The columns with their texts, without those that lead to a timeline that is not drawn."""
        return [
            (column, cell_texts(column))
            for column in table.columns
            if column.kind != "span" or any(map(self._is_drawn, column.values))
        ]

    def _is_drawn(self, value: doc.Value) -> bool:
        return isinstance(value, doc.Span) and value.device in self.drawn

    def at(self, span: doc.Span) -> str:
        """Where a link leads: the number of the device, start, end, and the numbers of what else to open."""
        others = [self.drawn[device] for device in span.devices if device in self.drawn]
        places = (self.drawn[span.device], span.start_ps, span.end_ps, *others)
        return ",".join(map(str, places))


# Ids


def _section_id(section: doc.Section) -> str:
    """The figure of the timeline is `timeline`."""
    has_figure = any(isinstance(block, doc.Timeline) for block in section.blocks)
    return f"{section.id}-section" if has_figure else section.id


def _ids(document: doc.Document) -> dict[str, str]:
    """By anchor the id of its element, in which there is no recorded text: all of a kind are numbered as they come."""
    ids, counts = {}, Counter[str]()
    for anchor in _anchors(document):
        kind = anchor.partition(" ")[0]
        counts[kind] += 1
        ids[anchor] = f"{kind}-{counts[kind]}"
    return ids


def _anchors(document: doc.Document) -> Iterator[str]:
    for section in document.sections:
        for block in section.blocks:
            if isinstance(block, doc.Table):
                yield from block.anchors
            elif isinstance(block, doc.Findings):
                yield from (finding.anchor for finding in block.findings)


# Templates


def _digest(source: str) -> str:
    """As a content security policy names a script, so that nothing else on the page may run."""
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("traceview.document.html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {
        "kind": lambda block: type(block).__name__,
        "legend": legend,
        "merged": merged_sentence,
        "name": name_text,
        "prose": prose,
        "share": numbers.share,
        "time": numbers.time,
    }
    templates.globals |= {
        "bars": parts.bars,
        "data_of": parts.timeline_data,
        "anchor": doc.anchor,
        "filter_from": FILTER_FROM,
        "highest_ps": parts.highest_ps,
        "id_of": _section_id,
        "is_absent": is_absent,
        "least_width": _least_width,
        "name_width": _name_width,
        "long_from": LONG_FROM,
        "plural": numbers.plural,
        "sentence_of": doc.sentence_of,
        "steps_per_bar": parts.steps_per_bar,
    }
    return templates


# Tables


def _least_width(column: doc.Column, texts: Sequence[str]) -> int:
    """Characters that a column of text should not be narrower than; 0 where that is left to the table."""
    longest = max(map(len, texts), default=0)
    return 0 if column.is_numeric or column.kind == "name" else min(longest, _WIDEST_TEXT)


def _name_width(columns: Sequence[tuple[doc.Column, Sequence[str]]]) -> int:
    """Characters that a line of a name has, so that the table is no wider than a page; the rest shows under the pointer."""
    kinds = [column.kind for column, _ in columns]
    others = sum(_WIDTHS.get(kind, _USUAL_WIDTH) for kind in kinds if kind != "name")
    return max((_PAGE_WIDTH - others) // max(kinds.count("name"), 1), _NARROWEST_NAME)


# Style sheets and scripts that a page carries inside it; each script is joined from small files


ASSETS: Final = files("traceview.document.html") / "assets"

STYLES: Final = ("timeline.css", "page.css")
"""In the order of the page, after the colours."""

SCRIPTS: Final = ("theme", "page", "timeline")
"""Folders of files that make a script. A file uses the names of the others in its folder and of no other one."""


@cache
def asset(name: str) -> str:
    """The text of a file, by its path below `assets`."""
    return ASSETS.joinpath(*name.split("/")).read_text(encoding="utf-8")


@cache
def script(name: str) -> str:
    """The files of a folder as one function that runs at once, so that they share their names with nothing else."""
    names = sorted(path.name for path in ASSETS.joinpath(name).iterdir())
    # What the others define is there when the last one runs.
    names.sort(key="main.js".__eq__)
    parts = "\n".join(asset(f"{name}/{part}") for part in names)
    return f'(() => {{\n"use strict";\n\n{parts}}})();\n'


@cache
def colours() -> str:
    """A style sheet with the colours of the vocabulary as variables, by the system or by the choice of the reader.

    Paper is light, whatever the reader chose.
    """
    light, dark = (
        "{ " + " ".join(f"--tv-{name}: {both[ground]};" for name, both in COLOURS.items()) + " }"
        for ground in (0, 1)
    )
    return (
        f":root {light}\n"
        f'@media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {dark} }}\n'
        f'@media screen {{ :root[data-theme="dark"] {dark} }}\n'
    )


@cache
def bar_colours() -> str:
    """A style sheet that gives the pieces of bars their colours."""
    return "".join(f".part.{name} {{ background: var(--tv-{name}); }}\n" for name in COLOURS)
