"""Watches in a thread of its own whether steps end, and writes a report where none has for too long.

The thread only reads: the count of steps, the call that runs, stacks, `/proc`, NVML. The training is not touched, and goes
on if it can; then the report is completed. Each hang has one report.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import get_native_id
from typing import Any, Final

from traceview.base.version import VERSION
from traceview.capture.hang import threads
from traceview.capture.process.own_threads import Ticker
from traceview.capture.process.python_code import CodePlaces
from traceview.capture.record.capture import Capture
from traceview.capture.record.run_choice import Rendezvous
from traceview.capture.sidecar.cluster import Place, Task, own_place
from traceview.capture.sidecar.file import reason_of, write_whole
from traceview.capture.sidecar.gpu_libraries import opened_nvml
from traceview.capture.steps.graphs import ops_within, traces
from traceview.capture.window.ranges import StepRange

_PYTHON: Final = ("PyFunc", "EagerPyFunc", "PyFuncStateless")
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
_SILENT_BEATS: Final = 3
"""A worker that misses one or two is slow, or its file system is."""
_LARGEST_BYTES: Final = 1 << 16
"""Of a worker's file, which has a few hundred."""


class HangWatch:
    """Watches the steps of one `Capture` from `start` to `stop`; reports after `after_s`. `say` gets lines for the user.

    `write_up` makes a report of the facts: its files by the suffix of their names, and the lines that the user should see now.
    """

    def __init__(
        self, after_s: float, write_up: Any, steps: Capture, say: Callable[[str], None]
    ) -> None:
        self._after_s = after_s
        self._write_up = write_up
        self._steps = steps
        self._say = say
        self._pid = os.getpid()
        out = steps.settings.out.absolute()
        interval_s = min(max(after_s / _BEATS, _TICK_S), _LONGEST_BEAT_S)
        self._peers = Peers(out, steps.settings.steps, interval_s)
        self._silence = threads.Silence(out, after_s)
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
        if os.getpid() != self._pid or self._is_over:
            return
        self._is_over = True
        self._ticker.stop(_STOP_TIMEOUT_S)
        with suppress(Exception):
            self._notice_silence()
            self._complete("ended" if self._steps.window.next_number == self._count else "went-on")
        self._beat()
        self._silence.close()

    # In the thread

    def _looked(self) -> float | None:
        """Look; seconds until the next time."""
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
        self._begin({**known, "stacks": stacks, "missing": missing})
        self._complete("went-on", total_s=paused_s)
        self._alarm_from_s = time.monotonic()

    def _report(self, waited_s: float) -> None:
        """Write the report of a hang, unless it turns out to be none."""
        if self._peers.find(os.environ):
            # So that the other workers know of this one, and so that ages count from now.
            self._beat()
        called, first = sum(self._other_calls().values()), threads.look(CodePlaces())
        time.sleep(min(max(self._after_s / 4, _LOOK_S[0]), _LOOK_S[1]))
        second = threads.look(CodePlaces())
        facts = {
            **self._known(waited_s, is_lock_held=False),
            **threads.described(first, second, without=get_native_id()),
            "calls_in_look": sum(self._other_calls().values()) - called,
            "workers": self._peers.read(),
            "gpus": _gpus(),
            "missing": {},
        }
        with suppress(Exception):
            # While the graph is being made, it is not known.
            functions = self._steps.observer.functions_of(facts["step_function"] or "")
            graphs = [made[-1].graph for made in map(traces, functions) if made]
            ops = (op.type for graph in graphs for op, _ in ops_within(graph))
            facts["python_ops"] = sum(type_ in _PYTHON for type_ in ops)
        if not self._is_over and self._steps.window.next_number == self._count:
            self._begin(facts)

    def _known(self, waited_s: float, *, is_lock_held: bool) -> dict[str, Any]:
        """What the watch and the hooks know."""
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
        """How often the functions were called that are no step, by name."""
        others = [each for each in list(self._steps.observer.callees) if not each.is_step]
        return {each.name: each.calls for each in others}

    def _begin(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self._hang_count += 1
        if self._silence.problem is not None:
            facts["missing"]["silence"] = self._silence.problem
        for line in self._write():
            self._say(line)

    def _complete(self, state: str, *, total_s: float | None = None) -> None:
        """The hang is over: say so in its report."""
        if self._facts is None:
            return
        total_s = time.monotonic() - self._ended_s if total_s is None else total_s
        self._facts |= {"state": state, "total_ns": int(total_s * 1e9)}
        self._write()
        if state == "went-on" and not self._facts["is_lock_held"]:
            what = "training went on" if self._facts["step_count"] else "training began"
            self._say(f"{what} after {total_s:.0f} s without a step; the report says so")
        self._facts = None

    def _write(self) -> Sequence[str]:
        """Write the files of the report, and return the lines that the user should see now."""
        assert self._facts is not None
        if self._place is None:
            self._place = self._steps.report_place()
        folder, host = self._place
        stem = f"{host}.hang{self._hang_count if self._hang_count > 1 else ''}"
        files, lines = self._write_up(self._facts)
        for ending, content in files.items():
            write_whole(folder / f"{stem}{ending}", content)
        return [*lines, f"all stacks: {folder / stem}.md"]

    def _beat(self) -> None:
        """Tell the other workers what this one does."""
        callee = self._steps.observer.current
        main = None if self._is_over else next(threads.python_threads(CodePlaces()), None)
        self._peers.write({
            "is_ended": self._is_over,
            "is_in_step": callee is not None and callee.is_step,
            "step_count": self._steps.window.next_number,
            "waited_ns": int((time.monotonic() - self._ended_s) * 1e9),
            "line": main.user_line if main else None,
        })  # fmt: skip


def _gpus() -> list[dict[str, Any]]:
    """Load of each GPU now; without a driver there is none to tell about."""
    with suppress(Exception), opened_nvml() as nvml:
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(int(nvml.nvmlDeviceGetCount())))
        busy = [float(nvml.nvmlDeviceGetUtilizationRates(each).gpu) / 100 for each in handles]
        return [{"ordinal": number, "busy_ratio": ratio} for number, ratio in enumerate(busy)]
    return []


class Peers:
    """The other workers, as soon as the environment names some. `interval_s`: how often each worker writes."""

    def __init__(self, out: Path, steps: StepRange, interval_s: float) -> None:
        self.interval_s = interval_s
        self.place: Place | None = None
        self._out = out
        self._steps = steps
        self._folder = Path()

    def find(self, environment: Mapping[str, str]) -> bool:
        """Whether there are partners; the script may join a cluster at any time before it trains."""
        place = self.place or own_place(environment)
        if place is None or not place.partners:
            return False
        if self.place is None:
            self.place, self._folder = place, Rendezvous(self._out, place, self._steps).folder
            with suppress(OSError):
                self._folder.mkdir(exist_ok=True)
        return True

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
                beat = json.loads(file.read(_LARGEST_BYTES))
            is_silent = silent_s > _SILENT_BEATS * max(float(beat["interval_s"]), 1.0)
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
