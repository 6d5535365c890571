"""Adds to the sidecar samples of the Python stacks of all threads, taken about every millisecond without Python's lock (`stacks.c`).

Where that cannot be, a thread of Python takes them. It is given the lock where others let go of it, and most samples lie there
instead of where a thread spends its time; the sidecar says which of the two it was (`sampler`).
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Thread, get_ident
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

from traceview.capture.process.own_threads import OWN_THREADS, own_thread
from traceview.capture.process.python_code import CodePlaces, callers
from traceview.capture.sampling.sampled_stacks import (
    MOST_SAMPLES,
    MOST_WALKED,
    NOT_KEPT,
    UNKNOWN,
    Samples,
    Stacks,
    compressed,
    samples_of_native,
)
from traceview.capture.sidecar.environment import masked_thread
from traceview.capture.sidecar.file import Sidecar, WindowListener, reason_of

INTERVAL_NS: Final = 1_000_000
GOLDEN_RATIO: Final = 0.6180339887498949
"""Its multiples, modulo 1, fill the unit interval evenly in any order of magnitude."""
_REST_PER_COST: Final = 40
"""Rounds take a fortieth of a core at most; of `stacks.c`, which needs no lock, a twentieth."""
_LOOK_SECONDS: Final = 0.05
"""How long it may take to see that the profile has stopped. A choice of ours."""
_SHORTEST_COLLECTION_NS: Final = 100_000
_STOP_TIMEOUT_SECONDS: Final = 2.0
_STACKS: ModuleType | None = None
with suppress(ImportError):
    _STACKS = import_module("traceview.capture.sampling.stacks")


class Collections:
    """The garbage collections from `start` to `stop`."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int, int]] = []
        """Of each that took long: Unix time of its start, its length, both in nanoseconds, and its generation."""
        self._started_ns = 0

    def start(self) -> None:
        """Note them from here on."""
        gc.callbacks.append(self._called)

    def stop(self) -> None:
        """Note them no longer."""
        with suppress(ValueError):
            gc.callbacks.remove(self._called)

    def _called(self, phase: str, info: dict[str, Any]) -> None:
        now_ns = time.time_ns()
        if phase == "start":
            self._started_ns = now_ns
        elif self._started_ns and now_ns - self._started_ns >= _SHORTEST_COLLECTION_NS:
            self.spans.append((self._started_ns, now_ns - self._started_ns, info["generation"]))


