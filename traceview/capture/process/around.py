"""Calls a function with something before it and after it, if possible without a frame of its own on the stack."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

Before = Callable[..., Any]
After = Callable[[Any, Any, BaseException | None], Any]


def around(function: Callable[..., Any], before: Before, after: After) -> Any:
    """A callable, and method, in place of `function`.

    `before` gets the arguments. What it returns is the first argument of `after`, which then gets the result and the
    error, one of them None, and returns the result; without it, after None, `after` is not called.
    """
    try:
        make = import_module("traceview.capture.process.native").Around
    except ImportError:
        make = _in_python
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
