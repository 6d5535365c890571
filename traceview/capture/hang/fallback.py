"""Writes the stacks of all threads where no Python can run, because a native call holds the GIL.

`faulthandler.dump_traceback_later` has a thread in C that needs no lock. It is armed again and again from our own
thread, so it fires only if that thread did not run for the whole time. Its text goes to a file in the output folder;
a process keeps it open, so that it is found from outside as well.
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


def _remove_old(folder: Path) -> None:
    """Remove the empty files of processes of this host that were killed."""
    host = f"{FILE_PREFIX}{socket.gethostname()}-"
    for path in folder.glob(f"{FILE_PREFIX}*.txt"):
        number = path.name.removeprefix(host).partition("-")[0]
        if not path.name.startswith(host) or not (number.isascii() and number.isdecimal()):
            continue
        try:
            os.kill(int(number), 0)
        except ProcessLookupError:
            with suppress(OSError):
                if not path.stat().st_size:
                    path.unlink()
        except (OSError, OverflowError):
            continue


class Fallback:
    """The file of one process, from `open` to `close`; a script that uses the same timer keeps it."""

    def __init__(self, folder: Path, after_s: float) -> None:
        self.problem: str | None = None
        self._folder = folder
        self._after_s = after_s
        self._file: IO[Any] | None = None
        self._path: Path | None = None
        self._originals: tuple[Any, Any] | None = None
        self._is_taken = False

    def open(self) -> None:
        """Make the file. Without it there is no fallback, and `problem` says why."""
        try:
            _remove_old(self._folder)
            prefix = f"{FILE_PREFIX}{socket.gethostname()}-{os.getpid()}-"
            number, name = tempfile.mkstemp(prefix=prefix, suffix=".txt", dir=self._folder)
        except OSError as error:
            self.problem = f"{error.strerror or error}"
            return
        self._path = Path(name)
        self._file = os.fdopen(number, "w", encoding="utf-8")
        self._originals = (
            faulthandler.dump_traceback_later,
            faulthandler.cancel_dump_traceback_later,
        )
        faulthandler.dump_traceback_later = self._taken_by_script

    def arm(self) -> None:
        """Let the time run from now."""
        if self._file is not None and self._originals is not None and not self._is_taken:
            try:
                self._originals[0](self._after_s, repeat=False, file=self._file)
            except (OSError, RuntimeError, ValueError) as error:
                self.problem = str(error)
                self._is_taken = True

    def text(self) -> str:
        """What was written; empty where it never fired."""
        if self._path is None:
            return ""
        with suppress(OSError):
            return self._path.read_text("utf-8", "replace")
        return ""

    def clear(self) -> None:
        """Forget what was written, because it stands in a report now."""
        if self._file is not None:
            with suppress(OSError, ValueError):
                self._file.seek(0)
                self._file.truncate()

    def close(self) -> None:
        """Stop the time, and remove the file."""
        if self._originals is not None:
            if not self._is_taken:
                self._originals[1]()
            if faulthandler.dump_traceback_later == self._taken_by_script:
                faulthandler.dump_traceback_later = self._originals[0]
            self._originals = None
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()

    def _taken_by_script(self, *arguments: Any, **keywords: Any) -> Any:
        """There is one timer per process, and it is the script's if it wants it."""
        self._is_taken = True
        assert self._originals is not None
        return self._originals[0](*arguments, **keywords)
