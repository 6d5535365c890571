"""How does a saved `report.json` become a report again?

The data classes of the report say what has to be there. Keys that they do not have are passed over: a later
version may have added them. A key that an earlier version did not write yet is absent where it may be.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, Union, cast, get_args, get_origin, get_type_hints

from traceview.errors import TraceFormatError, TraceNotFoundError
from traceview.report.consistency import first_disagreement
from traceview.report.model import SCHEMA_VERSION, Report

_LARGEST: Final = (1 << 63) - 1
"""Picoseconds and counts are 64 bits wide."""

_JSON_NAMES: Final = {
    bool: "true or false",
    dict: "an object",
    float: "a number",
    int: "a whole number",
    list: "a list",
    str: "a text",
    type(None): "null",
}


class _MismatchError(Exception):
    """A value that is not what the report has at this place."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")


def schema_text() -> str:
    """The JSON Schema of a report, as it is shipped."""
    return files("traceview.report").joinpath("schema.json").read_text(encoding="utf-8")


def load_report(path: Path | str) -> Report:
    """The report in a file that `traceview report` or `traceview analyze -o report.json` wrote.

    Raises `TraceNotFoundError` where there is no such file and `TraceFormatError` for one that holds anything
    else: with the byte where it stops being JSON, or the key that is not what it should be.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise TraceNotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise TraceNotFoundError(f"{path}: {error.strerror or error}") from error
    data = _parsed(path, content)
    if not isinstance(data, dict) or "schema_version" not in data:
        raise TraceFormatError(
            path, "not a saved report", hint="traceview report writes one as report.json"
        )
    version = data["schema_version"]
    if version != SCHEMA_VERSION or isinstance(version, bool):
        by = data.get("traceview_version")
        raise TraceFormatError(
            path,
            f"schema_version is {_shown(version)}; this version reads {SCHEMA_VERSION}",
            hint=f"it was written by traceview {by}" if isinstance(by, str) else None,
        )
    try:
        report = cast("Report", _data_class(Report, data, "$"))
    except _MismatchError as mismatch:
        raise TraceFormatError(path, str(mismatch)) from None
    wrong = first_disagreement(report)
    if wrong is not None:
        raise TraceFormatError(path, f"{wrong.place}: {wrong.problem}")
    return report


def _parsed(path: Path, content: bytes) -> object:
    def no_number(text: str) -> NoReturn:
        raise TraceFormatError(path, f"{text} is no number in JSON")

    try:
        return json.loads(content.decode("utf-8-sig"), parse_constant=no_number)
    except UnicodeDecodeError as error:
        raise TraceFormatError(path, "not UTF-8 text", offset=error.start) from None
    except json.JSONDecodeError as error:
        offset = len(error.doc[: error.pos].encode())
        raise TraceFormatError(path, f"not JSON: {error.msg}", offset=offset) from None
    except (RecursionError, ValueError):
        # Nested deeper, or a number longer, than Python reads.
        raise TraceFormatError(path, "not a saved report") from None


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


@lru_cache(maxsize=1)
def _definitions() -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads(schema_text())["$defs"]
    return found


def _data_class(kind: type, value: object, place: str) -> object:
    if not isinstance(value, dict):
        raise _MismatchError(place, _expected("an object", value))
    read: dict[str, Any] = {}
    for field in fields(cast("Any", kind)):
        key = field.name.removesuffix("_")
        hint = _hints(kind)[field.name]
        if key not in value:
            read[field.name] = _absent(field, hint, f"{place}.{key}")
            continue
        read[field.name] = _value(hint, value[key], f"{place}.{key}")
        _check_described(kind, key, read[field.name], f"{place}.{key}")
    return kind(**read)


def _absent(field: Field[Any], hint: Any, place: str) -> Any:
    if field.default is not MISSING:
        return field.default
    if field.default_factory is not MISSING:
        return field.default_factory()
    if type(None) in get_args(hint):
        return None
    raise _MismatchError(place, "is missing")


def _check_described(kind: type, key: str, value: object, place: str) -> None:
    """What the schema says beyond the type: words of a closed list, and how small and large a number may be.

    Renderers know what each word means, and take a length of time for one.
    """
    described = _definitions().get(kind.__name__, {}).get("properties", {}).get(key, {})
    within = described
    if isinstance(value, (tuple, dict)):
        within = described.get("items" if isinstance(value, tuple) else "additionalProperties")
    if not isinstance(within, dict):
        return
    for at, one in _single_values(value, place):
        choices = within.get("enum")
        if choices is not None and one not in choices:
            raise _MismatchError(at, f"{_shown(one)} is not known to this version")
        if type(one) not in (int, float):
            continue
        least, most = within.get("minimum"), within.get("maximum")
        if least is not None and one < least:
            raise _MismatchError(at, f"{_shown(one)} is less than {least}")
        if most is not None and one > most:
            raise _MismatchError(at, f"{_shown(one)} is more than {most}")


def _single_values(value: object, place: str) -> Iterator[tuple[str, Any]]:
    """Each value with its place: those of a list or an object, else the one."""
    if isinstance(value, tuple):
        yield from ((f"{place}[{at}]", one) for at, one in enumerate(value))
    elif isinstance(value, dict):
        yield from ((f"{place}.{key}", one) for key, one in value.items())
    else:
        yield place, value


def _value(hint: Any, value: object, place: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _of_union(arguments, value, place)
    if origin is Literal:
        if value not in arguments:
            raise _MismatchError(place, f"{_shown(value)} is not known to this version")
        return value
    if origin is tuple:
        return _tuple(arguments, value, place)
    if origin is dict:
        if not isinstance(value, dict):
            raise _MismatchError(place, _expected("an object", value))
        return {key: _value(arguments[1], one, f"{place}.{key}") for key, one in value.items()}
    if is_dataclass(hint):
        return _data_class(cast("type", hint), value, place)
    return _scalar(hint, value, place)


def _of_union(choices: tuple[Any, ...], value: object, place: str) -> Any:
    if value is None and type(None) in choices:
        return None
    others = [choice for choice in choices if choice is not type(None)]
    # A whole number stays one where either is allowed.
    exact = [choice for choice in others if choice is type(value)]
    if exact or len(others) == 1:
        return _value((exact or others)[0], value, place)
    for choice in others:
        try:
            return _value(choice, value, place)
        except _MismatchError:
            continue
    words = " or ".join(_JSON_NAMES.get(choice, "an object") for choice in others)
    raise _MismatchError(place, _expected(words, value))


def _tuple(arguments: tuple[Any, ...], value: object, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _MismatchError(place, _expected("a list", value))
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_value(arguments[0], one, f"{place}[{i}]") for i, one in enumerate(value))
    if len(arguments) != len(value):
        raise _MismatchError(place, f"expected {len(arguments)} entries, found {len(value)}")
    return tuple(
        _value(hint, one, f"{place}[{i}]")
        for i, (hint, one) in enumerate(zip(arguments, value, strict=True))
    )


def _scalar(hint: Any, value: object, place: str) -> Any:
    if hint is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise _MismatchError(place, "the number is too large") from None
    if type(value) is int and abs(value) > _LARGEST:
        raise _MismatchError(place, "the number is too large")
    if type(value) is not hint:
        raise _MismatchError(place, _expected(_JSON_NAMES.get(hint, "something else"), value))
    return value


def _expected(words: str, value: object) -> str:
    return f"expected {words}, found {_JSON_NAMES.get(type(value), 'something else')}"


def _shown(value: object) -> str:
    """A value in an error: short, whatever it is."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}…"
