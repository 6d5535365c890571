"""Writes a trace to a private folder and moves it to its run, without ever replacing another trace.

TensorFlow names runs by the second and files by the host, so that two captures into one folder may silently overwrite
each other. Here each is written to its own folder inside the output folder, and then moved by a link, which fails if the
name is taken.
"""

import json
import os
import re
import shutil
import socket
import tempfile
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from traceview.base.errors import CaptureError, UsageError
from traceview.capture.sidecar.file import SUFFIX as SIDECAR_SUFFIX
from traceview.capture.sidecar.file import is_running

DEFAULT_OUT: Final = Path("logs")
TRACE_SUFFIX: Final = ".xplane.pb"
RUNS: Final = Path("plugins", "profile")
PRIVATE_PREFIX: Final = ".traceview-"
_INCOMPLETE: Final = f"{PRIVATE_PREFIX}incomplete-"
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z\d+.\-]+:/")
"""`gs://bucket`, or `gs:/bucket` after `Path`; no drive of Windows."""
_LONGEST_NAME: Final = 200
"""Bytes; file systems allow 255, and a number may be appended."""
_TAKEN_TO_RUN_S: Final = 3600
"""How long after the last change of its folder a capture of another host is taken to run; a choice of ours."""
FREE_BYTES: Final = 64 << 20
"""Enough for most traces; one at the limits of the tracer has 100 MB (measured 114 MB at 1.4 M events)."""


class Destination:
    """An output folder and the private folder of one capture in it."""

    def __init__(self, out: Path) -> None:
        # The script may change its working directory.
        self.out = out.absolute()
        self.private: Path
        self._made_out = False

    def prepare(self) -> None:
        """Make the folders and write to them once; raises `CaptureError` with the reason if that fails."""
        try:
            self.private = self._make_private()
            (self.private / "probe").write_bytes(b"\0" * 4096)
            (self.private / "probe").unlink()
            free = shutil.disk_usage(self.out).free
        except OSError as error:
            self.clean()
            raise self.error(error) from error
        if free < FREE_BYTES:
            self.clean()
            raise CaptureError(
                f"--out {self.out}: only {free >> 20} MiB are free; a trace may need {FREE_BYTES >> 20} MiB",
                hint="free some space, or choose an --out on another disk",
            )

    def _make_private(self, attempts: int = 3) -> Path:
        if not self.out.parent.is_dir():
            raise CaptureError(
                f"--out {self.out}: the directory {self.out.parent} does not exist",
                hint="create it, or choose another --out",
            )
        # Another worker may make it at the same time.
        with suppress(FileExistsError):
            self.out.mkdir()
            self._made_out = True
        try:
            return Path(tempfile.mkdtemp(prefix=_INCOMPLETE, dir=self.out))
        except FileNotFoundError:
            # Another capture has removed the output folder, which it had made, and in which nothing was.
            if attempts == 1:
                raise
            return self._make_private(attempts - 1)

    def error(self, error: OSError, hint: str | None = None) -> CaptureError:
        """What to raise when the folder cannot be written."""
        return CaptureError(f"--out {self.out}: {error.strerror or error}", hint=hint)

    @property
    def sidecar(self) -> Path:
        """Where the sidecar is written until the capture is kept."""
        return self.private / f"{socket.gethostname()}{SIDECAR_SUFFIX}"

    def written(self, directory: Path) -> Path:
        """The one trace that TensorFlow wrote below a private folder."""
        traces = [path for path in directory.rglob(f"*{TRACE_SUFFIX}") if path.stat().st_size]
        if len(traces) != 1:
            reason = f"TensorFlow wrote {len(traces)} traces instead of one below {directory}"
            raise CaptureError(reason)
        return traces[0]

    def new_run(self) -> Path:
        """Make the folder of a new run, named by the time; raises `OSError`."""
        runs = self.out / RUNS
        runs.mkdir(parents=True, exist_ok=True)
        name = datetime.now().strftime("%Y_%m_%d_%H_%M_%S")
        for count in range(1, 1000):
            folder = runs / (name if count == 1 else f"{name}_{count}")
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
        """Remove the private folder, and the output folder if it is new and empty."""
        private = getattr(self, "private", None)
        if private is not None:
            shutil.rmtree(private, ignore_errors=True)
        if self._made_out:
            with suppress(OSError):
                self.out.rmdir()

    def left_behind(self) -> list[Path]:
        """The private folders of other captures whose process has ended, as far as this host can say.

        A process on another host, most likely a worker of the same cluster, is taken to run for an hour.
        """
        folders = (path for path in self.out.glob(f"{_INCOMPLETE}*") if path.is_dir())
        return sorted(path for path in folders if path != self.private and not _may_run(path))


def has_trace(private: Path | None) -> bool:
    """Whether a trace of the window is in a private folder."""
    return private is not None and any((private / "profile").rglob(f"*{TRACE_SUFFIX}"))


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
    """The group `process` of a sidecar, empty if that cannot be read."""
    try:
        return dict(json.loads(sidecar.read_text("utf-8"))["process"])
    except (KeyError, OSError, RecursionError, TypeError, ValueError):
        return {}


def output_folder(text: str | os.PathLike[str]) -> Path:
    """The folder that `text` names; raises `UsageError` if it is empty or an address such as `gs://bucket/logs`."""
    name = os.fspath(text)
    if not name:
        raise UsageError("--out is empty", hint="the current directory is .")
    if _ADDRESS.match(name):
        raise UsageError(
            f"--out {name}: traceview captures into a local or mounted folder, not to an address",
            hint="capture into a folder such as --out logs, and copy the run afterwards",
        )
    return Path(name)


def run_name(name: str) -> str:
    """Return `name` if it can name a folder; raises `UsageError` if not."""
    faults = {
        "must not be blank, or begin or end with a blank": not name or name != name.strip(),
        "must not be a path, or begin with a dot": {"/", "\\"} & set(name) or name.startswith("."),
        f"must be printable, and {_LONGEST_NAME} bytes long at most": (
            not name.isprintable() or len(name.encode()) > _LONGEST_NAME
        ),
    }
    for fault in (fault for fault, is_so in faults.items() if is_so):
        raise UsageError(
            f"run {name!r}: the name {fault}", hint="for example --run before-the-change"
        )
    return name


def _may_run(private: Path) -> bool:
    try:
        is_recent = time.time() - private.stat().st_mtime < _TAKEN_TO_RUN_S
    except OSError:
        # It has been removed since, as at the end of every capture.
        return True
    for sidecar in private.glob(f"*{SIDECAR_SUFFIX}"):
        process = _process_of(sidecar)
        if process.get("host") == socket.gethostname() and isinstance(process.get("pid"), int):
            return is_running(process["pid"])
    # It has just been made.
    return is_recent


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
