"""Shows the checks before a run: a row per check with the fix below it, or the same as data.

It knows no check; it shows whatever has a name, a status, an observation and a fix.
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
"""The outcomes of a check, the worst first, with their styles."""


class CheckRow(Protocol):
    """One check as it is shown."""

    @property
    def name(self) -> str:
        """What is checked."""

    @property
    def status(self) -> str:
        """One of `STATUSES`."""

    @property
    def found(self) -> str:
        """What the check observed."""

    @property
    def fix(self) -> str:
        """What to do, empty where there is nothing."""


def render(checks: Sequence[CheckRow], *, width: int, color: bool, unicode: bool = True) -> str:
    """A row per check, and how many checks have which outcome."""
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
    outcomes = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    return f"{numbers.plural(len(checks), 'check')}: {outcomes}"


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
                    "found": check.found,
                    "fix": check.fix,
                }
                for check in checks
            ],
        }
    )
