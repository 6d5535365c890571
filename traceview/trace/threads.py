"""Finds out which lines of the host planes belong to one thread: its driver calls may be on a line of their own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from traceview.base.intervals import Int32Array

_THREAD_NUMBER = re.compile(r"/(-?\d+)(?:/NVTX)?$")


class _Line(Protocol):
    @property
    def host(self) -> int: ...

    @property
    def id(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def is_thread(self) -> bool: ...


def threads(lines: Sequence[_Line]) -> Int32Array:
    """The thread of each line, int32.

    Two lines are one thread if their ids agree modulo 2**32 or if one is named after the id of the other.
    """
    first_with: dict[tuple[int, int], int] = {}
    thread = np.arange(len(lines), dtype=np.int32)
    for index, line in enumerate(lines):
        if not line.is_thread:
            continue
        numbers = {line.id % (1 << 32)}
        named = _THREAD_NUMBER.search(line.name)
        if named:
            numbers.add(int(named[1]) % (1 << 32))
        known = [first_with[line.host, n] for n in numbers if (line.host, n) in first_with]
        thread[index] = min(known, default=index)
        for number in numbers:
            first_with.setdefault((line.host, number), int(thread[index]))
    return thread
