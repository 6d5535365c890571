"""Adds to the sidecar samples of the Python stacks of all threads, taken about every millisecond in a thread of its own.

A sample costs tens of microseconds with the GIL held. A thread that runs Python keeps the GIL for 5 ms, and lets go of it
before where it calls TensorFlow, where most samples would lie. So while only the main thread was seen to run Python, or to wait
in code of the script, the sampling thread gets the GIL sooner; with several that would change who waits for whom. Then the main
thread takes samples, too, between two of its instructions, where it runs Python (`main_thread.c`). No signals: with a timer of
1 ms, five of six runs without a graph died of a broken heap (TensorFlow 2.21).
"""

from __future__ import annotations

import dis
import gc
import json
import os
import sys
import threading
import time
import zlib
from array import array
from base64 import b64encode
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from itertools import chain, compress, pairwise, repeat, starmap, tee
from pathlib import Path
from threading import Lock, Thread, get_ident, main_thread
from traceback import walk_tb
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

from traceview.capture.process.around import Patches, around
from traceview.capture.process.own_threads import OWN_THREADS, own_thread
from traceview.capture.process.python_code import CodePlaces, Origin, callers
from traceview.capture.sidecar.environment import masked_thread
from traceview.capture.sidecar.file import Sidecar, WindowListener, reason_of

INTERVAL_NS: Final = 1_000_000
_FIRST_COST_NS: Final = 200_000
"""Of a sample, as long as none was taken; a choice of ours."""
_PASSES_ON: Final = "passes_on"
"""The name of those functions of ours that call what the script, or a framework, would have called."""
_LONG_DUE_US: Final = 500
"""A round that is so late waited for native code that keeps the GIL: several times the usual. A choice of ours."""
_BEGIN: Final = dis.opmap.get("RESUME")
"""The instruction with which a function begins, from Python 3.11 on."""
_LONG_WAIT_NS: Final = 2_500_000
"""A round that is so late has waited for the GIL: longer than any round takes. A choice of ours."""
_VALUES: Final = 5
"""Of a sample."""
MOST_SAMPLES: Final = 1 << 19
"""Of all threads, in 21 MB; beyond that every second round is dropped, and the interval doubles."""
MOST_STACKS: Final = 1 << 16
MOST_FRAMES: Final = 64
MOST_WALKED: Final = 256
"""Frames that a sample looks at, of which it keeps so many."""
LARGEST_COST_RATIO: Final = 0.045
"""The share of a core that samples may take; where a round costs more, the rounds are further apart."""
SOON_SECONDS: Final = 1e-4
"""The switch interval of Python while only the main thread runs Python: a tenth of the time between samples."""
GOLDEN_RATIO: Final = 0.6180339887498949
"""Its multiples, modulo 1, fill the unit interval evenly in any order of magnitude."""
_PROMPT_NS: Final = 200_000
"""A main thread that answers later was not in Python when it was asked. A choice of ours."""
_STOP_TIMEOUT_SECONDS: Final = 2.0
NOT_KEPT: Final = -1
_TRACEVIEW: Final = Path(__file__).parents[2]
_MAIN_THREAD: ModuleType | None = None
with suppress(ImportError):
    _MAIN_THREAD = import_module("traceview.capture.sampling.main_thread")


