"""Makes something of each device on two threads: most of it is compiled code, which leaves Python's lock to the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from typing import Final, TypeVar

from traceview.trace.model import Trace

R = TypeVar("R")

FEWEST_PER_DEVICE: Final = 20_000
"""Events. Fewer take less time than two threads lose by taking turns at the lock: they take it for each array."""


def for_devices(trace: Trace, make: Callable[[int], R], devices: Sequence[int]) -> Iterator[R]:
    """Give what `make` makes of each device, in their order; a second thread makes every other one.

    Each thread makes one at a time, so the second one adds the memory of one. `make` must change nothing that it shares.
    """
    columns = trace.device_columns
    few = columns.count < FEWEST_PER_DEVICE * len(trace.device_list)
    if few or len(devices) < 2 or (os.cpu_count() or 1) < 2:
        yield from map(make, devices)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as second:
        for first in range(0, len(devices), 2):
            device, *other = devices[first : first + 2]
            try:
                # A thread has settings of numpy of its own.
                begun = [second.submit(copy_context().run, make, each) for each in other]
            except RuntimeError:
                # No threads may be started, in a container for instance.
                yield from map(make, (device, *other))
                continue
            yield make(device)
            for future in begun:
                yield future.result()
