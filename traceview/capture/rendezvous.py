"""In which run do the captures of several workers come together, when nobody has named it?

The workers of a cluster share nothing but the output folder. There they meet in a folder that is named after the
cluster and the window: `<number>.json` names the run of one capture, and `<number>.<task>` says that a task is in
it. Each of these files is made once and by one process, and none is waited for, so that a process that was killed
holds nobody up. A task takes the newest meeting, or makes the next one if the newest

- has this task already: it captures again, and so do the others, which find the new one;
- was made before this process was started: whoever trains together has run at the same time;
- is older than workers that are at the same step can be apart, or is damaged.

So it is done when the window opens: workers of one step are then at the same place, whenever they began and
however long they write, and TF_CONFIG has been set if the script sets it. Times are those of the file system, not
of the hosts, whose clocks differ.
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

from traceview.capture.cluster import Place, Task
from traceview.capture.destination import RENDEZVOUS_PREFIX, run_name
from traceview.capture.window import StepWindow
from traceview.errors import UsageError

_LONGEST_APART_S: Final = 15 * 60
"""Workers that open the same window are at most a step and its compilation apart."""
_COARSE_S: Final = 2
"""Times of files are that coarse on the coarsest file systems (FAT)."""
_FORGOTTEN_S: Final = 24 * 3600
_MOST_TURNS: Final = 100
_PATIENCE_S: Final = 1.0
"""Where there are no links, a file may be seen before it is written."""
_MEETING: Final = re.compile(r"(\d{1,9})\.json", re.ASCII)
_IMPORTED_S: Final = time.monotonic()


@dataclass(frozen=True)
class Meeting:
    """A capture of several workers. `run`: the name of its run. `absent()` tells who is not in it."""

    run: str
    number: int
    rendezvous: Rendezvous

    def absent(self) -> tuple[Task, ...]:
        """The partners that have not come so far; raises `OSError`."""
        names = self.rendezvous.names()
        return tuple(t for t in self.partners if f"{self.number}.{t.label}" not in names)

    @property
    def partners(self) -> tuple[Task, ...]:
        """The tasks that ought to be in it, this one among them."""
        return self.rendezvous.place.partners


class Rendezvous:
    """Where the workers of one cluster meet that capture the same window. `say` gets what the user should know."""

    def __init__(
        self, out: Path, place: Place, window: StepWindow, say: Callable[[str], None]
    ) -> None:
        key = hashlib.sha256(f"{window} {place.cluster}".encode("utf-8", "replace")).hexdigest()
        self.place = place
        self.folder = out / f"{RENDEZVOUS_PREFIX}{key[:16]}"
        self._say = say

    def join(self, new_run: Callable[[], Path], process_age_s: float | None = None) -> Meeting:
        """Take part in the capture that is under way, or begin one in a run that `new_run` makes.

        `process_age_s`: how long this process runs, asked of the system if None. Raises `OSError` where
        the folder cannot be read or written.
        """
        age_s = process_age() if process_age_s is None else process_age_s
        self.folder.mkdir(exist_ok=True)
        oldest_s = self._now_s() - min(age_s + _COARSE_S, _LONGEST_APART_S)
        number = max(self._numbers(), default=0)
        for _ in range(_MOST_TURNS):
            run = self._run_of(number, oldest_s) if number else None
            if run is not None and self._take(f"{number}.{self.place.task.label}", _signature()):
                return Meeting(run, number, self)
            number += 1
            self._begin(number, new_run)
        raise OSError(None, f"no place among {_MOST_TURNS} captures", str(self.folder))

    def names(self) -> set[str]:
        """The files of the rendezvous."""
        # Writing to a folder makes a network file system look at it anew.
        self._now_s()
        return {path.name for path in self.folder.iterdir()}

    def _numbers(self) -> list[int]:
        return [int(match[1]) for name in self.names() if (match := _MEETING.fullmatch(name))]

    def _begin(self, number: int, new_run: Callable[[], Path]) -> None:
        """Make a meeting; if another process is first, its meeting is there instead."""
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
        """The run of a meeting, None if it is not the one of this capture."""
        path = self.folder / f"{number}.json"
        try:
            if path.stat().st_mtime < oldest_s:
                return None
        except FileNotFoundError:
            return None
        patient_until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return run_name(json.loads(path.read_text(encoding="utf-8"))["run"])
            except FileNotFoundError:
                return None
            except (AttributeError, KeyError, RecursionError, TypeError, UsageError, ValueError):
                if time.monotonic() > patient_until:
                    self._say(f"note: {path} is damaged: this capture gets another run")
                    return None
            time.sleep(_PATIENCE_S / 20)

    def _take(self, name: str, fields: Mapping[str, Any]) -> bool:
        """Make a file that is not there, as a whole; False if it is."""
        target, text = self.folder / name, json.dumps(fields)
        candidate = self._candidate(text)
        try:
            os.link(candidate, target)
        except FileExistsError:
            # A network file system may repeat a request that was done: then the file is ours.
            return candidate.stat().st_nlink > 1
        except OSError:
            return _written_alone(target, text)
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
        """Remove what captures of long ago left, of other clusters too. No number is used twice by one that runs."""
        oldest_s = self._now_s() - _FORGOTTEN_S
        for folder in self.folder.parent.glob(f"{RENDEZVOUS_PREFIX}*"):
            with suppress(OSError):
                is_forsaken = folder.stat().st_mtime < oldest_s
                for path in folder.iterdir():
                    if path.stat().st_mtime < oldest_s:
                        path.unlink()
                if is_forsaken:
                    folder.rmdir()


def process_age() -> float:
    """Seconds since this process was started; where the system does not tell, since this module was imported."""
    age_s = 0.0
    with suppress(AttributeError, IndexError, OSError, ValueError):
        # proc(5): field 22 is the start in clock ticks since boot; the second may hold blanks, in brackets.
        fields = Path("/proc/self/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    return age_s if age_s > 0 else time.monotonic() - _IMPORTED_S


def _signature() -> dict[str, Any]:
    """For a person who looks into the folder."""
    return {"host": socket.gethostname(), "pid": os.getpid()}


def _written_alone(target: Path, text: str) -> bool:
    """The same on a file system without links: exclusive, but not written as a whole."""
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True
