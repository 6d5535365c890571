"""Finds the keys of the report's JSON Schema: which there are, what each is measured in, and its values in a report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from msgspec import Struct, inspect

from traceview.analysis.anatomy.result import ACTIVITIES
from traceview.analysis.registry import Results
from traceview.document import numbers
from traceview.gate.path import PathStep
from traceview.gate.units import SHARE, Quantity, Unit
from traceview.record import Record, fields_of, meanings
from traceview.report.absent import absence
from traceview.report.model import Report
from traceview.trace.cause import PATH_KEYS, Cause

_CAUSES: Final = tuple(cause.key for cause in Cause)

ENTRIES: Final[Mapping[str, tuple[str, ...]]] = {
    "by_cause": PATH_KEYS,
    "mean_by_cause": PATH_KEYS,
    "share_by_cause": PATH_KEYS,
    "causes": _CAUSES,
    "causes_per_step": _CAUSES,
    "activity": ACTIVITIES,
    "idle": _CAUSES,
}
"""Objects that leave out what does not occur, with the keys that they can have: what is left out is zero."""

_OF_NAME: Final[Mapping[str, Quantity]] = {
    **dict.fromkeys(ENTRIES, "time"),
    "share_by_cause": "ratio",
    "bytes": "bytes",
    "ratio": "ratio",
    "throttle_reasons": "ratio",
}
"""The quantity of keys whose name does not end with it. Their times have no unit of their own."""

_ENDINGS: Final[tuple[tuple[str, Quantity], ...]] = (
    ("_bytes_per_second", "rate"),
    ("_ps_per_step", "time"),
    ("_per_step_ps", "time"),
    ("_ps", "time"),
    ("_bytes", "bytes"),
)
_OTHER_UNITS: Final[Mapping[str, tuple[str, int]]] = {
    "ns": ("ps", 10**3),
    "us": ("ps", 10**6),
    "ms": ("ps", 10**9),
    "s": ("ps", 10**12),
    "kb": ("bytes", 10**3),
    "mb": ("bytes", 10**6),
    "gb": ("bytes", 10**9),
}
_UNIT_WORD: Final = re.compile(r"_(ns|us|ms|s|kb|mb|gb)(?=$|_per_step$)")
_WHY_NULL: Final = re.compile(r"\bnull (?:for|in|where|if|without) [^;]*")
_NAMING: Final = (
    ("device",),
    ("code", "op", "name", "key", "op_type"),
    ("number", "step"),
)
"""Fields that name a row: of each group the first that it has."""
_ROW_NUMBERS: Final = ("number", "ordinal", "step")
_IS_TEXT: Final = (inspect.StrType, inspect.LiteralType)


class Value(Struct, frozen=True):
    """A value in a report. `where`: the rows that it is in, empty where there are none; `reason`: why there is no value."""

    where: str
    value: int | float | str | bool | None
    reason: str = ""


class SchemaKey(Struct, frozen=True):
    """A key of the report's schema. `quantity`: None for an object or a list of rows, which only presence is asked of."""

    steps: tuple[PathStep, ...]
    unit: Unit | None


class UnknownKeyError(Exception):
    """No key of the schema has this path. `place`: of the name that there is not; `known`: the names that there are."""

    def __init__(self, place: int, known: tuple[str, ...]) -> None:
        super().__init__(place)
        self.place = place
        self.known = known


def schema_key(steps: tuple[PathStep, ...]) -> SchemaKey:
    """The key at a path from the report or from its results on; raises `UnknownKeyError`."""
    if steps[0].name in Report.__struct_encode_fields__:
        return _key_from(Report, steps)
    try:
        found = _key_from(Results, steps)
    except UnknownKeyError as unknown:
        if unknown.place:
            raise
        raise UnknownKeyError(0, tuple(path for path, _ in schema_paths())) from None
    return SchemaKey((PathStep("results"), *found.steps), found.unit)


def _key_from(record: type[Record], steps: tuple[PathStep, ...]) -> SchemaKey:
    type_ = _whole(record)
    name, factor = "", 1
    found: list[PathStep] = []
    for place, asked in enumerate(steps):
        type_ = _inner(type_)
        if isinstance(type_, inspect.DictType):
            if asked.selector is not None or asked.name not in ENTRIES.get(name, (asked.name,)):
                raise UnknownKeyError(place, ENTRIES.get(name, ()))
            found.append(asked)
            type_ = type_.value_type
            continue
        if not isinstance(type_, inspect.StructType):
            raise UnknownKeyError(place, ())
        fields = {field.encode_name: field for field in type_.fields}
        step, factor = _in_unit_of_schema(asked, fields)
        if step.name not in fields:
            raise UnknownKeyError(place, tuple(fields))
        name, type_ = step.name, fields[step.name].type
        if step.selector is not None:
            _check_selector(step, place, _without_null(type_))
        found.append(step)
    return SchemaKey(tuple(found), _unit(name, _inner(type_, of_dictionaries=True), factor))


