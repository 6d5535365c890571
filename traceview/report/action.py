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


def action_of(advice: str, longest: int = LONGEST) -> str:
    """The first sentence of `advice`, or as many of its clauses as fit; code in brackets stays whole.

    A clause that is longer than that alone is given whole: half a clause would say something else.
    """
    first = ""
    for end in _breaks(advice):
        is_sentence = advice[end] == "."
        clause = advice[:end]
        if first and len(clause) > longest:
            break
        first = clause
        if is_sentence:
            break
    return first or advice


def _breaks(text: str) -> Iterator[int]:
    """Where sentences and clauses end, outside of brackets."""
    depth, places = 0, {match.start() for match in _BREAK.finditer(text)}
    for place, character in enumerate(text):
        depth += (character in _OPENING) - (character in _CLOSING)
        if place in places and depth == 0:
            yield place
