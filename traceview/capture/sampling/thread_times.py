"""Adds to the sidecar how long each thread of the process ran, and how long it waited for a core, in the group `threads`.

The kernel knows both (Linux, `thread_clocks.c`); a profile shows neither: an op of a thread that has no core is only longer.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from struct import iter_unpack
from types import ModuleType
from typing import Final

from traceview.capture.sidecar.file import Sidecar, WindowListener

INTERVAL_NS: Final = 4_000_000
"""The kernel brings the clock of a running thread up to date every 1 to 4 ms."""
_CLOCKS: ModuleType | None = None
with suppress(ImportError):
    _CLOCKS = import_module("traceview.capture.sampling.thread_clocks")


class ThreadTimesListener(WindowListener):
    """Notes the clocks of all threads from the start of the profile to its stop.

    The group holds `rows`, a compressed text of int64 in five columns, by thread and time: Unix nanoseconds, number of the thread, what pthread_self returns in it (0 where
    not known), and nanoseconds that it ran and waited until then, each as the difference from the row before. A thread has a row for each round in which a clock of it had moved.
    Where the kernel does not count, there is no group.
    """

    def opened(self, sidecar: Sidecar) -> None:
        """Begin to note."""
        if _CLOCKS is not None:
            _CLOCKS.start(INTERVAL_NS)

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Stop, and keep what was noted."""
        rows = b"" if _CLOCKS is None else _CLOCKS.stop()
        if rows:
            sidecar.add("threads", _described(rows))

    def finished(self) -> None:
        """Stop where the profile failed."""
        if _CLOCKS is not None:
            _CLOCKS.stop()


def _described(noted: bytes) -> dict[str, str]:
    rows = sorted(iter_unpack("=qqqqq", noted), key=lambda row: (row[1], row[0]))
    # As differences, which compress better.
    packed = b"".join(
        (value - before).to_bytes(8, "little", signed=True)
        for column in zip(*rows, strict=True)
        for before, value in pairwise((0, *column))
    )
    return {"rows": b64encode(zlib.compress(packed)).decode("ascii")}
