r"""Calls the compiled modules with what no trace holds, and compares them with the references that are written in Python.

    python -m scripts.fuzzed_kernels FIRST_SEED SECONDS

One call per seed. Arguments keep the promises of the docstrings and nothing else: times lie anywhere in 62 bits, events touch,
overlap and are empty. Messages follow the format of a trace, then bytes of them change. The modules may be built with sanitizers, which end the process where memory is misused:

    CFLAGS="-O1 -g -fsanitize=address,undefined" python setup.py build_ext --inplace --force
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
        UBSAN_OPTIONS=halt_on_error=1 python -m scripts.fuzzed_kernels 0 600
"""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from random import Random
from types import ModuleType
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from scripts.xspace import varint
from traceview.base import sweeps_reference
from traceview.base.sweeping import SWEEPS
from traceview.xplane import decode_reference
from traceview.xplane.columns import WantedStats
from traceview.xplane.message import DECODER

Array: TypeAlias = npt.NDArray[Any]
Make: TypeAlias = Callable[[Random], tuple[Any, ...]]

_SPREADS: Final = (6, 40, 40, 1 << 40, 1 << 61)
"""How far apart times lie; where they are close most of them are equal."""

_EDGES: Final = (0, 1, -1, 1 << 31, 1 << 53, 1 << 61, -(1 << 61), (1 << 63) - 1, -(1 << 63))
_PRINTED: Final = 5
_IDS: Final = ("u1", "i2", "i4", "i8")


def _int64(values: Sequence[int]) -> Array:
    return np.array(values, dtype=np.int64)


def _times(choice: Random, count: int) -> list[int]:
    spread = choice.choice(_SPREADS)
    shift = choice.choice((0, 0, 7, -(1 << 60)))
    return [choice.randrange(spread) + shift for _ in range(count)]


def _any_numbers(choice: Random, count: int) -> Array:
    return _int64([choice.choice((choice.randrange(-9, 30), *_EDGES)) for _ in range(count)])


def _bits(choice: Random, count: int) -> Array:
    return np.array([choice.randrange(2) for _ in range(count)], dtype=np.uint8)


def _count(choice: Random) -> int:
    return choice.choice((0, 1, 2, 3, 5, 9, 9, 33))


def _distinct(choice: Random) -> Array:
    return _int64(sorted(set(_times(choice, choice.randrange(9)))))


def _spans(choice: Random, count: int) -> tuple[Array, Array]:
    """Starts and lengths, sorted by start; a few of the lengths are 0."""
    start = sorted(_times(choice, count))
    spread = max(start, default=1) - min(start, default=0) + 2
    return _int64(start), _int64([choice.randrange(spread) for _ in start])


