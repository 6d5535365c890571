"""How much time did an illness really cost, and in which step?

It is measured where it is caused, with a clock of its own, so that what a report says about a demo run can
be compared with what was done to it. TensorFlow is not needed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from time import perf_counter_ns
from typing import Final

from traceview.capture.sidecar import Sidecar


class Illness(str, Enum):
    """What can be wrong with the demo run; what is done is in `illnesses`."""

    input = "input"
    straggler = "straggler"
    sync = "sync"
    launch = "launch"
    retrace = "retrace"
    checkpoint = "checkpoint"
    callback = "callback"
    one_gpu = "one-gpu"


class Injections:
    """Nanoseconds per illness and step, as the run goes on."""

    def __init__(self) -> None:
        self.ns: dict[Illness, dict[int, int]] = {}
        self.step = 0
        """The step that what is measured now belongs to: from asking for its input to asking for the next."""

    def clear(self) -> None:
        """Forget all of an earlier run in this process."""
        self.ns = {}
        self.step = 0

    def add(self, illness: Illness, ns: int) -> None:
        """The illness has cost this in the current step."""
        steps = self.ns.setdefault(illness, {})
        steps[self.step] = steps.get(self.step, 0) + ns

    @contextmanager
    def measured(self, illness: Illness) -> Iterator[None]:
        """Everything inside is what the illness costs."""
        begun = perf_counter_ns()
        try:
            yield
        finally:
            self.add(illness, perf_counter_ns() - begun)


INJECTED: Final = Injections()
"""Those of the demo run of this process. The script and the sidecar share nothing else."""


class InjectionListener:
    """Writes the group `demo` of the sidecar: what was asked for, and what it cost.

    `injected_ns`: for each illness that takes time of the steps, the nanoseconds of every step that was asked
    for and that another recorded one follows, as a string of its number to an integer.
    `injected_ns_per_step`: their mean. `one-gpu` takes no time that a clock in the run could measure, and is in
    neither.
    """

    def __init__(self, illnesses: Sequence[Illness], injected: Injections = INJECTED) -> None:
        self._illnesses = illnesses
        self._injected = injected

    def opening(self, sidecar: Sidecar) -> None:
        """What was asked for, even if the run ends in its window."""
        sidecar.add("demo", {"illnesses": [illness.value for illness in self._illnesses]})

    def opened(self, sidecar: Sidecar) -> None:
        """Nothing: the profile runs."""

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """What it cost in the steps of the window."""
        window = sidecar.groups["window"]
        asked = range(*window["got"]) if window["got"] else range(0)
        # What follows a step up to the next one is recorded only if that one is.
        steps = [step for step in asked if step < window["calls"][-1]["number"]]
        of_window = {
            illness.value: {str(step): costs.get(step, 0) for step in steps}
            for illness, costs in self._injected.ns.items()
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
