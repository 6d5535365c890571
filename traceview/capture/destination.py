"""Where does a trace lie while it is written, and how does it come to its place without replacing another?

TensorFlow names runs by the second and files by the host: two captures into one folder may overwrite each other
without a word. So each is written to a folder of its own inside the output folder, and then moved, by a link
that fails where the name is taken.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from traceview.capture.sidecar import SUFFIX as SIDECAR_SUFFIX
from traceview.errors import CaptureError, UsageError

TRACE_SUFFIX: Final = ".xplane.pb"
RUNS: Final = Path("plugins", "profile")
PRIVATE_PREFIX: Final = ".traceview-"
RENDEZVOUS_PREFIX: Final = f"{PRIVATE_PREFIX}cluster-"
_LONGEST_NAME: Final = 200
_AN_HOUR_S: Final = 3600
FREE_BYTES: Final = 64 << 20
"""Less room than this is refused: a trace at the tracer's limits has 100 MB (measured 114 MB at 1.4 M events)."""


@dataclass(frozen=True)
class Kept:
    """The files of one capture in their places."""

    run: Path
    trace: Path
    sidecar: Path


class Destination:
    """An output folder and the private folder of one capture in it."""

    def __init__(self, out: Path) -> None:
        # The script may change its working directory.
        self.out = Path.cwd() / out
        self.private: Path
        self._made_out = False

    def prepare(self) -> None:
        """Make the folders; raises `CaptureError` with the reason where that, or writing, is impossible."""
        try:
            if not self.out.exists():
                if not self.out.parent.is_dir():
                    raise CaptureError(
                        f"--out {self.out}: there is no directory {self.out.parent}",
                        hint="make it, or name another",
                    )
                # Another worker may make it at the same time.
                with suppress(FileExistsError):
                    self.out.mkdir()
                    self._made_out = True
            self.private = Path(tempfile.mkdtemp(prefix=PRIVATE_PREFIX, dir=self.out))
            (self.private / "probe").write_bytes(b"\0" * 4096)
            (self.private / "probe").unlink()
            free = shutil.disk_usage(self.out).free
        except OSError as error:
            self.clean()
            raise CaptureError(f"--out {self.out}: {error.strerror or error}") from error
        if free < FREE_BYTES:
            self.clean()
            raise CaptureError(
                f"--out {self.out}: {free >> 20} MiB are free, a trace may need {FREE_BYTES >> 20}",
                hint="make room, or name a folder on another disk",
            )

    @property
    def sidecar(self) -> Path:
        """Where the sidecar is written until the capture is kept."""
        return self.private / f"{socket.gethostname()}{SIDECAR_SUFFIX}"

    def written(self, directory: Path) -> Path:
        """The one trace that TensorFlow wrote below a private folder."""
        found = sorted(directory.rglob(f"*{TRACE_SUFFIX}"))
        if len(found) != 1 or found[0].stat().st_size == 0:
            raise CaptureError(
                f"TensorFlow wrote {len(found)} traces instead of one below {directory}"
            )
        return found[0]

    def has_trace(self) -> bool:
        """Whether a trace of the window lies in the private folder."""
        return any((self.private / "profile").rglob(f"*{TRACE_SUFFIX}"))

    def check_vacant(self, run: str, suffix: str) -> None:
        """Raise `CaptureError` if a run has the trace already that this process would put into it."""
        host = f"{socket.gethostname()}{suffix}"
        trace = self.out / RUNS / run / f"{host}{TRACE_SUFFIX}"
        if trace.exists():
            raise CaptureError(
                f"{trace} exists and is not replaced", hint="give the run another name"
            )

    def new_run(self) -> Path:
        """Make the folder of a new run, named by the time; raises `OSError`."""
        runs = self.out / RUNS
        runs.mkdir(parents=True, exist_ok=True)
        return _new_run(runs)

    def drop_run(self, run: str) -> None:
        """Remove the folder of a run if it is empty."""
        with suppress(OSError):
            (self.out / RUNS / run).rmdir()

    def keep(self, trace: Path, sidecar: Path, *, run: str | None = None, suffix: str = "") -> Kept:
        """Move both files to a run: a new one named by the time, or `run`, which others may share.

        `suffix` is put after the host's name. Raises `CaptureError` where a file of that name exists.
        """
        try:
            folder = self.new_run() if run is None else self.out / RUNS / run
            folder.mkdir(parents=True, exist_ok=True)
            name = kept_name(trace, suffix)
            host = name.removesuffix(TRACE_SUFFIX)
            kept = Kept(folder, folder / name, folder / f"{host}{SIDECAR_SUFFIX}")
            _move(trace, kept.trace)
            _move(sidecar, kept.sidecar)
        except FileExistsError as error:
            raise CaptureError(
                f"{error.filename2 or error.filename} exists and is not replaced",
                hint=f"this capture stays in {self.private}",
            ) from error
        except OSError as error:
            raise CaptureError(
                f"--out {self.out}: {error.strerror or error}",
                hint=f"this capture stays in {self.private}",
            ) from error
        return kept

    def clean(self) -> None:
        """Remove the private folder, and the output folder if it is new and empty."""
        private = getattr(self, "private", None)
        if private is not None:
            shutil.rmtree(private, ignore_errors=True)
        if self._made_out:
            with suppress(OSError):
                self.out.rmdir()

    def unfinished(self) -> list[Path]:
        """Private folders of other captures into this folder: running ones, or such as never ended."""
        private = getattr(self, "private", None)
        return [
            path
            for path in sorted(self.out.glob(f"{PRIVATE_PREFIX}*"))
            if path != private and not path.name.startswith(RENDEZVOUS_PREFIX)
        ]

    def left_behind(self) -> list[Path]:
        """Those of the unfinished whose process has ended, as far as one can tell from here.

        On another host it is taken to run for an hour: as a worker of the same cluster, most likely.
        """
        return [path for path in self.unfinished() if not _may_run(path)]


