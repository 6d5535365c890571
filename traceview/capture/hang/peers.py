"""Tells the other workers of a cluster what this one does, and reads what they do.

Each watched worker writes a small file into the folder where the workers of a capture meet: its steps, whether it is in
the call of a step, and the line of the user's code in which its main thread is. A worker that is stopped writes
nothing, so the age of its file says so; all ages come from the clock of the file system.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from traceview.capture.record.rendezvous import Rendezvous
from traceview.capture.sidecar.cluster import Place, Task, place_of
from traceview.capture.sidecar.file import write_whole
from traceview.capture.window.ranges import SecondsRange, StepRange

_PREFIX: Final = "beat-"
_SILENT_BEATS: Final = 3
"""A worker that misses one or two is slow, or its file system is."""
_LARGEST_BYTES: Final = 1 << 16
"""Of a worker's file, which has a few hundred."""
_ANSWER_TIMEOUT_MS: Final = 2000
"""Within a data center an answer takes milliseconds, of a busy process tens of them."""
_MOST_ASKING_S: Final = 10.0
"""For all workers together: the report must not wait for each of many that are gone."""


def unseen(task: Task, *, is_answering: bool | None) -> dict[str, Any]:
    """A worker of which nothing is known, but whether its process answers."""
    return {
        "task": str(task),
        "host": None,
        "state": "unknown",
        "step_count": None,
        "waited_ns": None,
        "silent_ns": None,
        "line": None,
        "is_answering": is_answering,
    }


class Peers:
    """The other workers, as soon as TF_CONFIG names some. `interval_s`: how often each worker writes."""

    def __init__(
        self,
        out: Path,
        asked: StepRange | SecondsRange,
        interval_s: float,
        say: Callable[[str], None],
    ) -> None:
        self.interval_s = interval_s
        self.place: Place | None = None
        self._out = out
        self._asked = asked
        self._say = say
        self._folder: Path | None = None

    def find(self, environment: Mapping[str, str]) -> bool:
        """Whether there are partners; the script may set TF_CONFIG at any time before it trains."""
        if self._folder is None:
            place = place_of(environment)
            if place is None or not place.partners:
                return False
            self.place = place
            self._folder = Rendezvous(self._out, place, self._asked, self._say).folder
            with suppress(OSError):
                self._folder.mkdir(exist_ok=True)
        return True

    def write(self, fields: Mapping[str, Any]) -> None:
        """Say what this worker does. A folder that cannot be written is noticed by the others, as silence."""
        if self._folder is None or self.place is None:
            return
        text = json.dumps({"host": socket.gethostname(), "interval_s": self.interval_s, **fields})
        with suppress(OSError):
            write_whole(self._file(self.place.task), text.encode())

    def read(self) -> list[dict[str, Any]]:
        """What the other workers do, as the fields of the report; call `write` just before."""
        if self._folder is None or self.place is None:
            return []
        own = self.place.task
        now_s = 0.0
        with suppress(OSError):
            now_s = self._file(own).stat().st_mtime
        asked_until_s = time.monotonic() + _MOST_ASKING_S
        return [
            self._worker(task, now_s, is_asked=time.monotonic() < asked_until_s)
            for task in self.place.partners
            if task != own
        ]

    def _file(self, task: Task) -> Path:
        assert self._folder is not None
        return self._folder / f"{_PREFIX}{task.label}.json"

    def _worker(self, task: Task, now_s: float, *, is_asked: bool) -> dict[str, Any]:
        worker = unseen(task, is_answering=_is_answering(task) if is_asked else None)
        path = self._file(task)
        try:
            silent_s = max(now_s - path.stat().st_mtime, 0.0)
            with path.open("rb") as file:
                beat = json.loads(file.read(_LARGEST_BYTES))
            worker.update(
                host=str(beat["host"]),
                step_count=int(beat["step_count"]),
                waited_ns=max(int(beat["waited_ns"] + silent_s * 1e9), 0),
                silent_ns=int(silent_s * 1e9),
                line=None if beat["line"] is None else str(beat["line"]),
                state=_state(beat, silent_s),
            )
        except FileNotFoundError:
            return worker
        except (KeyError, OSError, RecursionError, TypeError, ValueError, OverflowError):
            return {**worker, "state": "unknown"}
        return worker


def _state(beat: Mapping[str, Any], silent_s: float) -> str:
    if beat["is_ended"] is True:
        return "ended"
    if silent_s > _SILENT_BEATS * max(float(beat["interval_s"]), 1.0):
        return "silent"
    return "in-step" if beat["is_in_step"] is True else "elsewhere"


def _is_answering(task: Task) -> bool | None:
    """Whether TensorFlow's server in the process of a task answers; None where it cannot be asked."""
    context = sys.modules.get("tensorflow.python.eager.context")
    ask = getattr(getattr(context, "_context", None), "check_collective_ops_peer_health", None)
    if ask is None:
        return None
    try:
        ask(f"/job:{task.role}/replica:0/task:{task.index}", timeout_in_ms=_ANSWER_TIMEOUT_MS)
    except Exception as error:
        # UNAVAILABLE and DEADLINE_EXCEEDED say that nobody answers; anything else, that it could not be asked.
        name = type(error).__name__
        return False if name in ("UnavailableError", "DeadlineExceededError") else None
    return True
