"""Reduces a report to what comparing needs, so that it is small enough to be committed."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.registry import Results
from traceview.base.errors import UsageError
from traceview.base.record import Record
from traceview.document import numbers
from traceview.document.json_text import encoded
from traceview.report.absent import LEFT_OUT
from traceview.report.model import Report

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
