"""Says once that no step is recognized, where training began a minute ago.

Training begins when the framework first runs something for the script: a function, replicas or a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

from traceview.capture.process.own_threads import Ticker
from traceview.capture.record.outcome import candidates, described_calls
from traceview.capture.steps.callee import Recognizer
from traceview.capture.window.step_window import StepWindow

NO_STEP_S: Final = 60.0
"""After this time without a step the user should know, while the run can still be changed."""
_LONGEST_COMPILATION: Final = 5
"""A first call that takes this many times as long does more than compile."""
_TICK_S: Final = 0.2
"""How exactly the beginning of training is known."""


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
        self._warn_s = self._longest_s = 0.0
        self._ticker = Ticker("training-clock", self._tick)

    def start(self) -> None:
        """Let the time run."""
        self._warn_s = monotonic() + self._no_step_s
        self._longest_s = monotonic() + _LONGEST_COMPILATION * self._no_step_s
        self._ticker.start()

    def stop(self) -> None:
        """End the thread."""
        self._ticker.stop()

    def _tick(self) -> float | None:
        """Seconds until the next look, None if there is nothing left to look at."""
        if self._window.state == "closed" or self._window.next_number:
            return None
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
