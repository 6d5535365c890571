"""Describes the compiled functions of a script: what they compute, and the arguments they were compiled for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import Any, Final

_BACKWARD: Final = "transpose"
"""The transformation by which `jax.grad` makes the backward pass; JAX names its operations `transpose(jvp(...))`."""
_MOST_EQUATIONS: Final = 100_000
_MOST_ARGUMENTS: Final = 200
_UPDATED: Final = 2
"""An optimizer is given gradients beside what it returns."""
_OWN: Final = ("/jax/_src/", "/jax/experimental/", "/jax/numpy/", "/jaxlib/")
"""Folders of JAX itself: operations that a script calls outside any function of its own."""


@dataclass(eq=False)
class CompiledFunction:
    """A function that JAX compiled, with what the capture counts of it.

    `work`: about how many operations on numbers a call makes. `arguments`: those it was last compiled for.
    """

    name: str
    calls: int = 0
    step_count: int = 0
    work: int = 0
    computes_gradients: bool = False
    is_update: bool = False
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

    def compiled(self, jaxpr: Any, shardings: Any) -> None:
        """Learn from what is compiled now."""
        self.was_compiled = True
        # Whether a computation is an operation of JAX alone; one whose place is not known is none.
        place = str(getattr(jaxpr.jaxpr.debug_info, "func_src_info", None)).rpartition(" at ")[2]
        is_of_jax = any(folder in place for folder in _OWN)
        self.is_of_jax = is_of_jax and not self.calls
        if not is_of_jax:
            self.learn(jaxpr, shardings)

    def learn(self, jaxpr: Any, shardings: Any) -> None:
        """What it computes, and of what."""
        self.work, self.computes_gradients = measured(jaxpr.jaxpr)
        given, made = (sum(map(_numbers, avals)) for avals in (jaxpr.in_avals, jaxpr.out_avals))
        # What takes gradients, and returns the weights.
        self.is_update = not self.computes_gradients and 0 < given <= _UPDATED * made
        names = getattr(getattr(jaxpr.jaxpr, "debug_info", None), "arg_names", None) or ()
        self.arguments = list(_arguments(jaxpr.in_avals, names, shardings))


def has_backward(program: Any) -> bool:
    """Whether a program of which only the compiled form is known has a backward pass."""
    modules = program.xla_executable.hlo_modules()
    return any(f"{_BACKWARD}(jvp" in module.to_string() for module in modules)


def measured(jaxpr: Any) -> tuple[int, bool]:
    """About how many operations on numbers a computation makes, and whether it has a backward pass.

    Of a loop whose length only the run decides, one round counts.
    """
    waiting, left = [(jaxpr, 1)], _MOST_EQUATIONS
    work, has_backward = 0, False
    while waiting and left > 0:
        inner, times = waiting.pop()
        left -= len(inner.eqns)
        for equation in inner.eqns:
            parts = [part for value in equation.params.values() for part in _jaxprs(value)]
            rounds = equation.params.get("length", 1) if parts else 1
            waiting += [(part, times * rounds) for part in parts]
            work += 0 if parts else times * _operations(equation)
            # A script may name a scope like that.
            has_backward |= any(
                part.name == _BACKWARD and type(part).__name__ == "Transform"
                for part in equation.source_info.name_stack.stack
            )
    return work, has_backward


def _numbers(aval: Any) -> int:
    shape: Sequence[int] = getattr(aval, "shape", (0,))
    return math.prod(shape)


def _operations(equation: Any) -> int:
    """Of a product of matrices or a convolution those of each sum; of all else one per number."""
    made = sum(_numbers(variable.aval) for variable in equation.outvars)
    numbers = equation.params.get("dimension_numbers")
    if equation.primitive.name == "dot_general":
        shape: Sequence[int] = equation.invars[0].aval.shape
        return int(made * math.prod([shape[axis] for axis in numbers[0][0]]))
    if equation.primitive.name == "conv_general_dilated":
        kernel: Sequence[int] = equation.invars[1].aval.shape
        return int(made * math.prod(kernel) // max(kernel[numbers.rhs_spec[0]], 1))
    return made


def _jaxprs(value: Any) -> Iterator[Any]:
    parts = value if isinstance(value, tuple | list) else (value,)
    inner = (getattr(part, "jaxpr", part) for part in parts)
    return (part for part in inner if hasattr(part, "eqns"))


def _arguments(avals: Any, names: Any, shardings: Any) -> Iterator[dict[str, Any]]:
    """One row per array that the function gets: its name, shape, dtype and sharding."""
    each = shardings if isinstance(shardings, tuple | list) else ()
    arguments = zip_longest(avals, names, each)
    for aval, name, sharding in islice(arguments, min(len(avals), _MOST_ARGUMENTS)):
        spec = getattr(sharding, "spec", None)
        mesh = getattr(getattr(sharding, "mesh", None), "shape", None)
        # The axes of the mesh over which a dimension is split.
        axes = [
            "+".join(map(str, part)) if isinstance(part, tuple) else part and str(part)
            for part in spec or ()
        ]
        yield {
            "name": str(name or ""),
            "shape": [int(size) for size in getattr(aval, "shape", ())],
            "dtype": str(getattr(aval, "dtype", "")),
            "sharding": None if spec is None else axes,
            "mesh": None if mesh is None else {str(axis): int(size) for axis, size in mesh.items()},
        }
