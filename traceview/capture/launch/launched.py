"""Captures the steps of any Python process that imports a framework while TRACEVIEW_CAPTURE is set.

`arm` is called at every start of Python by `traceview.pth`. Nothing here raises into the process. How that ends changes only where a command captured nothing: then 0 becomes exit code 5.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import TYPE_CHECKING

from traceview.capture.process.saying import FRAMEWORKS, OFF, VARIABLE, is_first, say

if TYPE_CHECKING:
    from traceview.capture.process.imports import ImportWatch

_watch: ImportWatch | None = None


def arm() -> None:
    """Begin a capture when this process imports a framework, if the variable asks for one."""
    global _watch
    text = os.environ.get(VARIABLE, "").strip()
    if _watch is not None or text in OFF:
        return
    # Not at the top: a start of Python without the variable imports nothing.
    from traceview.capture.process.imports import ImportWatch

    # A script that trains with one may read its input with the other.
    _watch = ImportWatch(FRAMEWORKS, _imported)
    _watch.install()
    if is_first(text):
        # The program that the command has become.
        import atexit
        import time

        atexit.register(_end_first, text, time.time())


def _end_first(text: str, armed_s: float) -> None:
    from traceview.capture.launch.launched_capture import end_first

    if is_first(text):
        end_first(text, armed_s)


def _imported(module: ModuleType) -> None:
    try:
        from traceview.capture.launch.launched_capture import begin

        if _watch is not None:
            begin(os.environ.get(VARIABLE, ""), module.__name__, _watch.remove)
    except Exception as error:
        # Whatever is wrong, the training goes on.
        say(f"nothing is captured: {error!r}")
