"""Saves, lists, reads and removes baselines in their folder."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from msgspec import Struct

from traceview.base.errors import (
    ComparisonError,
    OutputExistsError,
    TraceFormatError,
    TraceNotFoundError,
    UsageError,
)
from traceview.base.text import shell_word
from traceview.document import numbers
from traceview.report.model import Report
from traceview.report.reduced import COMPRESSED, PLAIN, SmallFile, reduced
from traceview.report.saved import load_report

DEFAULT_FOLDER: Final = Path(".traceview") / "baselines"
"""Where baselines are unless another folder is named: below the working directory, as other tools keep theirs."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", re.ASCII)
_SUFFIXES: Final = (PLAIN, COMPRESSED)


class Baseline(Struct, frozen=True):
    """A baseline in its folder. `report`: None where its file cannot be read, `damage` says why."""

    name: str
    path: Path
    byte_count: int
    report: Report | None
    damage: str = ""


def small_file(report: Report) -> SmallFile:
    """What a baseline of this report holds; raises `ComparisonError` where there are no steps to compare with."""
    steps = report.results.steps
    if steps is None or not steps.used_count:
        reason = report.skipped.get("steps", "no step is used")
        raise ComparisonError(f"the run has no step times to compare with: {reason}")
    return reduced(report)


def place_of(folder: Path, name: str, suffix: str, *, force: bool) -> Path:
    """The file of a new baseline.

    Raises `UsageError` for a name that cannot be a file's and `OutputExistsError` where there is one, unless `force`.
    """
    there = _files_of(folder, checked_name(name))
    if there and not force:
        raise OutputExistsError(f"{there[0]} exists", hint="--force replaces it")
    return folder / f"{name}{suffix}"


def other_file(folder: Path, name: str, kept: Path) -> Path | None:
    """A file of the same baseline with the other ending, which a new one makes stale."""
    return next((path for path in _files_of(folder, name) if path != kept), None)


def checked_name(name: str) -> str:
    """The name; raises `UsageError` for one that could name a file elsewhere, or none at all."""
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if name.endswith(suffix) and name != suffix:
            raise UsageError(
                f"{name!r} cannot name a baseline",
                hint=f"its name is that of the file without the ending: {name.removesuffix(suffix)}",
            )
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"{name!r} cannot name a baseline",
            hint="letters, digits, and . _ + - after the first: main, v1.2, 4-gpus",
        )
    return name


def baselines_in(folder: Path) -> list[Baseline]:
    """The baselines of a folder by name; none where there is no folder.

    Raises `UsageError` where two files have one name.
    """
    names = {path: name for path in _entries(folder) if (name := _name_of(path)) is not None}
    for name in names.values():
        _only(_files_of(folder, name), name)
    return [_read(path) for path in names]


def baseline_called(folder: Path, name: str) -> Baseline:
    """The baseline of this name, with its report.

    Raises `TraceNotFoundError` if there is none, with the names that are near, `UsageError` if there are two files, and
    `TraceFormatError` if its file is damaged.
    """
    path = _only(paths_called(folder, name), name)
    return Baseline(name, path, path.stat().st_size, load_report(path))


def paths_called(folder: Path, name: str) -> list[Path]:
    """The files of the baseline of this name, two where both forms are there; raises `TraceNotFoundError` if there is none."""
    paths = _files_of(folder, checked_name(name))
    if paths:
        return paths
    names = [found for entry in _entries(folder) if (found := _name_of(entry))]
    by_lower = {known.lower(): known for known in names}
    near = [by_lower[known] for known in get_close_matches(name.lower(), by_lower)]
    hint = "traceview gate LOGDIR --save NAME makes one"
    if names:
        hint = (
            f"did you mean {' or '.join(near)}?" if near else f"there is {numbers.beginning(names)}"
        )
    raise TraceNotFoundError(f"no baseline is called {name} in {folder}", hint=hint)


def _only(paths: list[Path], name: str) -> Path:
    """The only one; which of two was saved last, nobody can tell after a checkout."""
    if len(paths) > 1:
        raise UsageError(
            f"{paths[0]} and {paths[1].name} are both called {name}",
            hint=f"remove one, or both by traceview gate --remove {shell_word(name)}",
        )
    return paths[0]


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _files_of(folder: Path, name: str) -> list[Path]:
    paths = (folder / f"{name}{suffix}" for suffix in _SUFFIXES)
    return [path for path in paths if path.is_file()]


def _name_of(path: Path) -> str | None:
    """The name of the baseline in a file; None for a file of another kind."""
    for suffix in _SUFFIXES:
        if path.name.endswith(suffix) and path.is_file():
            name = path.name.removesuffix(suffix)
            return name if _NAME.fullmatch(name) else None
    return None


def _read(path: Path) -> Baseline:
    size, name = path.stat().st_size, _name_of(path) or path.name
    try:
        return Baseline(name, path, size, load_report(path))
    except (TraceFormatError, TraceNotFoundError) as error:
        return Baseline(name, path, size, None, error.message.removeprefix(f"{path}: "))
