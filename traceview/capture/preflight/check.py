"""What does one check say?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

Status = Literal["ok", "warning", "failed", "not applicable"]
STATUSES: Final[tuple[Status, ...]] = ("failed", "warning", "ok", "not applicable")

_LISTED: Final = 6


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: what was found, and what to do where that is not well.

    `failed`: a capture here would fail, or come back without what it is made for. `warning`: it may, or its
    numbers would not mean what one thinks. `not applicable`: there is nothing here to look at.
    """

    name: str
    status: Status
    found: str
    fix: str = ""


def ok(name: str, found: str) -> Check:
    """Nothing to do."""
    return Check(name, "ok", found)


def warning(name: str, found: str, fix: str) -> Check:
    """Something to know before the run."""
    return Check(name, "warning", found, fix)


def failed(name: str, found: str, fix: str) -> Check:
    """Something to change before the run."""
    return Check(name, "failed", found, fix)


def not_applicable(name: str, found: str) -> Check:
    """Nothing to look at."""
    return Check(name, "not applicable", found)


def listed(items: Iterable[object]) -> str:
    """Items joined by commas; of many, the first and how many more there are."""
    texts = [str(item) for item in items]
    left = len(texts) - _LISTED
    return ", ".join(texts[:_LISTED]) + (f" and {left} more" if left > 0 else "")
