"""Finds when threads work for the input pipeline, when they run its Python, and when they take the cores of the model.

Work is an op, or an executor loop, in a function of the pipeline. A function of the script, such as a generator or that of
`tf.numpy_function`, is one op, whether it computes or waits for a server. While it waits, as the processor time of its thread
shows, it needs neither a core nor Python's lock, so that time is left out.

While the threads of the model and of the pipeline are more than the cores of the process, and those of the model alone are
not, the pipeline has a part of each core. An op that runs again and again takes about as long each time, and so does the
dispatch before it: where batches are late, what takes longer than that in such time waited for a core.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.idle_time import IdleAttribution
from traceview.base.ids import unique_ids
from traceview.base.intervals import BoolArray, Int64Array, IntervalSet, difference, union
from traceview.trace.host.state_timeline import intersection, joined_spans
from traceview.trace.model import NONE, Trace
from traceview.trace.windows import Window
from traceview.xplane.planes import ActivityClass


def pipeline_work(trace: Trace, idle: IdleAttribution, host: int) -> list[IntervalSet]:
    """When each thread of a host works for its pipeline; cheap ops record no event."""
    states = idle.states[host]
    rest = _rest_by_thread(trace, idle, host)
    return [
        difference(spans, rest[thread]) if thread in rest else spans
        for thread, spans in states.spans_by_thread(states.pipeline_work).items()
    ]


def pipeline_python(trace: Trace, idle: IdleAttribution, host: int) -> IntervalSet:
    """When Python functions of the pipeline run, or wait for Python's lock."""
    states = idle.states[host]
    rest = _rest_by_thread(trace, idle, host)
    return joined_spans(
        difference(spans, rest[thread]) if thread in rest else spans
        for thread, spans in states.spans_by_thread(states.pipeline_python).items()
    )


def pipeline_rest(trace: Trace, idle: IdleAttribution, host: int) -> IntervalSet:
    """When a Python function of the pipeline waits, and none runs or waits for Python's lock."""
    waits = joined_spans(_rest_by_thread(trace, idle, host).values())
    return difference(waits, pipeline_python(trace, idle, host))


def _rest_by_thread(trace: Trace, idle: IdleAttribution, host: int) -> dict[int, IntervalSet]:
    """When each thread of the pipeline waits in a Python function; without samples that is not known."""
    if host not in idle.python:
        return {}
    states, sampled = idle.states[host], idle.python[host].lines
    line = unique_ids(trace.host_columns.line[states.pipeline_python])
    known = [each for each in line.tolist() if sampled.thread_of(each) != NONE]
    at_rest = {int(states.thread[each]): sampled.at_rest(sampled.thread_of(each)) for each in known}
    return {
        thread: intersection(spans, at_rest[thread])
        for thread, spans in states.spans_by_thread(states.pipeline_python).items()
        if thread in at_rest
    }


def busy_cores(trace: Trace, idle: IdleAttribution, host: int, window: Window) -> float:
    """Threads at work for the pipeline, mean over the window; work that records no event is not in it."""
    if host not in idle.states or not window.length_ps:
        return 0.0
    busy_ps = sum(
        int(spans.within(window.start_ps, window.end_ps))
        for spans in pipeline_work(trace, idle, host)
    )
    return busy_ps / window.length_ps


class TakenTime(Struct, frozen=True, eq=False):
    """From each of `time_ps` to the next, int64 `[n]`: the part of a core that each thread of the model goes without.

    `lost` of `of` parts are taken; `before_ps`: what is taken up to each instant.
    """

    time_ps: Int64Array
    lost: Int64Array
    of: Int64Array
    before_ps: Int64Array

    @classmethod
    def made(cls, time_ps: Int64Array, lost: Int64Array, of: Int64Array) -> TakenTime:
        """The columns, with the sums."""
        whole = np.diff(time_ps) * lost[:-1] // np.maximum(of[:-1], 1)
        return cls(time_ps, lost, np.maximum(of, 1), np.append(0, np.cumsum(whole)))

    def within(self, start_ps: Int64Array, end_ps: Int64Array) -> Int64Array:
        """How much is taken from what runs in each of these spans, int64."""
        if not self.time_ps.size:
            return np.zeros(start_ps.size, dtype=np.int64)
        result: Int64Array = self._up_to(end_ps) - self._up_to(start_ps)
        return result

    def _up_to(self, moments: Int64Array) -> Int64Array:
        place = np.maximum(np.searchsorted(self.time_ps, moments, "right") - 1, 0)
        since = np.maximum(moments - self.time_ps[place], 0)
        result: Int64Array = self.before_ps[place] + since * self.lost[place] // self.of[place]
        return result


