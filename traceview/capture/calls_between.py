"""Recognizes evaluation among the calls between two recorded steps: what has other input than the steps.

A call that gets an iterator or a distributed dataset has, and so has one after a batch of another iterator than that of the
steps. If the next step takes its batch from that iterator too, the call only prepared this batch.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import NamedTuple

from traceview.capture.step_inputs import StepInputs
from traceview.capture.step_window import StepWindow


class _Call(NamedTuple):
    """A call that has returned. `iterator`: the one asked before it, by its `id`, or None if it got its input itself."""

    function: str
    iterator: int | None
    begun_ns: int
    ended_ns: int


class CallsBetween:
    """The calls since the last step. `inputs` knows the iterators."""

    def __init__(self, inputs: StepInputs) -> None:
        self._inputs = inputs
        self._calls: list[_Call] = []
        self._iterator: int | None = None
        self._begun_ns = 0

    def begin(self, *arguments: object) -> bool:
        """A call that is no step begins; whether it may be evaluation."""
        if self._inputs.holds_source(arguments):
            self._iterator = None
        elif self._inputs.has_other_input:
            self._iterator = self._inputs.last_asked
        else:
            return False
        self._begun_ns = perf_counter_ns()
        return True

    def returned(self, function: str) -> None:
        """That call has returned."""
        self._calls.append(_Call(function, self._iterator, self._begun_ns, perf_counter_ns()))

    def end(self, window: StepWindow) -> None:
        """The next step is called, and has its batch: report what was evaluated before it."""
        calls, self._calls = self._calls, []
        for call in calls:
            if call.iterator is None or call.iterator != self._inputs.last_asked:
                window.evaluated(call.function, call.begun_ns, call.ended_ns)
