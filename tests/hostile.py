"""Names that try to be something else than a name, and reports that are full of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

from msgspec import inspect
from msgspec.structs import asdict, replace

from traceview.base.record import Record, fields_of, parts_of

HOSTILE: Final = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a|b||c\\|d",
    "`back`ticks```",
    "[red]bold[/red] [link](http://evil.example/) ![image](http://evil.example/x.png)",
    "two\nlines\r\n\n# heading\n- item\n```\nfence",
    "\u202egnp.exe \u2066hidden\u2069 \x1b[31mred\x00",
    "</details></summary><!-- comment -->",
    "@everyone #1 :smile: GH-1 www.evil.example https://evil.example a@evil.example ~~x~~ $x$",
    "    indented\tcode",
    "| --- | --- |",
    "\udcff\udcfe",
    "1. list",
    "&lt;&amp;&#60;",
    "*bold* _it_ **b** <https://evil.example>",
    "{{ template }} {% code %} ${x}",
    "x" * 100_000,
    "|" * 5000,
    "`" * 3001,
)

_T = TypeVar("_T")


def with_texts(value: _T, change: Callable[[str, str], str], field: str = "") -> _T:
    """The data with every text changed but those of closed lists; `change` gets the field's name and the text."""
    result: Any = value
    if isinstance(value, Record):
        closed = _closed_fields(type(value))
        changed = {
            name: part if name in closed else with_texts(part, change, name)
            for name, part in asdict(value).items()
        }
        result = replace(value, **changed)
    elif isinstance(value, tuple):
        result = tuple(with_texts(item, change, field) for item in value)
    elif isinstance(value, dict):
        result = {key: with_texts(item, change, field) for key, item in value.items()}
    elif isinstance(value, str):
        result = change(field, value)
    changed_value: _T = result
    return changed_value


@cache
def _closed_fields(record: type[Record]) -> frozenset[str]:
    """The fields that a reader refuses other words in: those of closed lists, and keys."""
    return frozenset(field.name for field in fields_of(record) if _is_closed(field.type))


def _is_closed(type_: inspect.Type) -> bool:
    known = [
        part for part in parts_of(type_) if isinstance(part, inspect.StrType | inspect.LiteralType)
    ]
    records = [part for part in parts_of(type_) if isinstance(part, inspect.StructType)]
    return (
        bool(known)
        and not records
        and all(isinstance(part, inspect.LiteralType) or part.pattern for part in known)
    )
