"""Lists the first of many names, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

ROOM_OF_MORE: Final = 16
"""Characters of a name that takes about as much room as `and 1 more`, and says more."""


def first_of(names: Sequence[str], most: int) -> tuple[Sequence[str], int]:
    """The first `most` names, and how many are left out; a single short one is not left out."""
    hidden_count = len(names) - most
    if hidden_count <= 0 or (hidden_count == 1 and len(names[-1]) <= ROOM_OF_MORE):
        return names, 0
    return names[:most], hidden_count


def enumerated(names: Sequence[str], most: int) -> str:
    """`a, b, c`, or of many `a, b and 3 more`."""
    shown, hidden_count = first_of(names, most)
    return ", ".join(shown) + (f" and {hidden_count} more" if hidden_count else "")
