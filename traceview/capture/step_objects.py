"""Which functions and models stand behind the names of steps?

Whoever sees a step called hands its object over. None is kept alive: what the script has let go of is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final
from weakref import ref

_DEPTH: Final = 5
"""Closures between Keras' train function and the `tf.function` in it; Keras 3.15 has two, and we add one."""


class StepObjects:
    """What the steps of each name are made of: a `tf.function`, any other function, or a Keras model."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[ref[Any]]] = {}

    def add(self, name: str, thing: object) -> None:
        """The steps called `name` are calls of this."""
        known = self._by_name.setdefault(name, [])
        if any(one() is thing for one in known):
            return
        known[:] = [one for one in known if one() is not None]
        with suppress(TypeError):  # what cannot be referred to weakly is no tf.function
            known.append(ref(thing))

    @property
    def names(self) -> list[str]:
        """All names, in the order in which they were added."""
        return list(self._by_name)

    def functions(self, name: str) -> list[Any]:
        """The traced `tf.function`s that the steps of this name call, each once."""
        found = []
        for thing in self._alive(name):
            if _trains(thing):
                found += _traced_within(thing.train_function)
            elif traces(thing):
                found.append(thing)
        return list({id(function): function for function in found}.values())

    def models(self) -> list[Any]:
        """The Keras models whose training the steps are."""
        found = {
            id(model): model
            for name in self._by_name
            for model in _models_of(self._alive(name), self.functions(name))
        }
        return list(found.values())

    def _alive(self, name: str) -> list[Any]:
        things = (one() for one in self._by_name.get(name, ()))
        return [thing for thing in things if thing is not None]


def traces(function: Any) -> list[Any]:
    """The graphs of a `tf.function`, as concrete functions, oldest first; asking traces nothing."""
    cache = getattr(function, "_function_cache", None)
    return list(cache.values()) if cache is not None else []


def _models_of(things: Iterable[Any], functions: Iterable[Any]) -> Iterator[Any]:
    yield from (thing for thing in things if _trains(thing))
    for function in functions:
        # A train function of the user's own making closes over its model.
        for name, held in _closure(_unwrapped(getattr(function, "_python_function", None))):
            if name == "self" and _trains(held):
                yield held


def _trains(thing: Any) -> bool:
    return getattr(thing, "train_function", None) is not None


def _traced_within(outer: Any) -> list[Any]:
    """The outermost traced `tf.function` in a Python function's closures, or none."""
    level = [outer]
    for _ in range(_DEPTH):
        traced = [found for found in level if traces(found)]
        if traced:
            # In order of their names: Keras' multi_step_on_iterator calls its one_step_on_data.
            return traced[:1]
        level = [value for found in level for value in _inner(found)]
    return []


def _inner(function: Any) -> Iterable[Any]:
    yield from (value for _, value in _closure(function) if callable(value))
    if hasattr(function, "__wrapped__"):
        yield function.__wrapped__


def _unwrapped(function: Any) -> Any:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def _closure(function: Any) -> Iterator[tuple[str, Any]]:
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None)
    if code is None or not cells:
        return
    for name, cell in zip(code.co_freevars, cells, strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # a name that has no value yet