def _apart(choice: Random, count: int) -> tuple[Array, Array]:
    """Starts and ends of spans that do not overlap."""
    edges = sorted(set(_times(choice, 2 * count)))
    edges = edges[: len(edges) // 2 * 2]
    return _int64(edges[::2]), _int64(edges[1::2])


def _window(choice: Random, *columns: Array) -> tuple[int, int]:
    known = [int(value) for column in columns for value in column] or [0, 9]
    low = choice.choice((min(known), choice.choice(known), max(min(known) - 3, _EDGES[-1])))
    high = choice.choice((max(known), choice.choice(known), min(max(known) + 3, _EDGES[-2])))
    return (low, high) if low <= high else (high, low)


# Arguments of the sweeps


def _places(choice: Random) -> tuple[Any, ...]:
    values = np.sort(_any_numbers(choice, _count(choice)))
    return values, _any_numbers(choice, _count(choice)), bool(choice.randrange(2))


def _covered_before(choice: Random) -> tuple[Any, ...]:
    start, end = _apart(choice, _count(choice))
    covered = _int64([0, *accumulate((end - start).tolist())])
    return start, covered, _int64(_times(choice, _count(choice)) + start.tolist())


def _merged(choice: Random) -> tuple[Any, ...]:
    start, length = _spans(choice, _count(choice))
    if choice.random() < 0.2:
        start = start[::-1].copy()
    return start, start + length - choice.randrange(2)


def _last_open(choice: Random) -> tuple[Any, ...]:
    end = _any_numbers(choice, _count(choice))
    count = _count(choice)
    limit = _int64([choice.randint(0, end.size) for _ in range(count)])
    time = _any_numbers(choice, count)
    return (end, limit, time) if choice.random() < 0.3 else (end, np.sort(limit), np.sort(time))


def _ids(choice: Random, least: int, most: int) -> Array:
    dtype = choice.choice(_IDS)
    low = max(least, 0 if dtype == "u1" else -100)
    return np.array([choice.randint(low, most) for _ in range(_count(choice))], dtype=dtype)


def _marked(choice: Random) -> tuple[Any, ...]:
    least = choice.choice((0, -5, 3))
    return _ids(choice, least, least + 20), least, 21 + choice.randrange(3)


def _are_marked(choice: Random) -> tuple[Any, ...]:
    ids = choice.choice((_ids(choice, -9, 30), _any_numbers(choice, _count(choice))))
    return _bits(choice, _count(choice)), ids, choice.choice((0, -5, 3, *_EDGES))


def _earliest(choice: Random) -> tuple[Any, ...]:
    count = _count(choice)
    ids = _int64([choice.randrange(-4, 10) for _ in range(count)])
    return ids, _any_numbers(choice, count), -4, 14


def _totals(choice: Random) -> tuple[Any, ...]:
    places = np.array(
        [choice.randrange(-2, 6) for _ in range(_count(choice))], dtype=choice.choice(_IDS[1:])
    )
    values = _any_numbers(choice, places.size)
    return (places, values, 6, *choice.choice(((), (_bits(choice, places.size),))))


def _cut(choice: Random) -> tuple[Any, ...]:
    start, length = _spans(choice, _count(choice))
    marks = choice.choice(((), (_bits(choice, start.size),)))
    return start, start + length, _distinct(choice), *marks


def _layered(choice: Random) -> tuple[Any, ...]:
    layers = [_apart(choice, choice.randrange(6)) for _ in range(choice.randint(1, 4))]
    start, end = (np.concatenate(column) for column in zip(*layers, strict=True))
    begin = _int64([0, *accumulate(of.size for of, _ in layers)])
    bounds = _distinct(choice)
    return start, end, begin, bounds, *_window(choice, start, end, bounds)


def _labelled(choice: Random) -> tuple[Any, ...]:
    # Many, so that the table of labels grows.
    count = choice.choice((*(_count(choice) for _ in range(9)), 700, 2500))
    most = choice.choice((2, 5, 400))
    first, second = (
        np.array([choice.randrange(-1, most) for _ in range(count)], dtype=np.int32)
        for _ in range(2)
    )
    return first, second, np.array([choice.randrange(3) for _ in range(count)], dtype=np.uint8)


SWEEP_CALLS: Final[dict[str, Make]] = {
    "places": _places,
    "covered_before": _covered_before,
    "merged": _merged,
    "last_open": _last_open,
    "marked": _marked,
    "are_marked": _are_marked,
    "earliest": _earliest,
    "totals": _totals,
    "cut": _cut,
    "layered": _layered,
    "labelled": _labelled,
}

# Messages

_VARINT, _FIXED64, _CONTENT, _FIXED32 = 0, 1, 2, 5
_STAT: Final[dict[int, Any]] = {
    **dict.fromkeys((1, 3, 4, 7), _VARINT),
    **dict.fromkeys((5, 6), _CONTENT),
    2: _FIXED64,
}
_EVENT: Final[dict[int, Any]] = {**dict.fromkeys((1, 2, 3, 5), _VARINT), 4: _STAT}
LINE: Final[dict[int, Any]] = {
    **dict.fromkeys((1, 3, 9, 10), _VARINT),
    **dict.fromkeys((2, 11), _CONTENT),
    4: _EVENT,
}
_METADATA: Final[dict[int, Any]] = {1: _VARINT, 2: _CONTENT, 3: _CONTENT, 4: _CONTENT, 5: _STAT}
_ENTRY: Final[dict[int, Any]] = {1: _VARINT, 2: _METADATA}
PLANE: Final[dict[int, Any]] = {1: _VARINT, 2: _CONTENT, 3: LINE, 4: _ENTRY, 5: _ENTRY, 6: _STAT}
SLOTS: Final = {1: 0, 2: 1, 3: 2, 300: 3, 0: 4, -5: 5, 1 << 40: 6, (1 << 63) - 1: 7}
WANTED: Final = WantedStats.of(SLOTS)


def message(choice: Random, schema: dict[int, Any]) -> bytes:
    """Fields of a message in any order, by number their wire types or schemas; a few are unknown or of another type."""
    parts = []
    for _ in range(choice.randrange(7)):
        number = choice.choice((*schema, *schema, *schema, 8, 15, 16, (1 << 29) - 1))
        kind = schema.get(number, _VARINT)
        if choice.random() < 0.05:
            kind = choice.choice((_VARINT, _FIXED64, _CONTENT, _FIXED32, 3, 4))
        parts.append(_field(choice, number, kind))
    return b"".join(parts)


def _field(choice: Random, number: int, kind: Any) -> bytes:
    padding = choice.choice((0, 0, 0, 0, 1, 9))
    if isinstance(kind, dict) or kind == _CONTENT:
        inside = message(choice, kind) if isinstance(kind, dict) else choice.randbytes(3)
        return varint(number << 3 | _CONTENT) + varint(len(inside), padding) + inside
    tag = varint(number << 3 | kind)
    if kind in (_FIXED64, _FIXED32):
        return tag + choice.randbytes(8 if kind == _FIXED64 else 4)
    value = choice.choice((*SLOTS, choice.randrange(1 << 20), *_EDGES))
    return tag + (varint(value, padding) if kind == _VARINT else b"")


def _changed(choice: Random, schema: dict[int, Any]) -> bytes:
    """A message of which at times some bytes are changed."""
    data = bytearray(message(choice, schema))
    for _ in range(choice.choice((0, 0, 1, 1, 2, 6))):
        at = choice.randrange(len(data) + 1)
        other = choice.choice((b"", choice.randbytes(1), _field(choice, 4, schema[1])))
        data[at : at + choice.choice((0, 1, 1, 3))] = other
    return bytes(data)


def _bounds(choice: Random, data: bytes) -> tuple[bytes, int, int]:
    before, after = choice.randbytes(choice.randrange(3)), choice.randbytes(choice.randrange(3))
    begin, end = len(before), len(before) + len(data)
    if choice.random() < 0.05:
        begin, end = choice.randrange(-2, end + 3), choice.randrange(-2, end + 3)
    return before + data + after, begin, end


def _decoder_arguments(name: str, choice: Random) -> tuple[Any, ...]:
    data = _changed(choice, PLANE if name == "read_plane" else LINE)
    if name == "read_plane":
        return (data,)
    if name == "intern_contents":
        fields = decode_reference.scan_fields(data, 0, len(data))
        known = [
            int(at) for at, kind in zip(fields.tag, fields.wire_type, strict=True) if kind == 2
        ]
        wrong = [choice.choice((*range(-2, len(data) + 2), *_EDGES))]
        return data, _int64([*known, *known[:1], *(wrong if choice.random() < 0.3 else ())])
    if name == "stats_by_slot":
        lines = [_changed(choice, LINE) for _ in range(choice.randrange(4))]
        columns = [DECODER.decode_line(of, 0, len(of), WANTED) for of in lines]
        stats = [(of.stat_event, of.stat_slot, of.stat_kind, of.stat_value) for of in columns]
        shifts = [choice.choice((0, 5, 1 << 40)) for _ in stats]
        return stats, shifts, shifts[::-1], choice.choice((8, 8, 8, 3))
    bounded = _bounds(choice, data)
    return bounded if name == "scan_fields" else (*bounded, WANTED)


DECODER_CALLS: Final = (
    *("decode_line", "decode_line", "read_plane", "scan_fields"),
    *("intern_contents", "stats_by_slot"),
)


def outcome_of(module: ModuleType, name: str, arguments: tuple[Any, ...]) -> Any:
    """What a function gives, in a form that can be compared; an error by its class and text."""
    copied = tuple(dict(part) if isinstance(part, dict) else part for part in arguments)
    try:
        found = getattr(module, name)(*copied)
    except (ValueError, IndexError) as error:
        return type(error).__name__, str(error)
    return _comparable((found, *(part for part in copied if isinstance(part, dict))))


def _comparable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, msgspec.Struct):
        return tuple(map(_comparable, msgspec.structs.astuple(value)))
    if isinstance(value, dict):
        return tuple((key, _comparable(item)) for key, item in value.items())
    if isinstance(value, tuple | list):
        return tuple(map(_comparable, value))
    # Not by value: NaN is no other NaN.
    return repr(value)


