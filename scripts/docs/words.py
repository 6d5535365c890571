"""Writes docstrings and the texts of rules as Markdown: what they put in backticks is code."""

from __future__ import annotations

from traceview.document.markdown import prose


def words(text: str) -> str:
    """One paragraph, on one line."""
    return prose(" ".join(text.split()))


def first_paragraph(docstring: str | None) -> str:
    """The first paragraph of a docstring, on one line."""
    return words((docstring or "").split("\n\n")[0])
