"""Remembers which functions and models the steps of each name call.

The references are weak: what the script has let go of is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final
from weakref import ref

_DEPTH: Final = 5
"""Closures between Keras' train function and the `tf.function` in it: two in Keras 3.15, and one of ours."""


class StepObjects:
    """What the steps of each name are made of: a `tf.function`, any other function, or a Keras model."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[ref[Any]]] = {}

    def add(self, name: str, thing: object) -> None:
        """The steps called `name` call this object."""
        known = self._by_name.setdefault(name, [])
        if any(reference() is thing for reference in known):
            return
        known[:] = [reference for reference in known if reference() is not None]
        with suppress(TypeError):  # what cannot be referred to weakly is no tf.function
            known.append(ref(thing))

    def functions(self, name: str) -> list[Any]:
        """The traced `tf.function`s that the steps of this name call, each once."""
        functions = []
        for thing in self._alive(name):
            if _trains(thing):
                functions += _traced_within(thing.train_function)
            elif traces(thing):
                functions.append(thing)
        return list({id(function): function for function in functions}.values())

    def models(self) -> list[Any]:
        """The Keras models whose training the steps are."""
        models = {
            id(model): model
            for name in self._by_name
            for model in self._alive(name)
            if _trains(model)
        }
        return list(models.values())

    def _alive(self, name: str) -> list[Any]:
        things = (reference() for reference in self._by_name.get(name, ()))
        return [thing for thing in things if thing is not None]


def traces(function: Any) -> list[Any]:
    """The graphs of a `tf.function` as concrete functions, oldest first; nothing is traced for this."""
    cache = getattr(function, "_function_cache", None)
    return list(cache.values()) if cache is not None else []


def _trains(thing: Any) -> bool:
    return getattr(thing, "train_function", None) is not None


def _traced_within(outer: Any) -> list[Any]:
    """The outermost traced `tf.function` in a Python function's closures, or none."""
    level = [outer]
    for _ in range(_DEPTH):
        traced = [function for function in level if traces(function)]
        if traced:
            # In order of their names: Keras' multi_step_on_iterator calls its one_step_on_data.
            return traced[:1]
        level = [inner for function in level for inner in _inner(function)]
    return []


def _inner(function: Any) -> Iterable[Any]:
    yield from filter(callable, _closure(function))
    if hasattr(function, "__wrapped__"):
        yield function.__wrapped__


def _closure(function: Any) -> Iterator[Any]:
    function = getattr(function, "__func__", function)
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # a name that has no value yet
