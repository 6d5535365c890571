"""Captures the steps of any Python process that imports TensorFlow while TRACEVIEW_CAPTURE is set.

`arm` is called at every start of Python: by `traceview.pth`, which is installed beside the package, or by the
`sitecustomize` in the folder `startup`. It only looks at the variable and waits for the import of TensorFlow. Nothing
here raises into the process, or changes how it ends.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import TYPE_CHECKING

from traceview.capture.launch.environment_variable import JOURNAL_OPTION, OFF, REACHED, VARIABLE

if TYPE_CHECKING:
    from traceview.capture.process.imports import ImportWatch

_TENSORFLOW = "tensorflow"
_watch: ImportWatch | None = None


def arm() -> None:
    """Begin a capture when this process imports TensorFlow, if the variable asks for one."""
    global _watch
    text = os.environ.get(VARIABLE, "").strip()
    if _watch is not None or text in OFF:
        return
    if JOURNAL_OPTION in text:
        _reach(text)
    # Not at the top: a start of Python without the variable imports nothing.
    from traceview.capture.process.imports import ImportWatch

    _watch = ImportWatch(_awaited, _imported)
    _watch.install()


def disarm() -> None:
    """Leave this process to a capture of its own; the processes that it starts still follow the variable."""
    if _watch is not None:
        _watch.remove()


def _reach(text: str) -> None:
    import shlex
    from pathlib import Path

    try:
        for word in shlex.split(text):
            if word.startswith(JOURNAL_OPTION):
                Path(word[len(JOURNAL_OPTION) :], REACHED).touch()
    except (OSError, ValueError):
        return  # the launcher has ended, or is on another host


def _awaited() -> tuple[str, ...]:
    return (_TENSORFLOW,)


def _imported(_: ModuleType) -> None:
    disarm()
    try:
        from traceview.capture.launch.launched_capture import begin

        begin(os.environ.get(VARIABLE, ""))
    except Exception as error:
        # Whatever is wrong, the training goes on.
        from traceview.capture.process.stderr_lines import say

        say(f"nothing is captured: {error!r}")
