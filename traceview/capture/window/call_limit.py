"""Finds out how many calls may be recorded before the profile holds too many events.

One call before the window is profiled for that, a probe. Where none can be, the ops in the graphs are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from traceview.capture.window.ranges import StepRange


class EventCounter(Protocol):
    """Counts the events of a call; every method may raise."""

    def probe(self) -> None:
        """Start a profile of one call, to count its events."""

    def end_probe(self, wanted_calls: int) -> int | None:
        """Stop it; how many calls fit under the limit of events, None without a limit."""

    def estimate(self, functions: Collection[str], count: int, wanted_calls: int) -> int | None:
        """The same without a probe, for calls of `count` steps of these step functions."""


class CallLimit:
    """The limit of one window. `attempt` runs an action, notes its failure, and tells whether there was none."""

    def __init__(
        self, counter: EventCounter, attempt: Callable[[Callable[[], None]], bool]
    ) -> None:
        self.is_probing = False
        self.has_probed = False
        self._counter = counter
        self._attempt = attempt
        self._most_calls: int | None = None
        self._is_known = False

    def begin_probe(self) -> None:
        """The call that begins now is profiled."""
        self.has_probed = True
        self.is_probing = self._attempt(self._counter.probe)

    def end_probe(self, count: int, steps: StepRange) -> None:
        """That call of `count` steps has ended."""
        self.is_probing = False
        self._learn(lambda: self._counter.end_probe(_wanted_calls(count, steps)))

    def estimate(self, functions: Collection[str], count: int, steps: StepRange) -> None:
        """Count ops, unless a probe has measured the limit; what cannot be estimated is not asked for again."""
        if not self._is_known:
            self._learn(
                lambda: self._counter.estimate(functions, count, _wanted_calls(count, steps))
            )
            self._is_known = True

    def is_reached(self, calls: int) -> bool:
        """Whether no further call may be recorded."""
        return self._most_calls is not None and calls >= self._most_calls

    def _learn(self, most_calls: Callable[[], int | None]) -> None:
        def learn() -> None:
            self._most_calls = most_calls()
            self._is_known = True

        self._attempt(learn)


def _wanted_calls(count: int, steps: StepRange) -> int:
    """Calls of `count` steps that the requested steps need, with an edge on each side."""
    return -(-(steps.last - steps.first) // count) + 2
