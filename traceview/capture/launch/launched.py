"""Captures the steps of any Python process that imports a framework while TRACEVIEW_CAPTURE is set.

`arm` is called at every start of Python by `traceview.pth`, which is installed beside the package. It only looks at the
variable and waits for the import. Nothing here raises into the process, or changes how it ends.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceview.capture.process.imports import ImportWatch

VARIABLE = "TRACEVIEW_CAPTURE"
OFF = ("", "0")
"""Values that switch the capture off, as unsetting the variable does."""
LAUNCH_OPTION = "--launch="
FRAMEWORKS = ("tensorflow", "jax")
"""Modules whose import begins a capture."""

_watch: ImportWatch | None = None
_begun: list[str] = []
"""The frameworks that were imported: a script that trains with one may read its input with the other."""


def arm() -> None:
    """Begin a capture when this process imports a framework, if the variable asks for one."""
    global _watch
    text = os.environ.get(VARIABLE, "").strip()
    if _watch is not None or text in OFF:
        return
    # Not at the top: a start of Python without the variable imports nothing.
    from traceview.capture.process.imports import ImportWatch

    _watch = ImportWatch(lambda: [name for name in FRAMEWORKS if name not in _begun], _imported)
    _watch.install()
    if f"{LAUNCH_OPTION}{os.getpid()}-" in text:
        # The program that the command has become.
        import atexit
        import time

        atexit.register(_end_first, text, time.time())


def disarm() -> None:
    """Leave this process to a capture of its own; the processes that it starts still follow the variable."""
    if _watch is not None:
        _watch.remove()


def say(line: str) -> None:
    """Write a line to standard error, in one piece: other processes write there too."""
    from traceview.capture.sidecar.secrets import masked_message

    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in masked_message(line))
    text = os.environ.get(VARIABLE, "")
    is_alone = f"{LAUNCH_OPTION}{os.getpid()}-" in text
    write(f"traceview: {shown}" if is_alone else f"traceview[{os.getpid()}]: {shown}")


def write(line: str) -> None:
    """Write a line to standard error; where that is closed, or replaced by the script, nothing happens."""
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except Exception:
        return


def _end_first(text: str, armed_s: float) -> None:
    """The program that the command has become ends, after all other functions of `atexit`."""
    from traceview.capture.launch.launched_capture import end_first

    if f"{LAUNCH_OPTION}{os.getpid()}-" in text:
        end_first(text, armed_s)


def _imported(module: ModuleType) -> None:
    _begun.append(module.__name__)
    try:
        from traceview.capture.launch.launched_capture import begin

        begin(os.environ.get(VARIABLE, ""), module.__name__)
    except Exception as error:
        # Whatever is wrong, the training goes on.
        say(f"nothing is captured: {error!r}")
