"""Watches in a thread of its own whether steps end, and writes a report of each time in which none has for too long.

It names what threads do by two looks at Python stacks and at what `/proc/self/task` (proc(5)) says each thread waits for.
"""

from __future__ import annotations

import faulthandler
import json
import os
import platform
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import get_native_id
from time import monotonic_ns
from typing import IO, Any, Final, NamedTuple

from traceview.base.stack_dump import FILE_PREFIX
from traceview.base.version import VERSION
from traceview.capture.process.around import NATIVE, Patches
from traceview.capture.process.own_threads import OWN_THREADS, Ticker, own_thread
from traceview.capture.process.python_code import CodePlaces, stack_of
from traceview.capture.record.capture import Capture
from traceview.capture.record.destination import Rendezvous
from traceview.capture.sidecar.environment import Place, Task, handles, opened_nvml, own_place
from traceview.capture.sidecar.file import is_running, reason_of, stat_fields, write_whole
from traceview.capture.window.step_window import StepRange
from traceview.graphs.calls import ops_within, traces

MOST_FRAMES: Final = 60
MOST_THREADS: Final = 200
_COMPUTES: Final = 0.05
"""Share of a core from which on a thread computes: one that runs Python waits for its lock whenever it is looked at."""
_SWITCHES_PER_S: Final = 50
"""A thread that is woken more often hands work to others, as a loop of operations does; one that hangs sleeps on."""
_MACHINES: Final = ("x86_64", "aarch64")
_CALLS: Final = {
    "lock": ((202,), (98,)),
    "sleep": ((35, 230), (101, 115)),
    "poll": ((7, 23, 232, 270, 271, 281), (22, 72, 73)),
    "read": ((0, 17, 19, 45, 47, 43, 288), (63, 65, 67, 207, 212, 202, 242)),
    "write": ((1, 18, 20, 44, 46, 74, 75, 162, 306), (64, 66, 68, 206, 211, 81, 82, 83, 267)),
    "child": ((61, 247), (95, 260)),
}
"""Numbers of system calls by what a thread in them does, by machine, as in the kernel's tables (`unistd_64.h`, `unistd.h`)."""
_STATES: Final = {"R": "computing", "D": "disk", "T": "stopped", "t": "stopped"}


class KernelThread(NamedTuple):
    """A thread as the kernel lists it: what it waits for, its processor time so far, and how often it went to sleep."""

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
    """Everything at one moment, by the monotonic clock; kernel threads by their number."""

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
        lines, user_line = stack_of(places, frames[ident])
        if lines and not name.startswith(OWN_THREADS):
            number = os.getpid() if ident == main else None
            native_id = getattr(thread, "native_id", None) or number
            yield PythonThread(ident, name, native_id, tuple(lines[:MOST_FRAMES]), user_line)


def _kernel_threads() -> dict[int, KernelThread]:
    threads: dict[int, KernelThread] = {}
    for folder in Path("/proc/self/task").glob("*"):
        # A thread may end meanwhile.
        with suppress(OSError, IndexError, ValueError):
            fields = stat_fields(folder)
            cpu_ns = (int(fields[11]) + int(fields[12])) * 10**9 // os.sysconf("SC_CLK_TCK")
            status = (folder / "status").read_text("utf-8", "replace")
            switches = status.partition("\nvoluntary_ctxt_switches:")[2].partition("\n")[0]
            wait = _STATES.get(fields[0]) or _wait(folder)
            threads[int(folder.name)] = KernelThread(wait, cpu_ns, int(switches or 0))
    return threads


def _wait(folder: Path) -> str:
    # Another machine has no place, and not every kernel shows the call.
    with suppress(OSError, StopIteration, ValueError):
        first = (folder / "syscall").read_text("ascii", "replace").partition(" ")[0]
        place = _MACHINES.index(platform.machine())
        return next(wait for wait, calls in _CALLS.items() if first in map(str, calls[place]))
    return "other"


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

    def wait(number: int | None) -> str | None:
        """What a thread does: what the kernel says, unless two looks show that it works."""
        if number is None or number not in ratios:
            return None
        hands_over = switches[number] >= _SWITCHES_PER_S and cores >= _COMPUTES
        works = ratios[number] >= _COMPUTES or hands_over
        return "computing" if works else second.kernel[number].wait

    return {
        "look_ns": length_ns,
        "cores": cores if ratios else None,
        "threads": [
            {
                "name": thread.name,
                "is_main": thread.ident == main,
                "is_moving": before.get(thread.ident) != thread.frames,
                "wait": wait(thread.native_id),
                "computing_ratio": ratios.get(thread.native_id or 0),
                "user_line": thread.user_line,
                "frames": list(thread.frames),
            }
            for thread in second.python
        ],
    }


class Silence:
    """Notices, from `open` to `close`, where no Python can run because a native call holds Python's lock, while it lasts.

    The thread that watches arms `faulthandler.dump_traceback_later` again and again: its thread, in C, needs no lock, and writes
    all stacks to a file only where the other does not run. Native code says so. A script that uses the timer keeps it.
    """

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
        self._is_taken = True
        return self._arm(*arguments, **keywords)


