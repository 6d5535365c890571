"""What does every key of a report mean? The schema's words, below those of the code that makes the numbers."""

from __future__ import annotations

import inspect
import json
import sys
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from scripts.docs.words import first_paragraph, words
from traceview.render.markdown.blocks import Column, table
from traceview.render.markdown.inline import code
from traceview.report.model import Report, Results
from traceview.report.saved import schema_text

_HEAD = """\
# The keys of a report

What stands in `report.json`, in the objects of `traceview.analyze(...)`, and under the same names in the evidence of
[findings](findings.md). How to read the file: [json.md](json.md). This page is made from the schema
(`traceview schema`) and from the code; `python -m scripts.docs` renews it.

The end of a name is its unit: `_ps` picoseconds, `_ns` nanoseconds, `_bytes` bytes, `_ratio` a share from 0 to 1 unless
said otherwise, `_count` a number of things. A number that a trace does not hold is null, with its reason beside it or
in `skipped`, and never zero.
"""
_UNITS = {
    "_ps_per_step": "ps per step",
    "_per_step_ps": "ps per step",
    "_ps_per_s": "ps per second",
    "_bytes_per_second": "bytes per second",
    "_per_second": "per second",
    "_ps": "ps",
    "_ns": "ns",
    "_bytes": "bytes",
    "_hz": "Hz",
    "_ratio": "ratio",
    "_watts": "W",
    "_mb": "MB",
}
_TYPES = {
    "array": "list",
    "boolean": "true or false",
    "integer": "whole number",
    "null": "null",
    "number": "number",
    "object": "object",
    "string": "text",
}


def page() -> str:
    """The whole page: the report itself, then each result with the objects that it holds."""
    schema = json.loads(schema_text())
    definitions = schema["$defs"]
    told: set[type] = set()
    blocks = [_HEAD, "## The report", _table(schema["properties"])]
    for kind in _held_by(Report):
        if kind is not Results:
            blocks += _of_kind(kind, definitions, told)
    hints = typing.get_type_hints(Results)
    for field in fields(Results):
        kind = next(_data_classes(hints[field.name]))
        question = first_paragraph(sys.modules[kind.__module__].__doc__)
        blocks += [f"## results.{field.name}", question]
        blocks += _of_kind(kind, definitions, told)
    return "\n\n".join(block.strip() for block in blocks if block) + "\n"


def _of_kind(kind: type, definitions: dict[str, Any], told: set[type]) -> Iterator[str]:
    """A table of the keys of one object, and of those inside it, each once on the page."""
    if kind in told:
        return
    told.add(kind)
    yield f"### {kind.__name__}"
    yield first_paragraph(inspect.getdoc(kind))
    yield _table(definitions[kind.__name__]["properties"])
    for one in _held_by(kind):
        yield from _of_kind(one, definitions, told)


def _held_by(kind: type) -> Iterator[type]:
    hints = typing.get_type_hints(kind)
    for field in fields(typing.cast("Any", kind)):
        yield from _data_classes(hints[field.name])


def _data_classes(hint: Any) -> Iterator[type]:
    if is_dataclass(hint):
        yield typing.cast("type", hint)
    for argument in typing.get_args(hint):
        yield from _data_classes(argument)


def _table(properties: dict[str, Any]) -> str:
    return table(
        [
            Column("key", [code(key) for key in properties]),
            Column("unit or type", [_unit(key, one) for key, one in properties.items()]),
            Column("meaning", [_meaning(one) for one in properties.values()]),
        ]
    )


def _unit(key: str, described: dict[str, Any]) -> str:
    kind = _type(described)
    unit = next((unit for end, unit in _UNITS.items() if key.endswith(end)), "")
    if not unit or "text" in kind:
        return kind
    holder = next((word for word in ("list of", "object of") if kind.startswith(word)), "")
    whole = f"{holder} {unit}".strip()
    return f"{whole} or null" if kind.endswith("or null") else whole


def _type(described: dict[str, Any]) -> str:
    """In words: `whole number or null`, `list of DeviceTimeRow`."""
    if "$ref" in described:
        return code(described["$ref"].rpartition("/")[2])
    if "anyOf" in described:
        return " or ".join(map(_type, described["anyOf"]))
    if "const" in described:
        return code(json.dumps(described["const"]))
    named = described.get("type", "string")
    found = [named] if isinstance(named, str) else named
    told = []
    for one in found:
        inner = described.get("items") if one == "array" else described.get("additionalProperties")
        has_inner = one in ("array", "object") and isinstance(inner, dict)
        told.append(f"{_TYPES[one]} of {_type(inner)}" if has_inner and inner else _TYPES[one])
    return " or ".join(told)


def _meaning(described: dict[str, Any]) -> str:
    told = words(described.get("description", ""))
    inner = described.get("items", {})
    choices = described.get("enum") or (inner.get("enum") if isinstance(inner, dict) else None)
    if choices:
        listed = ", ".join("null" if one is None else code(str(one)) for one in choices)
        told += f" One of {listed}."
    return told
