"""The causes of idle time that a trace can show."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from traceview.xplane.planes import ActivityClass


class Cause(IntEnum):
    """What a device waited for; of equally large causes the earlier member is named.

    `INPUT`: the host waited for the next element of a dataset. `H2D`: the host made a blocking or staging copy to
    the device, or a kernel waited for a copy. `COMPILE`: `tf.function` tracing, XLA compilation, autotuning or
    module loading. `SYNC`: the host was blocked until a device or a value was ready. `CHECKPOINT`: the host saved or
    restored variables. `LAUNCH`: the host launched or scheduled ops back to back. `CALLBACK`: the host was between
    step markers. `HOST_COMPUTE`: the host ran CPU ops of the step. `PYTHON`: the launching thread recorded nothing until
    Python called something; it is the last state of a host, for only the events around it show it. `PEER`: the work
    was queued while another device was in a collective; on replicas, which have no queue, another replica was still
    working. `DEPENDENCY`: the work was queued behind another stream or event. `LATENCY`: the work was queued for less
    than 20 µs. `UNATTRIBUTED`: no recorded event shows a cause. `UNUSED`: the device ran no kernel.
    """

    INPUT = 0
    H2D = 1
    COMPILE = 2
    SYNC = 3
    CHECKPOINT = 4
    LAUNCH = 5
    CALLBACK = 6
    HOST_COMPUTE = 7
    PYTHON = 8
    PEER = 9
    DEPENDENCY = 10
    LATENCY = 11
    UNATTRIBUTED = 12
    UNUSED = 13

    @property
    def key(self) -> str:
        """The name of the cause in the report."""
        return self.name.lower()


CLASS_KEYS: Final = tuple(class_.name.lower() for class_ in ActivityClass)
PATH_KEYS: Final = tuple(dict.fromkeys((*CLASS_KEYS, *(cause.key for cause in Cause))))
"""What the critical path consists of; `h2d` is both a class of activity and a cause of idle time."""
