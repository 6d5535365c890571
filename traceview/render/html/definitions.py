"""What do the words on the page mean?"""

from __future__ import annotations

from typing import Final

from traceview.render.definitions import CAUSES, TERMS
from traceview.render.idle import LOOKS
from traceview.report.recoverable import RECOVERABLE_MEANING

MEANINGS: Final = {**dict(TERMS), "recoverable": RECOVERABLE_MEANING}
"""Every term by its word."""

CAUSE_MEANINGS: Final = {
    (LOOKS[cause].words if cause in LOOKS else cause): meaning for cause, meaning in CAUSES.items()
}
"""What a device waited for, by the words of the page."""


def meanings(terms: tuple[str, ...]) -> list[tuple[str, str]]:
    """Word and meaning, for the help of a section."""
    return [(term, MEANINGS[term]) for term in terms if term in MEANINGS]
