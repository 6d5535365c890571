"""What does a finding mean? The catalogue, and one entry of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from traceview.analysis.catalogue import FindingKind
from traceview.document.page import Page
from traceview.render.columns import GAP
from traceview.render.findings import SEVERITY_STYLES

_SEVERITY_WIDTH: Final = 8
_NARROWEST_TEXT: Final = 30
"""With less room beside code and severity the text stands below them."""

_BELOW: Final = 4


def render_list(
    kinds: Iterable[FindingKind], *, width: int, color: bool, unicode: bool = True
) -> str:
    """Every code with its severity and the moment from which it is reported."""
    page = Page(width, color, unicode)
    known = list(kinds)
    widest = max((cell_len(kind.code) for kind in known), default=0)
    indent = widest + GAP + _SEVERITY_WIDTH + GAP
    is_beside = page.width - indent >= _NARROWEST_TEXT

    def add(code: Text, severity: Text, text: Text) -> None:
        lead = Text().join([code, Text(" " * (widest + GAP - cell_len(code.plain))), severity])
        if is_beside:
            page.prose(text, indent=indent, label=lead)
        else:
            page.line(lead)
            page.prose(text, indent=_BELOW)

    if is_beside:
        add(*(page.styled(title, "dim") for title in ("code", "severity", "reported from")))
    for kind in known:
        add(page.styled(kind.code, "bold"), _severity(page, kind), page.styled(kind.starts_at))
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
