"""What does a finding mean? The catalogue, and one entry of it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from traceview.analyses.catalogue import FindingKind
from traceview.render.columns import Column, add_columns, room_beside
from traceview.render.findings import SEVERITY_STYLES
from traceview.render.page import Page


def render_list(
    kinds: Iterable[FindingKind], *, width: int, color: bool, unicode: bool = True
) -> str:
    """Every code with its severity and the moment from which it is reported."""
    page = Page(width, color, unicode)
    known = list(kinds)
    columns = [
        Column("code", [page.styled(kind.code, "bold") for kind in known]),
        Column("severity", [_severity(page, kind) for kind in known]),
    ]
    room = max(room_beside(page, columns), 10)
    columns.append(
        Column(
            "reported from", [Text(page.middle(kind.starts_at, room, head=0.9)) for kind in known]
        )
    )
    add_columns(page, columns)
    page.gap()
    page.prose(page.styled("traceview explain CODE says what one means and what to do.", "dim"))
    return page.render()


def render_one(kind: FindingKind, *, width: int, color: bool, unicode: bool = True) -> str:
    """One finding: its meaning, what shows it, what to change, and an example."""
    page = Page(width, color, unicode)
    page.prose(Text.assemble((kind.code, "bold"), "  ", _severity(page, kind, whole=True)))
    page.gap()
    page.prose(kind.meaning)
    page.gap()
    for label, text in (
        ("from", kind.starts_at),
        ("evidence", kind.evidence),
        ("advice", kind.advice),
        ("example", kind.example),
    ):
        page.prose(text, indent=11, label=page.styled(label, "dim"))
    return page.render()


def _severity(page: Page, kind: FindingKind, *, whole: bool = False) -> Text:
    """The severity at its worst, or all that is said about it."""
    first = kind.severity.partition(";")[0].split()[0]
    return page.styled(kind.severity if whole else first, SEVERITY_STYLES.get(first, ""))
