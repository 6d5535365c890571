"""Writes a trace to a private folder and moves it to its run by a link, which fails if the name is taken.

TensorFlow names runs by the second and files by the host: two captures into one folder may silently overwrite each other.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from traceview.base.errors import CaptureError, UsageError
from traceview.capture.sidecar.environment import ROLE, Place, Task, own_place, rank_of
from traceview.capture.sidecar.file import SIDECAR_SUFFIX, is_running, stat_fields
from traceview.capture.window.step_window import StepRange

DEFAULT_OUT: Final = Path("logs")
TRACE_SUFFIX: Final = ".xplane.pb"
RUNS: Final = Path("plugins", "profile")
PRIVATE_PREFIX: Final = ".traceview-"
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z\d+.\-]+:/")
"""`gs://bucket`, or `gs:/bucket` after `Path`; no drive of Windows."""
_LONGEST_NAME: Final = 200
FREE_BYTES: Final = 64 << 20
"""Enough for most traces; one at the limits of the tracer has 100 MB (measured 114 MB at 1.4 M events)."""


class Destination:
    """An output folder and the private folder of one capture in it."""

    def __init__(self, out: Path) -> None:
        # The script may change its working directory.
        self.out = out.absolute()
        self.private = self.out / f"{PRIVATE_PREFIX}incomplete-{uuid4().hex[:12]}"
        self._made: list[Path] = []

    def prepare(self) -> None:
        """Make the folders and write to them once; raises `CaptureError` with the reason if that fails."""
        try:
            self._make_private()
            (self.private / "probe").write_bytes(b"\0" * 4096)
            (self.private / "probe").unlink()
            free = shutil.disk_usage(self.out).free
        except OSError as error:
            self.clean()
            raise self.error(error, "choose another --output") from error
        if free < FREE_BYTES:
            self.clean()
            needed = f"a trace may need {FREE_BYTES >> 20} MiB"
            problem = f"--output {self.out}: only {free >> 20} MiB are free; {needed}"
            raise CaptureError(
                problem, hint="free some space, or choose an --output on another disk"
            )

    def _make_private(self, attempts: int = 3) -> None:
        self._made += [path for path in (self.out, *self.out.parents) if not path.exists()]
        try:
            # Another worker may make it at the same time.
            with suppress(FileExistsError):
                self.out.mkdir(parents=True)
            self.private.mkdir(0o700)
        except FileNotFoundError:
            # Another capture has removed the output folder, which it had made, and in which nothing was.
            if attempts == 1:
                raise
            self._make_private(attempts - 1)

    def error(self, error: OSError, hint: str | None = None) -> CaptureError:
        """What to raise when the folder cannot be written."""
        return CaptureError(f"--output {self.out}: {error.strerror or error}", hint=hint)

    @property
    def sidecar(self) -> Path:
        """Where the sidecar is written until the capture is kept."""
        return self.private / f"{socket.gethostname()}{SIDECAR_SUFFIX}"

    def written(self, directory: Path) -> Path:
        """The one trace that TensorFlow wrote below a private folder."""
        traces = [path for path in directory.rglob(f"*{TRACE_SUFFIX}") if path.stat().st_size]
        if len(traces) != 1:
            raise CaptureError(f"{len(traces)} traces were written below {directory}, not one")
        return traces[0]

    def new_run(self) -> Path:
        """Make the folder of a new run, named by the time; raises `OSError`."""
        runs = self.out / RUNS
        runs.mkdir(parents=True, exist_ok=True)
        name = datetime.now().strftime("%Y_%m_%d_%H_%M_%S")
        for number in range(1, 1000):
            folder = runs / (name if number == 1 else f"{name}_{number}")
            with suppress(FileExistsError):
                folder.mkdir()
                return folder
        raise FileExistsError(None, "too many runs in one second", str(runs / name))

    def move(self, trace: Path, target: Path) -> None:
        """Move a trace and the sidecar to their places; raises `OSError`, and moves neither where one of them is taken."""
        # First the one that says whose the name is.
        sidecar = target.with_name(target.name.removesuffix(TRACE_SUFFIX) + SIDECAR_SUFFIX)
        _move(self.sidecar, sidecar)
        try:
            _move(trace, target)
        except OSError:
            sidecar.replace(self.sidecar)
            raise

    def clean(self) -> None:
        """Remove the private folder, and those around it that are new and empty."""
        shutil.rmtree(self.private, ignore_errors=True)
        with suppress(OSError):
            for folder in self._made:
                folder.rmdir()

    def left_behind(self) -> list[Path]:
        """The private folders of other captures whose process has ended, on another host after an hour; where workers met, after a day."""
        folders = (path for path in self.out.glob(f"{PRIVATE_PREFIX}*") if path.is_dir())
        return sorted(path for path in folders if path != self.private and not _may_run(path))


def has_trace(private: Path) -> bool:
    """Whether a trace of the window is in a private folder."""
    return any((private / "profile").rglob(f"*{TRACE_SUFFIX}"))


def runs_of_launch(out: Path, launch: str, since_s: float) -> list[Path]:
    """The runs below `out` that processes of one launch have recorded since a Unix time, the oldest first."""
    runs: dict[Path, float] = {}
    for run in (out.absolute() / RUNS).glob("*"):
        with suppress(OSError):
            changed_s = run.stat().st_mtime
            # File systems stamp files with a clock of their own.
            sidecars = run.glob(f"*{SIDECAR_SUFFIX}") if changed_s > since_s - 60 else ()
            if any(_process_of(path).get("launch") == launch for path in sidecars):
                runs[run] = changed_s
    return sorted(runs, key=lambda run: (runs[run], run))


def _process_of(sidecar: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(sidecar.read_text("utf-8"))["process"])
    except (KeyError, OSError, RecursionError, TypeError, ValueError):
        return {}


def output_folder(text: str | os.PathLike[str]) -> Path:
    """The folder that `text` names; raises `UsageError` if it is empty or an address such as `gs://bucket/logs`."""
    name = os.fspath(text)
    if not name:
        raise UsageError("--output is empty", hint="the current directory is .")
    if _ADDRESS.match(name):
        raise UsageError(
            f"--output {name}: traceview captures into a local or mounted folder, not to an address",
            hint="capture into a folder such as --output logs, and copy the run afterwards",
        )
    return Path(name)


def run_name(name: str) -> str:
    """Return `name` if it can name a folder; raises `UsageError` if not."""
    is_path = {"/", "\\"} & set(name) or name.startswith(".")
    is_plain = name and name == name.strip() and name.isprintable() and not is_path
    if not is_plain or len(name.encode()) > _LONGEST_NAME:
        rule = f"a plain name of at most {_LONGEST_NAME} bytes, no path, without a dot in front"
        raise UsageError(f"run {name!r}: give {rule}", hint="for example --run before-the-change")
    return name


def _may_run(private: Path) -> bool:
    for sidecar in private.glob(f"*{SIDECAR_SUFFIX}"):
        process = _process_of(sidecar)
        if process.get("host") == socket.gethostname() and isinstance(process.get("pid"), int):
            return is_running(process["pid"])
    with suppress(OSError):
        is_private = not private.name.startswith(_RENDEZVOUS_PREFIX)
        return time.time() - private.stat().st_mtime < (3600 if is_private else 86_400)
    # It has been removed since, as at the end of every capture.
    return True


def _move(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:
        # A file system without links: an exclusive name first, then the file over it.
        target.open("xb").close()
        source.replace(target)
    else:
        source.unlink()


_RENDEZVOUS_PREFIX: Final = f"{PRIVATE_PREFIX}cluster-"
_LONGEST_APART_S: Final = 15 * 60
"""Workers that open the same window are at most a step and its compilation apart."""
_COARSE_S: Final = 2
_MOST_ATTEMPTS: Final = 100
_MEETING: Final = re.compile(r"\d{1,9}", re.ASCII)
_IMPORTED_S: Final = time.monotonic()
KEPT: Final[set[Path]] = set()
"""The traces that this process has kept."""


class Rendezvous:
    """Where the workers of one cluster that capture the same steps meet: in a folder named after both, in the output folder.

    The file `<number>` names the run of one capture, and the file `<number>.<task>` says that a task has joined it. Nobody waits
    for another, so that a killed process holds nobody up. A task joins the newest meeting, or makes the next one if the newest
    has this task already, is older than this process, or older than workers at the same step can be apart. Times are those of
    the file system, because the hosts' clocks differ. `run`: the name of their run, once joined.
    """

    def __init__(self, out: Path, place: Place, steps: StepRange) -> None:
        key = hashlib.sha256(f"{steps} {place.cluster}".encode("utf-8", "replace")).hexdigest()
        self.place = place
        self.folder = out / f"{_RENDEZVOUS_PREFIX}{key[:16]}"
        self.run = ""
        self.number = 0

    def join(self, new_run: Callable[[], Path], process_age_s: float | None = None) -> Rendezvous:
        """Join the capture that is under way, or begin one in a run that `new_run` makes; raises `OSError`, also without links."""
        age_s = process_age() if process_age_s is None else process_age_s
        self.folder.mkdir(exist_ok=True)
        oldest_s = self._now_s() - min(age_s + _COARSE_S, _LONGEST_APART_S)
        number = max((int(name) for name in self._names() if _MEETING.fullmatch(name)), default=0)
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
        names = self._names()
        return tuple(t for t in self.place.partners if f"{self.number}.{t.label}" not in names)

    def _names(self) -> set[str]:
        # Writing to a folder makes a network file system look at it anew.
        self._now_s()
        return {path.name for path in self.folder.iterdir()}

    def _begin(self, path: Path, run: Path) -> None:
        candidate = self._candidate(run.name)
        try:
            with suppress(FileExistsError):
                os.link(candidate, path)
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


def process_age() -> float:
    """Seconds since this process started; where the system does not say, since this module was imported."""
    with suppress(AttributeError, IndexError, OSError, ValueError):
        # Field 22 is the start in clock ticks since boot; the first two are left out.
        started_s = int(stat_fields(Path("/proc/self"))[19]) / os.sysconf("SC_CLK_TCK")
        if (age_s := time.clock_gettime(time.CLOCK_BOOTTIME) - started_s) > 0:
            return age_s
    return time.monotonic() - _IMPORTED_S


class RunChoice:
    """The run of one capture, None for a new one, and the `suffix` of its files behind the host: `_w1` for a worker, `_r1` for a rank."""

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
                each = f"note: each of the {rank[1]} ranks gets its own run"
                self._say(f"{each}; if they train together, --run NAME gives them one run")
            return
        rendezvous = Rendezvous(self._destination.out, place, steps)
        try:
            self._meeting = rendezvous.join(self._destination.new_run)
            self.run = self._meeting.run
        except OSError as error:
            problem = f"{error.filename or rendezvous.folder}: {error.strerror or error}"
            hint = "To give all workers one run, pass --run NAME"
            self._say(f"note: {problem}; this capture gets its own run. {hint}")

    def folder(self) -> Path:
        """Make the folder of the run, and return it; raises `OSError`."""
        if self.run is None:
            self.run = self._destination.new_run().name
        folder = self._destination.out / RUNS / self.run
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def keep(self, trace: Path) -> Path:
        """Move a trace and the sidecar to the run: to the first name that no process beside this one has taken; raises `CaptureError`."""
        hint = f"the capture is kept in {self._destination.private}"
        host = trace.name.removesuffix(TRACE_SUFFIX)
        try:
            folder, number = self.folder(), 1
            while True:
                end = f"_p{number}" if number > 1 else ""
                kept = folder / f"{host}{self.suffix}{end}{TRACE_SUFFIX}"
                try:
                    self._destination.move(trace, kept)
                    KEPT.add(kept)
                    return kept
                except FileExistsError as error:
                    if not _ran_beside(kept):
                        raise _taken(kept, hint) from error
                    number += 1
        except OSError as error:
            raise self._destination.error(error, hint) from error

    def say_absent(self) -> None:
        """Name the workers that are missing in a shared run."""
        with suppress(OSError):
            if self._meeting is not None and (absent := self._meeting.absent()):
                reason = "not captured, or captured with another --output or other --steps"
                self._say(f"note: {', '.join(map(str, absent))} did not join this run: {reason}")

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
    except FileNotFoundError:
        # Its sidecar has the name, and comes first: another process is moving both just now.
        return True
    except OSError:
        return False
