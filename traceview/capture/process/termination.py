"""Saves the trace when SIGTERM or SIGHUP ends a script, and holds Ctrl-C back while a trace is saved.

Python calls a signal handler in the main thread, and not while that thread is in a native call: a script that waits in
a collective would outlive the signal. So the signal wakes a thread of ours, through the descriptor that C code writes
to as soon as a signal arrives (`signal.set_wakeup_fd`). It saves what there is, and lets the signal end the process as
without traceview: nothing is raised in the script. Where a native call holds Python's lock, no thread of ours runs
either; then another process ends this one (`lock_watcher`).
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, current_thread, main_thread
from time import sleep
from types import FrameType
from typing import Any, Final
from weakref import ref

from traceview.capture.process.lock_watcher import LockWatcher
from traceview.capture.process.own_threads import block_signals, own_thread

ENDINGS: Final = tuple(
    number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
)
"""Sent by a batch system, and by a connection that is lost (absent on Windows)."""
SIGNALLED: Final = 128
"""A shell reports a process that died of a signal with this plus the number of the signal."""
LONGEST_WAIT_SECONDS: Final = 5.0
"""For the main thread to end what it is saving. Then it is taken to wait for devices in vain: a container is killed 10 s
after SIGTERM, a job of Slurm after 30 s."""
_LONGEST_SAVING_SECONDS: Final = 60.0
"""A trace that is not saved by then waits for a device or a file system that is gone."""
_LONGEST_STANDSTILL_SECONDS: Final = 3.0
"""Enough to save most traces. Then the script goes on, for it may hold a lock that saving needs."""
_LOOK_SECONDS: Final = 1.0
"""How often to look whether the script handles the signals by itself."""
_HANDLED: Final = 0x80
"""Set in what the handler writes; C code writes the number of the signal alone."""

Handler = Callable[[int, FrameType | None], Any]


class Termination:
    """Calls `save` with the number of a signal that is about to end the process, from `install` to `release`.

    `save` runs in a thread of its own, once. Signals that are handled already, and those for which the script installs
    a handler, are left alone.
    """

    def __init__(self, save: Callable[[int], None]) -> None:
        self._save = save
        self._process = os.getpid()
        self._handler: Handler = self._handle
        self._handled: list[int] = []
        self._is_needed = True
        self._reading, self._writing = socket.socketpair()
        self._writing.setblocking(False)
        # With a time limit, Python takes its lock before it reads: what it cannot act on stays unread.
        self._reading.settimeout(_LOOK_SECONDS)
        self._lock_watcher: LockWatcher | None = None

    def install(self) -> None:
        """Handle the signals that nobody handles yet; nothing happens outside the main thread."""
        if current_thread() is not main_thread():
            return
        self._handled = [n for n in ENDINGS if signal.getsignal(n) is signal.SIG_DFL]
        for number in self._handled:
            signal.signal(number, self._handler)
        self._set_descriptor()
        self._lock_watcher = LockWatcher(self._reading, self._handled)
        own_thread("termination", self._watch).start()
        if hasattr(os, "register_at_fork"):
            # What is registered stays until the process ends.
            own = ref(self)
            os.register_at_fork(
                before=lambda: _tell(own, "before_fork"),
                after_in_parent=lambda: _tell(own, "after_fork"),
                after_in_child=lambda: _tell(own, "in_child"),
            )

    def release(self) -> None:
        """The trace is saved: from here on the signals do what they do without traceview."""
        self._is_needed = False
        if self._lock_watcher is not None:
            self._lock_watcher.end()
        self._restore()

    def remove(self) -> None:
        """Release the signals, and end the thread, unless C code still writes to it: only the main thread can change that."""
        self.release()
        if current_thread() is main_thread():
            self._reset_descriptor()
            with suppress(OSError):
                self._writing.shutdown(socket.SHUT_WR)

    def before_fork(self) -> None:
        """A child would share the descriptor, and its signals would end its parent."""
        self._reset_descriptor()

    def after_fork(self) -> None:
        """The parent goes on."""
        if self._handled:
            self._set_descriptor()

    def in_child(self) -> None:
        """A child ends as it would without traceview."""
        self._reset_descriptor()
        self._restore()

    # Inside

    def _set_descriptor(self) -> None:
        """Let C code write signals to our socket, unless the script has set a descriptor, as asyncio does."""
        if current_thread() is main_thread():
            before = signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
            if before not in {-1, self._writing.fileno()}:
                signal.set_wakeup_fd(before)

    def _reset_descriptor(self) -> None:
        if current_thread() is main_thread():
            current = signal.set_wakeup_fd(-1)
            if current not in {-1, self._writing.fileno()}:
                signal.set_wakeup_fd(current)

    def _restore(self) -> None:
        is_main = current_thread() is main_thread()
        for number in self._handled:
            if signal.getsignal(number) != self._handler:
                continue
            if is_main:
                signal.signal(number, signal.SIG_DFL)
            else:
                # The main thread may hang in a native call, where it would never come to the handler.
                _leave_to_system(number)
        if is_main:
            self._handled = []

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not self._is_needed:
            die_of(number)
        # The script may have set a descriptor of its own.
        with suppress(OSError):
            self._writing.send(bytes([number | _HANDLED]))
        # The script does nothing more; unless it holds a lock that saving the trace needs.
        sleep(_LONGEST_STANDSTILL_SECONDS)

    def _watch(self) -> None:
        block_signals()
        while True:
            try:
                received = self._reading.recv(64)
            except TimeoutError:
                self._leave_to_script()
                continue
            if not received:
                return
            for byte in received:
                number = byte & ~_HANDLED
                is_ours = signal.getsignal(number) == self._handler
                if number in ENDINGS and (byte & _HANDLED or is_ours):
                    self._end(number)

    def _leave_to_script(self) -> None:
        """Signals for which the script has installed a handler end nothing."""
        if self._lock_watcher is not None:
            others = [n for n in ENDINGS if signal.getsignal(n) != self._handler]
            self._lock_watcher.leave_to_script(others)

    def _end(self, number: int) -> None:
        if self._is_needed:
            is_saved = Event()

            def limit() -> None:
                if not is_saved.wait(_LONGEST_SAVING_SECONDS):
                    die_of(number)

            own_thread("deadline", limit).start()
            try:
                self._save(number)
            finally:
                die_of(number)
        die_of(number)


def die_of(number: int) -> None:
    """Let a signal end this process, as it does where nobody handles it; any thread may call this."""
    _leave_to_system(number)
    with suppress(AttributeError, OSError):
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(SIGNALLED + number)


def _leave_to_system(number: int) -> None:
    """Have a signal do what it does without a handler. `signal.signal` works in the main thread only."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).signal(number, None)


