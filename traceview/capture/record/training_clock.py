"""Watches the time since training began: opens the window of --seconds, and says once that no step is recognized.

Training begins when TensorFlow first runs something for the script: a function, replicas, a gradient, a session, or a
server. A thread starts and stops the profile.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

from traceview.capture.process.own_threads import Ticker
from traceview.capture.record.outcome import candidates, described_calls
from traceview.capture.steps.callee import Recognizer
from traceview.capture.window.ranges import SecondsRange
from traceview.capture.window.step_window import StepWindow

NO_STEP_S: Final = 60.0
"""After this time without a step the user should know, while the run can still be changed."""
_LONGEST_COMPILATION: Final = 5
"""A first call that takes this many times as long does more than compile."""
_TICK_S: Final = 0.2
"""How exactly the beginning of training is known."""
_LATE_S: Final = 1.0
"""For what is under way to end, such as the call of the profiler."""


class TrainingClock:
    """The clock of one capture, from `start` to `stop`. `say` gets lines for the user."""

    def __init__(
        self,
        window: StepWindow,
        observer: Recognizer,
        say: Callable[[str], None],
        no_step_s: float = NO_STEP_S,
    ) -> None:
        self._window = window
        self._observer = observer
        self._say = say
        self._no_step_s = no_step_s
        self._warn_s = self._longest_s = self._end_s = 0.0
        self._is_open = False
        self._ticker = Ticker("training-clock", self._tick)

    def start(self) -> None:
        """Let the time run."""
        self._warn_s = monotonic() + self._no_step_s
        self._longest_s = monotonic() + _LONGEST_COMPILATION * self._no_step_s
        self._ticker.start()

    def stop(self) -> None:
        """End the thread. What it records is kept by closing the window."""
        self._ticker.stop(_LATE_S)

    def _tick(self) -> float | None:
        """Seconds until the next look, None if there is nothing left to look at."""
        if self._window.state == "closed":
            return None
        if self._window.seconds is not None:
            return self._record(self._window.seconds)
        return None if self._window.next_number else self._await_step()

    def _await_step(self) -> float | None:
        """Say once that no step is recognized, unless one runs for the first time."""
        now_s, began_s, current = monotonic(), self._observer.began_s, self._observer.current
        if began_s is not None:
            self._warn_s = max(self._warn_s, began_s + self._no_step_s)
        if now_s < self._warn_s:
            return min(_TICK_S, self._warn_s - now_s)
        if current is not None and current.calls < 2 and now_s < self._longest_s:
            # It is being traced and compiled.
            self._warn_s = now_s + self._no_step_s
            return _TICK_S
        self._say_no_step()
        return None

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

    def _record(self, seconds: SecondsRange) -> float | None:
        """Start and stop the profile where its time has come."""
        now_s, began_s = monotonic(), self._observer.began_s
        if began_s is None:
            if now_s > self._warn_s:
                self._say_no_step()
                self._warn_s = float("inf")
            return _TICK_S
        if not self._is_open:
            wait_s = began_s + seconds.first - now_s
            if wait_s > 0:
                return wait_s
            self._is_open = self._window.begin_now()
            self._end_s = monotonic() + seconds.length
            return seconds.length if self._is_open else None
        if now_s < self._end_s:
            return self._end_s - now_s
        self._window.end_now()
        return None
