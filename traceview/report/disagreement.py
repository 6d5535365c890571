"""Says what does not fit in a report."""

from __future__ import annotations

from msgspec import Struct


class Disagreement(Struct, frozen=True):
    """A place in a report, such as `$.results.steps`, and what does not fit there."""

    place: str
    problem: str
