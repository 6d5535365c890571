"""Writes a report as JSON, describes it by a JSON Schema, and reads it again.

The records say what has to be there: a key may be absent where its field has a default.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from traceview.base.errors import TraceFormatError, TraceNotFoundError
from traceview.base.location import Location
from traceview.base.record import Record, meanings, records_of, summary
from traceview.document.sanitize import dumped, encoded, shortened
from traceview.report.model import SCHEMA_VERSION, Report, with_sentences
from traceview.store.address import location_of

_HINT: Final = "traceview report LOGDIR --format json -o FILE.json saves a report"

_NO_LANES: Final = b'    "lanes": null'
"""No text can look like this line: the line breaks in texts are escaped."""

_LONGEST_SHOWN: Final = 60
_GZIP: Final = b"\x1f\x8b"
_GZIP_FORMAT: Final = 16 + zlib.MAX_WBITS
MOST_DECOMPRESSED_BYTES: Final = 200_000_000
"""No report comes near this size; a file of some kilobytes could be made to fill any memory."""


class _Head(msgspec.Struct):
    """The keys that every report has, and that say whether this version can read the rest."""

    schema_version: Any
    source: msgspec.Raw = msgspec.Raw()
    results: msgspec.Raw = msgspec.Raw()
    traceview_version: Any = None


def to_json(report: Report) -> str:
    """The report as text, always the same: two spaces of indent, a line break at the end, UTF-8 kept as it is.

    Each lane stands on one line: there are thousands of slices.
    """
    lanes = report.results.lanes
    text = dumped(replace(report, results=replace(report.results, lanes=None)))
    if lanes is None:
        return text.decode()
    lines = encoded(lanes).replace(b'{"kind":', b'\n      {"kind":')
    return text.replace(_NO_LANES, _NO_LANES.removesuffix(b"null") + lines, 1).decode()


def load_report(path: str | Location) -> Report:
    """The report in a file that `traceview report` or `traceview analyze -o report.json` wrote.

    Raises `TraceNotFoundError` where there is no such file and `TraceFormatError` for one that holds anything
    else: with the byte where it stops being JSON, or the key that is not what it should be.
    """
    path = location_of(path)
    content = _content(path)
    try:
        head = msgspec.json.decode(content, type=_Head)
        if not bytes(head.source) and not bytes(head.results):
            raise TraceFormatError(path, "not a saved report", hint=_HINT)
        if head.schema_version != SCHEMA_VERSION:
            version, by = encoded(head.schema_version).decode(), head.traceview_version
            raise TraceFormatError(
                path,
                f"schema_version is {shortened(version, _LONGEST_SHOWN)}; this version reads {SCHEMA_VERSION}",
                hint=f"it was written by traceview {by}" if isinstance(by, str) else None,
            )
        return with_sentences(msgspec.json.decode(content, type=Report))
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceFormatError(path, f"not a saved report: {error}", hint=_HINT) from None
    except KeyError as error:
        raise TraceFormatError(
            path, f"not a saved report: {error.args[0]} is missing or of another version"
        ) from None


def _content(path: Location) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise TraceNotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise TraceNotFoundError(f"{path}: {error.strerror or error}") from error
    if content.startswith(_GZIP):
        content = _decompressed(path, content)
    try:
        return content.decode("utf-8-sig").encode()
    except UnicodeDecodeError as error:
        raise TraceFormatError(path, "not UTF-8 text", offset=error.start) from None


def _decompressed(path: Location, content: bytes) -> bytes:
    """The content of a compressed report; a file that would fill the memory is refused."""
    reader = zlib.decompressobj(_GZIP_FORMAT)
    try:
        whole = reader.decompress(content, MOST_DECOMPRESSED_BYTES)
    except zlib.error:
        raise TraceFormatError(path, "damaged: it cannot be decompressed") from None
    if not reader.eof:
        reason = "is too large" if reader.unconsumed_tail else "ends too early"
        raise TraceFormatError(path, f"the compressed report {reason}")
    return whole


# JSON Schema


def schema_of(root: type[Record], title: str) -> str:
    """The JSON Schema of a record, made from it and those it is made of."""
    (schema,), definitions = msgspec.json.schema_components([root])
    for record in records_of(root):
        described = definitions[record.__name__]
        described["description"] = summary(record)
        known = meanings(record)
        config = record.__struct_config__
        if config.tag is not None:
            described["properties"][config.tag_field]["description"] = "What this is."
        for field, key in zip(
            record.__struct_fields__, record.__struct_encode_fields__, strict=True
        ):
            described["properties"][key]["description"] = known[field]
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **schema,
        "$defs": definitions,
    }
    return dumped(whole).decode()
