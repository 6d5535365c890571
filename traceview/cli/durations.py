"""How is a length of time read from a command line?"""

from __future__ import annotations

import re
from typing import Final

from traceview.errors import UsageError

_UNITS: Final = {"ns": 10**3, "us": 10**6, "µs": 10**6, "μs": 10**6, "ms": 10**9, "s": 10**12}
_LENGTH: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ns|us|µs|μs|ms|s)\s*", re.ASCII)


def picoseconds(option: str, text: str) -> int:
    """`50us`, `1.5ms` or `2s` in picoseconds; raises `UsageError`, naming `option`, for anything else."""
    match = _LENGTH.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{option} {text}: not a length of time", hint="a number and ns, us, ms or s, as 50us"
        )
    whole, _, fraction = match[1].partition(".")
    unit = _UNITS[match[2]]
    return int(whole) * unit + int(fraction.ljust(9, "0")[:9]) * unit // 10**9
