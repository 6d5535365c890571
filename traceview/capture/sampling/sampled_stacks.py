"""Numbers the stacks of samples, finds their lines, and writes them for the sidecar."""

from __future__ import annotations

import zlib
from array import array
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import compress, pairwise
from types import CodeType
from typing import Any, Final

from traceview.capture.process.python_code import CodePlaces, Origin

MOST_SAMPLES: Final = 1 << 19
"""Of all threads, in 17 MB; beyond that every second round is dropped, and the interval doubles."""
MOST_STACKS: Final = 1 << 16
MOST_FRAMES: Final = 64
MOST_WALKED: Final = 256
"""Frames that a sample looks at, of which it keeps so many."""
NOT_KEPT: Final = -1
UNKNOWN: Final = -1
_PASSES_ON: Final = "passes_on"
"""The name of those functions of ours that call what the script, or a framework, would have called."""


class Stacks:
    """The different stacks so far, by number. A stack is a tuple of pairs: id of the code, and instruction in it."""

    def __init__(self, places: CodePlaces) -> None:
        self._keys: dict[tuple[int, ...], int] = {}
        self._places = places
        self._known: dict[int, tuple[CodeType, Origin]] = {}
        """Code by id, and where it is from. What is kept here cannot give its id to another."""

    def number_of(self, stack: Iterable[tuple[CodeType, int]]) -> int:
        """The number of code and instructions, the innermost first; `NOT_KEPT` if there are too many, or all is of the standard library.

        What called the innermost line of the user is kept as far as it is the user's, too.
        """
        key: list[int] = []
        is_user, is_nothing = False, True
        for code, instruction in stack:
            if id(code) not in self._known:
                self._known[id(code)] = code, self._places.origin_of(code)
            kind = self._known[id(code)][1].kind
            if len(key) == 2 * MOST_FRAMES:
                break
            if kind == "own" and key and code.co_name == _PASSES_ON:
                continue
            is_nothing &= kind in ("own", "standard")
            if kind == "user" or not is_user:
                key += (id(code), instruction)
            is_user |= kind == "user"
        if is_nothing:
            # It waits for work; or it is a generator of ours that has just handed on a value, whose callers were not seen.
            return NOT_KEPT
        number = self._keys.get(tuple(key))
        if number is None:
            if len(self._keys) >= MOST_STACKS:
                return NOT_KEPT
            number = self._keys[tuple(key)] = len(self._keys)
        return number

    def described(self) -> dict[str, list[Any]]:
        """Tables by number; `frames`: file, function, line and whether it is the user's; `stacks`: frames, the innermost first."""
        files: dict[str, int] = {}
        functions: dict[str, int] = {}
        frames: dict[tuple[int, int, int, int], int] = {}

        @cache
        def number_of(place: tuple[int, int]) -> int:
            code, origin = self._known[place[0]]
            file = files.setdefault(origin.file, len(files))
            function = functions.setdefault(origin.function, len(functions))
            line, is_user = origin.line_of(_line_of(code, place[1])), int(origin.kind == "user")
            return frames.setdefault((file, function, line, is_user), len(frames))

        # In the order of their numbers.
        keys = list(self._keys)
        stacks = [list(map(number_of, zip(key[::2], key[1::2], strict=True))) for key in keys]
        texts = {"files": list(files), "functions": list(functions)}
        return {**texts, "frames": list(frames), "stacks": stacks}


def _line_of(code: CodeType, instruction: int) -> int:
    """The line of an instruction, or of the last one before it that has a line."""
    known = code.co_firstlineno
    for start, _, line in code.co_lines():
        if start > instruction:
            break
        known = known if line is None else line
    return known


