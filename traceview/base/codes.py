"""Defines the numbers that columns hold for a closed list of names."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import numpy as np


class Code(IntEnum):
    """A number that is compared with arrays.

    numpy asks each number whether it does arithmetic its own way. Before Python 3.12 a class of members answers that slowly,
    so that a comparison with a few numbers takes three times as long as with an `int`. This is the answer of numpy's own.
    """

    __array_ufunc__: Final[Any] = np.ndarray.__array_ufunc__
    __array_function__: Final[Any] = np.ndarray.__array_function__