class Stacks:
    """The different stacks so far, by number. A stack is a tuple of pairs: id of the code, and instruction in it."""

    def __init__(self, places: CodePlaces) -> None:
        self.keys: dict[tuple[int, ...], int] = {}
        self.of_user: set[int] = set()
        """Those that reach code of the user."""
        self._places = places
        self._known: dict[int, tuple[CodeType, Origin]] = {}
        """Code by id, and where it is from. What is kept here cannot give its id to another."""
        self._begins: dict[tuple[int, int], bool] = {}

    def learn(self, code: CodeType) -> tuple[CodeType, Origin]:
        """Know code before, which takes longer than a sample."""
        if id(code) not in self._known:
            self._known[id(code)] = code, self._places.origin_of(code)
        return self._known[id(code)]

    def number_of(self, frame: FrameType | None) -> int:
        """The number of a stack; `NOT_KEPT` if there are too many, or all of it is in the standard library: it waits for work.

        What called the innermost line of the user is kept as far as it is the user's, too.
        """
        key: list[int] = []
        is_user, is_all_standard = False, True
        walked = 0
        while frame is not None and walked < MOST_WALKED and len(key) < 2 * MOST_FRAMES:
            code, walked = frame.f_code, walked + 1
            kind = (self._known.get(id(code)) or self.learn(code))[1].kind
            if kind == "own" and key and code.co_name == _PASSES_ON:
                frame = frame.f_back
                continue
            is_all_standard &= kind == "standard"
            if kind == "user" or not is_user:
                key += (id(code), frame.f_lasti)
            is_user |= kind == "user"
            frame = frame.f_back
        if is_all_standard:
            return NOT_KEPT
        number = self.keys.get(tuple(key))
        if number is None:
            if len(self.keys) >= MOST_STACKS:
                return NOT_KEPT
            number = self.keys[tuple(key)] = len(self.keys)
            if is_user:
                self.of_user.add(number)
        return number

    def has_begun(self, code: CodeType, instruction: int) -> bool:
        """Whether a function has run anything: there a thread is caught that must let go of the GIL, after native code that could not."""
        place = id(code), instruction
        if place not in self._begins:
            self._begins[place] = _is_begin(code, instruction)
        return not self._begins[place]

    def described(self) -> dict[str, list[Any]]:
        """Tables by number; `frames`: file, function, line and whether it is the user's; `stacks`: frames, the innermost first."""
        files: dict[str, int] = {}
        functions: dict[str, int] = {}
        frames: dict[tuple[int, int, int, int], int] = {}

        @cache
        def number_of(place: tuple[int, int]) -> int:
            code, origin = self._known[place[0]]
            file = files.setdefault(origin.file, len(files))
            function = functions.setdefault(origin.function, len(functions))
            line, is_user = origin.line_of(_line_of(code, place[1])), int(origin.kind == "user")
            return frames.setdefault((file, function, line, is_user), len(frames))

        # In the order of their numbers.
        keys = list(self.keys)
        stacks = [list(map(number_of, zip(key[::2], key[1::2], strict=True))) for key in keys]
        texts = {"files": list(files), "functions": list(functions)}
        return {**texts, "frames": list(frames), "stacks": stacks}


def _line_of(code: CodeType, instruction: int) -> int:
    """The line of an instruction, or of the last one before it that has a line."""
    known = code.co_firstlineno
    for start, _, line in code.co_lines():
        if start > instruction:
            break
        known = known if line is None else line
    return known


def _is_begin(code: CodeType, instruction: int) -> bool:
    """Whether an instruction is the one with which a function begins, and not goes on after a `yield` or `await`."""
    if instruction < 0:
        return True
    operation, argument = code.co_code[instruction : instruction + 2]
    return operation == _BEGIN and not argument & 3


_ENABLE: Final = gc.enable
_DISABLE: Final = gc.disable


