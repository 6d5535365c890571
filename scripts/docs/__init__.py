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

BY_HAND = (
    DOCS.parent / "README.md",
    *sorted(path for path in DOCS.glob("*.md") if path.name not in PAGES),
)
"""Pages whose outputs are renewed."""
