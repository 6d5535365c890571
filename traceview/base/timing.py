"""Tells somebody who asks what a command works on: the stages of the work say when they begin and end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Final, TypeAlias

Stages: TypeAlias = list[tuple[str, str]]
"""The open stages, the innermost last: the name of each, and which of several parts of it."""

_asking: Final[list[tuple[int, Stages]]] = []


@contextmanager
def followed() -> Iterator[Stages]:
    """Gives the open stages of what runs inside, on this thread."""
    asked: tuple[int, Stages] = get_ident(), []
    _asking.append(asked)
    try:
        yield asked[1]
    finally:
        _asking.remove(asked)


@contextmanager
def stage(name: str, detail: str = "") -> Iterator[None]:
    """Tell that the work inside is a stage of this name; `detail` says which of several parts of it."""
    asking = [stages for thread, stages in _asking if thread == get_ident()]
    for stages in asking:
        stages.append((name, detail))
    try:
        yield
    finally:
        for stages in asking:
            stages.pop()
