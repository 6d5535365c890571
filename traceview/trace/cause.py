"""Why does a device do nothing? The answers that a trace can give."""

from __future__ import annotations

from enum import IntEnum


class Cause(IntEnum):
    """What a device waited for, in the order in which one is preferred to the next.

    `INPUT`: the host asked for the next element of a dataset. `H2D`: a blocking or staging copy to the device,
    or the time between the end of a copy and the kernel that waited for it. `COMPILE`: `tf.function` tracing,
    XLA, autotuning, module load. `SYNC`: the host was blocked until a device or a value was ready.
    `CHECKPOINT`: variables were saved or restored. `LAUNCH`: the host was launching or scheduling ops back to
    back. `CALLBACK`: the host was between step markers. `HOST_COMPUTE`: the host ran CPU ops of the step.
    `PEER`: the work was queued while another device was in a collective; on replicas, which have no queue,
    while another replica still worked. `DEPENDENCY`: queued on another stream or event. `LATENCY`: queued for
    less than 20 µs. `UNATTRIBUTED`: nothing recorded shows a cause. `UNUSED`: the device ran no kernel.
    """

    INPUT = 0
    H2D = 1
    COMPILE = 2
    SYNC = 3
    CHECKPOINT = 4
    LAUNCH = 5
    CALLBACK = 6
    HOST_COMPUTE = 7
    PEER = 8
    DEPENDENCY = 9
    LATENCY = 10
    UNATTRIBUTED = 11
    UNUSED = 12

    @property
    def key(self) -> str:
        """How the cause is called in the report."""
        return self.name.lower()