@contextmanager
def interrupts_held(say: Callable[[str], None] | None = None) -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block; a second one in it acts at once.

    Then it does what it would have done, or nothing if `say` is given, which gets a line at once.
    """
    handler = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or not callable(handler):
        yield
        return
    is_interrupted = False

    def hold(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        signal.signal(signal.SIGINT, handler)
        if say is not None:
            with suppress(RuntimeError):  # it came while something was printed
                say("saving the trace; press Ctrl-C once more to give it up")

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is hold:
            signal.signal(signal.SIGINT, handler)
        if is_interrupted and say is None:
            signal.raise_signal(signal.SIGINT)


def _tell(termination: ref[Termination], moment: str) -> None:
    known = termination()
    if known is not None:
        getattr(known, moment)()


def end_by_signal(number: int) -> None:
    """Send this process a signal that nobody handles; returns only where that is impossible."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        # The core that matters is that of the process which the signal ended first.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):
        # SIGKILL has no handler to replace.
        signal.signal(number, signal.SIG_DFL)
    with suppress(OSError):
        os.kill(os.getpid(), number)


UTIL: Final = "multiprocessing.util"
_FIRST: Final = 1000
"""Before the finalizers of Python's own library, which have at most 15, and end processes and queues of the script."""


def finish_before_end(finish: Callable[[], object]) -> None:
    """Have `multiprocessing` call `finish` before it ends this process; nothing where the process does not use it."""
    util = sys.modules.get(UTIL)
    if util is not None:
        util.Finalize(None, finish, exitpriority=_FIRST)
