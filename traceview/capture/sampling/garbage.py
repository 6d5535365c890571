"""Records when Python collected garbage, and keeps collections out of the thread that samples.

A full collection visits every object of the process and keeps the lock meanwhile. Python collects in the thread that makes
one object too many, and runs finalizers of the script there, of which some wait for other threads.
"""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from time import time_ns
from typing import Any, Final

from traceview.capture.process.around import Patches, around

_LEAST_NS: Final = 100_000
"""Young collections are shorter, and come after every few hundred new objects."""
_SWITCH: Final = gc.enable, gc.disable


class Collections:
    """The garbage collections from `start` to `stop`.

    While they are held, what the script switches on or off is remembered: it sees, and gets afterwards, what it has chosen.

    Attributes:
        spans: Of each that took long: Unix time of its start, its length, both in nanoseconds, and its generation.
    """

    def __init__(self) -> None:
        self.spans: list[tuple[int, int, int]] = []
        self._started_ns = 0
        self._patches = Patches()
        self._is_on = False
        self._is_wanted = True
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def start(self) -> None:
        """Be called at the start and the end of every collection, and where the script switches them."""
        self._is_on, self._is_wanted = True, gc.isenabled()
        gc.callbacks.append(self._called)
        for name, after in (
            ("enable", self._switched(is_on=True)),
            ("disable", self._switched(is_on=False)),
            ("isenabled", lambda _token, _result, _error: self._is_wanted),
        ):
            self._patches.put(gc, name, around(getattr(gc, name), lambda: True, after))

    def stop(self) -> None:
        """Be called no longer."""
        self._is_on = False
        with suppress(ValueError):
            gc.callbacks.remove(self._called)
        self._patches.undo()

    def hold(self) -> None:
        """From here on none begins."""
        _SWITCH[1]()

    def release(self) -> None:
        """They begin again as the script has chosen."""
        is_on = False
        while is_on != self._is_wanted:
            # Another thread may choose meanwhile.
            is_on = self._is_wanted
            _SWITCH[0 if is_on else 1]()

    def _forked(self) -> None:
        """This is a child, without the thread that holds them."""
        if self._is_on:
            self.stop()
            self.release()

    def _switched(self, *, is_on: bool) -> Any:
        def after(_token: Any, result: Any, _error: BaseException | None) -> Any:
            self._is_wanted = is_on
            return result

        return after

    def _called(self, phase: str, info: dict[str, Any]) -> None:
        now_ns = time_ns()
        if phase == "start":
            self._started_ns = now_ns
        elif self._started_ns and now_ns - self._started_ns >= _LEAST_NS:
            self.spans.append((self._started_ns, now_ns - self._started_ns, info["generation"]))