class OpenThreads(Struct, frozen=True, eq=False):
    """From each of `time_ps` to the next, int64 `[n]`: how many threads of the model and of others are at work."""

    time_ps: Int64Array
    model: Int64Array
    others: Int64Array

    def crowded(self, cores: int, dispatching: int = 0) -> IntervalSet:
        """When there are more threads than cores, and without the others there are not.

        `dispatching`: threads of the model with work, and without an op.
        """
        place = np.flatnonzero(self._is_crowded(cores, dispatching)[:-1])
        return union(self.time_ps[place], self.time_ps[place + 1])

    def taken(self, cores: int, dispatching: int = 0) -> TakenTime:
        """What the others take from each thread of the model, where all threads share the cores alike."""
        every = self.model + dispatching + self.others
        lost = np.where(self._is_crowded(cores, dispatching), every - cores, 0)
        return TakenTime.made(self.time_ps, lost, every)

    def _is_crowded(self, cores: int, dispatching: int) -> BoolArray:
        model = self.model + dispatching
        crowded: BoolArray = (model <= cores) & (model + self.others > cores)
        return crowded


def open_threads(
    trace: Trace, idle: IdleAttribution, host: int, others: Collection[IntervalSet]
) -> OpenThreads:
    """The threads of a host that have an op open, and when each of some others is at work, over the whole recording.

    A collective needs no core while it waits for the other devices.
    """
    states, columns = idle.states[host], trace.device_columns
    rows = trace.device_rows(host)
    launched = columns.launch[rows][columns.class_[rows] == ActivityClass.COMPUTE]
    of_model = states.spans_by_thread(unique_ids(launched[launched != NONE]))
    changes = [_changes(spans) for spans in (of_model.values(), others)]
    time = np.concatenate([moments for moments, _ in changes])
    order = np.argsort(time, kind="stable")
    step = np.zeros((len(changes), time.size), dtype=np.int64)
    step[0, : changes[0][1].size], step[1, changes[0][1].size :] = (by for _, by in changes)
    model, beside = step[:, order].cumsum(axis=1)
    return OpenThreads(time[order], model, beside)


def _changes(by_thread: Collection[IntervalSet]) -> tuple[Int64Array, Int64Array]:
    """When a thread begins or ends to work, and by how many that changes their number."""
    nothing = np.empty(0, dtype=np.int64)
    begun = np.concatenate([nothing, *(spans.start for spans in by_thread)])
    ended = np.concatenate([nothing, *(spans.end for spans in by_thread)])
    by = np.repeat(np.array([1, -1], dtype=np.int64), begun.size)
    return np.concatenate((begun, ended)), by


def beyond_median(key: Int64Array, length_ps: Int64Array) -> Int64Array:
    """How much longer each thing takes than the median of those with its key, int64; 0 for the key `NONE`."""
    longer = np.maximum(length_ps - usual_length(key, length_ps), 0)
    result: Int64Array = np.where(key == NONE, 0, longer)
    return result


def usual_length(key: Int64Array, length_ps: Int64Array) -> Int64Array:
    """The median length of the things with the key of each, int64."""
    order = np.lexsort((length_ps, key))
    ordered = key[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: ordered.size])
    count = np.diff(np.append(first, ordered.size))
    low = length_ps[order][first + (count - 1) // 2]
    high = length_ps[order][first + count // 2]
    usual = np.empty_like(length_ps)
    usual[order] = np.repeat(low + (high - low) // 2, count)
    return usual
