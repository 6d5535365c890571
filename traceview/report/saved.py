"""Writes a report as JSON, describes it by a JSON Schema, and reads it again.

The records say what has to be there. Keys that they do not have are passed over: a later version may have added them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from traceview.document.json_text import dumped, encoded
from traceview.errors import TraceFormatError, TraceNotFoundError
from traceview.record import Record, meanings, summary
from traceview.report.consistency import first_disagreement
from traceview.report.model import SCHEMA_VERSION, Report

_T = TypeVar("_T")

_NO_LANES: Final = b'    "lanes": null'
"""No text can look like this line: the line breaks in texts are escaped."""

_PLACE: Final = re.compile(r"(?P<problem>.*) - at `(?P<place>.*)`", re.DOTALL)
_BYTE: Final = re.compile(r"\(byte (\d+)\)")


class _Head(msgspec.Struct):
    """What says whether this version can read the rest."""

    schema_version: Any
    traceview_version: Any = None


def to_json(report: Report) -> str:
    """The same text for the same report: two spaces of indent, a line break at the end, UTF-8 kept as it is.

    Each lane stands on one line: there are thousands of slices.
    """
    lanes = report.results.lanes
    text = dumped(replace(report, results=replace(report.results, lanes=None)))
    if lanes is None:
        return text.decode()
    lines = encoded(lanes).replace(b'{"kind":', b'\n      {"kind":')
    return text.replace(_NO_LANES, _NO_LANES.removesuffix(b"null") + lines, 1).decode()


def load_report(path: Path | str) -> Report:
    """The report in a file that `traceview report` or `traceview analyze -o report.json` wrote.

    Raises `TraceNotFoundError` where there is no such file and `TraceFormatError` for one that holds anything
    else: with the byte where it stops being JSON, or the key that is not what it should be.
    """
    path = Path(path)
    content = _content(path)
    try:
        head = msgspec.json.decode(content, type=_Head)
    except msgspec.ValidationError:
        raise TraceFormatError(
            path, "not a saved report", hint="traceview report writes one as report.json"
        ) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _malformed(path, error) from None
    version = head.schema_version
    if version != SCHEMA_VERSION or isinstance(version, bool):
        by = head.traceview_version
        raise TraceFormatError(
            path,
            f"schema_version is {_shown(version)}; this version reads {SCHEMA_VERSION}",
            hint=f"it was written by traceview {by}" if isinstance(by, str) else None,
        )
    report = _decoded(path, content, Report)
    wrong = first_disagreement(report)
    if wrong is not None:
        raise TraceFormatError(path, f"{wrong.place}: {wrong.problem}")
    return report


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise TraceNotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise TraceNotFoundError(f"{path}: {error.strerror or error}") from error
    try:
        return content.decode("utf-8-sig").encode()
    except UnicodeDecodeError as error:
        raise TraceFormatError(path, "not UTF-8 text", offset=error.start) from None


def _decoded(path: Path, content: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        found = _PLACE.fullmatch(str(error))
        place, problem = (found["place"], found["problem"]) if found else ("$", str(error))
        raise TraceFormatError(path, f"{place}: {problem[:1].lower()}{problem[1:]}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _malformed(path, error) from None


def _malformed(path: Path, error: Exception) -> TraceFormatError:
    found = _BYTE.search(str(error))
    if isinstance(error, RecursionError) or not found:
        return TraceFormatError(path, "not a saved report")
    problem = _BYTE.sub("", str(error)).rpartition(":")[2].strip()
    return TraceFormatError(path, f"not JSON: {problem}", offset=int(found[1]))


def _shown(value: object) -> str:
    """A value in an error: short, whatever it is."""
    text = encoded(value).decode()
    return text if len(text) <= 60 else f"{text[:60]}…"


# JSON Schema


def schema_text() -> str:
    """The JSON Schema of a report, made from the records."""
    (schema,), definitions = msgspec.json.schema_components([Report])
    for record in _records():
        described = definitions[record.__name__]
        described["description"] = summary(record)
        known = meanings(record)
        for field, key in zip(
            record.__struct_fields__, record.__struct_encode_fields__, strict=True
        ):
            described["properties"][key]["description"] = known[field]
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "traceview report",
        **schema,
        "$defs": definitions,
    }
    return dumped(whole).decode()


def _records() -> list[type[Record]]:
    """Every record that a report holds, the report first."""
    found: dict[type[Any], None] = {}

    def visit(type_: msgspec.inspect.Type) -> None:
        if isinstance(type_, msgspec.inspect.StructType):
            if type_.cls not in found:
                found[type_.cls] = None  # every struct of a report is a record
                for field in type_.fields:
                    visit(field.type)
            return
        for name in ("type", "item_type", "key_type", "value_type"):
            inner = getattr(type_, name, None)
            if isinstance(inner, msgspec.inspect.Type):
                visit(inner)
        for inner in (*getattr(type_, "types", ()), *getattr(type_, "item_types", ())):
            visit(inner)

    visit(msgspec.inspect.type_info(Report))
    return list(found)
