"""Recognizes the steps of a loop that computes gradients outside any function.

No call surrounds such a step, so what comes next ends it: the next request for input or, in a loop that asks for none,
the next `GradientTape`. What runs between two requests for input and computes no gradient is evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from traceview.capture.window.step_window import StepWindow

EAGER_STEP: Final = "GradientTape"
"""The name of steps that no call surrounds."""
_MOST_GRADIENTS: Final = 8
"""A loop that computes more gradients for one input repeats that input: its steps begin with tapes."""


class EagerSteps:
    """Reports the eager steps of one thread to `window`, if `count` agrees, which is called at the end of each."""

    def __init__(self, window: StepWindow, count: Callable[[], bool]) -> None:
        self.gradients = 0
        """How many gradients were computed eagerly."""
        self._window = window
        self._count = count
        self._is_counted = False
        self._gradients_of_step = 0
        self._iterator: int | None = None
        self._is_by_tape = False
        self._is_off = False

    def gradient_computed(self) -> None:
        """`GradientTape.gradient` was called outside any function."""
        self.gradients += 1
        if self._is_off:
            return
        self._gradients_of_step += 1
        if self._iterator is not None and self._gradients_of_step > _MOST_GRADIENTS:
            self._is_by_tape = True

    def input_begins(self, iterator: object) -> None:
        """The loop asks an iterator for input."""
        if self._is_off:
            return
        if self._gradients_of_step:
            self._end_step()
        elif self._is_counted and self._iterator == id(iterator):
            self._window.abandon()
        self._iterator = id(iterator)

    def tape_begins(self) -> None:
        """The loop begins to record a tape."""
        if self._is_off:
            return
        if self._gradients_of_step and (self._iterator is None or self._is_by_tape):
            self._end_step()
        if self._is_counted:
            self._window.begin()

    def stop(self) -> None:
        """A step function was recognized: gradients outside of it are no steps."""
        self._is_off = True
        self._gradients_of_step = 0

    def finish(self) -> None:
        """The run has ended: its last step has an unknown end."""
        if not self._gradients_of_step or not self._is_counted:
            return
        if self._window.state == "recording":
            self._window.abandon()
        else:
            self._end_step()
        self._gradients_of_step = 0

    def _end_step(self) -> None:
        self._gradients_of_step = 0
        self._is_counted = self._count()
        if self._is_counted:
            self._window.end(EAGER_STEP)
