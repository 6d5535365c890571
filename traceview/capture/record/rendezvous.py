"""Lets several workers agree on one run when the user names none.

The workers of a cluster share only the output folder. There they meet in a folder named after the cluster and the
steps: `<number>.json` names the run of one capture, and `<number>.<task>` says that a task has joined it. Each of these
files is made once, by one process, and nobody waits for another, so that a killed process holds nobody up. A task joins
the newest meeting, or makes the next one if the newest

- has this task already: it captures again, and so do the others, which join the new one;
- is older than this process: workers that train together have run at the same time;
- is older than workers at the same step can be apart, or is damaged.

They meet when the window opens: workers are then at the same step, whenever they began and however long they write,
and a script that sets TF_CONFIG has done so. Times are those of the file system, because the hosts' clocks differ.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from traceview.base.errors import UsageError
from traceview.capture.record.destination import RENDEZVOUS_PREFIX, run_name
from traceview.capture.sidecar.cluster import Place, Task
from traceview.capture.window.ranges import SecondsRange, StepRange

_LONGEST_APART_S: Final = 15 * 60
"""Workers that open the same window are at most a step and its compilation apart."""
_COARSE_S: Final = 2
"""The resolution of file times on the coarsest file system (FAT)."""
_FORGOTTEN_S: Final = 24 * 3600
"""What a job of yesterday left is removed."""
_MOST_ATTEMPTS: Final = 100
"""Each is lost to another process that begins a capture at the same moment."""
_WRITE_TIMEOUT_S: Final = 1.0
"""On file systems without links, a file may appear before its content."""
_MEETING: Final = re.compile(r"(\d{1,9})\.json", re.ASCII)
_IMPORTED_S: Final = time.monotonic()


@dataclass(frozen=True)
class Meeting:
    """A capture of several workers. `run`: the name of its run."""

    run: str
    number: int
    rendezvous: Rendezvous

    def absent(self) -> tuple[Task, ...]:
        """The partners that have not joined so far; raises `OSError`."""
        names = self.rendezvous.names()
        return tuple(t for t in self.partners if f"{self.number}.{t.label}" not in names)

    @property
    def partners(self) -> tuple[Task, ...]:
        """The tasks that should join, this one among them."""
        return self.rendezvous.place.partners


class Rendezvous:
    """Where the workers of one cluster that capture the same steps meet. `say` gets messages for the user."""

    def __init__(
        self, out: Path, place: Place, asked: StepRange | SecondsRange, say: Callable[[str], None]
    ) -> None:
        key = hashlib.sha256(f"{asked} {place.cluster}".encode("utf-8", "replace")).hexdigest()
        self.place = place
        self.folder = out / f"{RENDEZVOUS_PREFIX}{key[:16]}"
        self._say = say

    def join(self, new_run: Callable[[], Path], process_age_s: float | None = None) -> Meeting:
        """Join the capture that is under way, or begin one in a run that `new_run` makes.

        `process_age_s`: how long this process has run, by default as the system says. Raises `OSError` if the folder
        cannot be read or written.
        """
        age_s = process_age() if process_age_s is None else process_age_s
        self.folder.mkdir(exist_ok=True)
        oldest_s = self._now_s() - min(age_s + _COARSE_S, _LONGEST_APART_S)
        number = max(self._numbers(), default=0)
        for _ in range(_MOST_ATTEMPTS):
            run = self._run_of(number, oldest_s) if number else None
            if run is not None and self._take(f"{number}.{self.place.task.label}", _signature()):
                return Meeting(run, number, self)
            number += 1
            self._begin(number, new_run)
        raise OSError(None, f"no free place among {_MOST_ATTEMPTS} captures", str(self.folder))

    def names(self) -> set[str]:
        """The files of the rendezvous."""
        # Writing to a folder makes a network file system look at it anew.
        self._now_s()
        return {path.name for path in self.folder.iterdir()}

    def _numbers(self) -> list[int]:
        return [int(match[1]) for name in self.names() if (match := _MEETING.fullmatch(name))]

    def _begin(self, number: int, new_run: Callable[[], Path]) -> None:
        """Make a meeting, unless another process has just made it."""
        run = new_run()
        is_first = False
        try:
            is_first = self._take(f"{number}.json", {"run": run.name, **_signature()})
        finally:
            if not is_first:
                with suppress(OSError):
                    run.rmdir()
        if is_first:
            self._forget()

    def _run_of(self, number: int, oldest_s: float) -> str | None:
        """The run of a meeting, None if it is not a meeting of this capture."""
        path = self.folder / f"{number}.json"
        try:
            if path.stat().st_mtime < oldest_s:
                return None
        except FileNotFoundError:
            return None
        deadline_s = time.monotonic() + _WRITE_TIMEOUT_S
        while True:
            try:
                return run_name(json.loads(path.read_text(encoding="utf-8"))["run"])
            except FileNotFoundError:
                return None
            except (AttributeError, KeyError, RecursionError, TypeError, UsageError, ValueError):
                if time.monotonic() > deadline_s:
                    self._say(f"note: {path} is damaged; this capture gets another run")
                    return None
            time.sleep(_WRITE_TIMEOUT_S / 20)

    def _take(self, name: str, fields: Mapping[str, Any]) -> bool:
        """Write a new file at once; False if it exists."""
        target, text = self.folder / name, json.dumps(fields)
        candidate = self._candidate(text)
        try:
            os.link(candidate, target)
        except FileExistsError:
            # A network file system may repeat a request that succeeded: then the file is ours.
            return candidate.stat().st_nlink > 1
        except OSError:
            return _write_exclusively(target, text)
        finally:
            candidate.unlink(missing_ok=True)
        return True

    def _now_s(self) -> float:
        candidate = self._candidate("")
        try:
            return candidate.stat().st_mtime
        finally:
            candidate.unlink(missing_ok=True)

    def _candidate(self, text: str) -> Path:
        path = self.folder / f".{uuid4().hex}"
        path.write_text(text, encoding="utf-8")
        return path

    def _forget(self) -> None:
        """Remove what old captures of any cluster left; running captures never reuse a number."""
        oldest_s = self._now_s() - _FORGOTTEN_S
        for folder in self.folder.parent.glob(f"{RENDEZVOUS_PREFIX}*"):
            with suppress(OSError):
                is_old = folder.stat().st_mtime < oldest_s
                for path in folder.iterdir():
                    if path.stat().st_mtime < oldest_s:
                        path.unlink()
                if is_old:
                    folder.rmdir()


def process_age() -> float:
    """Seconds since this process started; where the system does not say, since this module was imported."""
    age_s = 0.0
    with suppress(AttributeError, IndexError, OSError, ValueError):
        # proc(5): field 22 is the start in clock ticks since boot; the second may hold blanks, in brackets.
        fields = Path("/proc/self/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    return age_s if age_s > 0 else time.monotonic() - _IMPORTED_S


def _signature() -> dict[str, Any]:
    """Who made a file, for a person who opens the folder."""
    return {"host": socket.gethostname(), "pid": os.getpid()}


def _write_exclusively(target: Path, text: str) -> bool:
    """The same on a file system without links: exclusive, but not at once."""
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True
