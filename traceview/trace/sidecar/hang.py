"""Defines the report of a hang, which `traceview capture --on-hang` writes as `HOST.hang.json`, and reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from traceview.base.errors import TraceFormatError
from traceview.base.location import Location
from traceview.base.record import (
    Count,
    FunctionName,
    Hostname,
    Message,
    Ratio,
    Record,
    SourceLine,
    TaskName,
    ThreadName,
    VersionText,
)
from traceview.base.stack_dump import FILE_PREFIX
from traceview.base.text import lazy_pattern
from traceview.base.version import VERSION

SCHEMA_VERSION: Final = 1
SUFFIX: Final = ".hang.json"
_IS_REPORT: Final = lazy_pattern(r".+\.hang\d{0,4}\.json")
_LONGEST_PID: Final = 12
"""Digits; Linux has numbers of processes up to 4194304 (proc(5), pid_max)."""
_OWN_CODE: Final = "/traceview/capture/"
"""In the path of every module of a capture."""
_STARTS: Final = ("Thread 0x", "Current thread 0x")
_FRAME: Final = lazy_pattern(
    r'  File "(?P<file>.*)", line (?P<line>\d{1,9}) in (?P<function>.+)', re.DOTALL
)
_LIBRARY: Final = lazy_pattern(r"/lib(?:64)?/python3[.\d]*/|/(?:site|dist)-packages/|^<frozen ")
_LARGEST_BYTES: Final = 1 << 26
"""A report has 200 threads of 60 lines at most, which is some megabytes."""

HangState: TypeAlias = Literal["open", "went-on", "ended"]
Wait: TypeAlias = Literal[
    "child", "computing", "disk", "lock", "poll", "read", "sleep", "stopped", "write", "other"
]
"""What the kernel says of a thread; `lock` is a futex: a lock, a condition or a queue."""

WorkerState: TypeAlias = Literal["in-step", "elsewhere", "ended", "silent", "unknown"]


class HangThread(Record, frozen=True):
    """A thread with a Python stack.

    Attributes:
        name: Name of the thread.
        is_main: Whether it is the main thread of the process.
        frames: Its stack, the innermost line first.
        user_line: The innermost line in code of the user; null without one.
        is_moving: Whether its stack changed between two looks; null where it was inspected once.
        wait: What it does, by its processor time and the kernel; null where that is not known.
        computing_ratio: Its processor time between the two looks, as a share of one core; null where not known.
    """

    name: ThreadName
    is_main: bool
    frames: tuple[SourceLine, ...]
    user_line: SourceLine | None = None
    is_moving: bool | None = None
    wait: Wait | None = None
    computing_ratio: Ratio | None = None


class HangWorker(Record, frozen=True):
    """Another process of the cluster, as it says itself in the shared folder.

    Attributes:
        task: Its role and index: worker 1.
        host: Its host; null if not known.
        state: in-step: it is in the call of a step. elsewhere: it runs something else. ended: its script has ended.
            silent: it has not written for longer than it should. unknown: it has never written.
        step_count: Steps that it has completed; null if not known.
        waited_ns: Nanoseconds since its last step ended; null if not known.
        silent_ns: Nanoseconds since it wrote last; null if it never has.
        line: The line of the user's code in which its main thread is; null if not known.
    """

    task: TaskName
    host: Hostname | None
    state: WorkerState
    step_count: Count | None
    waited_ns: Count | None
    silent_ns: Count | None
    line: SourceLine | None


class HangGpu(Record, frozen=True):
    """A GPU during the hang, by NVML.

    Attributes:
        ordinal: Number of the GPU as NVML counts.
        busy_ratio: Share of the time with a kernel.
    """

    ordinal: Count
    busy_ratio: Ratio


class Hang(Record, frozen=True):
    """A time in which no training step ended.

    Attributes:
        schema_version: Version of this format.
        traceview_version: Version that wrote it.
        host: Name of the host.
        pid: Number of the process.
        task: Role and index in the cluster: worker 0; null outside of one.
        state: open: no step has ended since. went-on: a step ended later. ended: the script ended without another step.
        limit_ns: How long no step had to end before the report was written, nanoseconds; 0 if not known.
        noticed_ns: When the report was written, Unix nanoseconds.
        waited_ns: How long no step had ended by then, nanoseconds; null if not known.
        total_ns: How long no step ended in all, nanoseconds; null while that is not known.
        step_count: Training steps that had ended; null if not known.
        last_step_ns: When the last of them ended, or when the script started, Unix nanoseconds; null if not known.
        step_function: The function whose call had not returned; null if the main thread was in none.
        is_step: Whether that function is the training step.
        is_first_call: Whether it was its first call, which traces and compiles.
        is_lock_held: Whether no Python could run at all: a native call held the lock of Python (GIL), or the process
            was stopped.
        look_ns: Nanoseconds between the two looks at threads and processor time; 0 with one look.
        cores: Processor time of the process between the looks, in cores; null if not known.
        calls_in_look: Calls between the looks of functions that are no training step.
        other_function: The one that was called most; null without one.
        python_ops: Ops of the step that run Python, such as `tf.py_function`.
        threads: Threads with a Python stack, the main thread first.
        workers: The other processes of the cluster.
        gpus: What NVML says of the GPUs.
        missing: What could not be found out, and why.
    """

    schema_version: int
    traceview_version: VersionText
    host: Hostname
    pid: Count
    task: TaskName | None
    state: HangState
    limit_ns: Count
    noticed_ns: Count
    waited_ns: Count | None
    total_ns: Count | None
    step_count: Count | None
    last_step_ns: Count | None
    step_function: FunctionName | None
    is_step: bool
    is_first_call: bool
    is_lock_held: bool
    look_ns: Count = 0
    cores: Ratio | None = None
    calls_in_look: Count = 0
    other_function: FunctionName | None = None
    python_ops: Count = 0
    threads: tuple[HangThread, ...] = ()
    workers: tuple[HangWorker, ...] = ()
    gpus: tuple[HangGpu, ...] = ()
    missing: Mapping[Message, Message] = {}

    @property
    def main(self) -> HangThread | None:
        """The main thread, if its stack is known."""
        return next((thread for thread in self.threads if thread.is_main), None)


def hang_of(facts: Mapping[str, Any]) -> Hang:
    """The report that these facts are; `stacks` among them are the text of faulthandler. Raises `msgspec.ValidationError`."""
    known = dict(facts)
    stacks = known.pop("stacks", None)
    hang = msgspec.convert(known, Hang)
    return hang if stacks is None else replace(hang, threads=tuple(_dumped_threads(stacks)))


def read_hang(path: Location) -> Hang:
    """Read one report. Raises `TraceFormatError` for a file that is none."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise TraceFormatError(path, "too large for the report of a hang")
        hang = msgspec.json.decode(path.read_bytes(), type=Hang)
    except OSError as error:
        raise TraceFormatError(path, error.strerror or str(error)) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise TraceFormatError(path, f"no report of a hang: {error}") from error
    if hang.schema_version != SCHEMA_VERSION:
        raise TraceFormatError(
            path, f"schema_version is {hang.schema_version}; this version reads {SCHEMA_VERSION}"
        )
    return hang


