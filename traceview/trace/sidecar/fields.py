"""Reads a JSON object whose fields may hold anything, and keeps the fields of the right type.

A struct gives the names and types of the fields, and the least and the largest number of each. A field that is absent
or null is None, or empty where its type has no None. A field of another type counts as absent, and so does a number
outside of its bounds; its name is noted. Unknown keys are ignored: a newer version may write them.
"""

from __future__ import annotations

import types
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct, ValidationError, convert

from traceview.base.text import encodable

LARGEST: Final = 2**62
"""No count and no time that traceview writes is larger."""

_Record = TypeVar("_Record")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """The types of the fields with their bounds."""
    return get_type_hints(kind, include_extras=True)


def read_as(kind: type[_Record], value: Any, wrong: list[str], path: str = "") -> _Record:
    """`value` as a struct of text, numbers, booleans, tuples, dictionaries with text keys, and such structs.

    The dotted names of fields of another type are added to `wrong`, each prefixed with `path`. A trailing
    underscore, which Python needs in `class_`, is not part of a key.
    """
    if value is not None and not isinstance(value, dict):
        wrong.append(path or "the whole file")
    fields = value if isinstance(value, dict) else {}
    read: dict[str, Any] = {}
    hashable: Any = kind
    for name, hint in _hints(hashable).items():
        key = name.removesuffix("_")
        read[name] = _field(fields.get(key), hint, wrong, f"{path}.{key}" if path else key)
    return kind(**read)


def _field(value: Any, hint: Any, wrong: list[str], path: str) -> Any:
    if value is not None:
        try:
            return _typed(value, hint, wrong, path)
        except ValidationError:
            wrong.append(path)
    return _empty(hint, wrong, path)


def _empty(hint: Any, wrong: list[str], path: str) -> Any:
    if get_origin(hint) in (tuple, dict):
        return get_origin(hint)()
    if isinstance(hint, type) and issubclass(hint, Struct):
        return read_as(hint, None, wrong, path)
    return None


def _only(kind: type[Any], value: Any) -> Any:
    """A list or an object; `convert` would fail otherwise for a text with half of a surrogate pair."""
    if not isinstance(value, kind):
        raise ValidationError
    return value


def _typed(value: Any, hint: Any, wrong: list[str], path: str) -> Any:
    """The value as one of its type; raises `ValidationError` for another type, or outside of its bounds."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (hint,) = (argument for argument in arguments if argument is not type(None))
        return None if value is None else _typed(value, hint, wrong, path)
    # All elements or none: a list with a hole in it would mean something else.
    if origin is tuple:
        return tuple(_typed(item, arguments[0], wrong, path) for item in _only(list, value))
    if origin is dict:
        items = _only(dict, value).items()
        return {encodable(key): _typed(item, arguments[1], wrong, path) for key, item in items}
    if isinstance(hint, type) and issubclass(hint, Struct):
        return read_as(hint, _only(dict, value), wrong, path)
    # Written so that NaN is refused too.
    if isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise ValidationError
    return convert(encodable(value) if isinstance(value, str) else value, hint)
