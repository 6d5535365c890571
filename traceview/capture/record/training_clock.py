"""Watches the time since training began: opens the window of --seconds, and says once that no step is recognized.

Training begins when TensorFlow first runs something for the script: a function, replicas, a gradient, a session, or a
server. A thread starts and stops the profile.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Thread, current_thread
from time import monotonic
from typing import Final

from traceview.capture.process.own_threads import own_thread
from traceview.capture.record.outcome import candidates, described_calls
from traceview.capture.steps.observer import Observer
from traceview.capture.window.ranges import SecondsRange
from traceview.capture.window.step_window import StepWindow

NO_STEP_S: Final = 60.0
"""After this time without a step the user should know, while the run can still be changed."""
_LONGEST_COMPILATION: Final = 5
"""A first call that takes this many times as long does more than compile."""
_POLL_S: Final = 0.2
"""How exactly the beginning of training is known."""
_LATE_S: Final = 1.0
"""For what is under way to end, such as the call of the profiler."""


class TrainingClock:
    """The clock of one capture, from `start` to `stop`. `say` gets lines for the user."""

    def __init__(
        self,
        window: StepWindow,
        observer: Observer,
        say: Callable[[str], None],
        no_step_s: float = NO_STEP_S,
    ) -> None:
        self._window = window
        self._observer = observer
        self._say = say
        self._no_step_s = no_step_s
        self._changed = Condition()
        self._is_stopped = False
        self._thread: Thread | None = None

    def start(self) -> None:
        """Let the time run."""
        self._thread = own_thread("training-clock", self._watch)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. What it records is kept by closing the window."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        thread = self._thread
        if thread is not None and thread is not current_thread():
            thread.join(timeout=_LATE_S)

    def _watch(self) -> None:
        seconds = self._window.seconds
        if seconds is None:
            self._await_step()
        else:
            self._record(seconds)

    def _await_step(self) -> None:
        """Say once that no step is recognized, unless one is, or runs for the first time."""
        deadline_s = monotonic() + self._no_step_s
        longest_s = monotonic() + _LONGEST_COMPILATION * self._no_step_s
        while self._sleep_until(deadline_s) and not self._window.next_number:
            began_s, current = self._observer.began_s, self._observer.current
            if began_s is not None and monotonic() < began_s + self._no_step_s:
                deadline_s = began_s + self._no_step_s
            elif current is not None and current.calls < 2 and monotonic() < longest_s:
                # It is being traced and compiled.
                deadline_s = monotonic() + self._no_step_s
            else:
                self._say_no_step()
                return

    def _say_no_step(self) -> None:
        after = f"after {self._no_step_s:g} s"
        if self._observer.began_s is None:
            self._say(
                f"note: {after}, the script has not run anything on a device yet; traceview goes on waiting"
            )
            return
        self._say(
            f"note: {after} of training, no step is recognized. {described_calls(self._observer)}"
        )
        self._say(f"hint: {candidates(self._observer)}")

    def _record(self, seconds: SecondsRange) -> None:
        if not self._await_training():
            return
        began_s = self._observer.began_s or monotonic()
        is_open = self._sleep_until(began_s + seconds.first) and self._window.begin_now()
        if is_open and self._sleep_until(monotonic() + seconds.length):
            self._window.end_now()

    def _await_training(self) -> bool:
        warn_s = monotonic() + self._no_step_s
        while self._observer.began_s is None:
            if not self._sleep_until(monotonic() + _POLL_S):
                return False
            if monotonic() > warn_s:
                self._say_no_step()
                warn_s = float("inf")
        return True

    def _sleep_until(self, deadline_s: float) -> bool:
        """False if the run has ended, or the window has closed, before."""
        with self._changed:
            while not self._is_stopped and self._window.state != "closed":
                left_s = deadline_s - monotonic()
                if left_s <= 0:
                    return True
                self._changed.wait(left_s)
        return False
