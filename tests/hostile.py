"""Names that try to be something else than a name, and reports that are full of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import cycle
from typing import Any, Final, TypeVar

from msgspec import inspect
from msgspec.structs import asdict, replace

from scripts.cuda_trace import V100_STATS, CudaTrace
from scripts.scenarios.model import marked_steps, new_trace
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


def trace_of_names(names: Sequence[str], host: str) -> CudaTrace:
    """Steps whose ops, kernels, functions, threads, models and host events have these names, each a few times."""
    trace, name = new_trace(host), cycle(names)
    for ordinal in (0, 1):
        trace.gpu(ordinal, stats={**V100_STATS, "gpu_device_name": next(name)})
    thread = trace.thread(names[-1], 9)
    for number, step in enumerate(marked_steps(trace, count=4)):
        for ordinal in (0, 1):
            for place in range(8):
                op = next(name)
                step.kernel(ordinal, 20 + place, 20.9 + place, name=next(name), op=op)
            step.copy(ordinal, "h2d", 15, 19, size=40_000_000)
        step.host("IteratorGetNext:IteratorGetNext", 1, 12)
        step.host(names[number % len(names)], 12.1, 12.4)
        step.host(next(name), 12.1, 12.4, thread=thread)
        step.host(f"Iterator::Root::{next(name)}", 1, 11)
    return trace


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