class Samples:
    """Columns by sample, in time order.

    `t_ns`: Unix time. `thread`: number in `threads`, which holds what pthread_self returns. `stack`: number. `cpu_us`: processor time
    that the thread has taken so far, negative where not known. `late_us`: by how much the round came late. `held`: how often Python's
    lock had been handed over, if the thread held it; None where nobody looked.
    """

    def __init__(self) -> None:
        self.t_ns, self.cpu_us = array("q"), array("q")
        self.thread, self.stack, self.late_us = array("i"), array("i"), array("i")
        self.held: array[int] | None = None
        self.threads: dict[int, int] = {}

    def add(self, t_ns: int, ident: int, stack: int, cpu_us: int, late_us: int) -> None:
        """Add one of a round in Python."""
        self.t_ns.append(t_ns)
        self.thread.append(self.threads.setdefault(ident, len(self.threads)))
        self.stack.append(stack)
        self.cpu_us.append(cpu_us)
        self.late_us.append(min(late_us, (1 << 31) - 1))

    def halve(self) -> None:
        """Drop every second round: the samples of one have the same time."""
        kept = set([*dict.fromkeys(self.t_ns)][::2])
        is_kept = [t_ns in kept for t_ns in self.t_ns]
        for name in ("t_ns", "cpu_us", "thread", "stack", "late_us"):
            column = getattr(self, name)
            setattr(self, name, array(column.typecode, compress(column, is_kept)))

    def described(self) -> dict[str, str]:
        """The columns as the sidecar has them."""
        # The first time, and what follows as distances, which compress better.
        distances = array("q", [*self.t_ns[:1], *(b - a for a, b in pairwise(self.t_ns))])
        numbers = (distances.tobytes(), self.thread.tobytes(), self.stack.tobytes())
        columns = {"cpu": self.cpu_us, "late": self.late_us, "held": self.held}
        texts = {
            name: compressed(each.tobytes()) for name, each in columns.items() if each is not None
        }
        return {"samples": compressed(*numbers), **texts}


def samples_of_native(
    read: Sequence[Any], stacks: Stacks, stopped_ns: int, is_kept_thread: Callable[[int], bool]
) -> tuple[int, Samples]:
    """The rounds and samples of `stacks.stop`, from its columns on, until the profile stopped."""
    *columns, idents, codes, raw_stacks = read
    made = [_stand_in(*code) for code in codes]
    numbers = [
        stacks.number_of((made[code], instruction) for code, instruction in _pairs(raw))
        for raw in raw_stacks
    ]
    t_ns, cpu_us = (array("q", column) for column in columns[:2])
    thread, stack, late_us, held = (array("i", column) for column in columns[2:])
    is_wanted = [is_kept_thread(ident) for ident in idents]
    is_kept = [
        at_ns <= stopped_ns and is_wanted[who] and numbers[where] != NOT_KEPT
        for at_ns, who, where in zip(t_ns, thread, stack, strict=True)
    ]
    samples = Samples()
    samples.t_ns = array("q", compress(t_ns, is_kept))
    samples.cpu_us = array("q", compress(cpu_us, is_kept))
    samples.late_us = array("i", compress(late_us, is_kept))
    samples.held = array("i", compress(held, is_kept))
    samples.stack = array("i", (numbers[number] for number in compress(stack, is_kept)))
    # Of several threads that had the same address, one after the other, there is one.
    threads = samples.threads
    samples.thread = array(
        "i",
        (threads.setdefault(idents[number], len(threads)) for number in compress(thread, is_kept)),
    )
    return len({at_ns for at_ns in t_ns if at_ns <= stopped_ns}), samples


def _pairs(raw: bytes) -> zip[tuple[int, int]]:
    values = array("i", raw)
    return zip(values[::2], values[1::2], strict=True)


def _stand_in(file: str, name: str, full_name: str, first_line: int, table: bytes) -> CodeType:
    """Code with the lines of another, which may be gone; from Python 3.11 on it has a qualified name."""
    code = (lambda: None).__code__
    named: dict[str, Any] = {"co_qualname": full_name} if hasattr(code, "co_qualname") else {}
    return code.replace(
        co_filename=file, co_name=name, co_firstlineno=first_line, co_linetable=table, **named
    )


def compressed(*contents: bytes) -> str:
    """Bytes as a text for the sidecar."""
    return b64encode(zlib.compress(b"".join(contents))).decode("ascii")
