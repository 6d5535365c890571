"""Reads the requested range of seconds since training began."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from traceview.base.errors import UsageError

_RANGE: Final = re.compile(r"(\d{0,9}(?:\.\d{1,3})?)\s*:\s*(\d{1,9}(?:\.\d{1,3})?)", re.ASCII)
_EXAMPLE: Final = "100:105 records 5 seconds, 100 seconds after training began"


@dataclass(frozen=True)
class SecondsRange:
    """Seconds `first` to `last` since training began."""

    first: float
    last: float

    @classmethod
    def parse(cls, text: str) -> SecondsRange:
        """Read `100:105` or `0.5:2`; raises `UsageError` for anything else."""
        match = _RANGE.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"--seconds {text}: not a range A:B", hint=_EXAMPLE)
        first, last = float(match[1] or 0), float(match[2])
        if first >= last:
            raise UsageError(f"--seconds {text}: an empty range", hint=_EXAMPLE)
        return cls(first, last)

    def __str__(self) -> str:
        return f"{self.first:g}:{self.last:g}"

    @property
    def length(self) -> float:
        """How many seconds are recorded."""
        return self.last - self.first
