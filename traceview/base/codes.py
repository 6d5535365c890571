"""Defines the numbers that columns hold for a closed list of names."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final


class _OfArrays:
    """The attribute of this name that arrays have; a start does not import numpy for it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: object) -> Any:
        from numpy import ndarray

        found = getattr(ndarray, self._name)
        # Asked once: from now on it is an attribute like any other.
        setattr(Code, self._name, found)
        return found


class Code(IntEnum):
    """A number that is compared with arrays.

    numpy asks each number whether it does arithmetic its own way. Before Python 3.12 a class of members answers that slowly,
    so that a comparison with a few numbers takes three times as long as with an `int`. This is the answer of numpy's own.
    """

    __array_ufunc__: Final[Any] = _OfArrays("__array_ufunc__")
    __array_function__: Final[Any] = _OfArrays("__array_function__")
