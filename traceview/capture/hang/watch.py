"""Watches in a thread of its own whether steps end, and writes a report where none has for too long.

The thread only reads: the count of steps, the call that the main thread is in, stacks, `/proc`. The training is not
touched, and goes on if it can; then the report is completed. Each hang has one report.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any, Final

from traceview.capture.hang.facts import facts_now, facts_of_lock, other_calls
from traceview.capture.hang.fallback import Fallback
from traceview.capture.hang.peers import Peers
from traceview.capture.hang.recorded import recorded_collectives, with_recorded
from traceview.capture.hang.threads import python_threads
from traceview.capture.process.own_threads import block_signals, own_thread
from traceview.capture.process.python_code import CodePlaces, folders_of_script
from traceview.capture.record.step_watch import StepWatch
from traceview.capture.sidecar.file import reason_of, write_whole

SUFFIX: Final = ".hang"
_TICK_S: Final = 0.25
"""How exactly the time without a step is known."""
_LOOK_S: Final = 1.0
"""Long enough to show a hundredth of a core."""
_LEAST_LOOK_S: Final = 0.5
"""The kernel counts processor time in hundredths of a second."""
_BEATS: Final = 12
"""Of a worker within the time without a step."""
_LONGEST_BEAT_S: Final = 5.0
"""So a worker that stops is silent within 15 s, however long a step may take."""
_STOP_TIMEOUT_S: Final = 2.0
"""A look ends at once; a report that is written to a file system that hangs is not waited for."""


@dataclass(frozen=True)
class WrittenHang:
    """A report in words. `files`: contents by suffix of the file name; `lines`: what the user should see now."""

    files: Mapping[str, bytes]
    lines: Sequence[str]


@dataclass(frozen=True)
class HangSettings:
    """After how long to report, and what makes a report of the facts."""

    after_s: float
    write_up: Callable[[Mapping[str, Any]], WrittenHang]


class HangWatch:
    """Watches the steps of one `StepWatch` from `start` to `stop`. `say` gets lines for the user.

    `is_elsewhere`: whether another process trains, which is watched too; then one without a step of its own reports nothing.
    """

    def __init__(
        self,
        settings: HangSettings,
        steps: StepWatch,
        say: Callable[[str], None],
        is_elsewhere: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_elsewhere = is_elsewhere
        self.settings = settings
        self._steps = steps
        self._say = say
        self._pid = os.getpid()
        wanted = steps.capture.settings
        out = Path.cwd() / wanted.out
        interval_s = min(max(settings.after_s / _BEATS, _TICK_S), _LONGEST_BEAT_S)
        self._peers = Peers(out, wanted.asked, interval_s, say)
        self._fallback = Fallback(out, settings.after_s)
        self._stop = Event()
        self._thread = own_thread("hang", self._run)
        self._count = 0
        self._last_step_ns = time.time_ns()
        # By the monotonic clock: when the last step ended, from when on the alarm counts, when this thread last ran.
        self._ended_s = self._alarm_from_s = self._ran_s = time.monotonic()
        self._next_beat_s = 0.0
        self._other_calls = 0
        self._facts: dict[str, Any] | None = None
        self._said: list[str] = []
        self._hang_count = 0
        self._place: tuple[Path, str] | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Begin; the time without a step runs from now."""
        self._fallback.open()
        self._thread.start()

    def stop(self) -> None:
        """The script has ended: complete an open report, and tell the other workers."""
        if os.getpid() != self._pid or self._is_stopped:
            return
        self._is_stopped = True
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_TIMEOUT_S)
        has_gone_on = self._steps.window.next_number != self._count
        with suppress(Exception):
            self._complete("went-on" if has_gone_on else "ended")
        self._beat(is_ended=True)
        self._fallback.close()

    # In the thread

    def _run(self) -> None:
        block_signals()
        try:
            while not self._stop.wait(_TICK_S):
                self._notice_lock()
                # Before the tick: a native call may take the lock in the middle of it.
                self._ran_s = time.monotonic()
                self._tick()
            self._notice_lock()
        except Exception as error:
            # The training must not suffer from what is only looking at it.
            self._say(f"note: --on-hang stopped: {reason_of(error)}")

    def _tick(self) -> None:
        self._fallback.arm()
        now_s, count = time.monotonic(), self._steps.window.next_number
        if count != self._count:
            self._complete("went-on")
            self._count, self._last_step_ns = count, time.time_ns()
            self._ended_s = self._alarm_from_s = now_s
            self._other_calls = other_calls(self._steps)
        elif (
            self._facts is None
            and now_s - self._alarm_from_s >= self.settings.after_s
            and not (count == 0 and self._is_elsewhere())
            and self._report(now_s - self._ended_s)
        ):
            # Writing took time of its own; where nothing was written, the lock may have been gone.
            self._ran_s = time.monotonic()
            self._fallback.clear()
        if now_s >= self._next_beat_s and self._peers.find(os.environ):
            self._next_beat_s = now_s + self._peers.interval_s
            self._beat(is_ended=False)

    def _notice_lock(self) -> None:
        """Report a time in which this thread did not run, and so no Python ran."""
        paused_s = time.monotonic() - self._ran_s
        if paused_s < self.settings.after_s:
            return
        if self._facts is not None:
            if self._steps.window.next_number == self._count:
                return
            self._complete("went-on")
        known = self._known(paused_s)
        stacks = self._fallback.text()
        self._fallback.clear()
        self._begin(facts_of_lock(self._steps, self._peers, _places(), known, stacks))
        self._complete("went-on", total_s=paused_s)
        self._alarm_from_s = time.monotonic()

    def _report(self, waited_s: float) -> bool:
        """Write the report of a hang, unless it turns out to be none; whether it was written."""
        if self._peers.find(os.environ):
            # So that the other workers know of this one, and so that ages count from now.
            self._beat(is_ended=False)
        look_s = min(max(self.settings.after_s / 4, _LEAST_LOOK_S), _LOOK_S)
        facts = facts_now(
            self._steps,
            self._peers,
            _places(),
            self._known(waited_s),
            wait=lambda: self._stop.wait(look_s),
            own_threads=frozenset(filter(None, [self._thread.native_id])),
        )
        if self._stop.is_set() or self._steps.window.next_number != self._count:
            return False
        self._begin(facts)
        if self._steps.window.state == "recording":
            self._add_recorded()
        return True

    def _known(self, waited_s: float) -> dict[str, Any]:
        return {
            "limit_ns": int(self.settings.after_s * 1e9),
            "waited_ns": int(waited_s * 1e9),
            "step_count": self._count,
            "last_step_ns": self._last_step_ns,
            "other_call_count": max(other_calls(self._steps) - self._other_calls, 0),
        }

    def _begin(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self._hang_count += 1
        self._said = []
        if self._fallback.problem is not None:
            facts["missing"]["fallback"] = self._fallback.problem
        self._write(is_said=True)

    def _add_recorded(self) -> None:
        """Stop the profile that runs, keep it, and add what it says of collectives.

        Only after the report is written: with a GPU that never answers, stopping may not return.
        """
        facts = self._facts
        assert facts is not None
        self._steps.window.close_early()
        kept = self._steps.capture.kept
        if kept is None:
            facts["missing"]["profile"] = "; ".join(self._steps.window.failures)
            return
        self._say("note: the profile was stopped and kept; it shows the steps up to here")
        try:
            recorded = recorded_collectives(kept.trace)
        except Exception as error:
            facts["missing"]["profile"] = reason_of(error)
            return
        facts["collectives"] = with_recorded(facts.get("collectives", ()), recorded)
        self._write(is_said=True)

    def _complete(self, state: str, *, total_s: float | None = None) -> None:
        """The hang is over: say so in its report."""
        if self._facts is None:
            return
        if total_s is None:
            total_s = time.monotonic() - self._ended_s
        self._facts |= {"state": state, "total_ns": int(total_s * 1e9)}
        self._write(is_said=False)
        if state == "went-on" and not self._facts["is_lock_held"]:
            verb = "went on" if self._facts["step_count"] else "began"
            self._say(f"training {verb} after {total_s:.0f} s without a step; the report says so")
        self._facts = None

    def _write(self, *, is_said: bool) -> None:
        """Write the files of the report, and say those of its lines that are new."""
        assert self._facts is not None
        if self._place is None:
            self._place = self._steps.capture.report_place()
        folder, host = self._place
        stem = f"{host}{SUFFIX}{self._hang_count if self._hang_count > 1 else ''}"
        written = self.settings.write_up(self._facts)
        for ending, content in written.files.items():
            write_whole(folder / f"{stem}{ending}", content)
        new = [line for line in written.lines if line not in self._said] if is_said else []
        self._said += new
        for line in new:
            self._say(line)
        if new:
            self._say(f"all stacks: {folder / stem}.md")

    def _beat(self, *, is_ended: bool) -> None:
        """Tell the other workers what this one does."""
        callee = self._steps.observer.current
        main = None if is_ended else next(iter(python_threads(_places())), None)
        self._peers.write({
            "is_ended": is_ended,
            "is_in_step": callee is not None and callee.is_step,
            "step_count": self._steps.window.next_number,
            "waited_ns": int((time.monotonic() - self._ended_s) * 1e9),
            "line": main.user_line if main else None,
        })  # fmt: skip


def _places() -> CodePlaces:
    return CodePlaces(folders_of_script())


_REPORTS: Final = "traceview.analysis.machine.hang.section"


def hang_settings(after_s: float | None, say: Callable[[str], None]) -> HangSettings | None:
    """What makes reports of hangs, imported now, because a script that hangs in an import must not stop the report.

    None without a time, or where the analysis cannot be imported, which `say` reports.
    """
    if after_s is None:
        return None
    try:
        # By name: a capture does without the analysis, and here is nobody else to bring it.
        write_up = import_module(_REPORTS).write_up
    except ImportError as error:
        say(f"note: --on-hang is off in this process: {error}")
        return None
    return HangSettings(after_s, lambda facts: WrittenHang(*write_up(facts)))
