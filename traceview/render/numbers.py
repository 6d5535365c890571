"""How are numbers written? Times, sizes, shares and counts, short enough to compare at a glance."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Final

from traceview.document import numbers

ABSENT: Final = "–"
"""What stands where a trace holds no number; a zero would be a claim."""

_TIMES: Final = (("ps", 1), ("ns", 10**3), ("µs", 10**6), ("ms", 10**9), ("s", 10**12))
_SIZES: Final = (("B", 1), ("kB", 10**3), ("MB", 10**6), ("GB", 10**9), ("TB", 10**12))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def time(ps: float | None) -> str:
    """Picoseconds in the unit that leaves one to three digits before the point: `668.9 ms`."""
    return ABSENT if ps is None else _scaled(ps, _TIMES)


def size(number: float | None) -> str:
    """Bytes in decimal units: `6.21 GB`."""
    return ABSENT if number is None else _scaled(number, _SIZES)


def share(ratio: float | None) -> str:
    """A ratio as a percentage with one decimal; what is not quite nothing or all is not shown as such."""
    return ABSENT if ratio is None else numbers.share(ratio)


def part(of: int | None, whole: int | None) -> str:
    """`of` as a share of `whole`."""
    if of is None or whole is None:
        return ABSENT
    return share(of / whole if whole else 0.0)


def shares(ratios: Iterable[float | None]) -> str:
    """The least and the greatest of the ratios that are known: `57.7–57.9%`."""
    known = sorted(ratio for ratio in ratios if ratio is not None)
    if not known:
        return ABSENT
    least, greatest = share(known[0]), share(known[-1])
    return least if least == greatest else f"{least.removesuffix('%')}–{greatest}"


def times(picoseconds: Iterable[int | None]) -> str:
    """The least and the greatest of the times that are known: `5.90 ms to 6.00 ms`."""
    known = sorted(one for one in picoseconds if one is not None)
    if not known:
        return ABSENT
    least, greatest = time(known[0]), time(known[-1])
    return least if least == greatest else f"{least} to {greatest}"


def count(number: int | None) -> str:
    """A number of things: `1,367`."""
    return ABSENT if number is None else f"{number:,}"


def plural(number: int, noun: str, several: str | None = None) -> str:
    """A number of things with their name: `1 step`, `6 steps`; `several` where an s is not enough."""
    return f"{count(number)} {noun if number == 1 else several or f'{noun}s'}"


def date(ns: int | None) -> str | None:
    """Unix nanoseconds as a date and time in UTC; None where there is none or no calendar has it."""
    if ns is None:
        return None
    try:
        moment = _EPOCH + timedelta(microseconds=ns // 1000)
    except OverflowError:
        return None
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def measured(key: str, value: float | str | None) -> str:
    """A value in the unit that the name of its key ends with."""
    if value is None or isinstance(value, str):
        return ABSENT if value is None else value
    if key.endswith(("_ps", "_ps_per_step")):
        return time(value)
    if key.endswith("_ns"):
        return time(value * 1000)
    if key.endswith(("_bytes", "_bytes_per_step")):
        return size(value)
    if key.endswith("_bytes_per_second"):
        return f"{size(value)}/s"
    if key.endswith("_ratio") or "_ratio_" in key:
        return share(value)
    return count(value) if isinstance(value, int) else f"{value:.4g}"


def _scaled(value: float, units: tuple[tuple[str, int], ...]) -> str:
    smallest = units[0][0]
    if value < 0:
        return f"-{_scaled(-value, units)}"
    for unit, factor in units:
        scaled = value / factor
        # 999.96 would be rounded up to 1000.0: the next unit has room for it.
        if scaled < 999.95 or unit == units[-1][0]:
            if unit == smallest:
                return f"{value:.0f} {unit}"
            return f"{scaled:.2f} {unit}" if scaled < 9.995 else f"{scaled:,.1f} {unit}"
    raise AssertionError(units)
