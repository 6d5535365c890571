"""The causes of idle time that a trace can show."""

from __future__ import annotations

from enum import IntEnum


class Cause(IntEnum):
    """What a device waited for; of equally large causes the earlier member is named.

    `INPUT`: the host waited for the next element of a dataset. `H2D`: the host made a blocking or staging copy to
    the device, or a kernel waited for a copy. `COMPILE`: `tf.function` tracing, XLA compilation, autotuning or
    module loading. `SYNC`: the host was blocked until a device or a value was ready. `CHECKPOINT`: the host saved or
    restored variables. `LAUNCH`: the host launched or scheduled ops back to back. `BETWEEN`: the host was between
    step markers. `HOST_OPS`: the host ran CPU ops of the step. `PYTHON`: the launching thread recorded nothing until
    Python called something; it is the last state of a host, for only the events around it show it. `DEVICE_WAIT`: the work
    was queued while another device was in a collective; on replicas, which have no queue, another replica was still
    working. `DEPENDENCY`: the work was queued behind another stream or event. `LATENCY`: the work was queued for less
    than 20 µs. `UNKNOWN`: no recorded event shows a cause. `NO_WORK`: the device ran no kernel.
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

    @property
    def key(self) -> str:
        """The name of the cause in the report."""
        return self.name.lower()
