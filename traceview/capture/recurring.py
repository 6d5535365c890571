"""Repeats a window of steps in a long training, and keeps the newest runs only."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from traceview.base.errors import UsageError
from traceview.capture.record.destination import RUNS, TRACE_SUFFIX, Kept, groups_of
from traceview.capture.sidecar.file import SUFFIX as SIDECAR_SUFFIX
from traceview.capture.sidecar.file import Sidecar, WindowListener

_GROUP: Final = "recurring"
_EDGES: Final = 2
"""Calls before a window that it needs: the one that runs, and its edge."""


@dataclass(frozen=True)
class Recurrence(WindowListener):
    """The window `steps` again after each `every` steps, and how many runs to `keep`; raises `UsageError`.

    As a listener it notes in the sidecar that the run is one of many, which may be removed.
    """

    steps: range
    every: int
    keep: int

    def __post_init__(self) -> None:
        if self.every < len(self.steps) + _EDGES:
            raise UsageError(
                f"every={self.every}: windows of {len(self.steps)} steps cannot begin so soon after each other",
                hint=f"every={len(self.steps) + _EDGES} at least; every=1000 costs less",
            )
        if self.keep < 1:
            raise UsageError(f"keep={self.keep}: at least one run has to be kept")

    def opening(self, sidecar: Sidecar) -> None:
        """Note that the run is one of many."""
        sidecar.add(_GROUP, {"every": self.every, "keep": self.keep})

    def next_steps(self, number: int, count: int) -> range:
        """The first window that can still be recorded when step `number` is next and a call runs `count` steps."""
        earliest = number + _EDGES * count
        passed = max(0, -(-(earliest - self.steps.start) // self.every))
        return range(self.steps.start + passed * self.every, self.steps.stop + passed * self.every)

    def remove_older(self, out: Path) -> None:
        """Remove what this host recorded below `out` in recurring windows, except in the newest runs.

        Other files, and runs that were recorded in another way, stay.
        """
        sidecars: dict[Path, list[Path]] = {}
        begun: dict[Path, int] = {}
        for sidecar in (out / RUNS).glob(f"*/*{SIDECAR_SUFFIX}"):
            started_ns = _started_ns(sidecar)
            if started_ns is not None:
                sidecars.setdefault(sidecar.parent, []).append(sidecar)
                begun[sidecar.parent] = max(started_ns, begun.get(sidecar.parent, 0))
        newest_first = sorted(begun, key=lambda run: begun[run], reverse=True)
        for run in newest_first[self.keep :]:
            for sidecar in sidecars[run]:
                trace = sidecar.with_name(sidecar.name.removesuffix(SIDECAR_SUFFIX) + TRACE_SUFFIX)
                remove(Kept(run, trace, sidecar))


def remove(kept: Kept) -> None:
    """Remove the files of a capture, and the folder of its run if nothing else is in it."""
    # At last the sidecar, which says whose the trace is. Another worker on this host may remove them at the same time.
    for file in (kept.trace, kept.sidecar):
        with suppress(OSError):
            file.unlink()
    with suppress(OSError):
        kept.run.rmdir()


def _started_ns(sidecar: Path) -> int | None:
    """When this host recorded it, Unix nanoseconds; None for what is no recurring capture of this host."""
    groups = groups_of(sidecar)
    is_own = _GROUP in groups and groups["process"].get("host") == socket.gethostname()
    try:
        return int(groups["clock"]["started"]["wall_ns"]) if is_own else None
    except (KeyError, TypeError, ValueError):
        return None
