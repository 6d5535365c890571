"""Ends captures in children of `multiprocessing`, which end without the functions of `atexit`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

UTIL: Final = "multiprocessing.util"
_FIRST: Final = 1000
"""Before the finalizers of Python's own library, which have at most 15, and end processes and queues of the script."""


def finish_before_end(finish: Callable[[], object]) -> None:
    """Have `multiprocessing` call `finish` before it ends this process; nothing where the process does not use it."""
    util = sys.modules.get(UTIL)
    if util is not None:
        util.Finalize(None, finish, exitpriority=_FIRST)
