"""Notices that no Python can run, because a native call holds Python's lock, while it lasts.

`faulthandler.dump_traceback_later` has a thread in C that needs no lock. It is armed again and again by the thread that
watches for hangs, so it fires only where that thread does not run. It writes all stacks to a file in the output folder,
which `analyze` shows; another thread without the lock, in native code, says so on standard error.
"""

from __future__ import annotations

import faulthandler
import os
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from traceview.base.stack_dump import FILE_PREFIX
from traceview.capture.process.around import NATIVE, Patches
from traceview.capture.process.own_threads import own_thread
from traceview.capture.sidecar.file import is_running


class Silence:
    """The watch of one process, from `open` to `close`. A script that uses the timer of faulthandler keeps it."""

    def __init__(self, folder: Path, after_s: float) -> None:
        self.problem: str | None = None
        self._folder = folder
        self._after_s = after_s
        self._file: IO[Any] | None = None
        self._arm = faulthandler.dump_traceback_later
        self._patches = Patches()
        self._is_taken = False
        self._is_told = False

    def open(self) -> None:
        """Make the file. Without it nothing is noticed, and `problem` says why."""
        prefix = f"{FILE_PREFIX}{socket.gethostname()}-"
        for path in self._folder.glob(f"{prefix}*.txt"):
            # The empty file of a process of this host that was killed.
            number = path.name.removeprefix(prefix).partition("-")[0]
            with suppress(OSError):
                if number.isdecimal() and not is_running(int(number)) and not path.stat().st_size:
                    path.unlink()
        try:
            descriptor, name = tempfile.mkstemp(".txt", f"{prefix}{os.getpid()}-", self._folder)
        except OSError as error:
            self.problem = f"{error.strerror or error}"
            return
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")
        self._path = Path(name)
        self._patches.put(faulthandler, "dump_traceback_later", self._taken_by_script)
        text = (
            f"traceview: no Python has run for {self._after_s:g} s: a native call holds Python's lock (GIL), or the process "
            f"was stopped. All stacks are in {name}:\n"
        )
        if hasattr(NATIVE, "watch_silence"):
            watch = NATIVE.new_watch(), self._after_s, text.encode(), os.fsencode(name)
            own_thread("silence", NATIVE.watch_silence, *watch).start()
            self._is_told = True

    def beat(self) -> None:
        """Python runs."""
        if self._file is None or self._is_taken:
            return
        if self._is_told:
            NATIVE.beat()
        try:
            self._arm(self._after_s, repeat=False, file=self._file)
        except (OSError, RuntimeError, ValueError) as error:
            self.problem, self._is_taken = str(error), True

    def text(self) -> str:
        """The stacks that were written, which are forgotten; empty where Python ran all the time."""
        text = ""
        if self._file is not None:
            with suppress(OSError, ValueError):
                text = self._path.read_text("utf-8", "replace")
                self._file.seek(0)
                self._file.truncate()
        return text

    def close(self) -> None:
        """End, and remove the file."""
        if self._is_told:
            NATIVE.new_watch()
        if self._file is None:
            return
        if not self._is_taken:
            faulthandler.cancel_dump_traceback_later()
        self._patches.undo()
        with suppress(OSError):
            self._file.close()
            self._path.unlink()
        self._file = None

    def _taken_by_script(self, *arguments: Any, **keywords: Any) -> Any:
        """There is one timer per process, and it is the script's if it wants it."""
        self._is_taken = True
        return self._arm(*arguments, **keywords)
