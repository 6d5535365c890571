"""Reads the range of steps that a user asks for, and says which calls of the step function it needs.

A call runs one step, or several where a loop runs inside it. Only whole calls can be recorded, plus one edge call on
each side: work of the step before may still be on the devices when the profile starts, and work of the last step
when it stops.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from traceview.base.errors import UsageError

DEFAULT_STEPS: Final = "10:15"
_RANGE: Final = re.compile(r"(\d{0,18})\s*:\s*(\d{0,18})", re.ASCII)
_EXAMPLE: Final = "10:15 records steps 10 to 14"
_WHY_NOT_0: Final = (
    "step 0 cannot be captured: it traces and compiles, and until it ends no step function is known"
)


@dataclass(frozen=True)
class StepRange:
    """Steps `first` up to but not including `last`; the first step of a run is 0."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> StepRange:
        """Read `10:15`; raises `UsageError` with the reason for anything else."""
        match = _RANGE.fullmatch(text.strip())
        if match is None or not any(match.groups()):
            hint = _EXAMPLE
            if text.strip().isdecimal() and text.isascii() and len(text) < 18:
                number = max(int(text), 1)
                hint = f"for step {number} alone: --steps {number}:{number + 1}"
            raise UsageError(f"--steps {text}: not a range A:B", hint=hint)
        if not match[2]:
            raise UsageError(
                f"--steps {text}: the range has no end",
                hint=f"recording a whole run overflows the tracer's buffers; {_EXAMPLE}",
            )
        first, last = int(match[1] or 0), int(match[2])
        if first >= last:
            raise UsageError(f"--steps {text}: an empty range", hint=f"B is excluded: {_EXAMPLE}")
        if first == 0:
            raise UsageError(f"--steps {text}: {_WHY_NOT_0}", hint=f"--steps 1:{max(last, 2)}")
        return cls(first, last)

    @classmethod
    def of(cls, steps: range) -> StepRange:
        """Read `range(10, 15)`; raises `UsageError` for a range that cannot be captured."""
        hint = "range(10, 15) records steps 10 to 14"
        if not isinstance(steps, range):
            # What a person who thinks of --steps writes first.
            raise UsageError(f"steps={steps!r} is not a range", hint=hint)
        if steps.step != 1 or not 0 <= steps.start < steps.stop:
            raise UsageError(f"{steps} is not a range of steps", hint=hint)
        if steps.start == 0:
            raise UsageError(f"{steps}: {_WHY_NOT_0}", hint=str(range(1, max(steps.stop, 2))))
        return cls(steps.start, steps.stop)

    def __str__(self) -> str:
        return f"{self.first}:{self.last}"

    def overlaps(self, number: int, count: int) -> bool:
        """Whether a call of `count` steps from `number` on holds a requested step."""
        return number < self.last and number + count > self.first

    def opens_at(self, number: int, count: int) -> bool:
        """Whether the profile must run when this call begins: it or the next one holds a requested step.

        Step 0 is no edge: it traces and compiles.
        """
        if self.overlaps(number, count):
            return True
        return 0 < number < self.first and number + 2 * count > self.first