_TICK_S: Final = 0.25
_STOP_TIMEOUT_S: Final = 2.0


class HangWatch:
    """Watches the steps of a `Capture` from `start` to `stop`. `write_up` makes files by suffix, and lines for the user, of facts."""

    def __init__(
        self, after_s: float, write_up: Any, steps: Capture, say: Callable[[str], None]
    ) -> None:
        self._after_s = after_s
        self._write_up = write_up
        self._steps = steps
        self._say = say
        out = steps.settings.out.absolute()
        interval_s = min(max(after_s / 12, _TICK_S), 5.0)
        self._peers = Peers(out, steps.settings.steps, interval_s)
        self._silence = Silence(out, after_s)
        self._ticker = Ticker("hang", self._looked)
        self._is_over = True
        self._count = self._hang_count = 0
        self._next_beat_s = 0.0
        self._facts: dict[str, Any] | None = None
        self._place: tuple[Path, str] | None = None

    def start(self) -> None:
        """Begin; the time without a step runs from now."""
        self._is_over = False
        self._last_step_ns = time.time_ns()
        # By the monotonic clock: when the last step ended, from when on the alarm counts, when this thread last ran.
        self._ended_s = self._alarm_from_s = self._ran_s = time.monotonic()
        self._silence.open()
        self._ticker.start()

    def stop(self) -> None:
        """The script has ended: complete an open report, and tell the other workers."""
        if self._is_over:
            return
        self._is_over = True
        self._ticker.stop(_STOP_TIMEOUT_S)
        with suppress(Exception):
            self._notice_silence()
            self._complete("ended" if self._steps.window.next_number == self._count else "went-on")
        self._beat()
        self._silence.close()

    def _looked(self) -> float | None:
        try:
            self._notice_silence()
            # Before the rest: a native call may take the lock in the middle of it.
            self._ran_s = time.monotonic()
            self._look()
        except Exception as error:
            # The training must not suffer from what is only looking at it.
            self._say(f"note: --on-hang stopped: {reason_of(error)}")
            return None
        return _TICK_S

    def _look(self) -> None:
        self._silence.beat()
        now_s, count = time.monotonic(), self._steps.window.next_number
        if count != self._count:
            self._complete("went-on")
            self._count, self._last_step_ns = count, time.time_ns()
            self._ended_s = self._alarm_from_s = now_s
        elif self._facts is None and now_s - self._alarm_from_s >= self._after_s:
            self._report(now_s - self._ended_s)
            # That took time of its own, in which the lock may have been gone.
            self._ran_s = time.monotonic()
            self._silence.text()
        if now_s >= self._next_beat_s and self._peers.find(os.environ):
            self._next_beat_s = now_s + self._peers.interval_s
            self._beat()

    def _notice_silence(self) -> None:
        """Report a time in which this thread did not run, and so no Python ran."""
        paused_s = time.monotonic() - self._ran_s
        has_gone_on = self._steps.window.next_number != self._count
        if paused_s < self._after_s or (self._facts is not None and not has_gone_on):
            return
        self._complete("went-on")
        known, stacks = self._known(paused_s, is_lock_held=True), self._silence.text()
        missing = {} if stacks else {"threads": "the stacks of that time were not written"}
        known |= {"state": "went-on", "total_ns": int(paused_s * 1e9)}
        self._begin({**known, "stacks": stacks, "missing": missing})
        self._facts = None
        self._alarm_from_s = time.monotonic()

    def _report(self, waited_s: float) -> None:
        if self._peers.find(os.environ):
            # So that the other workers know of this one, and so that ages count from now.
            self._beat()
        called, first = sum(self._other_calls().values()), look(CodePlaces())
        # The kernel counts processor time in hundredths of a second.
        time.sleep(min(max(self._after_s / 4, 0.5), 1.0))
        second = look(CodePlaces())
        facts = {
            **self._known(waited_s, is_lock_held=False),
            **described(first, second, without=get_native_id()),
            "calls_in_look": sum(self._other_calls().values()) - called,
            "workers": self._peers.read(),
            "gpus": [],
            "missing": {},
        }
        with suppress(Exception), opened_nvml() as nvml:
            rates = map(nvml.nvmlDeviceGetUtilizationRates, handles(nvml))
            gpus = [{"ordinal": n, "busy_ratio": rate.gpu / 100} for n, rate in enumerate(rates)]
            facts["gpus"] = gpus
        with suppress(Exception):
            # While the graph is being made, it is not known.
            functions = self._steps.observer.functions_of(facts["step_function"] or "")
            graphs = [made[-1].graph for made in map(traces, functions) if made]
            ops = [op.type for graph in graphs for op, _ in ops_within(graph)]
            facts["python_ops"] = sum(map(ops.count, ("PyFunc", "EagerPyFunc", "PyFuncStateless")))
        if not self._is_over and self._steps.window.next_number == self._count:
            self._begin(facts)

    def _known(self, waited_s: float, *, is_lock_held: bool) -> dict[str, Any]:
        callee = None if is_lock_held else self._steps.observer.current
        others, place = self._other_calls(), self._peers.place
        return {
            "schema_version": 1,
            "traceview_version": VERSION,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "task": str(place.task) if place else None,
            "state": "open",
            "limit_ns": int(self._after_s * 1e9),
            "noticed_ns": time.time_ns(),
            "waited_ns": int(waited_s * 1e9),
            "total_ns": None,
            "step_count": self._count,
            "last_step_ns": self._last_step_ns,
            "step_function": callee.name if callee else None,
            "is_step": callee is not None and callee.is_step,
            "is_first_call": callee is not None and callee.calls <= 1,
            "is_lock_held": is_lock_held,
            "other_function": max(others, key=others.__getitem__, default=None),
        }

    def _other_calls(self) -> dict[str, int]:
        others = [each for each in list(self._steps.observer.callees) if not each.is_step]
        return {each.name: each.calls for each in others}

    def _begin(self, facts: dict[str, Any]) -> None:
        self._hang_count += 1
        if self._silence.problem is not None:
            facts["missing"]["silence"] = self._silence.problem
        for line in self._write(facts):
            self._say(line)
        self._facts = facts

    def _complete(self, state: str) -> None:
        if self._facts is None:
            return
        total_s = time.monotonic() - self._ended_s
        self._facts |= {"state": state, "total_ns": int(total_s * 1e9)}
        self._write(self._facts)
        if state == "went-on":
            what = "training went on" if self._facts["step_count"] else "training began"
            self._say(f"{what} after {total_s:.0f} s without a step; the report says so")
        self._facts = None

    def _write(self, facts: dict[str, Any]) -> Sequence[str]:
        """Write the files of the report, and return the lines that the user should see now."""
        if self._place is None:
            self._place = self._steps.report_place()
        folder, host = self._place
        stem = f"{host}.hang{self._hang_count if self._hang_count > 1 else ''}"
        files, lines = self._write_up(facts)
        for ending, content in files.items():
            write_whole(folder / f"{stem}{ending}", content)
        return [*lines, f"all stacks: {folder / stem}.md"]

    def _beat(self) -> None:
        callee = self._steps.observer.current
        main = None if self._is_over else next(python_threads(CodePlaces()), None)
        self._peers.write({
            "is_ended": self._is_over,
            "is_in_step": callee is not None and callee.is_step,
            "step_count": self._steps.window.next_number,
            "waited_ns": int((time.monotonic() - self._ended_s) * 1e9),
            "line": main.user_line if main else None,
        })  # fmt: skip


