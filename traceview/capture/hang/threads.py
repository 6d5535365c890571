"""Looks at the threads of this process: Python stacks, and what the kernel says each thread waits for.

Two looks a moment apart show which threads work. A look needs Python's lock for tens of microseconds and stops nothing. The
kernel's side comes from `/proc/self/task` (proc(5)); a system without it gives Python stacks alone.

Where no Python can run because a native call holds Python's lock, that is noticed while it lasts.
`faulthandler.dump_traceback_later` has a thread in C that needs no lock. It is armed again and again by the thread that watches,
so it fires only where that thread does not run. It writes all stacks to a file in the output folder, which `analyze` shows;
another thread without the lock, in native code, says so on standard error.
"""

from __future__ import annotations

import faulthandler
import os
import platform
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns
from types import FrameType
from typing import IO, Any, Final, NamedTuple

from traceview.base.stack_dump import FILE_PREFIX
from traceview.capture.process.around import NATIVE, Patches
from traceview.capture.process.own_threads import OWN_THREADS, own_thread
from traceview.capture.process.python_code import CodePlaces, callers
from traceview.capture.sidecar.file import is_running, stat_fields

MOST_FRAMES: Final = 60
"""Of one stack, the innermost ones."""
MOST_THREADS: Final = 200
"""With a Python stack; a loader with that many has mostly equal ones."""
_COMPUTES: Final = 0.05
"""Share of a core from which on a thread computes, whatever it waits for while it is looked at: as a look holds Python's
lock, a thread that runs Python always waits for that."""
_SWITCHES_PER_S: Final = 50
"""A thread that is woken more often hands work to others, as a loop of operations does; one that hangs sleeps on."""

_CALLS: Final[Mapping[str, Mapping[str, tuple[int, ...]]]] = {
    "x86_64": {
        "lock": (202,),
        "sleep": (35, 230),
        "poll": (7, 23, 232, 270, 271, 281),
        "read": (0, 17, 19, 45, 47, 43, 288),
        "write": (1, 18, 20, 44, 46, 74, 75, 162, 306),
        "child": (61, 247),
    },
    "aarch64": {
        "lock": (98,),
        "sleep": (101, 115),
        "poll": (22, 72, 73),
        "read": (63, 65, 67, 207, 212, 202, 242),
        "write": (64, 66, 68, 206, 211, 81, 82, 83, 267),
        "child": (95, 260),
    },
}
"""Numbers of system calls by what a thread in them does, as in the kernel's tables (`unistd_64.h`, `unistd.h`)."""
_STATES: Final = {"R": "computing", "D": "disk", "T": "stopped", "t": "stopped"}


class KernelThread(NamedTuple):
    """A thread as the kernel lists it. `cpu_ns`, `switches`: its processor time so far, and how often it went to sleep."""

    wait: str
    cpu_ns: int
    switches: int


class PythonThread(NamedTuple):
    """A thread with a Python stack, the innermost line first. `native_id`: None unless Python started it."""

    ident: int
    name: str
    native_id: int | None
    frames: tuple[str, ...]
    user_line: str | None


class Look(NamedTuple):
    """Everything at one moment."""

    t_ns: int
    python: tuple[PythonThread, ...]
    kernel: Mapping[int, KernelThread]


def look(places: CodePlaces) -> Look:
    """Look now."""
    return Look(monotonic_ns(), tuple(python_threads(places)), _kernel_threads())


def python_threads(places: CodePlaces) -> Iterator[PythonThread]:
    """The Python stack of every thread but ours, the main thread first."""
    main = threading.main_thread().ident
    # Not `threading.enumerate`: its lock may be what the process hangs on.
    known: dict[int, Any] = dict(getattr(threading, "_active", {}))
    frames = sys._current_frames()
    for ident in sorted(frames, key=lambda ident: (ident != main, ident))[:MOST_THREADS]:
        thread = known.get(ident)
        name = str(getattr(thread, "name", "")) or "thread of a library"
        lines, user_line = _stack(places, frames[ident])
        if lines and not name.startswith(OWN_THREADS):
            number = os.getpid() if ident == main else None
            native_id = getattr(thread, "native_id", None) or number
            yield PythonThread(ident, name, native_id, tuple(lines[:MOST_FRAMES]), user_line)


