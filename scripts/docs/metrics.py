"""Writes docs/metrics.md: what every key of a report means, from the records."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import inspect

from scripts.docs.words import table, words
from traceview.analysis.registry import Results
from traceview.document.markdown import code
from traceview.record import Record, choices_of, fields_of, meanings, summary
from traceview.report.model import Report

_HEAD = """\
# The keys of a report

What is in `report.json`, in the objects of `traceview.analyze(...)`, and under the same names in the evidence of
[findings](findings.md). How to read the file: [json.md](json.md); how the numbers are computed: [method.md](method.md).
This page is made from the records in the code; `python -m scripts.docs` renews it.

The end of a name is its unit: `_ps` picoseconds, `_ns` nanoseconds, `_bytes` bytes, `_ratio` a share from 0 to 1 unless
said otherwise, `_count` a number of things. A number that a trace does not hold is null, with its reason beside it or
in `skipped`, and never zero. Below the name of each object are the places where it occurs: `[]` is every item of a list,
`.*` every value of an object.
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
_NUMBER = re.compile(r"whole number|number")


def page() -> str:
    """The whole page: the report itself, then each result with the objects that it holds."""
    places = _places(Report, "$")
    shown: set[type[Record]] = {Report, Results}
    blocks = [_HEAD, "## The report", _table(Report)]
    for record in _held_by(Report):
        blocks += _of_record(record, places, shown)
    known = meanings(Results)
    for field in fields_of(Results):
        blocks += [f"## results.{field.encode_name}", words(known[field.name])]
        for record in dict.fromkeys(_records_in(field.type)):
            blocks += _of_record(record, places, shown)
    return "\n\n".join(block.strip() for block in blocks if block) + "\n"


def _of_record(
    record: type[Record], places: dict[type[Record], list[str]], shown: set[type[Record]]
) -> Iterator[str]:
    """A table of the keys of one object, and of those inside it, each once on the page."""
    if record in shown:
        return
    shown.add(record)
    yield f"### {record.__name__}"
    yield words(summary(record))
    yield f"At {', '.join(map(code, places[record]))}."
    yield _table(record)
    for held in _held_by(record):
        yield from _of_record(held, places, shown)


def _places(record: type[Record], place: str) -> dict[type[Record], list[str]]:
    """The JSON paths of each record."""
    known: dict[type[Record], list[str]] = {record: [place]}
    for field in fields_of(record):
        for path, held in _paths(field.type, f"{place}.{field.encode_name}"):
            for inner, inner_places in _places(held, path).items():
                known.setdefault(inner, []).extend(inner_places)
    return known


def _paths(type_: inspect.Type, place: str) -> Iterator[tuple[str, type[Record]]]:
    if isinstance(type_, inspect.StructType):
        assert issubclass(type_.cls, Record)
        yield place, type_.cls
    elif isinstance(type_, inspect.Metadata):
        yield from _paths(type_.type, place)
    elif isinstance(type_, inspect.UnionType):
        for member in type_.types:
            yield from _paths(member, place)
    elif isinstance(type_, inspect.VarTupleType):
        yield from _paths(type_.item_type, f"{place}[]")
    elif isinstance(type_, inspect.DictType):
        yield from _paths(type_.value_type, f"{place}.*")


def _records_in(type_: inspect.Type) -> Iterator[type[Record]]:
    yield from (record for _, record in _paths(type_, ""))


def _held_by(record: type[Record]) -> Iterator[type[Record]]:
    for field in fields_of(record):
        yield from _records_in(field.type)


def _table(record: type[Record]) -> str:
    known = meanings(record)
    return table(
        ("key", "unit or type", "meaning"),
        (
            (code(field.encode_name), _unit(field), _meaning(known[field.name], field.type))
            for field in fields_of(record)
        ),
    )


def _unit(field: inspect.Field) -> str:
    """The type, with the unit in the place of a number that has one."""
    unit = next((unit for end, unit in _UNITS.items() if field.encode_name.endswith(end)), None)
    type_ = _type(field.type)
    return _NUMBER.sub(unit, type_, count=1) if unit else type_


def _type(type_: inspect.Type) -> str:
    """In words: `whole number or null`, `list of DeviceTimeRow`."""
    if isinstance(type_, inspect.Metadata):
        return _type(type_.type)
    if isinstance(type_, inspect.UnionType):
        return " or ".join(dict.fromkeys(map(_type, type_.types)))
    if isinstance(type_, inspect.StructType):
        name = type_.cls.__name__
        return code(name) if type_.cls is Results else f"[`{name}`](#{name.lower()})"
    if isinstance(type_, inspect.VarTupleType):
        return f"list of {_type(type_.item_type)}"
    if isinstance(type_, inspect.DictType):
        return f"object of {_type(type_.value_type)}"
    if isinstance(type_, inspect.LiteralType):
        return "text" if isinstance(type_.values[0], str) else code(str(type_.values[0]))
    names = {
        inspect.IntType: "whole number",
        inspect.FloatType: "number",
        inspect.BoolType: "true or false",
        inspect.NoneType: "null",
        inspect.StrType: "text",
    }
    return names[type(type_)]


def _meaning(meaning: str, type_: inspect.Type) -> str:
    choices = choices_of(type_)
    return words(meaning) + (f" One of {', '.join(map(code, choices))}." if choices else "")
