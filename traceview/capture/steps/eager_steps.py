"""Recognizes the steps of a loop that computes gradients outside any function.

No call surrounds such a step, so what comes next ends it: the next request for input, or the next `GradientTape`. What runs
between two requests for input and computes no gradient is evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from traceview.capture.window.step_window import StepWindow

EAGER_STEP: Final = "GradientTape"
"""The name of steps that no call surrounds."""


class EagerSteps:
    """Reports the eager steps of one thread to `window`, if `count` agrees, which is called at the end of each."""

    def __init__(self, window: StepWindow, count: Callable[[], bool]) -> None:
        self.gradients = 0
        """How many gradients were computed eagerly."""
        self.is_off = False
        """Whether a step function was recognized: gradients outside of it are no steps then."""
        self._window = window
        self._count = count
        self._is_counted = False
        self._has_gradient = False
        self._iterator: int | None = None

    def gradient_computed(self) -> None:
        """`GradientTape.gradient` was called outside any function."""
        self.gradients += 1
        self._has_gradient = not self.is_off

    def input_begins(self, iterator: object) -> None:
        """The loop asks an iterator for input."""
        if self._has_gradient:
            self._end_step()
        elif self._is_counted and self._iterator == id(iterator) and not self.is_off:
            self._window.abandon()
        self._iterator = id(iterator)

    def tape_begins(self) -> None:
        """The loop begins to record a tape."""
        if self._has_gradient:
            self._end_step()
        if self._is_counted and not self.is_off:
            self._window.begin()

    def finish(self) -> None:
        """The run has ended: its last step has an unknown end."""
        if self._has_gradient and self._is_counted and self._window.state == "recording":
            self._window.abandon()
        elif self._has_gradient and self._is_counted:
            self._end_step()
        self._has_gradient = False

    def _end_step(self) -> None:
        self._has_gradient = False
        self._is_counted = not self.is_off and self._count()
        if self._is_counted:
            self._window.end(EAGER_STEP)
