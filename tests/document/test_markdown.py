"""Tests that Markdown is one page that reads the same everywhere, whatever the names in it are."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt

from tests.documents import full_document
from tests.hostile import HOSTILE
from traceview.analysis.rules.words import Line, tokens_of
from traceview.document.markdown import code, prose, render
from traceview.document.phrase import name

PARSER = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")


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


def test_a_line_and_what_it_calls_are_two_names() -> None:
    """Spans of code that touch would be one."""
    line = Line("train.py:40 in load", "numpy/_core/fromnumeric.py:1025 in sort")
    assert prose(tuple(tokens_of(line))) == "`load, train.py:40` (`sort of numpy`)"


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
