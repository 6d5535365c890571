"""Shows the checks before a run: a table with the fix below each row, or the same as JSON.

This module knows no checks; it shows anything with a name, a status, a detail and a fix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from rich.cells import cell_len
from rich.text import Text

from traceview.document import numbers
from traceview.document.json_text import dumped
from traceview.document.page import Page
from traceview.version import VERSION

SCHEMA_VERSION: Final = 1
STATUSES: Final = {
    "failed": "bold red",
    "warning": "bold yellow",
    "ok": "green",
    "not applicable": "dim",
}
"""The statuses of a check, worst first, and their styles."""


class CheckRow(Protocol):
    """One check as it is shown."""

    @property
    def name(self) -> str:
        """What was checked."""

    @property
    def status(self) -> str:
        """One of `STATUSES`."""

    @property
    def detail(self) -> str:
        """The result in words."""

    @property
    def fix(self) -> str:
        """What to do; empty if nothing."""


def render(checks: Sequence[CheckRow], *, width: int, color: bool, unicode: bool = True) -> str:
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


def _summary(checks: Sequence[CheckRow]) -> str:
    counts = _counts(checks)
    by_status = ", ".join(
        numbers.plural(count, status) if status == "warning" else f"{count} {status}"
        for status, count in counts.items()
        if count
    )
    summary = f"{numbers.plural(len(checks), 'check')}: {by_status}"
    has_problem = counts["failed"] or counts["warning"]
    return summary if has_problem else f"No problem found. {summary}"


def _counts(checks: Sequence[CheckRow]) -> dict[str, int]:
    return {status: sum(check.status == status for check in checks) for status in STATUSES}


def render_json(checks: Sequence[CheckRow]) -> bytes:
    """The same as data: `counts` by status, and `checks[]` with `name`, `status`, `found` and `fix`."""
    return dumped(
        {
            "schema_version": SCHEMA_VERSION,
            "traceview_version": VERSION,
            "counts": _counts(checks),
            "checks": [
                {
                    "name": check.name,
                    "status": check.status,
                    "found": check.detail,
                    "fix": check.fix,
                }
                for check in checks
            ],
        }
    )
