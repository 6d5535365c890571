"""Names that try to be something else than a name, and reports that are full of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from msgspec.structs import asdict, replace

from traceview.record import Record

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

ENUMERATED: Final = frozenset(
    [
        "basis",
        "bytes_source",
        "cause",
        "code",
        "class_",
        "classes",
        "confidence",
        "direction",
        "key",
        "kind",
        "link",
        "matched_by",
        "measured_by",
        "method",
        "metric",
        "missing",
        "path",
        "precision",
        "quality",
        "reliability",
        "severity",
        "status",
        "thread_mode",
        "verdict",
    ]
)
"""Fields that hold words of a closed list."""

_T = TypeVar("_T")


def with_texts(value: _T, change: Callable[[str, str], str], field: str = "") -> _T:
    """The data with every text changed but those of closed lists; `change` gets the field's name and the text."""
    result: Any = value
    if isinstance(value, Record):
        changed = {name: with_texts(part, change, name) for name, part in asdict(value).items()}
        result = replace(value, **changed)
    elif isinstance(value, tuple):
        result = tuple(with_texts(item, change, field) for item in value)
    elif isinstance(value, dict):
        result = {key: with_texts(item, change, field) for key, item in value.items()}
    elif isinstance(value, str) and field not in ENUMERATED:
        result = change(field, value)
    changed_value: _T = result
    return changed_value
