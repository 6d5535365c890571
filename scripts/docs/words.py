"""How do the words of docstrings and of the schema stand in Markdown? What they put in backticks is code."""

from __future__ import annotations

import re

from traceview.render.markdown.inline import code, prose

_CODE = re.compile(r"`([^`]+)`")


def words(text: str) -> str:
    """One paragraph, on one line."""
    pieces = _CODE.split(" ".join(text.split()))
    # Every second one stood between backticks.
    return "".join(code(one) if place % 2 else _between(one) for place, one in enumerate(pieces))


def first_paragraph(docstring: str | None) -> str:
    """The first paragraph of a docstring, on one line."""
    return words((docstring or "").split("\n\n")[0])


def _between(text: str) -> str:
    if not text.strip():
        return text
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    return f"{text[:start]}{prose(text)}{text[end:]}"
