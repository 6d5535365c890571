"""Makes the pages of the documentation that come from the code; `PAGES` maps a file in docs/ to what writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from scripts.docs import commands, findings, metrics

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"

PAGES: dict[str, Callable[[], str]] = {
    "metrics.md": metrics.page,
    "findings.md": findings.page,
    "commands.md": commands.page,
}
