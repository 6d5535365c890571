"""Reads the path of a key: names with dots between them, and in brackets which rows or entries are meant."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct, json

from traceview.errors import UsageError

_STEP: Final = re.compile(
    r"""(?P<name>[A-Za-z_]\w*)(?:\[(?P<selector>"(?:[^"\\]|\\.)*"|[^\[\]"]*)\])?""", re.ASCII
)


class PathStep(Struct, frozen=True):
    """One name of a path. `selector`: which rows of the list or entries of the object; None for all."""

    name: str
    selector: str | None = None

    def __str__(self) -> str:
        return self.name if self.selector is None else f"{self.name}[{self.selector}]"


def path_at_start(text: str) -> tuple[tuple[PathStep, ...], str]:
    """The path that a text begins with, and what follows it; raises `UsageError` where it begins with none."""
    steps: list[PathStep] = []
    place = 0
    while match := _STEP.match(text, place):
        steps.append(PathStep(match["name"], _selector(match["selector"])))
        place = match.end()
        if text[place : place + 1] != ".":
            return tuple(steps), text[place:]
        place += 1
    raise UsageError(f"{text!r}: a key is expected at {text[place:] or 'the end'!r}")


def _selector(text: str | None) -> str | None:
    """What stands in brackets, without its quotes; `*` and nothing are all."""
    if text is None or text.strip() in ("", "*"):
        return None
    if text.startswith('"'):
        return json.decode(text, type=str)
    return text.strip()


def dotted(steps: tuple[PathStep, ...]) -> str:
    """The path as it is written."""
    return ".".join(map(str, steps))
