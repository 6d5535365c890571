"""Describes the compiled functions of a script: what they compute, and the arguments they were compiled for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

_BACKWARD: Final = "transpose"
"""The transformation by which `jax.grad` makes the backward pass; JAX names its operations `transpose(jvp(...))`."""
_MOST_EQUATIONS: Final = 100_000
_MOST_ARGUMENTS: Final = 200
_MOST_WRAPPED: Final = 8
_PLACE: Final = re.compile(r"(.*) at (.*):\d+", re.DOTALL)
_OWN: Final = ("/jax/_src/", "/jax/experimental/", "/jax/numpy/", "/jaxlib/")
"""Folders of JAX itself: operations that a script calls outside any function of its own."""


@dataclass(eq=False)
class CompiledFunction:
    """A function that JAX compiled, with what the capture counts of it.

    `time_ns`: from the return of the execution before each of its own, whatever that was, to the return of its own: its
    time with the input and the results that the script waited for. `arguments`: those it was last compiled for.
    """

    name: str
    calls: int = 0
    step_count: int = 0
    time_ns: int = 0
    computes_gradients: bool = False
    is_of_jax: bool = False
    is_step: bool = False
    is_mark: bool = False
    was_compiled: bool = False
    arguments: list[dict[str, Any]] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """What it is in the sidecar."""
        return "annotation" if self.is_mark else "jit"

    @property
    def words(self) -> str:
        """What it is in a list of what was called."""
        if self.is_mark:
            return "marked steps"
        return "computes gradients" if self.computes_gradients else "computes no gradients"

    # What the rest of the capture asks of something that is called.

    has_replicas: ClassVar[bool] = False
    runs_per_call: ClassVar[int] = 1

    @property
    def is_train(self) -> bool:
        """Whether it trains."""
        return self.computes_gradients or self.is_mark

    def compiled(self, jaxpr: Any, shardings: Any) -> None:
        """Learn from what is compiled now."""
        self.was_compiled = True
        if user_function(jaxpr) is None:
            self.is_of_jax = not self.calls
            return
        self.is_of_jax = False
        self.computes_gradients = computes_gradients(jaxpr.jaxpr)
        names = getattr(getattr(jaxpr.jaxpr, "debug_info", None), "arg_names", None) or ()
        self.arguments = list(_arguments(jaxpr.in_avals, names, shardings))


def user_function(jaxpr: Any) -> str | None:
    """The name of the function of the user in a computation; None where it is an operation of JAX alone.

    Empty where JAX does not say whose it is, as of gradients that are taken outside any `jax.jit`.
    """
    waiting = [jaxpr.jaxpr]
    while waiting:
        inner = waiting.pop()
        source = getattr(inner.debug_info, "func_src_info", None)
        if source is None and inner is jaxpr.jaxpr:
            return ""
        place = _PLACE.fullmatch(str(source))
        if place is not None and not any(folder in place[2] for folder in _OWN):
            return place[1]
        # What JAX wraps in a function of its own, as `jax.pmap` does, is its only content.
        parts = [part for e in inner.eqns[:_MOST_WRAPPED] for v in e.params.values() for part in _jaxprs(v)]
        waiting += parts[:_MOST_WRAPPED]
    return None


def computes_gradients(jaxpr: Any) -> bool:
    """Whether a part of a computation, or of a function or loop in it, is a backward pass."""
    waiting, left = [jaxpr], _MOST_EQUATIONS
    while waiting and left:
        inner = waiting.pop()
        # The backward pass comes last.
        for equation in reversed(inner.eqns):
            left -= 1
            if any(_is_backward(part) for part in equation.source_info.name_stack.stack):
                return True
            if not left:
                break
            waiting += [part for value in equation.params.values() for part in _jaxprs(value)]
    return False


def _is_backward(part: Any) -> bool:
    # A script may name a scope like that.
    return part.name == _BACKWARD and type(part).__name__ == "Transform"


def _jaxprs(value: Any) -> Iterator[Any]:
    for part in value if isinstance(value, tuple | list) else (value,):
        part = getattr(part, "jaxpr", part)
        if hasattr(part, "eqns"):
            yield part


def _arguments(avals: Any, names: Any, shardings: Any) -> Iterator[dict[str, Any]]:
    """One row per array that the function gets: its name, shape, dtype and sharding."""
    each = shardings if isinstance(shardings, tuple | list) else ()
    for number, aval in enumerate(avals[:_MOST_ARGUMENTS]):
        name = names[number] if number < len(names) else None
        spec = getattr(each[number], "spec", None) if number < len(each) else None
        yield {
            "name": str(name or ""),
            "shape": [int(size) for size in getattr(aval, "shape", ())],
            "dtype": str(getattr(aval, "dtype", "")),
            "sharding": None if spec is None else str(spec),
        }
