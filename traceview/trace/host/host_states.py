"""Builds a timeline of causes for each thread that devices wait for: what the host did while a device was idle.

The events open on a thread show its state. If it has none and runs a graph, the executor threads of the host show it:

    thread that calls     ▕ train ───────────────────────────────▏            ▕ train ──
      its own events      ▕ IteratorGetNext ▏▕ FunctionRun ──────▏            ▕
      executors in a call                    ▕ Process ▕ op ▏▕op▏▏            ▕
      its timeline        │ input            │ launch or host_ops  │ between  │ …
                                                              outside of markers ↑

The caller is the thread that calls graphs; executors are all other threads. Threads of the input pipeline
(`tf_data…`) have no state of their own; an iterator op there counts as `input` of the executors if a graph call
shares its `id`. At each instant the first of these layers that is open gives the cause:

    the caller                                          an executor thread
    1  strong: input, h2d, compile, sync, checkpoint    strong
    2  strong on executors, in a graph call; h2d and    launch, then host_ops, pipeline, unlisted
       sync not while it launches itself
    3  launch; launch on executors, in a graph call     strong on all executors, then launch
    4  between: outside of step markers                 host_ops on all executors
    5  host_ops, pipeline; on executors, in a call      scheduling on all executors
    6  scheduling; on executors, in a graph call;       holes between two of these
       unlisted in a graph call
    7  graph calls, and holes between scheduling,       pipeline on all executors
       launches and graph calls
    8  python                                           handover in a graph call, then, on a thread of Python,
                                                        its own Python and that of other executors; on
                                                        other threads their events of no known kind;
                                                        strong of the caller

Strong: events with names of these kinds (`host_names`); a `tf.function` from the start of its tracing to its first
graph call (compile); the preparation of a graph for its first call, which copies its constants to the device (compile);
and a copy from a device, from its call to its end, if no event began on the calling thread between the return of the
call and that end (sync).
Launch: driver calls that are neither copies nor waits, and ops that make such a call or are shorter than
`SCHEDULING_OP_PS`; also holes of up to `BACK_TO_BACK_PS` between two of these on one thread, in which Python and C++
code runs that records no event.
Host_ops: the other ops.
Unlisted: events of no known kind, under their own names, that make no driver call and take `SCHEDULING_OP_PS` or more, of
the caller, which hands on work, more than `HANDOVER_PS`. They count as `host_ops`.
Pipeline: ops and scheduling of the input pipeline on threads of the model. It counts as `input`.
Scheduling: dispatches, executor loops and calls of a `tf.function`. It counts as `launch`, and so do graph calls and
holes of up to `BACK_TO_BACK_PS` (6 and 7).
Handover: no executor recorded anything for up to `HANDOVER_PS` during a graph call: a thread is being woken up. It
counts as scheduling.
Python: a thread recorded nothing until it began an event that Python calls.

On hosts without device planes the replicas are threads themselves. Nothing there is `launch`, and `h2d` only what XLA
copies, on any thread: the call that asks for a copy does not wait for it. Scheduling
counts as `host_ops`, and so do ops that no replica owns. The ops of another replica are `device_wait`, which comes
before `host_ops`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final

from traceview.base.ids import unique_ids
from traceview.base.intervals import IntervalSet, difference, union
from traceview.base.units import PS_PER_US
from traceview.trace.host.cause import Cause
from traceview.trace.host.host_evidence import (
    BACK_TO_BACK_PS,
    STRONG,
    Evidence,
    HostEvidence,
)
from traceview.trace.host.state_timeline import (
    Layer,
    StateTimeline,
    complement,
    intersection,
    joined_spans,
    stacked,
    without_holes,
)
from traceview.trace.model import Trace

HANDOVER_PS: Final = 1000 * PS_PER_US
"""An executor is woken up within this time; 97 % of such holes in 17 recordings on two cores were shorter than 0.5 ms."""


class HostStates(HostEvidence):
    """The timelines of causes of one host's threads, each built on first use."""

    def __init__(self, trace: Trace, host: int) -> None:
        super().__init__(trace, host)
        self._timelines: dict[int, StateTimeline] = {}

    def timeline(self, thread: int) -> StateTimeline:
        """The causes that a thread shows, over all time."""
        if thread not in self._timelines:
            layers = (
                self._caller_layers() if thread == self.caller else self._executor_layers(thread)
            )
            self._timelines[thread] = stacked(list(layers))
        return self._timelines[thread]

    def own_timeline(self, thread: int) -> StateTimeline:
        """The causes that the events of one thread show, whatever other threads do."""
        own = self._evidence(thread)
        layers = [*own.strong, (Cause.LAUNCH, own.launch)] if self._has_queue else [*own.strong]
        layers += [(Cause.HOST_OPS, own.host_ops), (Cause.INPUT, own.pipeline)]
        return stacked([*layers, (self._scheduling, own.scheduling)])

    def _caller_layers(self) -> Iterable[Layer]:
        own, others = self._evidence(self.caller), self._executors
        called = self.calls
        yield from own.strong
        # What the caller launches itself waits for no copy of another thread.
        beside = difference(called, own.launch)
        for cause, layer in others.strong:
            is_copy = cause in (Cause.H2D, Cause.SYNC)
            if cause == Cause.H2D and not self._has_queue:
                yield cause, layer
                continue
            yield cause, intersection(layer, beside if is_copy else called)
        if self._has_queue:
            yield Cause.LAUNCH, own.launch
            yield Cause.LAUNCH, intersection(others.launch, called)
        markers = self.markers
        if markers.start.size:
            yield Cause.BETWEEN, complement(markers)
        if not self._has_queue:
            yield Cause.DEVICE_WAIT, self._replica_work
        yield Cause.HOST_OPS, own.host_ops
        yield Cause.INPUT, own.pipeline
        yield Cause.HOST_OPS, intersection(others.host_ops, called)
        yield self._scheduling, own.scheduling
        yield self._scheduling, intersection(others.scheduling, called)
        if self._has_queue:
            yield Cause.HOST_OPS, intersection(_longer_than(own.unlisted, HANDOVER_PS), called)
        dispatched = (own.scheduling, own.launch, called)
        yield self._scheduling, without_holes(joined_spans(dispatched), BACK_TO_BACK_PS)
        if self.runs_python(self.caller):
            yield Cause.PYTHON, self._python(self.caller)

    def _executor_layers(self, thread: int) -> Iterable[Layer]:
        own, others = self._evidence(thread), self._executors
        yield from own.strong
        if self._has_queue:
            yield Cause.LAUNCH, own.launch
            yield Cause.HOST_OPS, own.host_ops
        yield Cause.INPUT, own.pipeline
        if self._has_queue:
            yield Cause.HOST_OPS, own.unlisted
        yield from others.strong
        if self._has_queue:
            yield Cause.LAUNCH, others.launch
        else:
            yield Cause.DEVICE_WAIT, self._replica_work
        yield Cause.HOST_OPS, others.host_ops
        yield self._scheduling, others.scheduling
        yield self._scheduling, without_holes(others.scheduling, BACK_TO_BACK_PS)
        yield Cause.INPUT, others.pipeline
        yield self._scheduling, self._handovers
        if self.runs_python(thread):
            yield Cause.PYTHON, self._python(thread)
            yield Cause.PYTHON, self._python_on_executors
        else:
            yield self._scheduling, own.other
        # What the caller prepares has not begun, and what it waits for has not come.
        yield from self._evidence(self.caller).strong

    @cached_property
    def caller_spans(self) -> tuple[IntervalSet, IntervalSet]:
        """When the caller shows what it does, step markers aside, and when it waits for a device."""
        rows = self.rows_of_thread(self.caller)
        rows = rows[self.is_spoken(rows) & ~self.is_marker(rows)]
        spoken = union(self._columns.start_ps[rows], self._columns.end_ps[rows])
        return spoken, self.timeline(self.caller).spans_of((Cause.SYNC,))

    @property
    def _scheduling(self) -> Cause:
        """The cause that scheduling counts as: a host of replicas has nothing to launch."""
        return Cause.LAUNCH if self._has_queue else Cause.HOST_OPS

    @cached_property
    def _executors(self) -> Evidence:
        """What all other threads of the model show together."""
        threads_ = [
            self._evidence(thread)
            for thread in unique_ids(self.thread[self._lines]).tolist()
            if thread != self.caller
        ]
        strong = [
            (cause, joined_spans(evidence.strong[index][1] for evidence in threads_))
            for index, (cause, _) in enumerate(STRONG)
        ]
        strong[0] = (Cause.INPUT, joined_spans((strong[0][1], self._async_input)))
        return Evidence(
            strong=tuple(strong),
            **{
                kind: joined_spans(getattr(evidence, kind) for evidence in threads_)
                for kind in ("launch", "host_ops", "pipeline", "scheduling", "other", "unlisted")
            },
        )

    @cached_property
    def _handovers(self) -> IntervalSet:
        """When a graph call waited for an executor to wake up: none of them recorded anything, for a short time."""
        others = self._executors
        recorded = (others.launch, others.host_ops, others.pipeline, others.scheduling)
        silent = difference(
            self.calls, joined_spans((*recorded, *(layer for _, layer in others.strong)))
        )
        return difference(silent, _longer_than(silent, HANDOVER_PS))

    @cached_property
    def _python_on_executors(self) -> IntervalSet:
        """When Python ran on any thread but the caller: of threads that take turns, one may begin late."""
        threads_ = unique_ids(self.thread[self._lines]).tolist()
        return joined_spans(
            self._python(thread)
            for thread in threads_
            if thread != self.caller and self.runs_python(thread)
        )


def _longer_than(spans: IntervalSet, length_ps: int) -> IntervalSet:
    is_long = spans.end - spans.start > length_ps
    return union(spans.start[is_long], spans.end[is_long])
