"""Tests that Markdown is one page that reads the same everywhere, whatever the names in it are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.documents import full_document
from tests.hostile import HOSTILE
from traceview.document.markdown import code, prose, render
from traceview.document.phrase import name
from traceview.report.build import analyze
from traceview.report.document import document_of

PARSER = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
MOST_VISIBLE = 60
SHARED = ["bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8"]
FIXTURES = sorted(path.parent.name for path in Path("fixtures").glob("*/plugins"))


def tables(text: str) -> list[list[list[str]]]:
    """The cells of every table, as a reader sees their text."""
    found: list[list[list[str]]] = []
    for token in PARSER.parse(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and found and token.level >= 4:
            found[-1][-1].append("".join(child.content for child in token.children or ()))
    return found


def visible_lines(page: str) -> int:
    """Lines that are shown while everything is folded; a fold is one line."""
    count = depth = 0
    for line in page.splitlines():
        depth -= line == "</details>"
        count += depth == 0 and line != "</details>"
        depth += line == "<details>"
    return count


@pytest.mark.parametrize("name", FIXTURES)
def test_a_recorded_run_is_read_at_a_glance(name: str) -> None:
    assert visible_lines(render(document_of(analyze(Path("fixtures", name))))) <= MOST_VISIBLE


@pytest.mark.shared
@pytest.mark.parametrize("name", SHARED)
def test_eight_gpus_are_read_at_a_glance(name: str, shared_traces: Path) -> None:
    page = render(document_of(analyze(shared_traces / name)))
    assert visible_lines(page) <= MOST_VISIBLE


@pytest.mark.parametrize(
    "text", [text for text in HOSTILE if len(text) < 100 and text.isprintable()]
)
def test_a_name_is_shown_as_it_is(text: str) -> None:
    for shown in (code(text), prose((name(text),))):
        (block,) = (token for token in PARSER.parse(f"x {shown}") if token.type == "inline")
        content = "".join(
            child.content for child in block.children or () if child.type != "html_inline"
        )
        assert content == f"x {text}".replace("  ", " ") or content == f"x {text}"
    cells = tables(f"| a | b |\n| --- | --- |\n| {code(text)} | c |")[0][1]
    assert re.sub("</?code>", "", cells[0]).strip() == text.strip()
    assert cells[1] == "c"


@pytest.mark.parametrize(
    ("sentence", "written"),
    [
        ("GPU:0 waits 7.1 ms (12%) of 'a' step.", "GPU:0 waits 7.1 ms (12%) of 'a' step."),
        ("see `traceview show gaps` and `tf.device`", "see `traceview show gaps` and `tf.device`"),
        ("an odd ` stays", "an odd \\` stays"),
        ("by @someone in #1 of www.evil.example", "by `@someone` in `#1` of `www.evil.example`"),
        ("busy >99.9% since 07:57:18", "busy &gt;99.9% since 07:57:18"),
        ("1. first", "1\\. first"),
        ("- item", "\\- item"),
    ],
)
def test_a_sentence_is_no_markup(sentence: str, written: str) -> None:
    assert prose(sentence) == written


def test_a_page_that_is_too_long_names_what_it_left_out() -> None:
    page = render(full_document(), most_bytes=5000)
    assert len(page.encode()) <= 5000
    last = page.splitlines()[-1]
    assert last.startswith("**Cut at 5 kB**, left out: ")
    titles = last.partition("left out: ")[2].partition(". The")[0].split(", ")
    assert titles
    assert not any(f"<b>{title}</b>" in page for title in titles)
    assert prose(full_document().summary.answer) in page
    assert "Cut at" not in render(full_document())
