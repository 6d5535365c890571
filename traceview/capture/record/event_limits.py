"""Computes how many calls of the step function fit under the limits of events.

The events of one call are counted in a probe before the window. Where no call could be probed, because the window
opens with the first or second one, they are estimated from the graph of the step function.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from traceview.capture.record.trace_summary import ACTIVITY_LIMIT, CALLBACK_LIMIT, TraceSummary
from traceview.capture.steps.graphs import count_ops, training_loop
from traceview.capture.steps.step_objects import StepObjects, traces

MAX_BUFFER_RATIO: Final = 0.5
"""A window may fill half of the tracer's buffers: calls differ, and what exceeds a buffer is lost."""
FEWEST_CALLS: Final = 2
"""The shortest window: an edge and one requested call."""
_HOST_EVENTS_PER_OP: Final = 4
"""Measured with TensorFlow 2.21 on CPUs: 3.9 per op of the graph in `capture --demo`, thread pools included."""


@dataclass(frozen=True)
class CallEvents:
    """Events of one call. `callbacks`: those among `host` that the GPU tracer keeps in its own buffer."""

    host: int
    callbacks: int
    device: int

    @classmethod
    def of_trace(cls, summary: TraceSummary) -> CallEvents:
        """Those in a trace of one call."""
        return cls(summary.host_events, summary.callbacks, summary.device_events)

    @classmethod
    def of_ops(cls, ops: int, *, has_gpus: bool) -> CallEvents:
        """Those of a call that runs `ops` ops: on GPUs each has a kernel and the callback of its launch."""
        launches = ops if has_gpus else 0
        return cls(_HOST_EVENTS_PER_OP * ops + launches, launches, launches)

    @property
    def total(self) -> int:
        """Events of all kinds together."""
        return self.host + self.device

    def times(self, calls: int) -> dict[str, int]:
        """The counts of `calls` such calls, as the sidecar has them."""
        return {kind: count * calls for kind, count in asdict(self).items()}


@dataclass(frozen=True)
class EventLimits:
    """What a window may hold: half of the tracer's buffers, and `max_events` of all kinds where that is set."""

    max_events: int | None

    def allowed_calls(self, call: CallEvents) -> int | None:
        """How many such calls fit; None where nothing limits them."""
        allowed = []
        fullest_ratio = max(call.callbacks / CALLBACK_LIMIT, call.device / ACTIVITY_LIMIT)
        if fullest_ratio > 0:
            allowed.append(int(MAX_BUFFER_RATIO / fullest_ratio))
        if self.max_events is not None and call.total:
            allowed.append(self.max_events // call.total)
        return min(allowed, default=None)

    def describe(
        self, call: CallEvents, source: Literal["probe", "graph"], *, wanted: int
    ) -> dict[str, Any]:
        """The group `events` of the sidecar, for a window of `wanted` calls."""
        per_call = "probed_per_call" if source == "probe" else "estimated_per_call"
        return {
            "estimated_from": source,
            per_call: call.times(1),
            "estimated": call.times(wanted),
            "limit": {"callbacks": CALLBACK_LIMIT, "device": ACTIVITY_LIMIT},
            "max_events": self.max_events,
            "allowed_calls": self.allowed_calls(call),
        }

    def warning(
        self, call: CallEvents, source: Literal["probe", "graph"], *, wanted: int
    ) -> str | None:
        """What to say before a window of `wanted` calls that holds too many events; None if it does not."""
        allowed = self.allowed_calls(call)
        if allowed is None or allowed >= wanted:
            return None
        start = f"one call records {call.total} events"
        if source == "graph":
            start = f"one call records about {call.total} events, estimated from its graph"
        if allowed >= FEWEST_CALLS:
            return f"{start}; to stay under {self}, at most {allowed} calls are recorded instead of {wanted}"
        return (
            f"{start}; the shortest window, {FEWEST_CALLS} calls, records about {FEWEST_CALLS * call.total}, more "
            f"than {self}"
        )

    def __str__(self) -> str:
        if self.max_events is not None:
            return f"--max-events {self.max_events}"
        return f"half of the {ACTIVITY_LIMIT} events that the GPU tracer can hold"


def ops_per_call(names: Iterable[str], steps: StepObjects, count: int) -> int | None:
    """The most ops that a call of `count` steps runs, by the graphs of the step functions of these names.

    None where no graph is known. A training loop in a graph runs `count` times; how often another loop runs is
    unknown, and it counts once.
    """
    ops_by_name = [[_ops(function, count) for function in steps.functions(name)] for name in names]
    # Functions of one name may be called together, one per replica.
    return max((sum(ops) for ops in ops_by_name if ops), default=None)


def _ops(function: Any, count: int) -> int:
    graph = traces(function)[-1].graph
    return count_ops(graph).types.total() * (count if training_loop(graph) else 1)
