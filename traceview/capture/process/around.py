"""Puts something before and after functions of others, if possible without a frame of its own on the stack, and before the end of this
process, where no function of `atexit` sees that.

A signal is noted in C (`native`): Python's own table of handlers stays that of the script. A thread then saves, and lets the signal
end the process as without traceview. Where a native call holds Python's lock, another thread, which needs no lock, ends it.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Final

from traceview.capture.process.own_threads import own_thread

NATIVE: Any = None
"""The compiled module; without a C compiler at the install there is none, and elsewhere than on Linux it lacks signals."""
with suppress(ImportError):
    NATIVE = import_module("traceview.capture.process.native")

Before = Callable[..., Any]
After = Callable[[Any, Any, BaseException | None], Any]


def around(function: Callable[..., Any], before: Before, after: After) -> Any:
    """A callable, and method, in place of `function`, that first calls `before` with the arguments.

    What that returns, unless it is None, is given to `after` with the result and the error; it returns the result.
    """
    make = _in_python if NATIVE is None else NATIVE.Around
    # Functions of nanobind, as in JAX, may have no qualified name.
    given = [name for name in functools.WRAPPER_ASSIGNMENTS if getattr(function, name, None)]
    return functools.wraps(function, given)(make(function, before, after))


def _in_python(function: Callable[..., Any], before: Before, after: After) -> Callable[..., Any]:
    """The same where no C compiler was there at the install; tracebacks show its frame."""

    def passes_on(*args: Any, **kwargs: Any) -> Any:
        token = before(*args, **kwargs)
        if token is None:
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            after(token, None, error)
            raise
        return after(token, result, None)

    return passes_on


class Patches:
    """What is changed in modules and classes of others, until `undo`."""

    def __init__(self) -> None:
        self._restores: list[Callable[[], object]] = []

    def put(self, owner: Any, name: str, replacement: Any) -> None:
        """Replace an attribute. It is restored unless another tool has replaced it meanwhile: that calls ours."""
        is_own, original = name in vars(owner), vars(owner).get(name)
        setattr(owner, name, replacement)

        def restore() -> None:
            if vars(owner).get(name) is replacement and is_own:
                setattr(owner, name, original)
            elif vars(owner).get(name) is replacement:
                delattr(owner, name)

        self._restores.append(restore)

    def then(self, restore: Callable[[], object]) -> None:
        """Something else was changed, which `restore` undoes."""
        self._restores.append(restore)

    def undo(self) -> None:
        """Restore everything, the last change first."""
        while self._restores:
            self._restores.pop()()


ENDINGS: Final = ("SIGTERM", "SIGHUP")
_CALLS: Final = ("_exit", "execv", "execve")
"""What all functions that end or replace a process call in the end (Lib/os.py)."""
_GRACE_S: Final = 10.0
"""Python hands its lock over within milliseconds; a container is killed 10 s after SIGTERM, a job of Slurm after 30 s."""
_LONGEST_SAVING_S: Final = 60.0


class Endings:
    """Calls `save` before the process ends, from `install` to `remove`: with None, in the thread that ends it, or with a signal.

    With a signal that nobody handles it runs in a thread of its own, and has to call `NATIVE.end_by`.
    """

    def __init__(self, save: Callable[[int | None], None]) -> None:
        self._save = save
        self._process = os.getpid()
        self._patches = Patches()
        self._is_catching = False

    def install(self) -> None:
        """The profile is about to start."""
        for name in _CALLS:
            self._patches.put(os, name, around(getattr(os, name), self._ends, lambda *_: None))
        if hasattr(NATIVE, "catch"):
            self._is_catching = True
            NATIVE.catch(*(int(getattr(signal, name)) for name in ENDINGS))
            own_thread("ending", self._await_signal).start()
            own_thread("deadline", NATIVE.hold_to, _GRACE_S, _LONGEST_SAVING_S).start()

    def remove(self) -> None:
        """Everything ends the process as without traceview, as the signals already do in a forked child."""
        self._patches.undo()
        if self._is_catching and os.getpid() == self._process:
            self._is_catching = False
            NATIVE.release()

    def _ends(self, *_args: Any, **_kwargs: Any) -> None:
        if os.getpid() == self._process:
            self._patches.undo()
            self._save(None)

    def _await_signal(self) -> None:
        number = NATIVE.wait()
        if number:
            self._save(number)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block; a second one in it acts at once."""
    handler = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or not callable(handler):
        yield
        return
    is_interrupted = False

    def hold(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        signal.signal(signal.SIGINT, handler)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is hold:
            signal.signal(signal.SIGINT, handler)
        if is_interrupted:
            signal.raise_signal(signal.SIGINT)