class Peers:
    """The other workers, as soon as the environment names some. `interval_s`: how often each worker writes."""

    def __init__(self, out: Path, steps: StepRange, interval_s: float) -> None:
        self.interval_s = interval_s
        self.place: Place | None = None
        self._out = out
        self._steps = steps

    def find(self, environment: Mapping[str, str]) -> bool:
        """Whether there are partners; the script may join a cluster at any time before it trains."""
        place = own_place(environment) if self.place is None else None
        if place is not None and place.partners:
            self.place, self._folder = place, Rendezvous(self._out, place, self._steps).folder
            with suppress(OSError):
                self._folder.mkdir(exist_ok=True)
        return self.place is not None

    def write(self, fields: Mapping[str, Any]) -> None:
        """Say what this worker does. A folder that cannot be written is noticed by the others, as silence."""
        if self.place is not None:
            beat = {"host": socket.gethostname(), "interval_s": self.interval_s, **fields}
            with suppress(OSError):
                write_whole(self._file(self.place.task), json.dumps(beat).encode())

    def read(self) -> list[dict[str, Any]]:
        """What the other workers do, as the fields of the report; call `write` just before."""
        if self.place is None:
            return []
        own, now_s = self.place.task, 0.0
        with suppress(OSError):
            now_s = self._file(own).stat().st_mtime
        return [self._worker(task, now_s) for task in self.place.partners if task != own]

    def _file(self, task: Task) -> Path:
        return self._folder / f"beat-{task.label}.json"

    def _worker(self, task: Task, now_s: float) -> dict[str, Any]:
        fields = ("host", "step_count", "waited_ns", "silent_ns", "line")
        worker: dict[str, Any] = {"task": str(task), "state": "unknown", **dict.fromkeys(fields)}
        path = self._file(task)
        # A worker without a file has never written, and a damaged one says nothing.
        with suppress(KeyError, OSError, RecursionError, TypeError, ValueError, OverflowError):
            silent_s = max(now_s - path.stat().st_mtime, 0.0)
            with path.open("rb") as file:
                beat = json.loads(file.read(1 << 16))
            is_silent = silent_s > 3 * max(float(beat["interval_s"]), 1.0)
            state = "in-step" if beat["is_in_step"] is True else "elsewhere"
            worker |= {
                "host": str(beat["host"]),
                "step_count": int(beat["step_count"]),
                "waited_ns": max(int(beat["waited_ns"] + silent_s * 1e9), 0),
                "silent_ns": int(silent_s * 1e9),
                "line": None if beat["line"] is None else str(beat["line"]),
                "state": "ended" if beat["is_ended"] is True else "silent" if is_silent else state,
            }
        return worker
