"""Tells a report from the other documents that traceview writes as JSON, and says what to give instead."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from traceview.base.errors import TraceFormatError
from traceview.base.location import Location
from traceview.base.text import shell_path, shell_word

_REPORT: Final = "traceview report {run} --format json -o {name}.json saves a report"

_DOCUMENTS: Final = {
    ("before", "after", "conditions"): "a comparison, written by traceview compare",
    (
        "rows",
        "basis",
        "growing",
    ): "a comparison of numbers of devices, written by traceview compare --scaling",
    ("judgements", "outcome"): "a verdict, written by traceview gate",
    ("folder", "rows", "repeated"): "a history, written by traceview history",
    ("rows", "left_out_count"): "a table of traceview",
    ("process", "window", "clock"): "what traceview capture wrote beside a trace",
}
"""By keys that only they have on the outermost level: the other documents."""


_OF_REPORT: Final = frozenset(("source", "results"))


class _ComparedRun(Struct):
    logdir: str
    run: str


class _Sides(Struct):
    before: list[_ComparedRun]
    after: list[_ComparedRun]


def check_is_report(path: Location, content: bytes) -> None:
    """Raise `TraceFormatError` for another document of traceview; what is none of them passes."""
    try:
        keys = msgspec.json.decode(content, type=dict[str, msgspec.Raw]).keys()
    except (msgspec.DecodeError, RecursionError):
        return
    words = next((words for known, words in _DOCUMENTS.items() if keys >= {*known}), None)
    if words is not None and not keys >= _OF_REPORT:
        raise TraceFormatError(path, f"this is {words}, and no saved report", hint=_hint(content))


def _hint(content: bytes) -> str:
    """The command that saves a report, of a run that a comparison names."""
    try:
        sides = msgspec.json.decode(content, type=_Sides)
        run = sides.after[0]
    except (msgspec.DecodeError, IndexError):
        return _REPORT.format(run="LOGDIR", name="FOLDER/NAME")
    name = run.run.rpartition("/")[2]
    of_run = f"{shell_path(run.logdir)} --run {shell_word(name)}"
    return f"{_REPORT.format(run=of_run, name='after')} of the side after"
