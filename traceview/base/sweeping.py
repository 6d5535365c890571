"""Chooses compiled modules, or their references in Python without a compiler; and lets threads share work, for they leave Python's lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from importlib import import_module
from threading import Event, Thread
from types import ModuleType
from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def compiled_or_reference(name: str) -> ModuleType:
    """The compiled module of this name, or the one whose name ends with `_reference`."""
    try:
        return import_module(name)
    except ImportError:
        return import_module(f"{name}_reference")


SWEEPS: Final = compiled_or_reference("traceview.base.sweeps")
"""The sweeps in use."""


def make_calls(calls: Iterable[Callable[[], None]], threads: int) -> None:
    """Make calls in turn on some threads and this one. Raises the first error, after which none begins.

    All threads start before the first call needs memory: one that finds none left ends before it can say that it has
    started, and Python waits for ever (CPython 3.10 to 3.13, `Thread.start`).
    """
    waiting, errors, all_started = deque(calls), list[BaseException](), Event()

    def make() -> None:
        all_started.wait()
        while True:
            try:
                call = waiting.popleft()
            except IndexError:
                return
            try:
                call()
            except BaseException as error:
                errors.append(error)
                waiting.clear()

    started: list[Thread] = []
    try:
        # No further thread may be started, in a container for instance.
        with suppress(RuntimeError):
            for _ in range(min(threads, len(waiting) - 1)):
                thread = Thread(target=make)
                thread.start()
                started.append(thread)
    finally:
        all_started.set()
    make()
    for thread in started:
        thread.join()
    if errors:
        raise errors[0]


def made_of_each(make: Callable[[K], V], keys: Sequence[K], threads: int) -> dict[K, V]:
    """What `make` makes of each key, in their order, on some threads and this one; it must change nothing that it shares."""
    made: dict[K, V] = {}

    def call(key: K) -> None:
        made[key] = make(key)

    # A thread has settings of numpy of its own.
    make_calls([partial(copy_context().run, call, key) for key in keys], threads)
    return {key: made[key] for key in keys}


def begin_imports(modules: Sequence[str]) -> None:
    """Import modules on another thread; what fails there fails anew where they are imported."""

    def import_all() -> None:
        with suppress(BaseException):
            for name in modules:
                import_module(name)

    # No further thread may be started, in a container for instance.
    with suppress(RuntimeError):
        Thread(target=import_all, daemon=True).start()


def made_ahead(make: Callable[[K], V], keys: Sequence[K], threads: int) -> Generator[V, None, None]:
    """What `make` makes of each key, in their order; where there may be a thread, it makes the next while one is in use."""
    if not threads:
        yield from map(make, keys)
        return
    from concurrent.futures import Future, ThreadPoolExecutor

    pool, made = ThreadPoolExecutor(1), deque[Future[V]]()
    try:
        # No further thread may be started, in a container for instance.
        with suppress(RuntimeError):
            made += [pool.submit(copy_context().run, make, key) for key in keys]
        if not made:
            yield from map(make, keys)
        while made:
            yield made.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
