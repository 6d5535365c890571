"""Notes what functions of JAX are compiled for, and, where one is compiled again, which of its arguments have changed.

Noted are types, shapes and shardings of arrays. The values of static arguments are compared; noted are their types.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple
from weakref import ref

_MOST_ARGUMENTS: Final = 200
_MOST_CHANGES: Final = 4
"""Of one compilation: where all weights have changed, some of them show it."""
_PLAIN: Final = (bool, bytes, complex, float, frozenset, int, str, tuple, type(None))


class _Static(NamedTuple):
    kind: type[Any]
    """With it 1 and 1.0 differ."""
    value: Any


class Call(NamedTuple):
    """A call that a function may be compiled for: where the function is defined, itself, and the static arguments."""

    source: str
    function: ref[Any]
    static: Mapping[str, _Static]


def call_of(*given: Any) -> Call | None:
    """The call that `_infer_params` is given (JAX 0.4.30 to 0.10); None where another version gives it something else."""
    with suppress(Exception):
        info, args, kwargs = given[-3:]
        named: Mapping[str, Any] = {}
        if info.static_argnames:
            named = info.fun_signature.bind_partial(*args, **kwargs).arguments
        static = {
            name: _Static(type(named[name]), named[name])
            for name in info.static_argnames
            if name in named
        }
        return Call(info.fun_sourceinfo, ref(getattr(info, "fun", given[0])), static)
    return None


class Compilation(NamedTuple):
    """What a function was compiled for: by the name of the argument its abstract value and sharding, or that it is static."""

    function: ref[Any] | None
    arguments: Mapping[str, tuple[Any, Any]]

    @classmethod
    def of(cls, jaxpr: Any, shardings: Any, call: Call | None) -> Compilation:
        """The compilation of a closed `jaxpr`, one sharding for each argument."""
        avals, known = jaxpr.in_avals, getattr(jaxpr.jaxpr.debug_info, "arg_names", None)
        names = known if known and len(known) == len(avals) else [None] * len(avals)
        each = shardings if isinstance(shardings, tuple | list) else [None] * len(avals)
        shown = (name or f"argument {number}" for number, name in enumerate(names))
        arrays = dict(zip(shown, zip(avals, each, strict=False), strict=False))
        return cls(call and call.function, {**arrays, **(call.static if call else {})})

    def described(self) -> list[dict[str, Any]]:
        """The arguments as they are in the sidecar."""
        each = islice(self.arguments.items(), _MOST_ARGUMENTS)
        return [{"name": name, **_described(*argument)} for name, argument in each]

    def since(self, before: Compilation) -> dict[str, Any]:
        """What differs from an earlier one, as it is in the sidecar."""
        pairs = {
            name: (before.arguments.get(name), self.arguments.get(name))
            for name in {**before.arguments, **self.arguments}
        }
        changes = [
            {"name": name, "old": old and _described(*old), "new": new and _described(*new)}
            for name, (old, new) in pairs.items()
            if old != new
        ]
        is_new = not (before.function and self.function and before.function() is self.function())
        return {"is_new_function": is_new, "changes": changes[:_MOST_CHANGES]}


def _described(kind: Any, sharding: Any) -> dict[str, Any]:
    if isinstance(kind, type):
        return {"static": kind.__name__ if kind in _PLAIN else "object"}
    # `~` is how JAX shows the type of a Python number, which adapts to that of an array.
    weak, shape = "~" * bool(getattr(kind, "weak_type", False)), getattr(kind, "shape", ())
    known: dict[str, Any] = {"type": f"{weak}{getattr(kind, 'dtype', '')}[{_sizes(shape)}]"}
    # An array that nobody has put on chosen devices has none.
    with suppress(AttributeError, ValueError):
        known |= {"devices": len(sharding.device_set), "shard": _sizes(sharding.shard_shape(shape))}
        known["sharding"] = type(sharding).__name__
        known["mesh"] = {str(axis): int(size) for axis, size in sharding.mesh.shape.items()}
    return known


def _sizes(shape: Any) -> str:
    return ",".join(map(str, shape))
