"""Watches in a thread of its own whether steps end, and writes a report where none has for too long.

The thread only reads: the count of steps, the call that runs, stacks, `/proc`, NVML. The training is not touched, and goes
on if it can; then the report is completed. Each hang has one report.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any, Final

from traceview.base.version import VERSION
from traceview.capture.hang import threads
from traceview.capture.hang.peers import Peers
from traceview.capture.hang.silence import Silence
from traceview.capture.process.own_threads import own_thread
from traceview.capture.process.python_code import CodePlaces
from traceview.capture.record.capture import Capture
from traceview.capture.sidecar.file import NoAnswerError, reason_of, write_whole
from traceview.capture.sidecar.gpu_libraries import opened_nvml
from traceview.capture.steps.graphs import ops_within, traces

SUFFIX: Final = ".hang"
SCHEMA_VERSION: Final = 1
_PYTHON: Final = ("PyFunc", "EagerPyFunc", "PyFuncStateless")
_REPORTS: Final = "traceview.analysis.machine.hang"
_TICK_S: Final = 0.25
"""How exactly the time without a step is known."""
_LOOK_S: Final = (0.5, 1.0)
"""The kernel counts processor time in hundredths of a second: between these a hundredth of a core shows."""
_BEATS: Final = 12
"""Of a worker within the time without a step."""
_LONGEST_BEAT_S: Final = 5.0
"""So a worker that stops is silent within 15 s, however long a step may take."""
_STOP_TIMEOUT_S: Final = 2.0
"""A look ends at once; a report that is written to a file system that hangs is not waited for."""


WriteUp = Callable[[Mapping[str, Any]], tuple[Mapping[str, bytes], Sequence[str]]]
"""Makes a report of the facts: its files by the suffix of their names, and the lines that the user should see now."""


def hang_watch(after_s: float, steps: Capture, say: Callable[[str], None]) -> HangWatch | None:
    """The watch of a capture. Reports are imported now: a script that hangs in an import must not stop them.

    None where the analysis cannot be imported, which `say` reports.
    """
    try:
        # By name: a capture does without the analysis, and here is nobody else to bring it.
        write_up = import_module(_REPORTS).write_up
    except ImportError as error:
        say(f"note: --on-hang is off in this process: {error}")
        return None
    return HangWatch(after_s, write_up, steps, say)


class HangWatch:
    """Watches the steps of one `Capture` from `start` to `stop`; reports after `after_s`. `say` gets lines for the user."""

    def __init__(
        self, after_s: float, write_up: WriteUp, steps: Capture, say: Callable[[str], None]
    ) -> None:
        self._after_s = after_s
        self._write_up = write_up
        self._steps = steps
        self._say = say
        self._pid = os.getpid()
        wanted = steps.settings
        out = wanted.out.absolute()
        interval_s = min(max(after_s / _BEATS, _TICK_S), _LONGEST_BEAT_S)
        self._peers = Peers(out, wanted.steps, interval_s)
        self._silence = Silence(out, after_s)
        self._stop = Event()
        self._thread = own_thread("hang", self._run)
        self._count = 0
        self._next_beat_s = 0.0
        self._facts: dict[str, Any] | None = None
        self._hang_count = 0
        self._place: tuple[Path, str] | None = None

    def start(self) -> None:
        """Begin; the time without a step runs from now."""
        self._last_step_ns = time.time_ns()
        # By the monotonic clock: when the last step ended, from when on the alarm counts, when this thread last ran.
        self._ended_s = self._alarm_from_s = self._ran_s = time.monotonic()
        self._silence.open()
        self._silence.beat()
        self._thread.start()

    def stop(self) -> None:
        """The script has ended: complete an open report, and tell the other workers."""
        if os.getpid() != self._pid or self._stop.is_set():
            return
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_TIMEOUT_S)
        with suppress(Exception):
            self._complete("ended" if self._steps.window.next_number == self._count else "went-on")
        self._beat(is_ended=True)
        self._silence.close()

    # In the thread

    def _run(self) -> None:
        try:
            while not self._stop.wait(_TICK_S):
                self._notice_silence()
                # Before the tick: a native call may take the lock in the middle of it.
                self._ran_s = time.monotonic()
                self._tick()
            self._notice_silence()
        except Exception as error:
            # The training must not suffer from what is only looking at it.
            self._say(f"note: --on-hang stopped: {reason_of(error)}")

    def _tick(self) -> None:
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
            self._beat(is_ended=False)

    def _notice_silence(self) -> None:
        """Report a time in which this thread did not run, and so no Python ran."""
        paused_s = time.monotonic() - self._ran_s
        has_gone_on = self._steps.window.next_number != self._count
        if paused_s < self._after_s or (self._facts is not None and not has_gone_on):
            return
        self._complete("went-on")
        stacks = self._silence.text()
        missing = {} if stacks else {"threads": "the stacks of that time were not written"}
        self._begin(
            {**self._known(paused_s, is_lock_held=True), "stacks": stacks, "missing": missing}
        )
        self._complete("went-on", total_s=paused_s)
        self._alarm_from_s = time.monotonic()

    def _report(self, waited_s: float) -> None:
        """Write the report of a hang, unless it turns out to be none."""
        if self._peers.find(os.environ):
            # So that the other workers know of this one, and so that ages count from now.
            self._beat(is_ended=False)
        least_s, most_s = _LOOK_S
        missing: dict[str, str] = {}
        calls, first = self._other_calls(), threads.look(CodePlaces())
        self._stop.wait(min(max(self._after_s / 4, least_s), most_s))
        second = threads.look(CodePlaces())
        facts = {
            **self._known(waited_s, is_lock_held=False),
            **threads.described(first, second, without=self._thread.native_id),
            "calls_in_look": self._other_calls() - calls,
            "workers": self._peers.read(),
            "gpus": _gpus(missing),
            "missing": missing,
        }
        with suppress(Exception):
            # While the graph is being made, it is not known.
            facts["python_ops"] = self._python_ops(facts["step_function"])
        if self._stop.is_set() or self._steps.window.next_number != self._count:
            return
        self._begin(facts)

    def _known(self, waited_s: float, *, is_lock_held: bool) -> dict[str, Any]:
        """What the watch and the hooks know."""
        callee = None if is_lock_held else self._steps.observer.current
        most_called = max(self._others(), key=lambda callee: callee.calls, default=None)
        task = self._peers.place.task if self._peers.place else None
        return {
            "schema_version": SCHEMA_VERSION,
            "traceview_version": VERSION,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "task": str(task) if task else None,
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
            "other_function": most_called.name if most_called else None,
        }

    def _others(self) -> list[Any]:
        """The functions so far that are no step."""
        return [callee for callee in list(self._steps.observer.callees) if not callee.is_step]

    def _other_calls(self) -> int:
        return sum(callee.calls for callee in self._others())

    def _begin(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self._hang_count += 1
        if self._silence.problem is not None:
            facts["missing"]["silence"] = self._silence.problem
        for line in self._write():
            self._say(line)

    def _python_ops(self, function: str | None) -> int:
        """How many ops of the step run Python, such as `tf.py_function`, where the framework has graphs."""
        functions = self._steps.observer.functions_of(function or "")
        graphs = [made[-1].graph for made in map(traces, functions) if made]
        return sum(op.type in _PYTHON for graph in graphs for op, _ in ops_within(graph))

    def _complete(self, state: str, *, total_s: float | None = None) -> None:
        """The hang is over: say so in its report."""
        if self._facts is None:
            return
        total_s = time.monotonic() - self._ended_s if total_s is None else total_s
        self._facts |= {"state": state, "total_ns": int(total_s * 1e9)}
        self._write()
        if state == "went-on" and not self._facts["is_lock_held"]:
            verb = "went on" if self._facts["step_count"] else "began"
            self._say(f"training {verb} after {total_s:.0f} s without a step; the report says so")
        self._facts = None

    def _write(self) -> Sequence[str]:
        """Write the files of the report, and return the lines that the user should see now."""
        assert self._facts is not None
        if self._place is None:
            self._place = self._steps.report_place()
        folder, host = self._place
        stem = f"{host}{SUFFIX}{self._hang_count if self._hang_count > 1 else ''}"
        files, lines = self._write_up(self._facts)
        for ending, content in files.items():
            write_whole(folder / f"{stem}{ending}", content)
        return [*lines, f"all stacks: {folder / stem}.md"]

    def _beat(self, *, is_ended: bool) -> None:
        """Tell the other workers what this one does."""
        callee = self._steps.observer.current
        main = None if is_ended else next(iter(threads.python_threads(CodePlaces())), None)
        self._peers.write({
            "is_ended": is_ended,
            "is_in_step": callee is not None and callee.is_step,
            "step_count": self._steps.window.next_number,
            "waited_ns": int((time.monotonic() - self._ended_s) * 1e9),
            "line": main.user_line if main else None,
        })  # fmt: skip


def _gpus(missing: dict[str, str]) -> list[dict[str, Any]]:
    """Load and power of each GPU now."""
    gpus = []
    try:
        with opened_nvml() as nvml:
            for ordinal in range(int(nvml.nvmlDeviceGetCount())):
                handle = nvml.nvmlDeviceGetHandleByIndex(ordinal)
                busy = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
                gpus.append({"ordinal": ordinal, "busy_ratio": busy})
    except NoAnswerError:
        # No driver, no GPU to tell about.
        return []
    except Exception as error:
        missing["gpus"] = reason_of(error)
    return gpus
