"""Lets several workers agree on one run when the user names none.

The workers of a cluster share only the output folder. There they meet in a folder named after the cluster and the
steps: the file `<number>` holds the name of the run of one capture, and the file `<number>.<task>` says that a task has
joined it. Both are made at once, by one process, and nobody waits for another, so that a killed process holds nobody up. A
task joins the newest meeting, or makes the next one if the newest

- has this task already: it captures again, and so do the others, which join the new one;
- is older than this process: workers that train together have run at the same time;
- is older than workers at the same step can be apart.

They meet when the window opens: workers are then at the same step, whenever they began and however long they write,
and a script that sets TF_CONFIG has done so. Times are those of the file system, because the hosts' clocks differ.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from traceview.capture.record.destination import RENDEZVOUS_PREFIX
from traceview.capture.sidecar.cluster import Place, Task
from traceview.capture.window.ranges import StepRange

_LONGEST_APART_S: Final = 15 * 60
"""Workers that open the same window are at most a step and its compilation apart."""
_COARSE_S: Final = 2
"""The resolution of file times on the coarsest file system (FAT)."""
_FORGOTTEN_S: Final = 24 * 3600
"""What a job of yesterday left is removed."""
_MOST_ATTEMPTS: Final = 100
"""Each is lost to another process that begins a capture at the same moment."""
_MEETING: Final = re.compile(r"\d{1,9}", re.ASCII)
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
        partners = self.rendezvous.place.partners
        return tuple(t for t in partners if f"{self.number}.{t.label}" not in names)


class Rendezvous:
    """Where the workers of one cluster that capture the same steps meet."""

    def __init__(self, out: Path, place: Place, steps: StepRange) -> None:
        key = hashlib.sha256(f"{steps} {place.cluster}".encode("utf-8", "replace")).hexdigest()
        self.place = place
        self.folder = out / f"{RENDEZVOUS_PREFIX}{key[:16]}"

    def join(self, new_run: Callable[[], Path], process_age_s: float | None = None) -> Meeting:
        """Join the capture that is under way, or begin one in a run that `new_run` makes.

        `process_age_s`: how long this process has run, by default as the system says. Raises `OSError` if the folder
        cannot be read or written, or has no links.
        """
        age_s = process_age() if process_age_s is None else process_age_s
        self.folder.mkdir(exist_ok=True)
        oldest_s = self._now_s() - min(age_s + _COARSE_S, _LONGEST_APART_S)
        number = max((int(name) for name in self.names() if _MEETING.fullmatch(name)), default=0)
        for _ in range(_MOST_ATTEMPTS):
            run = self._run_of(number, oldest_s) if number else None
            if run is not None and self._joins(number):
                return Meeting(run, number, self)
            number += 1
            self._begin(number, new_run())
        raise OSError(None, f"no free place among {_MOST_ATTEMPTS} captures", str(self.folder))

    def names(self) -> set[str]:
        """The files of the rendezvous."""
        # Writing to a folder makes a network file system look at it anew.
        self._now_s()
        return {path.name for path in self.folder.iterdir()}

    def _begin(self, number: int, run: Path) -> None:
        """Make a meeting, unless another process has just made it."""
        candidate = self._candidate(run.name)
        try:
            with suppress(FileExistsError):
                os.link(candidate, self.folder / str(number))
                self._forget()
        finally:
            candidate.unlink(missing_ok=True)
            # A network file system may repeat a request that succeeded, and say that the file exists.
            if self._run_of(number, 0) != run.name:
                with suppress(OSError):
                    run.rmdir()

    def _run_of(self, number: int, oldest_s: float) -> str | None:
        """The run of a meeting, None if it is not a meeting of this capture."""
        path = self.folder / str(number)
        try:
            is_recent = path.stat().st_mtime >= oldest_s
            return Path(path.read_text("utf-8")).name if is_recent else None
        except (OSError, ValueError):
            return None

    def _joins(self, number: int) -> bool:
        """Take the place of this task; False if it is taken."""
        try:
            (self.folder / f"{number}.{self.place.task.label}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _now_s(self) -> float:
        candidate = self._candidate("")
        try:
            return candidate.stat().st_mtime
        finally:
            candidate.unlink(missing_ok=True)

    def _candidate(self, text: str) -> Path:
        path = self.folder / f".{uuid4().hex}"
        path.write_text(text, "utf-8")
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
