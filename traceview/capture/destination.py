"""Where does a trace lie while it is written, and how does it come to its place without replacing another?

TensorFlow names runs by the second and files by the host: two captures into one folder may overwrite each other
without a word. So each is written to a folder of its own inside the output folder, and then moved, by a link
that fails where the name is taken.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from traceview.capture.sidecar import SUFFIX as SIDECAR_SUFFIX
from traceview.errors import CaptureError

TRACE_SUFFIX: Final = ".xplane.pb"
RUNS: Final = Path("plugins", "profile")
PRIVATE_PREFIX: Final = ".traceview-"
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

    def keep(self, trace: Path, sidecar: Path, *, run: str | None = None, suffix: str = "") -> Kept:
        """Move both files to a run: a new one named by the time, or `run`, which others may share.

        `suffix` is put after the host's name. Raises `CaptureError` where a file of that name exists.
        """
        runs = self.out / RUNS
        try:
            runs.mkdir(parents=True, exist_ok=True)
            folder = _new_run(runs) if run is None else runs / run
            folder.mkdir(exist_ok=True)
            host = f"{trace.name.removesuffix(TRACE_SUFFIX)}{suffix}"
            kept = Kept(
                folder, folder / f"{host}{TRACE_SUFFIX}", folder / f"{host}{SIDECAR_SUFFIX}"
            )
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
        return [path for path in sorted(self.out.glob(f"{PRIVATE_PREFIX}*")) if path != private]


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
