"""To which run does a capture go, and under which name? It is settled when the window opens."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from traceview.capture.cluster import place_of
from traceview.capture.destination import Destination
from traceview.capture.rendezvous import Meeting, Rendezvous
from traceview.capture.sidecar import Sidecar
from traceview.capture.window import StepWindow


class RunChoice:
    """The run of one capture and the name of its files in it.

    `run`: the name, None for a new one by the time; given by the user, or that of the cluster that TF_CONFIG
    tells of. `suffix` goes behind the host's name, because the workers of a cluster may share a host.
    """

    def __init__(
        self, destination: Destination, run: str | None, say: Callable[[str], None]
    ) -> None:
        self.run = run
        self.suffix = ""
        self._destination = destination
        self._say = say
        self._meeting: Meeting | None = None

    def check(self) -> None:
        """Before the script runs: raises `CaptureError` where the named run has this file already."""
        if self.run is not None:
            place = place_of(os.environ)
            suffix = f"_{place.task.label}" if place else ""
            self._destination.check_vacant(self.run, suffix)

    def settle(self, window: StepWindow, sidecar: Sidecar) -> None:
        """Find the run, together with the other workers if there are any and it has no name."""
        place = place_of(os.environ)
        if place is None:
            return
        self.suffix = f"_{place.task.label}"
        if self.run is not None or not place.partners:
            return
        rendezvous = Rendezvous(self._destination.out, place, window, self._say)
        try:
            self._meeting = rendezvous.join(self._destination.new_run)
        except OSError as error:
            self._say(
                f"note: {error.filename or rendezvous.folder}: {error.strerror or error}; this capture gets a "
                "run of its own; --run NAME gives the workers one run"
            )
            return
        self.run = self._meeting.run
        sidecar.add("workers", {"run": self.run})

    def describe(self, sidecar: Sidecar) -> None:
        """Write down who shares the run, and tell the user who of them is missing."""
        if self._meeting is None:
            return
        absent: list[str] = []
        with suppress(OSError):
            absent = [str(task) for task in self._meeting.absent()]
        partners = [str(task) for task in self._meeting.partners]
        sidecar.add("workers", {"run": self.run, "partners": partners, "absent": absent})
        if absent:
            self._say(
                f"note: {', '.join(absent)} took no part in this run: not captured, or with another --out or "
                "other --steps"
            )

    def abandon(self) -> None:
        """Nothing was kept: the run goes if nobody else is in it."""
        if self._meeting is not None:
            self._destination.drop_run(self._meeting.run)
