"""Measures how much time each slowdown costs, step by step.

The time is measured where it is caused, with a clock of its own, so that a report on a demo run can be compared with what
was done to the run. This module does not need TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from time import perf_counter_ns
from typing import Final

from traceview.capture.sidecar.file import Sidecar, WindowListener


class Slowdown(str, Enum):
    """The ways to slow the demo run down; the module `slowdowns` implements them."""

    input = "input"
    straggler = "straggler"
    sync = "sync"
    launch = "launch"
    retrace = "retrace"
    checkpoint = "checkpoint"
    callback = "callback"
    one_gpu = "one-gpu"


class Injections:
    """Nanoseconds per slowdown and step."""

    def __init__(self) -> None:
        self.ns: dict[Slowdown, dict[int, int]] = {}
        self.step = 0
        """The current step, from asking for its input to asking for the next."""

    def add(self, slowdown: Slowdown, ns: int) -> None:
        """Add the cost of a slowdown to the current step."""
        steps = self.ns.setdefault(slowdown, {})
        steps[self.step] = steps.get(self.step, 0) + ns

    @contextmanager
    def measured(self, slowdown: Slowdown) -> Iterator[None]:
        """Add the time of the body as the cost of a slowdown."""
        begun = perf_counter_ns()
        try:
            yield
        finally:
            self.add(slowdown, perf_counter_ns() - begun)


INJECTED: Final = Injections()
"""The costs of the demo run in this process: all that the script and the sidecar share."""


class InjectionListener(WindowListener):
    """Writes the group `demo` of the sidecar: the requested slowdowns, and what they cost.

    `injected_ns`: for each slowdown that takes time of the steps, the nanoseconds of every requested step that
    another recorded step follows, as a string of its number to an integer. `injected_ns_per_step`: their mean.
    `one-gpu` takes no time that a clock in the run could measure, and is in neither.
    """

    def __init__(self, slowdowns: Sequence[Slowdown], injected: Injections = INJECTED) -> None:
        self._slowdowns = slowdowns
        self._injected = injected

    def opening(self, sidecar: Sidecar) -> None:
        """Note the requested slowdowns, even if the run ends in its window."""
        sidecar.add("demo", {"slowdowns": [slowdown.value for slowdown in self._slowdowns]})

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Note what they cost in the steps of the window."""
        window = sidecar.groups["window"]
        recorded = range(*window["got"]) if window["got"] else range(0)
        # The time after a step is recorded completely only if the next step is recorded too.
        steps = [step for step in recorded if step < window["calls"][-1]["number"]]
        of_window = {
            slowdown.value: {str(step): costs.get(step, 0) for step in steps}
            for slowdown, costs in self._injected.ns.items()
        }
        sidecar.add(
            "demo",
            {
                "injected_ns": of_window,
                "injected_ns_per_step": {
                    name: sum(costs.values()) // len(costs)
                    for name, costs in of_window.items()
                    if costs
                },
            },
        )
