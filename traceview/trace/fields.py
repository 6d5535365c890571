"""How is a JSON object read whose fields may hold anything? Each as what it should be, or not at all.

A struct says which fields there are and of which type. A field that is absent or null is None, or empty
where its type has no None; one of another type is taken as absent, and its name noted. Keys that no field
has are ignored: a newer version may write them.
"""

from __future__ import annotations

import types
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

LARGEST: Final = 2**63 - 1
"""Numbers beyond are no count and no time of ours."""

_Record = TypeVar("_Record")


class _WrongTypeError(Exception):
    """A value is not of the type that was asked for."""


def read_as(kind: type[_Record], value: Any, wrong: list[str], path: str = "") -> _Record:
    """`value` as a struct of text, numbers, booleans, tuples, dictionaries by text, and such structs.

    The dotted names of fields of another type are added to `wrong`; `path` stands before them. A trailing
    underscore, which Python needs in `class_`, is not part of a key.
    """
    if value is not None and not isinstance(value, dict):
        wrong.append(path or "the whole file")
    fields = value if isinstance(value, dict) else {}
    read: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        key = name.removesuffix("_")
        read[name] = _field(fields.get(key), hint, wrong, f"{path}.{key}" if path else key)
    return kind(**read)


def _field(value: Any, hint: Any, wrong: list[str], path: str) -> Any:
    if value is not None:
        try:
            return _typed(value, hint, wrong, path)
        except _WrongTypeError:
            wrong.append(path)
    return _nothing(hint, wrong, path)


def _nothing(hint: Any, wrong: list[str], path: str) -> Any:
    if get_origin(hint) in (tuple, dict):
        return get_origin(hint)()
    if isinstance(hint, type) and issubclass(hint, Struct):
        return read_as(hint, None, wrong, path)
    return None


def _typed(value: Any, hint: Any, wrong: list[str], path: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (hint,) = (one for one in arguments if one is not type(None))
        return None if value is None else _typed(value, hint, wrong, path)
    if origin is tuple:
        return tuple(_elements(_of(list, value), arguments[0], wrong, path))
    if origin is dict:
        items = _of(dict, value)
        read = _elements(items.values(), arguments[1], wrong, path)
        return dict(zip(items, read, strict=True))
    if isinstance(hint, type) and issubclass(hint, Struct):
        return read_as(hint, _of(dict, value), wrong, path)
    return _plain(value, hint)


def _elements(values: Any, hint: Any, wrong: list[str], path: str) -> list[Any]:
    """All or none: a list with a hole in it would say something else."""
    return [_typed(value, hint, wrong, path) for value in values]


def _of(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise _WrongTypeError
    return value


def _plain(value: Any, hint: Any) -> Any:
    if hint in (int, float) and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise _WrongTypeError
    # Not so of a number that is none, either.
    if hint in (int, float) and not abs(value) <= LARGEST:
        raise _WrongTypeError
    return float(value) if hint is float else _of(hint, value)
