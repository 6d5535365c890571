"""Writes numbers: times, sizes, shares and counts, short enough to compare at a glance.

Titles, sentences and tables all write a number by these functions, so that one value reads the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import groupby
from typing import Final

from traceview.base.text import first_of, lazy_pattern

ABSENT: Final = "–"
"""The sign for a number that a trace does not hold; a zero would be a claim."""

TIMES: Final[Mapping[str, int]] = {"ps": 1, "ns": 10**3, "µs": 10**6, "ms": 10**9, "s": 10**12}
SIZES: Final[Mapping[str, int]] = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
FLOPS: Final[Mapping[str, int]] = {
    "FLOP": 1,
    "kFLOP": 10**3,
    "MFLOP": 10**6,
    "GFLOP": 10**9,
    "TFLOP": 10**12,
    "PFLOP": 10**15,
}
_COUNTS: Final[Mapping[str, int]] = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
"""Units, with how many of the smallest they hold."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LEAST_SHARE: Final = 0.0005
_NOUGHTS: Final = lazy_pattern(r"\.0+(?=[ %])")
_FIRST_WORD: Final = lazy_pattern(r"^[a-z](?=[a-z]*[ ,])")


def _writer(units: Mapping[str, int], per: str = "") -> Callable[[float | None], str]:
    """What writes a number of the smallest of these units with three significant digits."""

    def written(number: float | None) -> str:
        return ABSENT if number is None else f"{_scaled(number, units)}{per}"

    return written


time: Final = _writer(TIMES)
"""Picoseconds: `669 ms`, `12.3 µs`, `0`."""
size: Final = _writer(SIZES)
"""Bytes in decimal units: `6.21 GB`."""
rate: Final = _writer(SIZES, "/s")
"""Bytes per second: `12.5 GB/s`."""
flops: Final = _writer(FLOPS)
"""Floating-point operations: `36.6 GFLOP`."""
flop_rate: Final = _writer(FLOPS, "/s")
"""`124 TFLOP/s`."""


def signed_time(ps: float | None) -> str:
    """A time that says more or less: `+5.10 ms`, `-5.10 ms`, `0`."""
    return f"+{time(ps)}" if ps is not None and ps > 0 else time(ps)


def share(ratio: float | None) -> str:
    """A ratio as a percentage with one decimal: `12.5%`; only nothing is `0%`, and only all is `100%`."""
    if ratio is None:
        return ABSENT
    if 0 < ratio < _LEAST_SHARE:
        return "<0.1%"
    if 1 - _LEAST_SHARE <= ratio < 1:
        return ">99.9%"
    return f"{ratio:.1%}" if 0 < ratio < 1 else f"{ratio:.0%}"


def percent(ratio: float | None) -> str:
    """A ratio in a sentence: `45%`, `5.2%`, below 10% with one decimal; only nothing is `0%`, and only all is `100%`."""
    if ratio is None or not 0.0995 <= ratio < 0.995:
        return share(ratio)
    return f"{ratio:.0%}"


def part_of(ps: int, of_ps: int, between: str = "of") -> str:
    """A time as a part of another one, `20.4 of 45.6 ms`; `556 µs of 12.5 ms` where their units differ."""
    part, whole = time(ps), time(of_ps)
    number, _, unit = part.partition(" ")
    is_same = unit and unit == whole.partition(" ")[2]
    return f"{number if is_same else part} {between} {whole}"


_ORDINALS: Final = (
    *("first", "second", "third", "fourth", "fifth"),
    *("sixth", "seventh", "eighth", "ninth", "tenth"),
)


def ordinal(number: int) -> str:
    """`fifth`; from 11 on `11th`, `22nd`."""
    if 0 < number <= len(_ORDINALS):
        return _ORDINALS[number - 1]
    is_teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if is_teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def signed_share(ratio: float | None) -> str:
    """A ratio that says more or less: `+20.0%`, `-3.1%`."""
    if ratio is None:
        return ABSENT
    if abs(ratio) < _LEAST_SHARE:
        return "0%"
    return f"{ratio:+.1%}" if abs(ratio) < 1 - _LEAST_SHARE else f"{ratio:+.0%}"


def share_range(ratios: Iterable[float | None]) -> str:
    """The least and the greatest of the ratios that are known: `57.7–57.9%`."""
    least, greatest = _ends(ratios, share)
    return least if least == greatest else f"{least.removesuffix('%')}–{greatest}"


def time_range(picoseconds: Iterable[int | None]) -> str:
    """The least and the greatest of the times that are known: `5.90 ms to 6.00 ms`."""
    least, greatest = _ends(picoseconds, time)
    return least if least == greatest else f"{least} to {greatest}"