def stack_files(folder: Path) -> Iterator[Path]:
    """The files with stacks that `faulthandler` wrote and no report has taken over."""
    for path in sorted(folder.glob(f"{FILE_PREFIX}*.txt")):
        # A process that ends meanwhile removes its file.
        with suppress(OSError):
            if path.is_file() and path.stat().st_size:
                yield path


def hang_of_stacks(path: Path) -> Hang:
    """What such a file says, of whose process nothing else is known. Raises `TraceFormatError` if it is unreadable."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise TraceFormatError(path, "too large for the stacks of a process")
        text, written_ns = path.read_text("utf-8", "replace"), path.stat().st_mtime_ns
    except OSError as error:
        raise TraceFormatError(path, error.strerror or str(error)) from error
    host, _, rest = path.name.removeprefix(FILE_PREFIX).rpartition("-")[0].rpartition("-")
    return Hang(
        schema_version=SCHEMA_VERSION,
        traceview_version=VERSION,
        host=host,
        pid=int(rest) if rest.isascii() and rest.isdigit() and len(rest) < _LONGEST_PID else 0,
        task=None,
        state="open",
        limit_ns=0,
        noticed_ns=max(written_ns, 0),
        waited_ns=None,
        total_ns=None,
        step_count=None,
        last_step_ns=None,
        step_function=None,
        is_step=False,
        is_first_call=False,
        is_lock_held=True,
        threads=tuple(_dumped_threads(text)),
    )


def _dumped_threads(text: str) -> Iterator[HangThread]:
    """The threads of what `faulthandler` wrote, which names none; the main thread, dumped last, comes first."""
    stacks: list[list[re.Match[str]]] = []
    for line in text.splitlines():
        frame = _FRAME.fullmatch(line)
        if line.startswith(_STARTS):
            stacks.append([])
        elif frame and stacks and _OWN_CODE not in frame["file"]:
            stacks[-1].append(frame)
    for place, stack in enumerate(filter(None, reversed(stacks))):
        lines = [f"{PurePath(f['file']).name}:{int(f['line'])} in {f['function']}" for f in stack]
        is_user = [_LIBRARY.search(f["file"]) is None for f in stack]
        user_line = next((line for line, own in zip(lines, is_user, strict=True) if own), None)
        name = "thread" if place else "main thread"
        yield HangThread(name, not place, tuple(lines), user_line)


def hang_files(folder: Location) -> Iterator[Location]:
    """The reports in a folder, by name."""
    try:
        reports = [path for path in folder.iterdir() if _IS_REPORT.fullmatch(path.name)]
    except OSError:
        # A folder whose files may be opened need not permit to list them.
        return
    yield from sorted(reports, key=lambda path: path.name)
