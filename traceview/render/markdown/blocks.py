"""What are pages of Markdown made of? Tables, code, lists and parts that fold; every piece ends with its last line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from traceview.document.sanitize import sanitize

_FENCE: Final = re.compile(r"^`{3,}", re.MULTILINE)


@dataclass(frozen=True)
class Column:
    """One column of a table: its heading and its cells, which are Markdown already."""

    heading: str
    cells: Sequence[str]
    right: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the page: its title, and the blocks below it. `folded`: shown as a line until it is opened."""

    title: str
    blocks: tuple[str, ...]
    folded: bool = True


def table(columns: Sequence[Column]) -> str:
    """A table with the columns that have anything in them; empty without rows."""
    kept = [column for column in columns if any(cell for cell in column.cells)]
    if not kept:
        return ""
    rows = zip(*(column.cells for column in kept), strict=True)
    return "\n".join(
        (
            _row(column.heading for column in kept),
            _row("---:" if column.right else "---" for column in kept),
            *map(_row, rows),
        )
    )


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def fenced(lines: Iterable[str], language: str = "") -> str:
    """Lines as they are, in a block of code."""
    text = "\n".join(sanitize(line) for line in lines)
    longest = max((len(found) for found in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language or 'text'}\n{text}\n{fence}"


def bullets(items: Iterable[str]) -> str:
    """One line per item."""
    return "\n".join(f"- {item}" for item in items)


def rendered(section: Section) -> str:
    """The section as it stands on the page."""
    body = "\n\n".join(block for block in section.blocks if block)
    if not section.folded:
        return f"## {section.title}\n\n{body}"
    return f"<details>\n<summary><b>{section.title}</b></summary>\n\n{body}\n\n</details>"
