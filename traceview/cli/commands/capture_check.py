"""Shows the checks of `traceview capture --check`: a table with the fix below each row."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import typer
from rich.cells import cell_len
from rich.text import Text

from traceview.capture.check.checks import Check, examine
from traceview.cli.output import Target, say
from traceview.document import numbers
from traceview.document.page import Page

FAILED_CHECK: Final = 8
STATUSES: Final = {
    "failed": "bold red",
    "warning": "bold yellow",
    "ok": "green",
    "not applicable": "dim",
}
"""The statuses of a check, worst first, and their styles."""


def show_checks(script: Path | None, out: Path) -> None:
    """Run every check and print the result; ends the command with 8 if one failed. `script`: read, never run."""
    target = Target(None)
    if sys.stderr.isatty():
        say("recording a trial profile")
    checks = list(examine(script, out))
    color, unicode = target.has_color, target.has_unicode
    target.write(render(checks, width=target.width(None), color=color, unicode=unicode))
    if any(check.status == "failed" for check in checks):
        raise typer.Exit(FAILED_CHECK)


def render(checks: Sequence[Check], *, width: int, color: bool, unicode: bool = True) -> str:
    """The table, and the number of checks by status."""
    page = Page(width, color, unicode)
    status_width = max((len(check.status) for check in checks), default=0)
    name_width = max((cell_len(page.text(check.name)) for check in checks), default=0)
    indent = status_width + name_width + 4
    is_narrow = indent > page.width // 2
    for check in checks:
        status = page.styled(check.status, STATUSES.get(check.status, ""))
        blank = Text(" " * (status_width - len(check.status) + 2))
        name = page.styled(check.name, "bold" if check.status in ("failed", "warning") else "")
        if is_narrow:
            page.line(status, blank, name)
            page.prose(check.detail, indent=2)
        else:
            page.prose(check.detail, indent=indent, label=Text().join([status, blank, name]))
        if check.fix:
            left = 2 if is_narrow else indent
            page.prose(page.styled(f"fix: {check.fix}", "italic"), indent=left)
    page.gap()
    page.prose(_summary(checks))
    return page.render()


def _summary(checks: Sequence[Check]) -> str:
    counts = _counts(checks)
    by_status = ", ".join(
        numbers.plural(count, status) if status == "warning" else f"{count} {status}"
        for status, count in counts.items()
        if count
    )
    summary = f"{numbers.plural(len(checks), 'check')}: {by_status}"
    has_problem = counts["failed"] or counts["warning"]
    return summary if has_problem else f"No problem found. {summary}"


def _counts(checks: Sequence[Check]) -> dict[str, int]:
    return {status: sum(check.status == status for check in checks) for status in STATUSES}