def _stack(places: CodePlaces, innermost: FrameType | None) -> tuple[list[str], str | None]:
    """The lines of a stack without the frames of traceview, and the innermost one in code of the user.

    Of the frames of an import only one that is the innermost of all is kept, as in tracebacks.
    """
    lines: list[str] = []
    user_line = None
    for frame in callers(innermost):
        is_import = bool(lines) and frame.f_code.co_filename.startswith("<frozen importlib")
        origin = places.origin_of(frame.f_code)
        if not is_import and origin.kind != "own":
            line = f"{origin.file}:{origin.line_of(frame.f_lineno)} in {origin.function}"
            if user_line is None and origin.kind == "user":
                user_line = line
            lines.append(line)
    return lines, user_line


def _kernel_threads() -> dict[int, KernelThread]:
    """The threads of this process, by number; none where the system does not list them."""
    threads: dict[int, KernelThread] = {}
    with suppress(OSError):
        for folder in Path("/proc/self/task").iterdir():
            # A thread may end meanwhile.
            with suppress(OSError, IndexError, ValueError):
                fields = stat_fields(folder)
                ticks = int(fields[11]) + int(fields[12])
                status = (folder / "status").read_text("utf-8", "replace")
                switches = status.partition("\nvoluntary_ctxt_switches:")[2].partition("\n")[0]
                threads[int(folder.name)] = KernelThread(
                    _STATES.get(fields[0]) or _wait(folder),
                    ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK"),
                    int(switches or 0),
                )
    return threads


def _wait(folder: Path) -> str:
    try:
        first = (folder / "syscall").read_text("ascii", "replace").partition(" ")[0]
    except OSError:
        return "other"
    calls = _CALLS.get(platform.machine(), {}).items()
    found = (wait for wait, numbers in calls if first.isdigit() and int(first) in numbers)
    return next(found, "other")


def described(first: Look, second: Look, *, without: int | None = None) -> dict[str, Any]:
    """Both looks as fields of the report. `without`: the native id of a thread whose processor time does not count."""
    length_ns = max(second.t_ns - first.t_ns, 1)
    before = {thread.ident: thread.frames for thread in first.python}
    main = threading.main_thread().ident
    # Of a core, and how often a second it went to sleep.
    ratios, switches = {}, {}
    for number, now in second.kernel.items():
        was = first.kernel.get(number, KernelThread("", 0, now.switches))
        ratios[number] = max(now.cpu_ns - was.cpu_ns, 0) / length_ns
        switches[number] = (now.switches - was.switches) * 1e9 / length_ns
    cores = sum(ratio for number, ratio in ratios.items() if number != without)

    def of_kernel(number: int | None) -> dict[str, Any]:
        """What a thread does: what the kernel says, unless two looks show that it works."""
        if number is None or number not in ratios:
            return {"wait": None, "computing_ratio": None}
        hands_over = switches[number] >= _SWITCHES_PER_S and cores >= _COMPUTES
        works = ratios[number] >= _COMPUTES or hands_over
        wait = "computing" if works else second.kernel[number].wait
        return {"wait": wait, "computing_ratio": ratios[number]}

    return {
        "look_ns": length_ns,
        "cores": cores if ratios else None,
        "threads": [
            {
                "name": thread.name,
                "is_main": thread.ident == main,
                "is_moving": before.get(thread.ident) != thread.frames,
                **of_kernel(thread.native_id),
                "user_line": thread.user_line,
                "frames": list(thread.frames),
            }
            for thread in second.python
        ],
    }


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

    def beat(self) -> None:
        """Python runs."""
        if self._file is None or self._is_taken:
            return
        if hasattr(NATIVE, "beat"):
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
        if self._file is None:
            return
        if hasattr(NATIVE, "new_watch"):
            NATIVE.new_watch()
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
