"""Records when Python collected garbage. A full collection visits every object of the process and keeps the lock meanwhile."""

from __future__ import annotations

import gc
from contextlib import suppress
from time import time_ns
from typing import Any, Final

LEAST_NS: Final = 100_000
"""Young collections are shorter, and come after every few hundred new objects."""


class CollectionClock:
    """Times the garbage collections from `start` to `stop`.

    Attributes:
        spans: Of each of `LEAST_NS` or more: Unix time of its start, its length, both in nanoseconds, and its generation.
    """

    def __init__(self) -> None:
        self.spans: list[tuple[int, int, int]] = []
        self._started_ns = 0

    def start(self) -> None:
        """Be called at the start and the end of every collection."""
        gc.callbacks.append(self._called)

    def stop(self) -> None:
        """Be called no longer."""
        with suppress(ValueError):
            gc.callbacks.remove(self._called)

    def _called(self, phase: str, info: dict[str, Any]) -> None:
        now_ns = time_ns()
        if phase == "start":
            self._started_ns = now_ns
        elif self._started_ns and now_ns - self._started_ns >= LEAST_NS:
            self.spans.append((self._started_ns, now_ns - self._started_ns, info["generation"]))
