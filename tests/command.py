"""Defines what a command leaves: its exit code and both of its outputs, run in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Done:
    """What a command left: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str


class Command(Protocol):
    """Runs `traceview` with these arguments."""

    def __call__(self, *arguments: str) -> Done: ...
