"""Writes docstrings and the texts of rules as Markdown: what they put in backticks is code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from traceview.document.markdown import code, prose

_CODE = re.compile(r"`([^`]+)`")


def words(text: str) -> str:
    """One paragraph, on one line."""
    pieces = _CODE.split(" ".join(text.split()))
    # Every second piece was between backticks.
    return "".join(
        code(piece) if place % 2 else _between(piece) for place, piece in enumerate(pieces)
    )


def first_paragraph(docstring: str | None) -> str:
    """The first paragraph of a docstring, on one line."""
    return words((docstring or "").split("\n\n")[0])


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: bool = False) -> str:
    """A table of cells that are Markdown already. `right`: the first column is aligned at its right end."""
    rules = ["--:" if right and not place else "---" for place in range(len(headings))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (headings, rules, *rows))


def _between(text: str) -> str:
    if not text.strip():
        return text
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    return f"{text[:start]}{prose(text)}{text[end:]}"
