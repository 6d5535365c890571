"""Chooses the run of a capture and the name of its files, when the window opens.

The workers of a cluster share only the output folder. There they meet in a folder named after the cluster and the steps: the
file `<number>` names the run of one capture, and the file `<number>.<task>` says that a task has joined it. Both are made at
once, by one process, and nobody waits for another, so that a killed process holds nobody up. A task joins the newest
meeting, or makes the next one if the newest

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
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from traceview.base.errors import CaptureError
from traceview.capture.record.destination import PRIVATE_PREFIX, RUNS, TRACE_SUFFIX, Destination
from traceview.capture.sidecar.cluster import ROLE, Place, Task, own_place, rank_of
from traceview.capture.sidecar.file import stat_fields
from traceview.capture.window.ranges import StepRange

_RENDEZVOUS_PREFIX: Final = f"{PRIVATE_PREFIX}cluster-"
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
KEPT: Final[set[Path]] = set()
"""The traces that this process has kept."""


class Rendezvous:
    """Where the workers of one cluster that capture the same steps meet. `run`: the name of their run, once joined."""

    def __init__(self, out: Path, place: Place, steps: StepRange) -> None:
        key = hashlib.sha256(f"{steps} {place.cluster}".encode("utf-8", "replace")).hexdigest()
        self.place = place
        self.folder = out / f"{_RENDEZVOUS_PREFIX}{key[:16]}"
        self.run = ""
        self.number = 0

    def join(self, new_run: Callable[[], Path], process_age_s: float | None = None) -> Rendezvous:
        """Join the capture that is under way, or begin one in a run that `new_run` makes.

        `process_age_s`: how long this process has run, by default as the system says. Raises `OSError` if the folder
        cannot be read or written, or has no links.
        """
        age_s = process_age() if process_age_s is None else process_age_s
        self.folder.mkdir(exist_ok=True)
        oldest_s = self._now_s() - min(age_s + _COARSE_S, _LONGEST_APART_S)
        number = max((int(name) for name in self.names() if _MEETING.fullmatch(name)), default=0)
        for _ in range(_MOST_ATTEMPTS):
            path = self.folder / str(number)
            with suppress(FileExistsError, FileNotFoundError):
                if path.stat().st_mtime >= oldest_s:
                    run = Path(path.read_text("utf-8", "replace")).name
                    (self.folder / f"{number}.{self.place.task.label}").touch(exist_ok=False)
                    self.run, self.number = run, number
                    return self
            number += 1
            self._begin(self.folder / str(number), new_run())
        raise OSError(None, f"no free place among {_MOST_ATTEMPTS} captures", str(self.folder))

    def absent(self) -> tuple[Task, ...]:
        """The partners that have not joined so far; raises `OSError`."""
        names = self.names()
        return tuple(t for t in self.place.partners if f"{self.number}.{t.label}" not in names)

    def names(self) -> set[str]:
        """The files of the rendezvous."""
        # Writing to a folder makes a network file system look at it anew.
        self._now_s()
        return {path.name for path in self.folder.iterdir()}

    def _begin(self, path: Path, run: Path) -> None:
        """Make a meeting, unless another process has just made it."""
        candidate = self._candidate(run.name)
        try:
            with suppress(FileExistsError):
                os.link(candidate, path)
                self._forget()
        finally:
            candidate.unlink()
            # A network file system may repeat a request that succeeded, and say that the file exists.
            if not path.exists() or path.read_text("utf-8") != run.name:
                with suppress(OSError):
                    run.rmdir()

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
        for folder in self.folder.parent.glob(f"{_RENDEZVOUS_PREFIX}*"):
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
        # Field 22 is the start in clock ticks since boot; the first two are left out.
        started_s = int(stat_fields(Path("/proc/self"))[19]) / os.sysconf("SC_CLK_TCK")
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    return age_s if age_s > 0 else time.monotonic() - _IMPORTED_S


class RunChoice:
    """The run of one capture and the name of its files in it.

    `run`: its name, given by the user or shared by the cluster in TF_CONFIG; None for a new one named by the time.
    `suffix` follows the host's name, because several processes may share a host: `_w1` for a worker, `_r1` for a rank of
    a launcher, and `_p2`, `_p3` … for processes that nothing else tells apart.
    """

    def __init__(
        self, destination: Destination, run: str | None, say: Callable[[str], None]
    ) -> None:
        self.run = run
        self.suffix = ""
        self._destination = destination
        self._say = say
        self._meeting: Rendezvous | None = None

    def check(self) -> None:
        """Raise `CaptureError` if the named run has this file already, from a process that did not run beside this one."""
        place = own_place(os.environ)
        name = f"{socket.gethostname()}{f'_{place.task.label}' if place else ''}{TRACE_SUFFIX}"
        trace = self._destination.out / RUNS / (self.run or "") / name
        if self.run and trace.exists() and not _ran_beside(trace):
            raise _taken(trace, "choose another --run")

    def settle(self, steps: StepRange) -> None:
        """Choose the run, together with the other workers if it has no name."""
        place = own_place(os.environ)
        self.suffix = f"_{place.task.label}" if place else ""
        if place is None or self.run is not None:
            return
        if not place.partners:
            rank = rank_of(os.environ)
            if place.task == Task(ROLE, 0) and rank is not None:
                self._say(
                    f"note: each of the {rank[1]} ranks gets its own run; if they train together, --run NAME gives them "
                    "one run"
                )
            return
        rendezvous = Rendezvous(self._destination.out, place, steps)
        try:
            self._meeting = rendezvous.join(self._destination.new_run)
            self.run = self._meeting.run
        except OSError as error:
            self._say(
                f"note: {error.filename or rendezvous.folder}: {error.strerror or error}; this capture gets its "
                "own run. To give all workers one run, pass --run NAME"
            )

    def folder(self) -> Path:
        """Make the folder of the run, and return it; raises `OSError`."""
        if self.run is None:
            self.run = self._destination.new_run().name
        folder = self._destination.out / RUNS / self.run
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def keep(self, trace: Path) -> Path:
        """Move a trace and the sidecar to the run, and return the trace there.

        They get the first name that no process beside this one has taken; raises `CaptureError` if any other has.
        """
        hint = f"the capture is kept in {self._destination.private}"
        host = trace.name.removesuffix(TRACE_SUFFIX)
        try:
            folder, number, suffix = self.folder(), 1, self.suffix
            while True:
                kept = folder / f"{host}{suffix}{TRACE_SUFFIX}"
                try:
                    self._destination.move(trace, kept)
                except FileExistsError as error:
                    if not _ran_beside(kept):
                        raise _taken(kept, hint) from error
                    number += 1
                    suffix = f"{self.suffix}_p{number}"
                else:
                    KEPT.add(kept)
                    return kept
        except OSError as error:
            raise self._destination.error(error, hint) from error

    def say_absent(self) -> None:
        """Name the workers that are missing in a shared run."""
        absent: tuple[Task, ...] = ()
        with suppress(OSError):
            absent = self._meeting.absent() if self._meeting is not None else ()
        if absent:
            self._say(
                f"note: {', '.join(map(str, absent))} did not join this run: not captured, or captured with another --out "
                "or other --steps"
            )

    def abandon(self) -> None:
        """Nothing was kept: remove the run if it is empty."""
        if self._meeting is not None:
            with suppress(OSError):
                (self._destination.out / RUNS / self._meeting.run).rmdir()


def _taken(trace: Path, hint: str) -> CaptureError:
    return CaptureError(f"{trace} already exists and is not replaced", hint=hint)


def _ran_beside(trace: Path) -> bool:
    """Whether a trace was saved while this process ran already, and so by another one beside it."""
    try:
        ran_s = time.time() - process_age()
        return trace not in KEPT and trace.stat().st_mtime > ran_s
    except OSError:
        return False
