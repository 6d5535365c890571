"""Defines the result of one check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Status = Literal["ok", "warning", "failed", "not applicable"]
STATUSES: Final[tuple[Status, ...]] = ("failed", "warning", "ok", "not applicable")


@dataclass(frozen=True)
class Check:
    """The result of one check: what the machine or script has, and how to fix it.

    `failed`: a capture here would fail, or lack its main content. `warning`: it may, or its numbers would mislead.
    `not applicable`: there is nothing to check here.
    """

    name: str
    status: Status
    detail: str
    fix: str = ""


@dataclass(frozen=True)
class Subject:
    """What one check is about, by its name in the table."""

    name: str

    def ok(self, detail: str) -> Check:
        """Nothing to do."""
        return Check(self.name, "ok", detail)

    def warning(self, detail: str, fix: str) -> Check:
        """Something to know before the run."""
        return Check(self.name, "warning", detail, fix)

    def failed(self, detail: str, fix: str) -> Check:
        """Something to change before the run."""
        return Check(self.name, "failed", detail, fix)

    def not_applicable(self, detail: str) -> Check:
        """Nothing to check."""
        return Check(self.name, "not applicable", detail)
