"""Puts something before and after functions of others, if possible without a frame of its own on the stack, and undoes it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

NATIVE: Any = None
"""The compiled module; without a C compiler at the install there is none, and elsewhere than on Linux it lacks signals."""
with suppress(ImportError):
    NATIVE = import_module("traceview.capture.process.native")

Before = Callable[..., Any]
After = Callable[[Any, Any, BaseException | None], Any]


def around(function: Callable[..., Any], before: Before, after: After) -> Any:
    """A callable, and method, in place of `function`.

    `before` gets the arguments. What it returns is the first argument of `after`, which then gets the result and the
    error, one of them None, and returns the result; without it, after None, `after` is not called.
    """
    make = _in_python if NATIVE is None else NATIVE.Around
    return functools.wraps(function)(make(function, before, after))


def _in_python(function: Callable[..., Any], before: Before, after: After) -> Callable[..., Any]:
    """The same where no C compiler was there at the install; tracebacks show its frame."""

    def call(*args: Any, **kwargs: Any) -> Any:
        token = before(*args, **kwargs)
        if token is None:
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            after(token, None, error)
            raise
        return after(token, result, None)

    return call


class Patches:
    """What is changed in modules and classes of others, until `undo`."""

    def __init__(self) -> None:
        self._restores: list[Callable[[], object]] = []

    def put(self, owner: Any, name: str, replacement: Any) -> None:
        """Replace an attribute. It is restored unless another tool has replaced it meanwhile: that calls ours."""
        is_own, original = name in vars(owner), vars(owner).get(name)
        setattr(owner, name, replacement)

        def restore() -> None:
            if vars(owner).get(name) is not replacement:
                return
            if is_own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)

        self._restores.append(restore)

    def then(self, restore: Callable[[], object]) -> None:
        """Something else was changed, which `restore` undoes."""
        self._restores.append(restore)

    def undo(self) -> None:
        """Restore everything, the last change first."""
        while self._restores:
            self._restores.pop()()
