"""Cuts advice down to the one thing to do, for places that have no room for all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

LONGEST: Final = 140
"""Two lines of a screen of 80 columns."""

_BREAK: Final = re.compile(r"\.(?=$|\s+(?:[A-Z`]|traceview ))|[;:,](?=\s)")
"""The end of a sentence or of a clause; `e.g.` is neither."""

_OPENING, _CLOSING = "([{", ")]}"


def actions_of(advice: str, longest: int = LONGEST) -> tuple[str, ...]:
    """The first sentence of `advice` in as many clauses as fit, then in fewer and fewer; code in brackets stays whole.

    The first clause is among them however long it is: half a clause would say something else.
    """
    actions: list[str] = []
    for end in _breaks(advice):
        if actions and end > longest:
            break
        actions.append(advice[:end])
        if advice[end] == ".":
            break
    return tuple(reversed(actions)) or ((advice,) if advice else ())


def _breaks(text: str) -> Iterator[int]:
    """Where sentences and clauses end, outside of brackets."""
    depth, places = 0, {match.start() for match in _BREAK.finditer(text)}
    for place, character in enumerate(text):
        depth += (character in _OPENING) - (character in _CLOSING)
        if place in places and depth == 0:
            yield place
