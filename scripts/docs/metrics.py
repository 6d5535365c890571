"""Writes docs/metrics.md: how to read report.json, and the keys of each object in it, from the records."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import inspect

from scripts.docs.words import words
from traceview.base.record import Record, fields_of, summary
from traceview.document.markdown import code
from traceview.report.model import Report

_HEAD = """\
# The JSON of a report

`traceview report LOGDIR -o DIR` writes `report.json` beside the pages, `traceview analyze LOGDIR -o report.json` alone.
`traceview report report.json --format html` makes the page later. `traceview.analyze(...)` returns the same objects.

```sh
jq -r '.findings[] | [.severity, .code, .loss.gpu_time_ratio] | @tsv' report.json
jq '.results.device_time.devices[] | {device, busy_ratio, idle_ps}' report.json
jq '.results.ledger.share_by_state' report.json
traceview explain --schema report | jq '."$defs".DeviceTimeRow.properties.busy_ps'
```

The last command prints type and meaning of a key. [method.md](method.md) defines the numbers.

## Rules

- A key ends with its unit: `_ps` picoseconds, `_ns` nanoseconds, `_bytes`, `_mb` megabytes, `_hz`, `_watts`, `_per_second`,
  `_per_step`. `_ratio` is a share from 0 to 1 unless the schema says otherwise, `_count` a number of things.
- Times are whole picoseconds from the [origin](method.md#origin-of-times) of the run. `jq` and JavaScript hold integers
  exactly up to 2^53, two and a half hours of picoseconds.
- Parts add up exactly: compute, exposed parts and idle of a device to `window_ps`, the states of its mean step in
  `results.ledger` to `step_ps`.
- Null means that the trace does not hold the number. A topic without a result is null, with its reason in `skipped`.
- `schema_version` changes when a key goes, or changes its meaning, type or unit. Keys and words may be added without that:
  ignore those that you do not know.

## Keys

Each object has its path, its name in the schema, what it is, and its keys. `[]` is each item of a list, `.*` each value of an
object. An object in several places is listed at the first. Only the schema has `arguments`, `results.hangs`,
`results.lanes`, `results.outside_view`, `results.timeline` and `results.environment.hosts`.
"""
_FOR_SCHEMA_ONLY = (
    ".arguments.*", "results.hangs", "results.lanes", "results.outside_view", "results.timeline", "environment.hosts[].",
)  # fmt: skip
"""Parts of sentences, pictures, settings and what few runs have: who needs their keys looks into the schema."""
_END = "This page is made from the records in the code by `python -m scripts.docs`."


def page() -> str:
    """The whole page: the rules, then the keys of each object."""
    blocks = [_HEAD]
    for record, places in _places(Report, "$").items():
        path = places[0].removeprefix("$").removeprefix(".")
        if any(part in path for part in _FOR_SCHEMA_ONLY):
            continue
        keys = ", ".join(code(field.encode_name) for field in fields_of(record))
        blocks.append(
            f"{code(path or '$')} (`{record.__name__}`): {_first_sentence(record)} {keys}"
        )
    return "\n\n".join(block.strip() for block in (*blocks, _END)) + "\n"


def _first_sentence(record: type[Record]) -> str:
    """What an object is, in one sentence."""
    return words(summary(record).partition(". ")[0].rstrip(".") + ".")


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