def call(seed: int) -> str:
    """Make one call of both implementations; the name of the function. Raises `AssertionError` where they differ."""
    choice = Random(seed)
    name = choice.choice(tuple(SWEEP_CALLS) if choice.random() < 0.5 else DECODER_CALLS)
    compare(name, choice)
    return name


def compare(name: str, choice: Random) -> None:
    """Call both implementations of a function. Raises `AssertionError` where they differ."""
    if name in SWEEP_CALLS:
        modules: tuple[ModuleType, ...] = (SWEEPS, sweeps_reference)
        arguments = SWEEP_CALLS[name](choice)
    else:
        modules = (DECODER, decode_reference)
        arguments = _decoder_arguments(name, choice)
    found, expected = (outcome_of(module, name, arguments) for module in modules)
    assert found == expected, f"{name}: {found!r:.300} for {expected!r:.300} of {arguments!r:.3000}"


def main(first_seed: int, seconds: float) -> int:
    """Call with one seed after another; prints the first failures and how often each function was called."""
    if SWEEPS is sweeps_reference or DECODER is decode_reference:
        print("the modules are not compiled")
        return 2
    calls, failed, seed = Counter[str](), 0, first_seed
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            calls[call(seed)] += 1
        except Exception:
            failed += 1
            if failed <= _PRINTED:
                print(f"seed {seed}", flush=True)
                traceback.print_exc()
        seed += 1
    print(f"seeds {first_seed} to {seed - 1}: {calls.total()} calls, {failed} failed")
    print(", ".join(f"{name} {number}" for name, number in sorted(calls.items())))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2])))
