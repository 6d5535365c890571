"""Keeps baselines: reports reduced to what comparing needs, each in a file of its name, small enough to be committed."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.registry import Results
from traceview.base.errors import (
    ComparisonError,
    OutputExistsError,
    TraceFormatError,
    TraceNotFoundError,
    UsageError,
)
from traceview.base.record import Record
from traceview.base.text import shell_word
from traceview.comparison.captures import step_time_ps
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.json_text import encoded
from traceview.report.model import LEFT_OUT, Report, devices_of, started_ns
from traceview.report.saved import load_report

MOST_BYTES: Final = 100_000
"""A file of this size is committed without a thought."""

_Reduce: TypeAlias = Callable[[Report], Report]

PLAIN, COMPRESSED = ".json", ".json.gz"
"""Endings of small files."""

FEWEST_OPS: Final = 3
"""Ops of each device that even the smallest report keeps."""


class SmallFile(Struct, frozen=True):
    """A reduced report as a file. `suffix`: the ending of its name; `content`: at most `MOST_BYTES` bytes."""

    report: Report
    suffix: str
    content: bytes


def reduced(report: Report) -> SmallFile:
    """The same report without what comparing does not need, as a small file.

    `Report.reduced` lists the keys that are left out. What stays keeps its meaning and its exact numbers: step times,
    states of steps and devices, ops, input stages, collectives and findings. A report of very many devices is
    compressed, and only if that is not enough more is left out.

    Raises `UsageError` if the report cannot be made small enough.
    """
    left_out: dict[str, None] = dict.fromkeys(report.reduced)
    content = b""
    for place, (key, reduce) in enumerate(_STAGES, 1):
        smaller = reduce(report)
        if smaller != report:
            gone = [name for name in smaller.skipped if name not in report.skipped]
            left_out |= dict.fromkeys(gone or [key])
        report = replace(smaller, reduced=tuple(left_out))
        if place < _ALWAYS:
            continue
        content = reduced_json(report)
        if len(content) <= MOST_BYTES:
            return SmallFile(report, PLAIN, content)
        # Without a time in it, the same report gives the same bytes.
        content = gzip.compress(content, mtime=0)
        if len(content) <= MOST_BYTES:
            return SmallFile(report, COMPRESSED, content)
    raise UsageError(
        f"the reduced report takes {numbers.size(len(content))}; a baseline holds at most "
        f"{numbers.size(MOST_BYTES)}",
        hint="the whole report can be compared with as well: traceview report LOGDIR --format json",
    )


def reduced_json(report: Report) -> bytes:
    """A reduced report on lines of their own per topic; fields that have the default that a reader assumes are left out."""
    data = _without_defaults(report)
    results = data.pop("results", {})
    lines = [f"  {encoded(key).decode()}: {encoded(value).decode()}" for key, value in data.items()]
    topics = [
        f"    {encoded(key).decode()}: {encoded(value).decode()}" for key, value in results.items()
    ]
    lines.append('  "results": {\n' + ",\n".join(topics) + "\n  }")
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


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
    return (
        _with_results(report, path=replace(path, steps=(), longest=(), ops=())) if path else report
    )


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
    ("", _without("transfers", "ops")),
)
"""What is left out, in this order: the last only where the report would be too large."""

_ALWAYS: Final = 4


def _without_defaults(value: Any) -> Any:
    """The value as plain data, records without the fields that have their default."""
    if isinstance(value, Record):
        fields = msgspec.structs.fields(type(value))
        held = ((field, getattr(value, field.name)) for field in fields)
        config = value.__struct_config__
        return ({config.tag_field: config.tag} if config.tag_field else {}) | {
            field.encode_name: _without_defaults(of)
            for field, of in held
            if not _is_default(field, of)
        }
    if isinstance(value, tuple):
        return [_without_defaults(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_defaults(item) for key, item in value.items()}
    return value


def _is_default(field: msgspec.structs.FieldInfo, value: object) -> bool:
    if field.required:
        return False
    if field.default_factory is not msgspec.NODEFAULT:
        return bool(field.default_factory() == value)
    return bool(field.default == value)


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


def baseline_section(folder: Path, baselines: Sequence[Baseline]) -> doc.Section:
    """A row per baseline: what it was recorded on, its step time, and how large its file is."""
    reports = [baseline.report for baseline in baselines]
    steps = [report.results.steps if report else None for report in reports]
    columns = (
        doc.names("name", [baseline.name for baseline in baselines]),
        doc.words("recorded", [numbers.date(started_ns(report)) for report in reports], priority=2),
        doc.words("devices", [devices_of(report) for report in reports], priority=1),
        doc.times("step", [step_time_ps(report) if report else None for report in reports]),
        doc.counts("steps", [of.used_count if of else None for of in steps], priority=3),
        doc.sizes("size", [baseline.byte_count for baseline in baselines], priority=4),
    )
    damage = [f"{row.name} cannot be read: {row.damage}" for row in baselines if row.damage]
    lead = "" if baselines else f"No baseline in {folder}."
    return doc.Section(
        "baselines",
        "Baselines",
        (*doc.table("Baselines", columns), *doc.notes(*damage)),
        lead=lead,
        is_folded=False,
    )
