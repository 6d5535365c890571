"""Computes topics on a second thread beside the first: one takes them from the front, the other from the back, and both meet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any, Final

from traceview.analysis.exchange import balance, collectives, transfers
from traceview.analysis.gpu_time import device_states, idle, steps
from traceview.analysis.gpu_time import input as input_topic
from traceview.analysis.machine import capture
from traceview.analysis.measures.context import Analysis, Context
from traceview.analysis.workload import compute, ops
from traceview.trace.model import FEWEST_PER_DEVICE

_TOPICS: Final[tuple[Analysis[Any], ...]] = (
    ops.ANALYSIS,
    capture.ANALYSIS,
    balance.ANALYSIS,
    collectives.ANALYSIS,
    transfers.ANALYSIS,
    idle.ANALYSIS,
    steps.ANALYSIS,
    input_topic.ANALYSIS,
    compute.ANALYSIS,
)
"""First those that do without the ledger, which the first thread makes meanwhile. What takes much memory comes late, when the
first thread holds less."""

_FEWEST_EVENTS: Final = 100_000
"""Fewer are analysed in less time than two threads lose by taking turns at Python's lock."""


def for_first_thread(topics: Sequence[Analysis[Any]]) -> list[Analysis[Any]]:
    """These topics in the order in which the first thread asks for them.

    First those that need the causes and the ledger; last those that the second thread begins with.
    """
    beside = [topic for topic in reversed(_TOPICS) if topic in topics]
    alone = [topic for topic in topics if topic not in beside]
    return [*sorted(alone, key=lambda topic: topic is not device_states.ANALYSIS), *beside]


@contextmanager
def computed_beside(
    context: Context, is_wanted: Callable[[Analysis[Any]], bool] = lambda _: True
) -> Iterator[None]:
    """Computes topics while the code inside asks for all of them; what fails there fails anew where it is asked for."""
    trace = context.trace
    count = trace.device_columns.count + trace.host_columns.count
    fewest = max(_FEWEST_EVENTS, FEWEST_PER_DEVICE * len(trace.device_list))
    if count < fewest or (os.cpu_count() or 1) < 2:
        yield
        return
    ended = Event()

    def compute_topics() -> None:
        with suppress(Exception):
            # The ledger needs it after the causes, which the first thread finds meanwhile.
            _ = context.activities
        for topic in _TOPICS:
            if ended.is_set():
                return
            with suppress(Exception):
                if is_wanted(topic):
                    context.result(topic)

    # Ctrl-C does not wait for it.
    thread = Thread(target=compute_topics, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # No more threads may be started, in a container for instance.
        yield
        return
    try:
        yield
    finally:
        ended.set()