class PythonListener(WindowListener):
    """Samples Python stacks from the start of the profile to its stop.

    The group holds `reason` (null where samples were taken), `sampler` (`native`, or `python` where that could not be), `interval_ns`,
    `round_count`, `window_ns`, `cost_ns` (processor time that the sampling took), `threads`, and compressed texts: `stacks`, JSON with
    tables of files, functions, frames and stacks, `samples`, three columns, `cpu`, `late`, and, of the native sampler, `held`.
    `collections`: `Collections.spans`.
    """

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._samples = Samples()
        # By what pthread_self returns in a thread that Python has started: its name and native identifier.
        self._names: dict[int, tuple[str, int | None]] = {}
        self._interval_ns = INTERVAL_NS
        self._round_count = self._cost_ns = self._ended_ns = 0
        self._problem: str | None = None
        self._native_problem: str | None = "no module"
        self._native: tuple[Any, ...] | None = None
        self._is_stopping = False

    def opening(self, sidecar: Sidecar) -> None:
        """Learn the threads and the code that runs now, which takes longer than a sample."""
        self._sidecar = sidecar
        self._stacks = Stacks(CodePlaces())
        self._garbage = Collections()
        self._pid = os.getpid()
        self._thread = own_thread("python", self._run)
        self._learn_names()
        if _STACKS is not None:
            self._native_problem = _STACKS.start(INTERVAL_NS, MOST_SAMPLES)

    def opened(self, sidecar: Sidecar) -> None:
        """Begin."""
        if self._thread is None:
            return
        self._started_ns = time.time_ns()
        self._garbage.start()
        if _STACKS is not None:
            _STACKS.note()
        self._thread.start()

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Stop, and keep the samples in the sidecar alone."""
        if self._stopped():
            if self._problem is not None:
                sidecar.note("listeners", f"python: {self._problem}")
            if self._native_problem is not None:
                sidecar.note("python", f"sampled with Python's lock: {self._native_problem}")
            sidecar.add("python", self._described(sidecar.stopped_ns))
            del self._samples, self._stacks
            self._native = self._thread = None

    def finished(self) -> None:
        """Stop where the profile failed."""
        self._stopped()

    def _stopped(self) -> bool:
        """Take no more samples; whether some may be here: not in a child that was forked in the window, without the thread."""
        if self._thread is None:
            return False
        self._garbage.stop()
        if os.getpid() != self._pid:
            return False
        self._is_stopping = True
        if self._thread.ident is not None:
            self._thread.join(_STOP_TIMEOUT_SECONDS)
        elif _STACKS is not None:
            _STACKS.stop()
        return True

    def _described(self, stopped_ns: int) -> dict[str, Any]:
        if self._native is not None:
            self._interval_ns, spent_ns, *read = self._native
            self._cost_ns += spent_ns
            self._round_count, self._samples = samples_of_native(
                read, self._stacks, stopped_ns, self._is_of_script
            )
        samples, window_ns = self._samples, max(stopped_ns - self._started_ns, 0)
        # It takes a while to see that the profile has stopped.
        sampled_ns = max(self._ended_ns - self._started_ns, window_ns, 1)
        has_rounds = self._round_count > 0
        reason = "no thread ran code of the script" if has_rounds else "the window was too short"
        names = [(ident, *self._names.get(ident, (None, None))) for ident in samples.threads]
        return {
            "reason": None if samples.t_ns else self._problem or reason,
            "sampler": "python" if self._native_problem else "native",
            "interval_ns": self._interval_ns,
            "round_count": self._round_count,
            "window_ns": window_ns,
            "cost_ns": self._cost_ns * window_ns // sampled_ns,
            "threads": [
                {"ident": ident, "name": name and masked_thread(name), "native_id": native_id}
                for ident, name, native_id in names
            ],
            "stacks": compressed(json.dumps(self._stacks.described()).encode()),
            **samples.described(),
            "collections": self._garbage.spans,
        }

    def _run(self) -> None:
        try:
            if self._native_problem is None and _STACKS is not None:
                while self._goes_on():
                    _STACKS.wait(_LOOK_SECONDS)
                    self._learn_names()
            else:
                self._sample_here()
        except Exception as error:
            self._problem = reason_of(error)
        finally:
            self._cost_ns, self._ended_ns = time.thread_time_ns(), time.time_ns()
            if self._native_problem is None and _STACKS is not None:
                self._native = _STACKS.stop()

    def _goes_on(self) -> bool:
        return not self._is_stopping and self._sidecar.is_recording

    def _sample_here(self) -> None:
        phase = 0.0
        cost_ns = 0
        while self._goes_on():
            # Equal distances would meet a loop of the same length always in the same line.
            phase = (phase + GOLDEN_RATIO) % 1
            rest_ns = max(self._interval_ns, _REST_PER_COST * cost_ns) * (0.5 + phase)
            due_ns = time.time_ns() + int(rest_ns)
            time.sleep(rest_ns / 1e9)
            begun_ns = time.thread_time_ns()
            if self._goes_on():
                self._round(due_ns)
            cost_ns = time.thread_time_ns() - begun_ns

    def _round(self, due_ns: int) -> None:
        frames, t_ns = sys._current_frames(), time.time_ns()
        # This frame holds them: with it among them they would be a cycle, and the variables would stay until a collection.
        del frames[get_ident()]
        self._round_count += 1
        if not frames.keys() <= self._names.keys():
            self._learn_names()
        for ident, frame in frames.items():
            stack = self._stacks.number_of(_stack(frame)) if self._is_of_script(ident) else NOT_KEPT
            if stack != NOT_KEPT:
                cpu_us = _cpu_us(self._names.get(ident, ("", None))[1])
                self._samples.add(t_ns, ident, stack, cpu_us, max(t_ns - due_ns, 0) // 1000)
        if len(self._samples.t_ns) >= MOST_SAMPLES:
            self._samples.halve()
            self._interval_ns *= 2

    def _learn_names(self) -> None:
        for thread in threading.enumerate():
            # A native thread that has asked Python who it is stands among them as a dummy.
            if thread.ident is not None and not isinstance(thread, threading._DummyThread):
                self._names.setdefault(thread.ident, (thread.name, thread.native_id))

    def _is_of_script(self, ident: int) -> bool:
        """Whether it is no thread of traceview. Native threads that call Python have no name."""
        return not self._names.get(ident, ("", None))[0].startswith(OWN_THREADS)


def _stack(frame: FrameType) -> list[tuple[CodeType, int]]:
    stack = []
    for caller, _ in zip(callers(frame), range(MOST_WALKED), strict=False):
        stack.append((caller.f_code, caller.f_lasti))
    return stack


def _cpu_us(native_id: int | None) -> int:
    """The processor time of a thread, by the kernel's name of its clock on Linux (linux/posix-timers.h); `UNKNOWN` if it has none."""
    if native_id is not None and sys.platform == "linux":
        with suppress(OSError, OverflowError):
            return time.clock_gettime_ns(~native_id << 3 | 6) // 1000
    return UNKNOWN
