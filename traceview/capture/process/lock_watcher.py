"""Ends a process that a signal cannot end, because a native call holds Python's lock (GIL).

Then neither a handler nor a thread of Python runs, and nothing in the process can act on what C code notes: that the
signal came. So a second process looks at the note. It is the child of no process of the script, which may wait for all
of its children, and it ends as soon as the first one does. This file is also the program that it runs.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Final

GRACE_SECONDS: Final = 10.0
"""Python hands its lock over within milliseconds, and batch systems kill after 30 s (`KillWait` of Slurm)."""
SIGNAL_BITS: Final = 0x7F
_LOOK_SECONDS: Final = 0.25
_START_SECONDS: Final = 10.0


class LockWatcher:
    """Watches this process from another one. `notes`: the socket on which signals wait to be read by Python.

    Without `pidfd_open` (Linux 5.3) there is none.
    """

    def __init__(self, notes: socket.socket, numbers: Collection[int]) -> None:
        self._numbers = set(numbers)
        self._process: subprocess.Popen[bytes] | None = None
        if not (numbers and sys.executable and hasattr(os, "pidfd_open")):
            return
        command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(notes.fileno())]
        with suppress(OSError, subprocess.SubprocessError):
            process = subprocess.Popen(
                [*command, *map(str, sorted(numbers))],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[notes.fileno()],
                start_new_session=True,
            )
            process.wait(_START_SECONDS)  # until it has begun another process and left it alone
            self._process = process

    def leave_to_script(self, numbers: Collection[int]) -> None:
        """The script handles these signals by itself now, or nobody does."""
        gone = self._numbers & set(numbers)
        self._numbers -= gone
        if gone and self._process is not None and self._process.stdin is not None:
            with suppress(OSError, ValueError):
                self._process.stdin.write(bytes(sorted(gone)))
                self._process.stdin.flush()

    def end(self) -> None:
        """Nothing is to be watched any more."""
        self.leave_to_script(self._numbers)
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()


def _watch(pid: int, notes: socket.socket, numbers: set[int]) -> None:
    """Kill the process `pid` if one of these signals stays unread."""
    process, control = os.pidfd_open(pid), sys.stdin.fileno()
    came_s: float | None = None
    while numbers:
        waits = [process, control] if came_s is not None else [process, control, notes.fileno()]
        ready, _, _ = select.select(waits, [], [], None if came_s is None else _LOOK_SECONDS)
        if process in ready:
            return
        if control in ready:
            given_back = os.read(control, 64)
            if not given_back:
                return
            numbers.difference_update(given_back)
        try:
            noted = notes.recv(64, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            came_s = None
            continue
        if not noted:
            return
        unread = numbers.intersection(byte & SIGNAL_BITS for byte in noted)
        if came_s is None or not unread:
            came_s = time.monotonic()
        elif time.monotonic() - came_s > GRACE_SECONDS:
            name = signal.Signals(min(unread)).name
            sys.stderr.write(
                f"traceview: {name} came {GRACE_SECONDS:g} s ago, and a native call has held Python's lock since then. "
                f"Process {pid} is killed, and what it has not saved is lost.\n"
            )
            sys.stderr.flush()
            signal.pidfd_send_signal(process, signal.SIGKILL)
            return


def _main() -> None:
    pid, notes, *numbers = map(int, sys.argv[1:])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # They are sent to whole groups of processes.
        signal.signal(number, signal.SIG_IGN)
    if not os.fork():
        _watch(pid, socket.socket(fileno=notes), set(numbers))


if __name__ == "__main__":
    _main()
