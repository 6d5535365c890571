"""Chooses the run of a capture and the name of its files, when the window opens."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from traceview.capture.record.destination import KEPT, RUNS, Destination, NameTakenError
from traceview.capture.record.rendezvous import Meeting, Rendezvous, process_age
from traceview.capture.sidecar.cluster import ROLE, Place, Task, own_place, rank_of
from traceview.capture.window.ranges import StepRange


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
        self._meeting: Meeting | None = None
        self._tries = 1

    def check(self) -> None:
        """Raise `CaptureError` if the named run has this file already, from a process that did not run beside this one."""
        if self.run is None:
            return
        place = own_place(os.environ)
        suffix = f"_{place.task.label}" if place else ""
        try:
            self._destination.check_vacant(self.run, f"{socket.gethostname()}{suffix}")
        except NameTakenError as taken:
            if not _ran_beside(taken.trace):
                raise

    def settle(self, steps: StepRange) -> None:
        """Choose the run, together with the other workers if it has no name."""
        place = own_place(os.environ)
        if place is None:
            return
        self.suffix = f"_{place.task.label}"
        if self.run is not None:
            return
        if not place.partners:
            self._say_own_run(place)
            return
        rendezvous = Rendezvous(self._destination.out, place, steps)
        try:
            self._meeting = rendezvous.join(self._destination.new_run)
        except OSError as error:
            self._say(
                f"note: {error.filename or rendezvous.folder}: {error.strerror or error}; this capture gets its "
                "own run. To give all workers one run, pass --run NAME"
            )
            return
        self.run = self._meeting.run

    def begin(self, steps: StepRange) -> Path:
        """Make the folder of the run now, before anything was recorded, and return it; raises `OSError`."""
        self.settle(steps)
        if self.run is None:
            self.run = self._destination.new_run().name
        folder = self._destination.out / RUNS / self.run
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def next_suffix(self, taken: NameTakenError) -> str:
        """The suffix to try next; raises `taken` unless the file is from another process that ran beside this one."""
        if not _ran_beside(taken.trace):
            raise taken
        self._tries += 1
        return f"{self.suffix}_p{self._tries}"

    def _say_own_run(self, place: Place) -> None:
        rank = rank_of(os.environ)
        if place.task.role == ROLE and place.task.index == 0 and rank is not None:
            self._say(
                f"note: each of the {rank[1]} ranks gets its own run; if they train together, --run NAME gives them "
                "one run"
            )

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
            self._destination.drop_run(self._meeting.run)


def _ran_beside(trace: Path) -> bool:
    """Whether a trace was saved while this process ran already, and so by another one beside it."""
    try:
        ran_s = time.time() - process_age()
        return trace not in KEPT and trace.stat().st_mtime > ran_s
    except OSError:
        return False
