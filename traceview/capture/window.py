"""Which steps are asked for, and which calls does that mean?

A call of the step function is one step, or several where a loop runs inside it. Only whole calls can be
recorded, and one more on each side, because work of an earlier step may still be on the devices when the
profile starts, and work of the last one when it stops.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from traceview.errors import UsageError

_RANGE: Final = re.compile(r"\s*(\d{0,18})\s*:\s*(\d{0,18})\s*", re.ASCII)
_EXAMPLE: Final = "10:15 is steps 10 to 14"
_WHY_NOT_0: Final = (
    "it traces and compiles the step function, which is not known as one before it has run"
)


@dataclass(frozen=True)
class StepWindow:
    """Steps `first` up to but not including `last`; numbers count from 0 at the first step of the run."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> StepWindow:
        """`10:15` as a window; raises `UsageError` with the reason for anything else."""
        match = _RANGE.fullmatch(text)
        if match is None or not any(match.groups()):
            hint = _EXAMPLE
            if text.strip().isdecimal() and text.isascii() and len(text) < 18:
                number = max(int(text), 1)
                hint = f"for step {number} alone: --steps {number}:{number + 1}"
            raise UsageError(f"--steps {text}: not a range A:B", hint=hint)
        if not match[2]:
            raise UsageError(
                f"--steps {text}: the window has no end",
                hint="recording a whole run fills the tracer's buffers; " + _EXAMPLE,
            )
        first, last = int(match[1] or 0), int(match[2])
        if first >= last:
            raise UsageError(f"--steps {text}: an empty range", hint="B is the first step left out")
        if first == 0:
            raise UsageError(
                f"--steps {text}: step 0 cannot be captured: {_WHY_NOT_0}",
                hint=f"--steps 1:{max(last, 2)}",
            )
        return cls(first, last)

    @classmethod
    def of(cls, steps: range) -> StepWindow:
        """`range(10, 15)` as a window; raises `UsageError` for a range that is none."""
        if steps.step != 1 or not 0 <= steps.start < steps.stop:
            raise UsageError(
                f"{steps} is not a window of steps", hint="such as range(10, 15): 10 to 14"
            )
        if steps.start == 0:
            raise UsageError(
                f"{steps}: step 0 cannot be captured: {_WHY_NOT_0}",
                hint=str(range(1, max(steps.stop, 2))),
            )
        return cls(steps.start, steps.stop)

    def __str__(self) -> str:
        return f"{self.first}:{self.last}"

    def is_asked(self, number: int, count: int) -> bool:
        """Whether a call of `count` steps from `number` on holds a step that was asked for."""
        return number < self.last and number + count > self.first

    def opens_at(self, number: int, count: int) -> bool:
        """Whether the profile has to run when this call begins: it is asked for, or the next one is.

        Step 0 is no edge: it holds tracing and compilation.
        """
        if self.is_asked(number, count):
            return True
        return 0 < number < self.first and number + 2 * count > self.first


DEFAULT_WINDOW: Final = StepWindow(10, 15)
"""Ten steps to warm up (tracing, autotuning, growing memory pools), then five."""