class Collections:
    """The garbage collections from `start` to `stop`; none begins in the thread that samples, as finalizers may wait for others."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int, int]] = []
        """Of each that took long: Unix time of its start, its length, both in nanoseconds, and its generation."""
        self._started_ns = 0
        self._patches = Patches()
        self._is_on = False
        self._is_wanted = True
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def start(self) -> None:
        """Note them from here on, and what the script chooses."""
        self._is_on, self._is_wanted = True, gc.isenabled()
        gc.callbacks.append(self._called)
        for name, is_on in (("enable", True), ("disable", False)):
            # Before it is done, so that no round in between does the opposite.
            chosen = partial(setattr, self, "_is_wanted", is_on)
            self._patches.put(gc, name, around(getattr(gc, name), chosen, self._seen))
        self._patches.put(gc, "isenabled", around(gc.isenabled, lambda: True, self._seen))

    def stop(self) -> None:
        """Note them no longer."""
        self._is_on = False
        with suppress(ValueError):
            gc.callbacks.remove(self._called)
        self._patches.undo()

    def release(self) -> None:
        """After `_DISABLE` they begin again as the script has chosen."""
        is_on = False
        while is_on != self._is_wanted:
            # Another thread may choose meanwhile.
            is_on = self._is_wanted
            (_ENABLE if is_on else _DISABLE)()

    def _forked(self) -> None:
        if self._is_on:
            self.stop()
            self.release()

    def _seen(self, _token: Any, _result: Any, _error: BaseException | None) -> bool:
        return self._is_wanted

    def _called(self, phase: str, info: dict[str, Any]) -> None:
        now_ns = time.time_ns()
        if phase == "start":
            self._started_ns = now_ns
        elif self._started_ns and now_ns - self._started_ns >= 100_000:
            self.spans.append((self._started_ns, now_ns - self._started_ns, info["generation"]))


class PythonListener(WindowListener):
    """Samples Python stacks from the start of the profile to its stop.

    The group holds `reason` (null where samples were taken), `interval_ns`, `round_count`, `window_ns`, `cost_ns` (processor
    time that the sampling took), `threads`, and compressed texts: `stacks`, JSON with tables of files, functions, frames
    and stacks, `samples`, three columns, `cpu` and `late`. `collections`: `Collections.spans`.
    """

    def __init__(self) -> None:
        self._thread: Thread | None = None
        # Of each sample, one after the other: Unix time, numbers of thread and stack, microseconds of processor time that the
        # thread has taken so far (negative where not known), and by how much the round came late, because something else had
        # the GIL, or the core.
        self._samples = array("q")
        # By what pthread_self returns in a thread: its number; and its name and native identifier, where Python started it.
        self._threads: dict[int, int] = {}
        self._names: dict[int, tuple[str, int | None]] = {}
        self._interval_ns = INTERVAL_NS
        self._round_count = self._cost_ns = self._spent_ns = self._answers_ns = 0
        self._waited_ns = 0
        """Of the time of this thread, what it took to wait for the GIL."""
        self._problem: str | None = None
        self._is_stopping = False
        self._phase = 0.0
        self._interval_of_script: float | None = None
        """The switch interval that the script has chosen, while another one is set."""
        # Whether a thread beside the main one was seen in code of the script, or at two places of other code.
        self._is_shared = False
        self._seen_at: dict[int, tuple[int, int]] = {}
        # Of each thread at its last sample: the processor time, and the number of the stack.
        self._last: dict[int, tuple[int, int]] = {}
        self._main = main_thread().ident
        # Held by the thread that takes a sample: a switch to another may come at any instruction.
        self._turn = Lock()
        self._is_asking = False
        self._clocks = ThreadClocks()

    def opening(self, sidecar: Sidecar) -> None:
        """Learn the threads and the code that runs now, which takes longer than a sample."""
        self._sidecar = sidecar
        self._stacks = Stacks(CodePlaces())
        self._garbage = Collections()
        self._pid = os.getpid()
        self._thread = own_thread("python", self._run)
        for ident, frame in sys._current_frames().items():
            if self._is_of_script(ident):
                for caller in callers(frame):
                    self._stacks.learn(caller.f_code)
                self._clocks.cpu_ns(ident)

    def opened(self, sidecar: Sidecar) -> None:
        """Begin; after the first sample each is taken as soon as all are a small share of the time so far."""
        if self._thread is None:
            return
        self._started_ns = time.time_ns()
        # The first step begins now: its first sample has the time that it takes in advance.
        self._begun_ns = time.monotonic_ns() - int(_FIRST_COST_NS / LARGEST_COST_RATIO)
        self._garbage.start()
        # Not in the thread: what it does to begin makes objects.
        _DISABLE()
        self._thread.start()

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Stop, and keep the samples in the sidecar alone."""
        if self._stopped():
            if self._problem is not None:
                sidecar.note("listeners", f"python: {self._problem}")
            sidecar.add("python", self._described(sidecar.stopped_ns))
            del self._samples, self._stacks
            self._thread = None

    def finished(self) -> None:
        """Stop where the profile failed."""
        self._stopped()

    def _stopped(self) -> bool:
        """Take no more samples; whether some may be here: not in a child that was forked in the window, without the thread."""
        if self._thread is None or os.getpid() != self._pid:
            return False
        self._is_stopping = True
        if self._thread.ident is None:
            self._garbage.release()
        else:
            self._thread.join(_STOP_TIMEOUT_SECONDS)
        self._garbage.stop()
        return True

    def _described(self, stopped_ns: int) -> dict[str, Any]:
        t_ns, thread, stack, cpu_us, late_us = (self._samples[i::_VALUES] for i in range(_VALUES))
        numbers = [array("i", column).tobytes() for column in (thread, stack)]
        has_rounds = self._round_count > 0
        reason = "no thread ran code of the script" if has_rounds else "the window was too short"
        # The first time, and what follows as distances, which compress better.
        distances = array("q", [*t_ns[:1], *(b - a for a, b in pairwise(t_ns))])
        names = [(ident, *self._names.get(ident, (None, None))) for ident in self._threads]
        return {
            "reason": None if t_ns else self._problem or reason,
            "interval_ns": self._interval_ns,
            "round_count": self._round_count,
            "window_ns": max(stopped_ns - self._started_ns, 0),
            "cost_ns": self._cost_ns + self._answers_ns,
            "threads": [
                {"ident": ident, "name": name and masked_thread(name), "native_id": native_id}
                for ident, name, native_id in names
            ],
            "stacks": compressed(json.dumps(self._stacks.described()).encode()),
            "samples": compressed(distances.tobytes(), *numbers),
            "cpu": compressed(cpu_us.tobytes()),
            "late": compressed(array("i", late_us).tobytes()),
            "collections": self._garbage.spans,
        }

    def _run(self) -> None:
        try:
            while self._goes_on():
                self._rest()
                if self._goes_on():
                    self._round()
        except Exception as error:
            self._problem = reason_of(error)
        finally:
            if _MAIN_THREAD is not None:
                _MAIN_THREAD.stop()
            self._switch(is_soon=False)
            self._garbage.release()
            self._cost_ns += time.thread_time_ns()

    def _goes_on(self) -> bool:
        return not self._is_stopping and self._sidecar.is_recording

    def _round(self) -> None:
        with self._turn:
            frames, t_ns = _frames_now()
            # This frame holds them: with it among them they would be a cycle, and the variables would stay until a collection.
            del frames[get_ident()]
            self._sample(frames, t_ns, max(t_ns - self._due_ns, 0) // 1000)
        self._switch(is_soon=not self._is_shared)
        if self._is_shared and not self._is_asking and _MAIN_THREAD is not None:
            self._is_asking = True
            _MAIN_THREAD.start(self._answer, INTERVAL_NS)
        if self._is_full():
            # Samples of one round have the same time.
            times = self._samples[::_VALUES]
            kept = set([*dict.fromkeys(times)][::2])
            is_kept = chain.from_iterable(repeat(t_ns in kept, _VALUES) for t_ns in times)
            self._samples = array("q", compress(self._samples, is_kept))
            self._interval_ns *= 2

    def _is_full(self) -> bool:
        return len(self._samples) >= MOST_SAMPLES * _VALUES

    def _switch(self, *, is_soon: bool) -> None:
        """Let a thread keep the GIL for `SOON_SECONDS` where others want it, or again as the script has chosen, also meanwhile."""
        now, chosen = sys.getswitchinterval(), self._interval_of_script
        if is_soon and chosen is None and now > SOON_SECONDS:
            self._interval_of_script = now
            sys.setswitchinterval(SOON_SECONDS)
            self._soon_seconds = sys.getswitchinterval()
        elif not is_soon and chosen is not None:
            self._interval_of_script = None
            if now == self._soon_seconds:
                sys.setswitchinterval(chosen)

    def _rest(self) -> None:
        # With what falling asleep and waking up cost after the last sample, which is more than the sample itself.
        spent_ns = time.thread_time_ns() - self._waited_ns
        cost_ns = spent_ns - self._spent_ns if self._round_count else _FIRST_COST_NS
        self._spent_ns = spent_ns
        # After the next round all samples have taken the largest share of the time so far, at most, and this thread since this round.
        due_ns = self._begun_ns + (spent_ns + self._answers_ns + cost_ns) / LARGEST_COST_RATIO
        least_ns = max(cost_ns / LARGEST_COST_RATIO - cost_ns, due_ns - time.monotonic_ns())
        # Equal distances would meet a loop of the same length always in the same line.
        self._phase = (self._phase + GOLDEN_RATIO) % 1
        rest_ns = max(self._interval_ns * (0.5 + self._phase) - cost_ns, least_ns, 0)
        rest_s, self._due_ns = rest_ns / 1e9, time.time_ns() + int(rest_ns)
        # Between the rounds the thread makes no object that could begin a collection.
        self._garbage.release()
        time.sleep(rest_s)
        _DISABLE()
        if time.time_ns() - self._due_ns > _LONG_WAIT_NS:
            # As a cost of rounds that would hide who keeps the GIL for long again.
            self._waited_ns = time.thread_time_ns() - spent_ns

    def _answer(self, due_ns: int) -> None:
        """Take a sample in the main thread, which runs Python; where it was in native code the other thread gets the GIL."""
        now_ns, spent_ns = time.time_ns(), time.thread_time_ns()
        passed_ns = time.monotonic_ns() - self._begun_ns
        is_dear = self._spent_ns + self._answers_ns > LARGEST_COST_RATIO * passed_ns
        if now_ns - due_ns >= _PROMPT_NS or is_dear:
            return
        if self._is_full() or os.getpid() != self._pid:
            return
        if not self._goes_on() or not self._turn.acquire(blocking=False):
            return
        _DISABLE()
        try:
            # To ask for the names of new threads takes a lock that this thread may hold.
            known = {*self._names, *self._threads}
            every, t_ns = _frames_now()
            frames = {ident: frame for ident, frame in every.items() if ident in known}
            frames[get_ident()] = sys._getframe(1)
            del every
            # That it comes soon does not mean that Python's lock was free.
            self._sample(frames, t_ns, _PROMPT_NS // 1000)
        except Exception as error:
            # A handler of a signal may run here, and what it raises is for the script.
            if not _is_ours(error):
                raise
            self._problem = reason_of(error)
        finally:
            self._garbage.release()
            self._turn.release()
            self._answers_ns += time.thread_time_ns() - spent_ns

    def _sample(self, frames: dict[int, FrameType], t_ns: int, late_us: int) -> None:
        late_us = min(late_us, (1 << 31) - 1)
        threads = self._threads
        self._round_count += 1
        for ident, frame in frames.items():
            if not self._is_of_script(ident):
                continue
            cpu_ns = self._clocks.cpu_ns(ident)
            last = self._last.get(ident)
            if last is not None and last[0] == cpu_ns != UNKNOWN:
                # It has not run since.
                stack = last[1]
            else:
                stack = self._stack_of(ident, frame, late_us)
                self._last[ident] = cpu_ns, stack
            if stack != NOT_KEPT:
                number = threads.setdefault(ident, len(threads))
                cpu_us = cpu_ns // 1000 if cpu_ns != UNKNOWN else UNKNOWN
                self._samples.extend((t_ns, number, stack, cpu_us, late_us))

    def _stack_of(self, ident: int, frame: FrameType, late_us: int) -> int:
        # To learn code lets other threads go on.
        code, instruction = frame.f_code, frame.f_lasti
        stack, place = self._stacks.number_of(frame), (id(code), instruction)
        if late_us > _LONG_DUE_US and not self._stacks.has_begun(code, instruction):
            # What it waited for is what ran before: the end of a function drops all that it had made.
            stack = self._last.get(ident, (UNKNOWN, stack))[1]
        if ident != self._main:
            has_moved = self._seen_at.setdefault(ident, place) != place
            self._is_shared |= has_moved or stack in self._stacks.of_user
        return stack

    def _is_of_script(self, ident: int) -> bool:
        """Whether it is no thread of traceview. Native threads that call Python have no name."""
        if ident not in self._names and ident not in self._threads:
            for thread in threading.enumerate():
                # A native thread that has asked Python who it is stands among them as a dummy.
                if thread.ident is not None and not isinstance(thread, threading._DummyThread):
                    self._names[thread.ident] = thread.name, thread.native_id
        return not self._names.get(ident, ("", None))[0].startswith(OWN_THREADS)


def _frames_now() -> tuple[dict[int, FrameType], int]:
    """The frames of all threads, and the Unix time.

    Nothing of this runs before `next` does, and nothing in it is code of Python: after any other call another thread may go on.
    """
    return next(zip(starmap(sys._current_frames, ((),)), starmap(time.time_ns, ((),)), strict=True))


def _is_ours(error: Exception) -> bool:
    """Whether code of traceview raised it."""
    *_, last = walk_tb(error.__traceback__)
    return Path(last[0].f_code.co_filename).is_relative_to(_TRACEVIEW)


UNKNOWN: Final = -1


class ThreadClocks:
    """The clocks of threads by identifier, each asked for once.

    Python reads memory at the address that pthread_self returns, which may be gone once the thread has ended. None with a Python
    frame ends while another holds the GIL: frames are listed and clocks asked for in one call of native code, which keeps it.
    """

    def __init__(self) -> None:
        self._clocks: dict[int, int] = {}

    def cpu_ns(self, ident: int) -> int:
        """Processor time that a thread has taken; `UNKNOWN` where that is not known, or it has ended."""
        for is_known in (True, False):
            try:
                if not is_known:
                    self._clocks.update(_clocks_now())
                return time.clock_gettime_ns(self._clocks[ident])
            except (KeyError, OSError):
                # It has ended, and another thread may have its address.
                self._clocks.pop(ident, None)
        return UNKNOWN


def _clocks_now() -> dict[int, int]:
    """The clock of each thread that is in Python; empty where the system has none, or Python has no GIL."""
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    if not hasattr(time, "pthread_getcpuclockid") or not has_lock:
        return {}
    # Nothing of this runs before `dict` does, and nothing in it is code of Python.
    idents, same_idents = tee(chain.from_iterable(starmap(sys._current_frames, ((),))))
    return dict(zip(idents, map(time.pthread_getcpuclockid, same_idents), strict=False))


def compressed(*contents: bytes) -> str:
    """Bytes as a text for the sidecar."""
    return b64encode(zlib.compress(b"".join(contents))).decode("ascii")
