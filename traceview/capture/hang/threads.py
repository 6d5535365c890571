"""Looks at the threads of this process: Python stacks, and what the kernel says each thread waits for.

Two looks a moment apart show which threads move. A look needs the GIL for tens of microseconds and stops nothing. The
kernel's side comes from `/proc/self/task` (proc(5)); a system without it gives Python stacks alone.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns
from types import FrameType
from typing import Any, Final

from traceview.capture.process.own_threads import OWN_THREADS
from traceview.capture.process.python_code import SHOWN_FILE, CodePlaces, Origin, origin_of

MOST_FRAMES: Final = 60
"""Of one stack, the innermost ones."""
MOST_THREADS: Final = 200
"""With a Python stack; a loader with that many has mostly equal ones."""

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

_IMPORT: Final = "<frozen importlib"
_STATES: Final = {"R": "computing", "D": "disk", "T": "stopped", "t": "stopped"}


@dataclass(frozen=True)
class KernelThread:
    """A thread as the kernel lists it. `cpu_ns`: its processor time so far."""

    name: str
    wait: str
    cpu_ns: int


@dataclass(frozen=True)
class PythonThread:
    """A thread with a Python stack, the innermost line first. `native_id`: None unless Python started it."""

    ident: int
    name: str
    native_id: int | None
    frames: tuple[str, ...]
    user_line: str | None


@dataclass(frozen=True)
class Look:
    """Everything at one moment. `cpu_ns`, `written_bytes`: of the process so far, None where not known."""

    t_ns: int
    python: tuple[PythonThread, ...]
    kernel: Mapping[int, KernelThread]
    cpu_ns: int | None
    written_bytes: int | None
    missing: Mapping[str, str] = field(default_factory=dict)


def look(places: CodePlaces, *, without: frozenset[int] = frozenset()) -> Look:
    """Look now. `without`: native ids of threads whose processor time does not count."""
    missing: dict[str, str] = {}
    kernel = kernel_threads(Path("/proc/self/task"), missing)
    counted = [thread.cpu_ns for number, thread in kernel.items() if number not in without]
    return Look(
        monotonic_ns(),
        tuple(python_threads(places)),
        kernel,
        sum(counted) if kernel else None,
        written_bytes(Path("/proc/self/io")),
        missing,
    )


def python_threads(places: CodePlaces) -> Iterator[PythonThread]:
    """The Python stack of every thread but ours, the main thread first."""
    main = threading.main_thread().ident
    # Not `threading.enumerate`: its lock may be what the process hangs on.
    known: dict[int, Any] = dict(getattr(threading, "_active", {}))
    frames = sys._current_frames()
    for ident in sorted(frames, key=lambda ident: (ident != main, ident))[:MOST_THREADS]:
        thread = known.get(ident)
        name = str(getattr(thread, "name", "")) or "thread of a library"
        if name.startswith(OWN_THREADS):
            continue
        lines, user_line = _stack(places, frames[ident])
        if not lines:
            continue
        native_id = getattr(thread, "native_id", None)
        if ident == main and native_id is None:
            native_id = os.getpid()
        yield PythonThread(ident, name, native_id, tuple(lines), user_line)


def _stack(places: CodePlaces, innermost: FrameType | None) -> tuple[list[str], str | None]:
    """The lines of a stack without the frames of traceview, and the innermost one in code of the user.

    Of the frames of an import only one that is the innermost of all is kept, as in tracebacks.
    """
    lines: list[str] = []
    user_line = None
    frame = innermost
    while frame is not None:
        code = frame.f_code
        is_import = code.co_filename.startswith(_IMPORT)
        if not places.is_own(code.co_filename) and not (is_import and lines):
            origin = origin_of(code) or Origin(code.co_filename, code.co_name)
            file = SHOWN_FILE if origin.file is None else places.shown(origin.file)
            line = f"{file}:{origin.line_of(frame.f_lineno)} in {origin.function}"
            if user_line is None and origin.file is not None and places.is_user(origin.file):
                user_line = line
            if len(lines) < MOST_FRAMES:
                lines.append(line)
        frame = frame.f_back
    return lines, user_line


def kernel_threads(folder: Path, missing: dict[str, str]) -> dict[int, KernelThread]:
    """The threads in a folder `/proc/PID/task`, by number; `missing` gets the reason where there are none."""
    threads: dict[int, KernelThread] = {}
    try:
        numbers = sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
    except OSError as error:
        missing["native"] = f"{folder}: {error.strerror or error}"
        return threads
    for number in numbers:
        # A thread may end meanwhile.
        with suppress(OSError, IndexError, ValueError):
            threads[number] = _kernel_thread(folder / str(number))
    return threads


def _kernel_thread(folder: Path) -> KernelThread:
    head, _, rest = (folder / "stat").read_text("utf-8", "replace").rpartition(")")
    fields = rest.split()
    state = fields[0]
    ticks = int(fields[11]) + int(fields[12])
    cpu_ns = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return KernelThread(head.partition("(")[2], _STATES.get(state) or _wait(folder), cpu_ns)


def _wait(folder: Path) -> str:
    """What a sleeping thread waits for, by its system call."""
    try:
        first = (folder / "syscall").read_text("ascii", "replace").split()[0]
    except (OSError, IndexError):
        return "other"
    for wait, numbers in _CALLS.get(platform.machine(), {}).items():
        if first.isdigit() and int(first) in numbers:
            return wait
    return "other"


def written_bytes(path: Path) -> int | None:
    """What a process has written so far, by its `/proc/PID/io`; None where that is not known."""
    with suppress(OSError, ValueError):
        for line in path.read_text("ascii", "replace").splitlines():
            key, _, value = line.partition(":")
            if key == "wchar":
                return int(value)
    return None


def described(first: Look, second: Look) -> dict[str, Any]:
    """Both looks as the fields of the report."""
    length_ns = max(second.t_ns - first.t_ns, 1)
    before = {thread.ident: thread.frames for thread in first.python}
    cpu_ns = {number: _spent(first, second, number) for number in second.kernel}
    main = threading.main_thread().ident
    return {
        "look_ns": length_ns,
        "cores": _ratio(first.cpu_ns, second.cpu_ns, length_ns),
        "written_bytes": None
        if first.written_bytes is None or second.written_bytes is None
        else max(second.written_bytes - first.written_bytes, 0),
        "threads": [
            {
                "name": thread.name,
                "is_main": thread.ident == main,
                "is_moving": before.get(thread.ident) != thread.frames,
                **_of_kernel(thread.native_id, second, cpu_ns, length_ns),
                "user_line": thread.user_line,
                "frames": list(thread.frames),
            }
            for thread in second.python
        ],
        "native": native_groups(second.kernel, cpu_ns, length_ns),
        "missing": {**first.missing, **second.missing},
    }


def _of_kernel(
    number: int | None, now: Look, cpu_ns: Mapping[int, int], length_ns: int
) -> dict[str, Any]:
    if number is None or number not in now.kernel:
        return {"wait": None, "computing_ratio": None}
    return {"wait": now.kernel[number].wait, "computing_ratio": cpu_ns[number] / length_ns}


def native_groups(
    kernel: Mapping[int, KernelThread], cpu_ns: Mapping[int, int], length_ns: int
) -> list[dict[str, Any]]:
    """The threads by name, those that compute most first."""
    groups: dict[str, dict[str, Any]] = {}
    for number, thread in kernel.items():
        empty = {"name": thread.name, "count": 0, "waits": {}, "computing_ratio": 0.0}
        group = groups.setdefault(thread.name, empty)
        group["count"] += 1
        group["waits"][thread.wait] = group["waits"].get(thread.wait, 0) + 1
        group["computing_ratio"] += cpu_ns.get(number, 0) / length_ns
    return sorted(groups.values(), key=lambda group: (-group["computing_ratio"], group["name"]))


def _spent(first: Look, second: Look, number: int) -> int:
    before = first.kernel.get(number)
    return max(second.kernel[number].cpu_ns - (before.cpu_ns if before else 0), 0)


def _ratio(before: int | None, after: int | None, length_ns: int) -> float | None:
    return None if before is None or after is None else max(after - before, 0) / length_ns
