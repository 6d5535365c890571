"""The causes of idle time that a trace can show."""

from __future__ import annotations

from enum import IntEnum


class Cause(IntEnum):
    """What a device waited for (docs/method.md, "Idle causes"); of equally large causes the earlier member is named.

    `PYTHON` is the last state of a host, for only the events around it show it.
    """

    INPUT = 0
    H2D = 1
    COMPILE = 2
    SYNC = 3
    CHECKPOINT = 4
    LAUNCH = 5
    BETWEEN = 6
    HOST_OPS = 7
    PYTHON = 8
    DEVICE_WAIT = 9
    DEPENDENCY = 10
    LATENCY = 11
    UNKNOWN = 12
    NO_WORK = 13
