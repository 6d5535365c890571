"""Defines the records of a report: plain data that says of each field what it is, how it is typed and what it means.

A record is a `msgspec.Struct`. Its types check what is read from a file, its docstring gives the meaning of each
field (`Attributes:`), and the kind of a text says how redaction treats it. JSON, JSON Schema, `docs/metrics.md`, the
definitions of the HTML page and redaction are made from these and from nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from inspect import cleandoc
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Struct, inspect

from traceview.base.text import lazy_pattern

LARGEST: Final = (1 << 63) - 1
"""Times, sizes and counts are 64 bits wide."""

TextKind: TypeAlias = Literal[
    "activity",
    "argument",
    "axis",
    "bus",
    "device",
    "event",
    "file",
    "function",
    "host",
    "kernel",
    "line",
    "message",
    "model",
    "module",
    "op",
    "path",
    "run",
    "sentence",
    "setting",
    "slice",
    "stage",
    "task",
    "thread",
    "type",
    "version",
    "words",
]
"""What a text can name or be; redaction hides the whole of a text without a kind."""

_TEXT_KIND: Final = "text_kind"
_KIND_FIELD: Final = "kind_field"
_ATTRIBUTE: Final = lazy_pattern(r"(\w+): (.*)")


def _key(field: str) -> str:
    """The JSON key of a field: `class_` needs its underscore in Python only."""
    return field.removesuffix("_")


class Record(Struct, frozen=True, rename=_key):
    """Base of all records. The docstring of each has a section `Attributes:` with an entry per field."""


def one_of(*words: str) -> Meta:
    """A text that is one word of a closed list."""
    pattern = "|".join(map(re.escape, words))
    return Meta(pattern=f"^(?:{pattern})$", extra_json_schema={"enum": list(words)})


def text_kind(name: TextKind) -> Meta:
    """What a text names; redaction treats it accordingly."""
    return Meta(extra={_TEXT_KIND: name})


def kind_in(field: str) -> Meta:
    """A text of which another field of the record says what it names."""
    return Meta(extra={_KIND_FIELD: field})


Count: TypeAlias = Annotated[int, Meta(ge=0, le=LARGEST)]
"""A number of things, a size in bytes, or any other whole number that is never negative."""

LARGEST_RECORDED: Final = 1 << 53
"""Up to here every program that reads JSON numbers as doubles has the same number."""

RecordedCount: TypeAlias = Annotated[int, Meta(ge=0, le=LARGEST_RECORDED)]
"""A count or a size in bytes that a sidecar holds; sums of a thousand of them fit into 64 bits."""

Picoseconds: TypeAlias = Annotated[int, Meta(ge=0, le=LARGEST)]
"""A length of time, or a time since the origin of the run."""

Integer: TypeAlias = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
"""A whole number of either sign, such as a difference of clocks."""

Ratio: TypeAlias = Annotated[float, Meta(ge=0)]
"""A share; 1 is all of it."""

Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
"""A ratio that cannot exceed 1."""

Activity: TypeAlias = Annotated[str, text_kind("activity")]
"""The op or, without one, the kernel of a device event."""

Argument: TypeAlias = Annotated[str, text_kind("argument")]
"""An argument of a command line, or of a function."""

AxisName: TypeAlias = Annotated[str, text_kind("axis")]
"""An axis of a mesh."""

DeviceKey: TypeAlias = Annotated[str, text_kind("device")]
"""A device, `GPU:3`, with its host in front in a run of several hosts."""

EventName: TypeAlias = Annotated[str, text_kind("event")]
"""An event of a host, or several that are inside of each other."""

FileName: TypeAlias = Annotated[str, text_kind("file")]
FunctionName: TypeAlias = Annotated[str, text_kind("function")]
Hostname: TypeAlias = Annotated[str, text_kind("host")]
KEY: Final = "^[a-z0-9_-]*$"
Key: TypeAlias = Annotated[str, Meta(pattern=KEY)]
"""A word of ours: the code of a finding, the name of an argument of its sentences."""

KernelName: TypeAlias = Annotated[str, text_kind("kernel")]
Message: TypeAlias = Annotated[str, text_kind("message")]
"""What the profiler, the system or a library says; redaction leaves codes of errors in it."""

ModelName: TypeAlias = Annotated[str, text_kind("model")]
"""A model of GPU."""

OpName: TypeAlias = Annotated[str, text_kind("op")]
OpType: TypeAlias = Annotated[str, text_kind("type")]
PathName: TypeAlias = Annotated[str, text_kind("path")]
RunName: TypeAlias = Annotated[str, text_kind("run")]
Sentence: TypeAlias = Annotated[str, text_kind("sentence")]
"""A sentence that a rule makes of typed arguments; redaction has it made again of theirs."""

Setting: TypeAlias = Annotated[str, text_kind("setting")]
"""The name or the value of a setting; redaction leaves numbers and public words."""

SliceName: TypeAlias = Annotated[str, text_kind("slice")]
"""A stage of an input pipeline, an op or a kernel."""

StageName: TypeAlias = Annotated[str, text_kind("stage")]
"""A stage of an input pipeline."""

SourceLine: TypeAlias = Annotated[str, text_kind("line")]
"""A line of Python: `train.py:87 in on_train_batch_end`."""

TaskName: TypeAlias = Annotated[str, text_kind("task")]
"""A process of a cluster by its role and number: `worker 3`."""

ThreadName: TypeAlias = Annotated[str, text_kind("thread")]

VersionText: TypeAlias = Annotated[str, text_kind("version")]
Words: TypeAlias = Annotated[str, text_kind("words")]
"""A word or a sentence of ours, with numbers and keys of ours and no recorded name; redaction leaves it as it is."""


def kind_of_text(extra: Mapping[str, Any] | None, record: Record | None = None) -> TextKind | None:
    """The kind in what `msgspec.inspect` gives as `extra` of a text; None where nothing says what it is.

    `record`: has the text, and where another field says the kind, that field.
    """
    known = extra or {}
    field = known.get(_KIND_FIELD)
    return getattr(record, field, None) if field else known.get(_TEXT_KIND)


def parts_of(type_: inspect.Type) -> Iterator[inspect.Type]:
    """A type and those that it is made of; the fields of a record are not looked into."""
    yield type_
    for name in ("type", "item_type", "key_type", "value_type"):
        part = getattr(type_, name, None)
        if isinstance(part, inspect.Type):
            yield from parts_of(part)
    for part in (*getattr(type_, "types", ()), *getattr(type_, "item_types", ())):
        yield from parts_of(part)


@cache
def fields_of(record: type[Record]) -> tuple[inspect.Field, ...]:
    """The fields of a record, with their keys and types."""
    info = inspect.type_info(record)
    assert isinstance(info, inspect.StructType)
    return info.fields


def records_of(root: type[Record]) -> list[type[Record]]:
    """The records that one is made of, itself first, in the order of the fields."""
    known: dict[type[Record], None] = {}

    def visit(record: type[Record]) -> None:
        known[record] = None
        for field in fields_of(record):
            for part in parts_of(field.type):
                if isinstance(part, inspect.StructType) and part.cls not in known:
                    assert issubclass(part.cls, Record)
                    visit(part.cls)

    visit(root)
    return list(known)


@cache
def meanings(record: type[Record]) -> Mapping[str, str]:
    """What each field of a record means, by its name, from the docstring of the class and of those it is made from."""
    known: dict[str, str] = {}
    for base in reversed(record.__mro__):
        if base is not Record and issubclass(base, Record):
            known |= _attributes(base.__doc__ or "")
    return known


def summary(record: type[Record]) -> str:
    """What a record holds: its docstring without the section on fields."""
    before, _, _ = cleandoc(record.__doc__ or "").partition("Attributes:\n")
    return " ".join(before.split())


def _attributes(docstring: str) -> dict[str, str]:
    _, _, section = cleandoc(docstring).partition("Attributes:\n")
    entries: dict[str, list[str]] = {}
    for line in section.splitlines():
        entry = _ATTRIBUTE.fullmatch(line.removeprefix("    "))
        if line.startswith("     "):
            entries[next(reversed(entries))].append(line.strip())
        elif entry:
            entries[entry[1]] = [entry[2]]
    return {name: " ".join(lines) for name, lines in entries.items()}


class TableColumn(Struct, frozen=True):
    """A column of rows that are records: the field, its key, and what its cells are."""

    field: str
    key: str
    kind: Literal["text", "int", "float", "bool"]
    is_optional: bool


def table_columns(row: type[Record]) -> tuple[TableColumn, ...]:
    """The columns of a table whose rows are records of plain values."""
    return tuple(
        TableColumn(field.name, field.encode_name, *_cell_kind(field.type))
        for field in fields_of(row)
    )


def _cell_kind(type_: inspect.Type) -> tuple[Literal["text", "int", "float", "bool"], bool]:
    if isinstance(type_, inspect.Metadata):
        return _cell_kind(type_.type)
    if isinstance(type_, inspect.UnionType):
        known = [member for member in type_.types if not isinstance(member, inspect.NoneType)]
        return _cell_kind(known[0])[0], len(known) < len(type_.types)
    if isinstance(type_, inspect.IntType):
        return "int", False
    if isinstance(type_, inspect.FloatType):
        return "float", False
    return ("bool" if isinstance(type_, inspect.BoolType) else "text"), False