@cache
def _whole(record: type[Record]) -> inspect.Type:
    """All types that a record is made of, which takes a while."""
    return inspect.type_info(record)


def _check_selector(step: PathStep, place: int, type_: inspect.Type) -> None:
    """Raise `UnknownKeyError` for a choice among what is no list, or of an entry that an object never has."""
    if isinstance(type_, inspect.DictType):
        if step.selector not in ENTRIES.get(step.name, (step.selector,)):
            raise UnknownKeyError(place, ENTRIES[step.name])
    elif not isinstance(type_, inspect.VarTupleType):
        raise UnknownKeyError(place, ())


def _in_unit_of_schema(step: PathStep, known: Mapping[str, object]) -> tuple[PathStep, int]:
    """`median_ms` as `median_ps` and how many of these one is."""
    match = None if step.name in known else _UNIT_WORD.search(step.name)
    if match is None:
        return step, 1
    unit, factor = _OTHER_UNITS[match[1]]
    name = f"{step.name[: match.start()]}_{unit}{step.name[match.end() :]}"
    return (PathStep(name, step.selector), factor) if name in known else (step, 1)


def _unit(name: str, type_: inspect.Type, factor: int) -> Unit | None:
    kinds = type_.types if isinstance(type_, inspect.UnionType) else (type_,)
    plain = [_bare(kind) for kind in kinds if not isinstance(kind, inspect.NoneType)]
    if any(isinstance(kind, inspect.StructType) for kind in plain):
        return None
    if any(isinstance(kind, inspect.BoolType) for kind in plain):
        return Unit("flag")
    if all(isinstance(kind, _IS_TEXT) for kind in plain):
        return Unit("text")
    if name.endswith("_ratio") or _OF_NAME.get(name) == "ratio":
        is_share = all(isinstance(kind, inspect.FloatType) and kind.le == 1 for kind in plain)
        return SHARE if is_share else Unit("ratio")
    for ending, quantity in _ENDINGS:
        if name.endswith(ending):
            return Unit(quantity, factor)
    quantity = _OF_NAME.get(name, "number")
    return Unit(quantity, None if quantity == "time" else 1)


def _bare(type_: inspect.Type) -> inspect.Type:
    return type_.type if isinstance(type_, inspect.Metadata) else type_


def _without_null(type_: inspect.Type) -> inspect.Type:
    """The type of a field whose value may be null."""
    type_ = _bare(type_)
    if isinstance(type_, inspect.UnionType):
        known = [member for member in type_.types if not isinstance(member, inspect.NoneType)]
        if len(known) == 1:
            return _bare(known[0])
    return type_


def _inner(type_: inspect.Type, *, of_dictionaries: bool = False) -> inspect.Type:
    """What a path goes on with: the rows of a list, and at its end the entries of an object."""
    type_ = _without_null(type_)
    while isinstance(type_, inspect.VarTupleType) or (
        of_dictionaries and isinstance(type_, inspect.DictType)
    ):
        inner = type_.item_type if isinstance(type_, inspect.VarTupleType) else type_.value_type
        type_ = _without_null(inner)
    return type_


@cache
def schema_paths() -> tuple[tuple[str, str], ...]:
    """Every key of the schema from the results on, or from the report on, with what it means."""
    return tuple(
        (path.removeprefix("results."), meaning) for path, meaning in _paths(Report, "", ())
    )


def _paths(
    record: type[Record], before: str, around: tuple[type[Record], ...]
) -> Iterator[tuple[str, str]]:
    known = meanings(record)
    for field in fields_of(record):
        path = f"{before}{field.encode_name}"
        yield path, known[field.name]
        inner = _inner(field.type, of_dictionaries=True)
        if isinstance(inner, inspect.StructType) and inner.cls not in around:
            assert issubclass(inner.cls, Record)
            yield from _paths(inner.cls, f"{path}.", (*around, inner.cls))


# Values


def values_of(report: Report, key: SchemaKey) -> list[Value]:
    """The values of a key in a report, row by row; objects and rows count as `true`."""
    return list(_values(report, key.steps, "", report))


