"""Shortens names so that they stay distinct: what names have in common is left out before what differs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from rich.cells import cell_len

from traceview.document.page import Page

_HEAD_OF_REST: Final = 0.8
"""Of a name whose start is left out: how much of what is shown is taken from the start of the rest."""

_MOST_REPEATED: Final = 4
"""Characters that are kept of what several names have in common after their first difference."""


def shortened_names(
    page: Page, names: Collection[str], width: int, *, head: float = 0.5
) -> dict[str, str]:
    """Each name in at most `width` columns; names that would look alike lose what they have in common.

    `head`: how much of a shortened name is its start.
    """
    shown = {name: page.middle(name, width, head=head) for name in names}
    for group in _alike(shown):
        shown |= _from_difference(page, group, width, "", 0)
    return shown


def _from_difference(
    page: Page, names: Collection[str], width: int, kept: str, begin: int
) -> dict[str, str]:
    """Names that begin alike, from shortly before their first difference on.

    `kept`: stands in front and tells them from other names; `begin`: where what follows it begins.
    """
    differ = len(_common_start(names))
    start = max(min(names).rfind("/", 0, differ) + 1, differ - width // 5, begin)
    lead = kept + (page.ellipsis if start > begin else "")
    shown = {name: page.middle(lead + name[start:], width, head=_HEAD_OF_REST) for name in names}
    for group in _alike(shown):
        common = _common_start(group)
        end = min(differ + _MOST_REPEATED, len(common))
        if end > differ and cell_len(lead) < width // 2:
            shown |= _from_difference(page, group, width, lead + common[start:end], end)
    return shown


def _alike(shown: dict[str, str]) -> list[list[str]]:
    """The names that are shown as the same text, together."""
    groups: dict[str, list[str]] = {}
    for name, text in shown.items():
        groups.setdefault(text, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _common_start(names: Collection[str]) -> str:
    first, last = min(names), max(names)
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return first[:length]
