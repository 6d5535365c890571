"""Reads the text that `faulthandler` writes: the stacks of all threads, where no Python can run to describe them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from traceview.base.text import lazy_pattern

FILE_PREFIX: Final = ".traceview-stacks-"
"""Of the file of a process that is captured; host, number of the process and a random part follow."""
OWN_CODE: Final = "/traceview/capture/"
"""In the path of every module of a capture."""
_STARTS: Final = ("Thread 0x", "Current thread 0x")
_FRAME: Final = lazy_pattern(
    r'  File "(?P<file>.*)", line (?P<line>\d{1,9}) in (?P<function>.+)', re.DOTALL
)


class DumpedFrame(NamedTuple):
    """A frame; `file` is a path as Python knows it."""

    file: str
    line: int
    function: str


def dumped_stacks(text: str) -> list[list[DumpedFrame]]:
    """The frames of each thread, the innermost first; the main thread, dumped last, comes first."""
    stacks: list[list[DumpedFrame]] = []
    for line in text.splitlines():
        match = _FRAME.fullmatch(line)
        if line.startswith(_STARTS):
            stacks.append([])
        elif match and stacks:
            stacks[-1].append(DumpedFrame(match["file"], int(match["line"]), match["function"]))
    return stacks[::-1]
