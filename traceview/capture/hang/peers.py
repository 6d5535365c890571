"""Tells the other workers of a cluster what this one does, and reads what they do.

Each watched worker writes a small file into the folder where the workers of a capture meet: its steps, whether it is in
a step, and the line of the user's code in which its main thread is. One that is stopped writes nothing, so the age of its
file says so; all ages come from the clock of the file system.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from traceview.capture.record.run_choice import Rendezvous
from traceview.capture.sidecar.cluster import Place, Task, own_place
from traceview.capture.sidecar.file import write_whole
from traceview.capture.window.ranges import StepRange

_PREFIX: Final = "beat-"
_SILENT_BEATS: Final = 3
"""A worker that misses one or two is slow, or its file system is."""
_LARGEST_BYTES: Final = 1 << 16
"""Of a worker's file, which has a few hundred."""


class Peers:
    """The other workers, as soon as the environment names some. `interval_s`: how often each worker writes."""

    def __init__(self, out: Path, steps: StepRange, interval_s: float) -> None:
        self.interval_s = interval_s
        self.place: Place | None = None
        self._out = out
        self._steps = steps
        self._folder = Path()

    def find(self, environment: Mapping[str, str]) -> bool:
        """Whether there are partners; the script may join a cluster at any time before it trains."""
        place = self.place or own_place(environment)
        if place is None or not place.partners:
            return False
        if self.place is None:
            self.place, self._folder = place, Rendezvous(self._out, place, self._steps).folder
            with suppress(OSError):
                self._folder.mkdir(exist_ok=True)
        return True

    def write(self, fields: Mapping[str, Any]) -> None:
        """Say what this worker does. A folder that cannot be written is noticed by the others, as silence."""
        if self.place is not None:
            beat = {"host": socket.gethostname(), "interval_s": self.interval_s, **fields}
            with suppress(OSError):
                write_whole(self._file(self.place.task), json.dumps(beat).encode())

    def read(self) -> list[dict[str, Any]]:
        """What the other workers do, as the fields of the report; call `write` just before."""
        if self.place is None:
            return []
        now_s = 0.0
        with suppress(OSError):
            now_s = self._file(self.place.task).stat().st_mtime
        others = (task for task in self.place.partners if task != self.place.task)
        return [self._worker(task, now_s) for task in others]

    def _file(self, task: Task) -> Path:
        return self._folder / f"{_PREFIX}{task.label}.json"

    def _worker(self, task: Task, now_s: float) -> dict[str, Any]:
        fields = ("host", "step_count", "waited_ns", "silent_ns", "line")
        worker: dict[str, Any] = {"task": str(task), "state": "unknown", **dict.fromkeys(fields)}
        path = self._file(task)
        # A worker without a file has never written, and a damaged one says nothing.
        with suppress(KeyError, OSError, RecursionError, TypeError, ValueError, OverflowError):
            silent_s = max(now_s - path.stat().st_mtime, 0.0)
            with path.open("rb") as file:
                beat = json.loads(file.read(_LARGEST_BYTES))
            is_silent = silent_s > _SILENT_BEATS * max(float(beat["interval_s"]), 1.0)
            state = "in-step" if beat["is_in_step"] is True else "elsewhere"
            worker |= {
                "host": str(beat["host"]),
                "step_count": int(beat["step_count"]),
                "waited_ns": max(int(beat["waited_ns"] + silent_s * 1e9), 0),
                "silent_ns": int(silent_s * 1e9),
                "line": None if beat["line"] is None else str(beat["line"]),
                "state": "ended" if beat["is_ended"] is True else "silent" if is_silent else state,
            }
        return worker
