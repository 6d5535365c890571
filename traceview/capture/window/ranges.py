"""Reads the range of steps that a user asks for, and says which calls of the step function it needs.

Only whole calls can be recorded, plus one edge call on each side: work of the step before may still be on the devices when the
profile starts, and work of the last step when it stops.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from traceview.base.errors import UsageError

DEFAULT_STEPS: Final = "10:15"
_RANGE: Final = re.compile(r"(\d{0,18})\s*:\s*(\d{1,18})", re.ASCII)
_EXAMPLE: Final = "10:15 records steps 10 to 14"


@dataclass(frozen=True)
class StepRange:
    """Steps `first` up to but not including `last`; the first step of a run is 0."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> StepRange:
        """Read `10:15`; raises `UsageError` with the reason for anything else."""
        match = _RANGE.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"--steps {text}: not a range A:B", hint=_EXAMPLE)
        first, last = int(match[1] or 0), int(match[2])
        return cls._checked(first, last, f"--steps {text}", f"--steps 1:{max(last, 2)}")

    @classmethod
    def of(cls, steps: range) -> StepRange:
        """Read `range(10, 15)`; raises `UsageError` for a range that cannot be captured."""
        hint = "range(10, 15) records steps 10 to 14"
        wrong = UsageError(f"steps={steps!r} is not a range of steps", hint=hint)
        if not isinstance(steps, range):
            raise wrong
        if steps.step != 1 or steps.start < 0:
            raise wrong
        return cls._checked(steps.start, steps.stop, str(steps), f"range(1, {max(steps.stop, 2)})")

    @classmethod
    def _checked(cls, first: int, last: int, shown: str, without_0: str) -> StepRange:
        if first >= last:
            raise UsageError(f"{shown}: an empty range", hint=f"the end is excluded: {_EXAMPLE}")
        if first == 0:
            reason = "it traces and compiles, and until it ends no step function is known"
            raise UsageError(f"{shown}: step 0 cannot be captured: {reason}", hint=without_0)
        return cls(first, last)

    def __str__(self) -> str:
        return f"{self.first}:{self.last}"

    def overlaps(self, number: int, count: int) -> bool:
        """Whether a call of `count` steps from `number` on holds a requested step."""
        return number < self.last and number + count > self.first

    def opens_at(self, number: int, count: int) -> bool:
        """Whether the profile must run when this call begins: it or the next one holds a requested step; step 0 is no edge."""
        if self.overlaps(number, count):
            return True
        return 0 < number < self.first and number + 2 * count > self.first
