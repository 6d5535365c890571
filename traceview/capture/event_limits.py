"""How many calls of the step function fit under the limits of events?

From the events of one call: counted in a probe before the window, or estimated from the graph of the step function
where no call could be probed because the window opens with the first or second one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from traceview.capture.contents import ACTIVITY_LIMIT, CALLBACK_LIMIT, TraceContents
from traceview.capture.graphs import count_ops, training_loop
from traceview.capture.step_objects import StepObjects, traces

MAX_BUFFER_RATIO: Final = 0.5
"""A window is kept under half of the tracer's limits: calls differ, and what is over a limit is lost."""
FEWEST_CALLS: Final = 2
"""One edge and one call that was asked for: less is no window."""
_HOST_EVENTS_PER_OP: Final = 4
"""Measured with TensorFlow 2.21 on CPUs: 3.9 per op of the graph in `capture --demo`, thread pools included."""


@dataclass(frozen=True)
class CallEvents:
    """Events of one call. `callbacks`: those of the host, among `host`, that the GPU tracer's own buffer holds."""

    host: int
    callbacks: int
    device: int

    @classmethod
    def counted(cls, contents: TraceContents) -> CallEvents:
        """Those in a trace of one call."""
        return cls(contents.host_events, contents.callbacks, contents.device_events)

    @classmethod
    def of_ops(cls, ops: int, *, has_gpus: bool) -> CallEvents:
        """Those of a call that runs so many ops: on GPUs a kernel and the callback of its launch for each."""
        launches = ops if has_gpus else 0
        return cls(_HOST_EVENTS_PER_OP * ops + launches, launches, launches)

    @property
    def total(self) -> int:
        """Events of all kinds together."""
        return self.host + self.device

    def times(self, calls: int) -> dict[str, int]:
        """The counts of so many calls, as they stand in the sidecar."""
        return {kind: count * calls for kind, count in asdict(self).items()}


@dataclass(frozen=True)
class EventLimits:
    """What a window may hold: the tracer's buffers to a half, and `max_events` of all kinds where that is set."""

    max_events: int | None

    def allowed_calls(self, one: CallEvents) -> int | None:
        """How many such calls fit; None where nothing limits them."""
        allowed = []
        fullest_ratio = max(one.callbacks / CALLBACK_LIMIT, one.device / ACTIVITY_LIMIT)
        if fullest_ratio > 0:
            allowed.append(int(MAX_BUFFER_RATIO / fullest_ratio))
        if self.max_events is not None and one.total:
            allowed.append(self.max_events // one.total)
        return min(allowed, default=None)

    def describe(
        self, one: CallEvents, source: Literal["probe", "graph"], *, wanted: int
    ) -> dict[str, Any]:
        """The group `events` of the sidecar, for a window of `wanted` calls."""
        per_call = "probed_per_call" if source == "probe" else "estimated_per_call"
        return {
            "estimated_from": source,
            per_call: one.times(1),
            "estimated": one.times(wanted),
            "limit": {"callbacks": CALLBACK_LIMIT, "device": ACTIVITY_LIMIT},
            "max_events": self.max_events,
            "allowed_calls": self.allowed_calls(one),
        }

    def warning(
        self, one: CallEvents, source: Literal["probe", "graph"], *, wanted: int
    ) -> str | None:
        """What to say before a window of `wanted` calls that has too many events; None if it has not."""
        allowed = self.allowed_calls(one)
        if allowed is None or allowed >= wanted:
            return None
        how = "records" if source == "probe" else "records, by the ops of its graph, about"
        start = f"one call {how} {one.total} events"
        if allowed >= FEWEST_CALLS:
            return f"{start}; to stay under {self}, at most {allowed} calls are recorded instead of {wanted}"
        return (
            f"{start}; {FEWEST_CALLS} calls, about {FEWEST_CALLS * one.total} events, are the least that can be "
            f"recorded: that is over {self}"
        )

    def __str__(self) -> str:
        if self.max_events is not None:
            return f"--max-events {self.max_events}"
        return f"half of the {ACTIVITY_LIMIT} events that the GPU tracer can hold"


def ops_per_call(names: Iterable[str], steps: StepObjects, count: int) -> int | None:
    """Ops that a call of `count` steps runs, at most, by the graphs of the step functions of these names.

    None where no graph is known. A training loop in a graph runs `count` times; how often another loop does is not
    known, and it counts once.
    """
    found = [[_ops(function, count) for function in steps.functions(name)] for name in names]
    # Those of one name may be called together, one per replica.
    return max((sum(ops) for ops in found if ops), default=None)


def _ops(function: Any, count: int) -> int:
    graph = traces(function)[-1].graph
    return count_ops(graph).types.total() * (count if training_loop(graph) else 1)
