"""What did the checks before a run find? One table, what has to be done below each row; or the same as data.

This package knows no checks; it shows whatever has a name, a status, what was found, and a fix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from rich.cells import cell_len
from rich.text import Text

from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.json import dumped, plain
from traceview.version import VERSION

SCHEMA_VERSION: Final = 1
STATUSES: Final = {
    "failed": "bold red",
    "warning": "bold yellow",
    "ok": "green",
    "not applicable": "dim",
}
"""What a check can say, the worst first, and how it looks."""


class CheckRow(Protocol):
    """One check as this table shows it."""

    @property
    def name(self) -> str:
        """What was looked at."""

    @property
    def status(self) -> str:
        """One of `STATUSES`."""

    @property
    def found(self) -> str:
        """What was seen."""

    @property
    def fix(self) -> str:
        """What to do, empty where there is nothing."""


def render(checks: Sequence[CheckRow], *, width: int, color: bool, unicode: bool = True) -> str:
    """The table, and how many checks say what."""
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
            page.prose(check.found, indent=2)
        else:
            page.prose(check.found, indent=indent, label=Text().join([status, blank, name]))
        if check.fix:
            left = 2 if is_narrow else indent
            page.prose(page.styled(f"fix: {check.fix}", "italic"), indent=left)
    page.gap()
    page.prose(_summary(checks))
    return page.render()


def _summary(checks: Sequence[CheckRow]) -> str:
    counts = _counts(checks)
    told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    return f"{numbers.plural(len(checks), 'check')}: {told}"


def _counts(checks: Sequence[CheckRow]) -> dict[str, int]:
    return {status: sum(check.status == status for check in checks) for status in STATUSES}


def render_json(checks: Sequence[CheckRow]) -> str:
    """The same as data: `counts` by status, and `checks[]` with `name`, `status`, `found` and `fix`."""
    return dumped(
        {
            "schema_version": SCHEMA_VERSION,
            "traceview_version": VERSION,
            "counts": _counts(checks),
            "checks": [
                {
                    "name": plain(check.name),
                    "status": plain(check.status),
                    "found": plain(check.found),
                    "fix": plain(check.fix),
                }
                for check in checks
            ],
        }
    )