def kept_name(trace: Path, suffix: str) -> str:
    """The name that a trace of TensorFlow gets in its run."""
    return f"{trace.name.removesuffix(TRACE_SUFFIX)}{suffix}{TRACE_SUFFIX}"


def run_name(name: str) -> str:
    """`name`, if it is that of one folder and nothing else; raises `UsageError` if it is not."""
    fault = None
    if not name.strip() or name != name.strip():
        fault = "is blank, or has blanks around it"
    elif "/" in name or "\\" in name:
        fault = "is a path, and the run has its place below the output folder"
    elif name.startswith("."):
        fault = "begins with a dot, which hides it"
    elif not name.isprintable():
        fault = "holds characters that cannot be shown"
    elif len(name.encode()) > _LONGEST_NAME:
        fault = f"has more than {_LONGEST_NAME} bytes"
    if fault:
        raise UsageError(f"run {name!r}: the name {fault}", hint="such as --run before-the-change")
    return name


def _may_run(private: Path) -> bool:
    try:
        is_recent = time.time() - private.stat().st_mtime < _AN_HOUR_S
    except OSError:
        # It has been removed since, as at the end of every capture.
        return True
    try:
        (sidecar,) = private.glob(f"*{SIDECAR_SUFFIX}")
        process = json.loads(sidecar.read_text(encoding="utf-8"))["process"]
        if process["host"] == socket.gethostname():
            os.kill(process["pid"], 0)
            return True
    except ProcessLookupError:
        return False
    except (KeyError, OSError, OverflowError, RecursionError, TypeError, ValueError):
        # It has just been made, or is of another user.
        return is_recent
    return is_recent


def _new_run(runs: Path) -> Path:
    name = datetime.now().strftime("%Y_%m_%d_%H_%M_%S")
    for count in range(1, 1000):
        folder = runs / (name if count == 1 else f"{name}_{count}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(None, "too many runs in one second", str(runs / name))


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
