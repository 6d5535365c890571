"""The states of a device: what it does at an instant, or what it is idle for."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class State(IntEnum):
    """What a device does, or what it is idle for; the order is that of legends."""

    COMPUTE = 0
    COMMUNICATION = 1
    DEVICE_WAIT = 2
    H2D = 3
    D2H = 4
    D2D = 5
    INPUT = 6
    HOST_OPS = 7
    LAUNCH = 8
    PYTHON = 9
    BETWEEN_CALLS = 10
    PYTHON_THREAD = 11
    NO_CORE = 12
    GARBAGE_COLLECTION = 13
    BETWEEN = 14
    EVALUATION = 15
    CHECKPOINT = 16
    COMPILE = 17
    SYNC = 18
    TURN = 19
    DEPENDENCY = 20
    LATENCY = 21
    NO_WORK = 22
    UNKNOWN = 23

    @property
    def key(self) -> str:
        """The name of the state in JSON, options and columns."""
        return KEYS[self]


KEYS: Final = tuple(state.name.lower() for state in State)
