"""Tests that what a notebook shows is a fragment that says what matters and does nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from msgspec import structs

from tests.documents import bare_document, finding, full_document
from tests.hostile import HOSTILE
from traceview.document.html.printer import NOTEBOOK_FINDINGS, NOTEBOOK_ROWS, render_notebook
from traceview.document.model import Findings, Section
from traceview.document.phrase import plain

TAGS = {
    *("div", "style", "p", "span", "strong", "code", "i", "details", "summary", "wbr"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}


class Reading(HTMLParser):
    """Tags that were opened and closed, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "wbr":
            self.open.append(tag)
        self.tags.add(tag)
        self.attributes |= {key for key, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(fragment: str) -> Reading:
    reading = Reading()
    reading.feed(fragment)
    reading.close()
    assert reading.open == []
    return reading


def test_it_says_what_matters() -> None:
    text = read(render_notebook(full_document())).text
    summary = full_document().summary
    for part in (
        plain(summary.answer),
        plain(summary.action),
        "66.7% of the GPU time",
        plain(summary.findings[0].title),
        plain(summary.findings[0].whole_advice),
        "confidence high",
        "traceview explain unused-gpu",
        "GPU:0",
        "75.0%",
    ):
        assert part in text
    assert "No problem found." in read(render_notebook(bare_document())).text


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_text(text: str) -> None:
    fragment = render_notebook(full_document(lambda recorded: f"{text}{recorded}"))
    assert fragment.encode().decode() == fragment
    reading = read(fragment)
    assert reading.tags <= TAGS
    assert reading.attributes <= {
        "aria-label",
        "class",
        "style",
        "title",
        "open",
        "role",
        "data-value",
    }
    assert len(fragment) < 60_000
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b]", fragment)


def test_its_style_holds_for_nothing_else() -> None:
    (style,) = re.findall(r"<style>(.*?)</style>", render_notebook(full_document()), re.DOTALL)
    selectors = re.findall(r"^(.*?) \{", style.strip(), re.MULTILINE)
    assert len(selectors) > 10
    for selector in ", ".join(selectors).split(", "):
        assert selector.startswith(".traceview-report")
    assert "url(" not in style


def test_of_many_devices_and_findings_it_shows_some() -> None:
    document = full_document(device_count=200)
    sections = [
        Section("findings", "Findings", (Findings((finding(),) * 50),))
        if section.id == "findings"
        else section
        for section in document.sections
    ]
    fragment = render_notebook(structs.replace(document, sections=tuple(sections)))
    assert len(fragment) < 60_000
    assert fragment.count("<details") == NOTEBOOK_FINDINGS
    assert "30 more findings" in fragment
    assert fragment.count("<tr>") == NOTEBOOK_ROWS + 1
    assert "180 more devices" in fragment


def test_bars_have_the_colours_of_the_legend() -> None:
    """Soft text is half transparent; a sample of colour in it would be another colour."""
    fragment = render_notebook(full_document())
    (legend,) = re.findall(r'<p class="([^"]*legend[^"]*)">', fragment)
    assert legend == "legend"
    for style in ("compute", "communication", "copies"):
        assert f".traceview-report .{style} {{ background: #" in fragment
