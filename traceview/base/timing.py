"""Measures where the time of a command goes: the stages of the work tell when they begin and end, if somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from time import perf_counter
from typing import Final


class Stages:
    """The seconds of each stage of one thread by its name, in the order in which they began, without the stages inside it."""

    def __init__(self) -> None:
        self.thread = get_ident()
        self.seconds: dict[str, float] = {}
        self.beside: dict[str, float] = {}
        """The same of what a second thread did meanwhile."""
        self.detail = ""
        self._open: list[str] = []
        self._since = perf_counter()

    @property
    def current(self) -> str:
        """The name of the innermost open stage, "" without any."""
        return self._open[-1] if self._open else ""

    def begin(self, name: str, detail: str = "") -> None:
        """Open a stage, inside of the one that is open; `detail` says which of several parts of it."""
        self._count()
        self.detail = detail
        self.seconds.setdefault(name, 0.0)
        self._open.append(name)

    def end(self) -> None:
        """Close the innermost stage."""
        self._count()
        self._open.pop()

    def _count(self) -> None:
        now = perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now


_asking: Final[list[Stages]] = []


@contextmanager
def measured() -> Iterator[Stages]:
    """Gives the stages of what runs inside, on this thread."""
    stages = Stages()
    _asking.append(stages)
    try:
        yield stages
    finally:
        _asking.remove(stages)


@contextmanager
def measured_beside(thread: int) -> Iterator[None]:
    """Counts the stages of what runs inside, on this thread, as beside those of another thread."""
    mine = []
    for stages in tuple(_asking):
        if stages.thread == thread:
            own = Stages()
            own.seconds = stages.beside
            mine.append(own)
    _asking.extend(mine)
    try:
        yield
    finally:
        for own in mine:
            _asking.remove(own)


@contextmanager
def stage(name: str, detail: str = "") -> Iterator[None]:
    """Tell that the work inside is a stage of this name; `detail` says which of several parts of it."""
    asking = tuple(stages for stages in _asking if stages.thread == get_ident())
    for stages in asking:
        stages.begin(name, detail)
    try:
        yield
    finally:
        for stages in asking:
            stages.end()
