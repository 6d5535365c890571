"""Keeps the frames of traceview out of what a script says: the line that a warning names, and where an op was defined."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final, TypeVar

from traceview.capture.process.imports import ImportWatch
from traceview.capture.process.python_code import CodePlaces, folders_of_script

Hidden = TypeVar("Hidden", bound=Callable[..., Any])

HIDDEN_FILE: Final = str(Path(__file__).parent / "importlib_bootstrap" / "frame.py")
"""Does not exist. `warnings.warn` counts no frame, for its `stacklevel`, whose file has `importlib` and `_bootstrap` in
its name (`is_internal_frame` in CPython's _warnings.c, 3.3 to 3.14)."""
_STACKS: Final = "tensorflow.python.util.tf_stack"


def hidden(function: Hidden) -> Hidden:
    """Let the frames of a function be those of `HIDDEN_FILE`."""
    function.__code__ = function.__code__.replace(co_filename=HIDDEN_FILE)
    return function


class HiddenFrames:
    """Leaves hidden frames, and those of `files`, out of TensorFlow's record of where each op was defined.

    TensorFlow has filters for this (`StackTraceFilter` in tensorflow/python/util/tf_stack.py, 2.15 to 2.21), one stack
    of them per thread. The lowest of each stack filters nothing, and is replaced.
    """

    def __init__(self, files: Iterable[str] = ()) -> None:
        self._files = frozenset((HIDDEN_FILE, *files))
        self._restore: Callable[[], None] | None = None
        self._watch = ImportWatch(lambda: [_STACKS], self._patch)

    def install(self) -> None:
        """Begin, as soon as TensorFlow is imported."""
        if _STACKS in sys.modules:
            self._patch(sys.modules[_STACKS])
        else:
            self._watch.install()

    def remove(self) -> None:
        """Record all frames again."""
        self._watch.remove()
        if self._restore is not None:
            self._restore()

    def _patch(self, module: ModuleType) -> None:
        self._watch.remove()
        try:
            stacks, before = module._source_filter_stacks, module.SentinelFilter
            stands_in = before()
            stands_in.get_filtered_filenames = lambda: self._files
            stands_in.update()
            made = stacks.default_factory
            for stack in stacks.values():
                stack[0] = stands_in
            stacks.default_factory = lambda: [stands_in]
        except (AttributeError, TypeError):
            # Another version of TensorFlow: its messages name a few frames more.
            return

        def restore() -> None:
            stacks.default_factory = made
            for stack in stacks.values():
                if stack[0] is stands_in:
                    stack[0] = before()

        self._restore = restore


@dataclass(frozen=True)
class UserLine:
    """A line of the user's code, and the `stacklevel` with which the caller's `warnings.warn` names it."""

    file: str
    number: int
    level: int


def line_of_user() -> UserLine | None:
    """The innermost line of the user's code that runs in this thread, as seen by the caller."""
    places = CodePlaces(folders_of_script())
    level, frame = 1, sys._getframe(1)
    while not places.is_user(frame.f_code.co_filename):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        level += frame.f_code.co_filename != HIDDEN_FILE
    return UserLine(frame.f_code.co_filename, frame.f_lineno, level)


def running_files() -> Iterator[str]:
    """The files of the frames that run now, from the caller on."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back