def _values(value: Any, steps: tuple[PathStep, ...], where: str, report: Report) -> Iterator[Value]:
    if not steps:
        yield from _leaves(value, where)
        return
    step, rest = steps[0], steps[1:]
    field = next(
        name
        for name, key in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        if key == step.name
    )
    held = getattr(value, field)
    if held is None:
        yield Value(where, None, _reason(value, field, report))
    elif isinstance(held, tuple):
        yield from _of_rows(held, step, rest, where, report)
    elif isinstance(held, dict):
        yield from _of_entries(held, step, rest, where, report)
    else:
        yield from _values(held, rest, where, report)


def _of_rows(
    rows: tuple[Any, ...],
    step: PathStep,
    rest: tuple[PathStep, ...],
    where: str,
    report: Report,
) -> Iterator[Value]:
    chosen = [row for row in rows if step.selector is None or _is_called(row, step.selector)]
    if step.selector is not None and not chosen:
        names = list(dict.fromkeys(filter(None, (_name(row) for row in rows))))
        near = get_close_matches(step.selector, names) or names
        there = f", which has {numbers.beginning(near)}" if near else ""
        yield Value(where, None, f"there is no row {step.selector} in {step.name}{there}")
    elif not chosen:
        yield Value(where, None, f"there is no row in {step.name}")
    for row, name in zip(chosen, _names(chosen), strict=True):
        place = ", ".join(filter(None, (where, name)))
        yield from _values(row, rest, place, report)


def _of_entries(
    entries: Mapping[str, Any],
    step: PathStep,
    rest: tuple[PathStep, ...],
    where: str,
    report: Report,
) -> Iterator[Value]:
    names = [step.selector] if step.selector is not None else [rest[0].name] if rest else [*entries]
    if step.selector is None and rest:
        rest = rest[1:]
    if not names:
        yield Value(where, None, f"there is no entry in {step.name}")
    for name in names:
        is_named = len(names) > 1 or step.selector is not None
        place = ", ".join(filter(None, (where, name))) if is_named else where
        if name in entries:
            yield from _values(entries[name], rest, place, report)
        elif step.name in ENTRIES:
            yield Value(place, 0)
        else:
            yield Value(place, None, f"there is no {name} in {step.name}")


def _leaves(value: Any, where: str) -> Iterator[Value]:
    if isinstance(value, (tuple, dict)):
        items = value.values() if isinstance(value, dict) else value
        for item in items:
            yield from _leaves(item, where)
        if not items:
            yield Value(where, None, "it is empty")
    elif isinstance(value, Record):
        yield Value(where, True)
    else:
        yield Value(where, value)


def _is_called(row: Any, selector: str) -> bool:
    if not isinstance(row, Record):
        return str(row) == selector
    for name in row.__struct_fields__:
        value = getattr(row, name)
        if isinstance(value, str) and selector in (value, value.rpartition("/")[2]):
            return True
        if name in _ROW_NUMBERS and not isinstance(value, bool) and str(value) == selector:
            return True
    return False


def _names(rows: Sequence[Any]) -> list[str]:
    """What tells the rows apart; those of one op by their kernels."""
    names = [_name(row) for row in rows]
    counts = Counter(names)
    kernels = [getattr(row, "kernel", None) for row in rows]
    return [
        f"{name}, {kernel}" if kernel and counts[name] > 1 else name
        for name, kernel in zip(names, kernels, strict=True)
    ]


def _name(row: Any) -> str:
    """What tells a row from the others: its device, what it is on that device, and its step; else its host."""
    if not isinstance(row, Record):
        return ""
    fields = (_first_of(row, names) for names in _NAMING)
    words = [
        f"step {value}" if isinstance(value, int) else value
        for value in fields
        if value is not None
    ]
    return ", ".join(words) or _first_of(row, ("host", "kind")) or ""


def _first_of(row: Record, names: Sequence[str]) -> Any:
    """The value of the first of these fields that the row has."""
    values = (getattr(row, name, None) for name in names)
    return next((value for value in values if isinstance(value, (str, int))), None)


def _reason(record: Record, field: str, report: Report) -> str:
    """Why a field is null: as the report says, as the record says, or by the meaning of the field."""
    if isinstance(record, Results):
        return absence(report, field)
    said = getattr(record, "reason", None)
    if isinstance(said, str):
        return said
    missing = getattr(record, "missing", None)
    if isinstance(missing, Mapping) and field in missing:
        return str(missing[field])
    why = _WHY_NULL.search(meanings(type(record))[field])
    return why[0].rstrip(".") if why else "the report has no value"