def _ends(values: Iterable[float | None], write: Callable[[float | None], str]) -> tuple[str, str]:
    known = [value for value in values if value is not None]
    return write(min(known, default=None)), write(max(known, default=None))


def count(number: int | None) -> str:
    """A number of things: `1,367`."""
    return ABSENT if number is None else f"{number:,}"


def short(number: int) -> str:
    """A large number of things with three significant digits: `641`, `12.3 k`, `175 G`."""
    return _scaled(number, _COUNTS).rstrip()


def number(value: float | None) -> str:
    """A number without a unit: `1,487`, `0.53`."""
    if value is None:
        return ABSENT
    if isinstance(value, int):
        return count(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


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
    """A value in the unit that its key ends with."""
    if isinstance(value, str):
        return value
    if key.endswith("_ns"):
        return time(None if value is None else value * 1000)
    if "_ratio" in key:
        return share(value)
    endings = {"_ps": time, "_bytes": size, "_bytes_per_second": rate}
    ends = key.removesuffix("_per_step")
    return next((write for end, write in endings.items() if ends.endswith(end)), number)(value)


def chosen(key: str, value: float) -> str:
    """A number that was not measured, in the unit that its key ends with, as `50 µs` and `5%`."""
    return _NOUGHTS.sub("", measured(key, value))


# Sentences


def sentence(text: str) -> str:
    """A statement with a capital letter and a full stop; a name at its beginning stays as it is."""
    capital = capitalized(text)
    return f"{capital}." if capital and not capital.endswith(".") else capital


def capitalized(text: str) -> str:
    """A statement with a capital letter; a name at its beginning stays as it is."""
    return _FIRST_WORD.sub(lambda match: match[0].upper(), text)


def listed(keys: Sequence[str], most: int = 8) -> str:
    """Names in a sentence: `a`, `a and b`, `a, b and c`; cut after `most` as `first_of` does; empty without any.

    Of more than that, device keys with numbers in a row become one: `a/GPU:0–7, a/GPU:9 and b/GPU:0–7`.
    """
    spans = _spans(keys) if len(keys) > most else [(key, 1) for key in keys]
    shown, hidden_count = first_of([span for span, _ in spans], most)
    if hidden_count:
        return f"{', '.join(shown)} and {sum(count for _, count in spans[most:])} more"
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def joined_devices(keys: Iterable[str]) -> str:
    """`GPU:0, 2, 5–7`: device keys that differ in their number only, numbers in a row joined.

    With several hosts `a/GPU:0, 1; b/GPU:0`.
    """
    groups = []
    for prefix, same in groupby(keys, key=lambda key: key.rpartition(":")[0]):
        spans = [span.rpartition(":")[2] for span, _ in _spans(list(same))]
        groups.append(f"{prefix}:{', '.join(spans)}")
    return "; ".join(groups)


def without_host(key: str) -> str:
    """The name of a device without its host."""
    return key.rpartition("/")[2]


def _spans(keys: Sequence[str]) -> list[tuple[str, int]]:
    """Three or more device keys whose numbers follow each other as one span, with their count; others alone."""
    runs: list[list[str]] = []
    for key in keys:
        if runs and _follows(runs[-1][-1], key):
            runs[-1].append(key)
        else:
            runs.append([key])
    spans: list[tuple[str, int]] = []
    for run in runs:
        if len(run) > 2:
            spans.append((f"{run[0]}–{run[-1].rpartition(':')[2]}", len(run)))
        else:
            spans += [(key, 1) for key in run]
    return spans


def _follows(before: str, key: str) -> bool:
    device, _, number = key.rpartition(":")
    same, _, last = before.rpartition(":")
    are_numbers = number.isdecimal() and last.isdecimal()
    return bool(device) and device == same and are_numbers and int(number) == int(last) + 1


# Scaling


def _scaled(value: float, units: Mapping[str, int]) -> str:
    if value < 0:
        return f"-{_scaled(-value, units)}"
    if value == 0:
        return "0"
    *_, largest = units
    for unit, factor in units.items():
        scaled = value / factor
        # 999.6 would be rounded up to 1000: the next unit has room for it.
        if scaled < 999.5 or unit == largest:
            return f"{scaled:,.{decimals(scaled) if factor > 1 else 0}f} {unit}"
    raise AssertionError(units)


def decimals(value: float) -> int:
    """Digits after the point that make three significant ones, of a value from 1 on."""
    if value < 9.995:
        return 2
    return 1 if value < 99.95 else 0
