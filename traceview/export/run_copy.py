"""Copies a run for a program that writes beside it.

XProf keeps caches next to the files that it reads. It gets a folder of its own in the layout that it expects, in which
the files are links to those of the run, or copies of those in a store.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Final

from traceview.base.errors import TraceviewError
from traceview.base.location import Location
from traceview.trace.reading.locate import SUFFIX, RunFiles, host_of
from traceview.xplane.read import read_summary

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.+=@_-]")
_LONGEST: Final = 100
"""Characters of a name: with the ending and those of the caches it stays below the 255 bytes of file systems."""


@dataclass(frozen=True)
class RunCopy:
    """A log directory with one run: its name there, its files, and a folder for what else is written."""

    logdir: Path
    run: str
    files: tuple[Path, ...]
    scratch: Path


def check_readable(run: RunFiles) -> None:
    """Raise the problem of the first file of a run if none of its files is a trace."""
    problem: TraceviewError | None = None
    for path in run.paths:
        try:
            read_summary(path)
        except TraceviewError as error:
            problem = problem or error
        else:
            return
    if problem is not None:
        raise problem


@contextmanager
def copied_run(run: RunFiles) -> Iterator[RunCopy]:
    """The run as a log directory of its own, which is removed at the end with everything in it.

    Names of runs and hosts keep what a viewer can put into an address; the rest of their characters becomes `_`.
    """
    with tempfile.TemporaryDirectory(prefix="traceview-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        logdir, scratch = folder / "logs", folder / "scratch"
        scratch.mkdir()
        run_name = _plain(run.name.rpartition("/")[2])
        directory = logdir / "plugins" / "profile" / run_name
        directory.mkdir(parents=True)
        files: list[Path] = []
        for path in run.paths:
            file = directory / f"{_new_name(host_of(path), files)}{SUFFIX}"
            _link(path, file)
            files.append(file)
        yield RunCopy(logdir, run_name, tuple(files), scratch)


def _plain(name: str) -> str:
    return _UNSAFE.sub("_", name).lstrip(".")[:_LONGEST] or "run"


def _new_name(host: str, files: Sequence[Path]) -> str:
    """A plain name that no file has yet, even where file systems ignore the case of letters."""
    taken = {file.name.removesuffix(SUFFIX).casefold() for file in files}
    plain = _plain(host)
    names = chain([plain], (f"{plain}_{number}" for number in count(1)))
    return next(name for name in names if name.casefold() not in taken)


def _link(path: Location, link: Path) -> None:
    if not isinstance(path, Path):
        link.write_bytes(path.read_bytes())
        return
    try:
        link.symlink_to(path.absolute())
    except OSError:
        # Windows permits links to few users, and some file systems to none. Never write through a link into the run.
        with path.open("rb") as source, link.open("xb") as copy:
            shutil.copyfileobj(source, copy)
