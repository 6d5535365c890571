"""Runs calls on threads that all start before the first call needs memory.

Python waits until a thread says that it has started. One that finds no memory left ends before it can, and Python waits for
ever (CPython 3.10 to 3.13, `Thread.start`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from threading import Event
from typing import Any, Final, TypeAlias

Start: TypeAlias = Callable[..., Callable[[], Any]]
"""Starts a call with its arguments, and returns what waits for its result."""

_MOST_THREADS: Final = 8


@contextmanager
def started_threads() -> Iterator[Start]:
    """What starts a call on one of the threads. Calls that are under way at the end go on, after an error none begins."""
    from concurrent.futures import ThreadPoolExecutor

    count = min(_MOST_THREADS, 1 + (os.cpu_count() or 1))
    pool = ThreadPoolExecutor(count)
    all_started = Event()

    def start(call: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        try:
            # Threads allocate memory as this one does.
            return pool.submit(copy_context().run, call, *arguments).result
        except RuntimeError:
            # No threads may be started, in a container for instance.
            result = call(*arguments)
            return lambda: result

    # A thread that waits takes no other call, so each of these starts one.
    with suppress(RuntimeError):
        for _ in range(count):
            pool.submit(all_started.wait)
    all_started.set()
    try:
        yield start
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown(wait=False)
