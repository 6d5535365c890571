"""Keeps baselines: captures reduced to what comparing needs, in files of their name, small enough to be committed.

The first capture of a baseline is in `NAME.json`, further ones are in `NAME~2.json` and so on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from traceview.analysis.registry import Results
from traceview.base.errors import (
    ComparisonError,
    OutputExistsError,
    TraceNotFoundError,
    UsageError,
)
from traceview.document import numbers
from traceview.report.model import LEFT_OUT, Report
from traceview.report.saved import load_report

_Reduce: TypeAlias = Callable[[Report], Report]

FEWEST_OPS: Final = 3
"""Ops of each device that a reduced report keeps."""


def reduced(report: Report) -> Report:
    """The report without what comparing does not need: `Report.reduced` lists the keys that are left out.

    What stays keeps its meaning and its exact numbers: step times, states of steps and devices, the longest ops, input
    stages, collectives and findings. Raises `ComparisonError` where there are no steps to compare with.
    """
    steps = report.results.steps
    if steps is None or not steps.used_count:
        reason = report.skipped.get("steps", "no step is used")
        raise ComparisonError(f"the run has no step times to compare with: {reason}")
    left_out: dict[str, None] = dict.fromkeys(report.reduced)
    for key, reduce in _STAGES:
        smaller = reduce(report)
        if smaller != report:
            gone = [name for name in smaller.skipped if name not in report.skipped]
            left_out |= dict.fromkeys(gone or [key])
        report = smaller
    return replace(report, reduced=tuple(left_out))


def _without(*topics: str) -> _Reduce:
    """Leaves out whole results, and says so where the reasons for absent results are."""

    def reduce(report: Report) -> Report:
        there = [name for name in topics if getattr(report.results, name) is not None]
        if not there:
            return report
        reasons = dict.fromkeys(there, LEFT_OUT)
        smaller = _with_results(report, **dict.fromkeys(there))
        return replace(smaller, skipped={**report.skipped, **reasons})

    return reduce


def _with_results(report: Report, **changes: Any) -> Report:
    return replace(report, results=replace(report.results, **changes))


def _without_path_steps(report: Report) -> Report:
    path = report.results.path
    return _with_results(report, path=replace(path, steps=(), longest=())) if path else report


def _without_step_devices(report: Report) -> Report:
    steps = report.results.steps
    if steps is None:
        return report
    rows = tuple(replace(step, devices=()) for step in steps.steps)
    return _with_results(report, steps=replace(steps, steps=rows))


def _with_few_ops(report: Report) -> Report:
    """The longest ops of each device."""
    ops = report.results.ops
    if ops is None:
        return report
    of_device: dict[str, int] = {}
    kept = []
    for row in ops.rows:
        of_device[row.device] = of_device.get(row.device, 0) + 1
        if of_device[row.device] <= FEWEST_OPS:
            kept.append(row)
    left_out = ops.row_count - len(kept)
    return _with_results(
        report, ops=replace(ops, rows=tuple(kept), left_out_count=left_out, types=())
    )


_COMPARED: Final = (
    "device_time",
    "path",
    "ledger",
    "steps",
    "input",
    "transfers",
    "collectives",
    "balance",
    "ops",
    "op_steps",
    "environment",
)
"""Results that comparing, gates and histories read."""

_STAGES: Final[tuple[tuple[str, _Reduce], ...]] = (
    ("", _without(*(name for name in Results.__struct_fields__ if name not in _COMPARED))),
    ("path.steps", _without_path_steps),
    ("steps.steps.devices", _without_step_devices),
    ("ops.rows", _with_few_ops),
)
"""What is left out."""


DEFAULT_FOLDER: Final = Path(".traceview") / "baselines"
"""Where baselines are unless another folder is named: below the working directory, as other tools keep theirs."""

_SUFFIX: Final = ".json"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", re.ASCII)
_FURTHER: Final = re.compile(r"~[0-9]{1,3}", re.ASCII)


def new_paths(folder: Path, name: str, count: int, *, force: bool) -> list[Path]:
    """The files of a new baseline of so many captures.

    Raises `UsageError` for a name that cannot be a file's and `OutputExistsError` where there is one, unless `force`.
    """
    there = paths_of(folder, checked_name(name))
    if there and not force:
        raise OutputExistsError(f"{there[0]} exists", hint="--force replaces it")
    further = (f"{name}~{number}" for number in range(2, count + 1))
    return [folder / f"{stem}{_SUFFIX}" for stem in (name, *further)]


def checked_name(name: str) -> str:
    """The name; raises `UsageError` for one that could name a file elsewhere, or none at all."""
    hint = "letters, digits, and . _ + - after the first: main, v1.2, 4-gpus"
    if name.endswith(_SUFFIX) and name != _SUFFIX:
        hint = f"the file is named after it: {name.removesuffix(_SUFFIX)}"
    elif _NAME.fullmatch(name):
        return name
    raise UsageError(f"{name!r} cannot name a baseline", hint=hint)


def baseline_called(folder: Path, name: str) -> tuple[Report, ...]:
    """The captures of the baseline of this name.

    Raises `TraceNotFoundError` if there is none, with the names that are near, and `TraceFormatError` if a file of it is
    damaged.
    """
    return tuple(map(load_report, paths_called(folder, name)))


def paths_called(folder: Path, name: str) -> list[Path]:
    """The files of the baseline of this name; raises `TraceNotFoundError` if there is none."""
    paths = paths_of(folder, checked_name(name))
    if paths:
        return paths
    names = _names(folder)
    by_lower = {known.lower(): known for known in names}
    near = [by_lower[known] for known in get_close_matches(name.lower(), by_lower)]
    hint = "traceview gate LOGDIR --save NAME makes one"
    if names:
        hint = (
            f"did you mean {' or '.join(near)}?" if near else f"there is {numbers.beginning(names)}"
        )
    raise TraceNotFoundError(f"no baseline is called {name} in {folder}", hint=hint)


def paths_of(folder: Path, name: str) -> list[Path]:
    """The files of a baseline in the order of its captures; empty without one."""
    further = [path for path in _files(folder) if _FURTHER.fullmatch(path.stem.removeprefix(name))]
    further.sort(key=lambda path: int(path.stem.rpartition("~")[2]))
    first = folder / f"{name}{_SUFFIX}"
    return [first, *further] if first.is_file() else []


def _files(folder: Path) -> list[Path]:
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in entries if path.suffix == _SUFFIX and path.is_file()]


def _names(folder: Path) -> list[str]:
    return [path.stem for path in _files(folder) if _NAME.fullmatch(path.stem)]
