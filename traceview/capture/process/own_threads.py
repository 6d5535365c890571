"""Starts the threads of traceview in the process of a script, under names by which stacks and samples leave them out."""

from __future__ import annotations

import signal
from collections.abc import Callable
from threading import Event, Thread, current_thread
from typing import Any, Final

OWN_THREADS: Final = "traceview-"


def own_thread(name: str, run: Callable[..., object], *arguments: Any) -> Thread:
    """A thread that is not started yet, does not keep the process alive, and leaves signals to the script's threads."""

    def start() -> None:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        run(*arguments)

    return Thread(target=start, name=f"{OWN_THREADS}{name}", daemon=True)


class Ticker:
    """Calls `tick` in a thread of its own: at once, and each time after as many seconds as it returned, until that is None, or `stop`."""

    def __init__(self, name: str, tick: Callable[[], float | None]) -> None:
        self._tick = tick
        self._is_over = Event()
        self._thread = own_thread(name, self._run)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float = 0.0) -> bool:
        """End; False if a call that runs did not return within `timeout_s`. The thread itself waits for nothing."""
        self._is_over.set()
        if self._thread.ident is None or self._thread is current_thread():
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._is_over.is_set() and (rest_s := self._tick()) is not None:
            self._is_over.wait(rest_s)
