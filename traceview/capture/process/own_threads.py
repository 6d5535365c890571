"""Starts the threads of traceview in the process of a script, under names by which stacks and samples leave them out."""

from __future__ import annotations

import signal
from collections.abc import Callable
from threading import Thread
from typing import Any, Final

OWN_THREADS: Final = "traceview-"
"""How their names begin."""


def own_thread(name: str, run: Callable[..., object], *arguments: Any) -> Thread:
    """A thread that is not started yet, and does not keep the process alive."""
    return Thread(target=run, args=arguments, name=f"{OWN_THREADS}{name}", daemon=True)


def block_signals() -> None:
    """Leave the signals of the process to the threads of the script; called in a thread of traceview."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
