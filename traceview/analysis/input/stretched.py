"""Estimates how much longer a replica takes because the input pipeline has the cores that it needs.

An op that runs again and again takes about as long each time, and so does the dispatch before it. What takes longer than
that, while the threads of the model and of the pipeline are more than the cores of the process and those of the model
alone are not, waited for a core that the pipeline had.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.context import Context
from traceview.analysis.pipeline_threads import pipeline_work
from traceview.ids import unique_ids
from traceview.intervals import Int64Array, IntervalSet, union
from traceview.trace.cause import Cause
from traceview.trace.model import NONE

DISPATCH: Final = (Cause.HOST_COMPUTE, Cause.PYTHON, Cause.UNATTRIBUTED)
"""Causes of idle time in which a thread of the model has work, or may have, and records no op."""


class Stretched(Struct, frozen=True, eq=False):
    """By span, int64 `[spans]`: how much longer the ops of a replica took, and the dispatch between them."""

    ops_ps: Int64Array
    dispatch_ps: Int64Array


class OpenThreads(Struct, frozen=True, eq=False):
    """From each of `time_ps` to the next, int64 `[n]`: how many threads of the model and of the pipeline are at work."""

    time_ps: Int64Array
    model: Int64Array
    pipeline: Int64Array

    def crowded_by_pipeline(self, cores: int, dispatching: int = 0) -> IntervalSet:
        """When there are more threads than cores, and without the pipeline there are not.

        `dispatching`: threads of the model with work, and without an op.
        """
        model = self.model + dispatching
        is_crowded = (model <= cores) & (model + self.pipeline > cores)
        place = np.flatnonzero(is_crowded[:-1])
        return union(self.time_ps[place], self.time_ps[place + 1])


def stretched_by_pipeline(
    context: Context, host: int, device: int, start_ps: Int64Array, end_ps: Int64Array
) -> Stretched:
    """What the pipeline of a host adds to each of some disjoint spans on one replica; 0 where no cores were recorded."""
    sidecar = context.trace.hosts[host].sidecar
    cores = sidecar.environment.cores.usable_count if sidecar else None
    if not cores:
        nothing = np.zeros(start_ps.size, dtype=np.int64)
        return Stretched(nothing, nothing)
    threads = open_threads(context, host)
    return Stretched(
        _ops(context, device, threads.crowded_by_pipeline(cores), start_ps, end_ps),
        _dispatch(context, device, threads.crowded_by_pipeline(cores, 1), start_ps, end_ps),
    )


def open_threads(context: Context, host: int) -> OpenThreads:
    """The threads of a host that have an op open, of the pipeline also an executor loop, over the whole recording."""
    trace, states = context.trace, context.idle.states[host]
    launched = trace.device_columns.launch[trace.device_rows(host)]
    of_model = states.spans_by_thread(unique_ids(launched[launched != NONE]))
    changes = [
        _changes(spans) for spans in (of_model.values(), pipeline_work(trace, context.idle, host))
    ]
    time = np.concatenate([moments for moments, _ in changes])
    order = np.argsort(time, kind="stable")
    step = np.zeros((len(changes), time.size), dtype=np.int64)
    step[0, : changes[0][1].size], step[1, changes[0][1].size :] = (by for _, by in changes)
    model, pipeline = step[:, order].cumsum(axis=1)
    return OpenThreads(time[order], model, pipeline)


def _changes(by_thread: Collection[IntervalSet]) -> tuple[Int64Array, Int64Array]:
    """When a thread begins or ends to work, and by how many that changes their number."""
    nothing = np.empty(0, dtype=np.int64)
    begun = np.concatenate([nothing, *(spans.start for spans in by_thread)])
    ended = np.concatenate([nothing, *(spans.end for spans in by_thread)])
    by = np.repeat(np.array([1, -1], dtype=np.int64), begun.size)
    return np.concatenate((begun, ended)), by


def _ops(
    context: Context,
    device: int,
    crowded: IntervalSet,
    start_ps: Int64Array,
    end_ps: Int64Array,
) -> Int64Array:
    """What the ops take longer than usual, each at its end; at most as long as it was crowded."""
    columns, rows = context.trace.device_columns, context.trace.device_columns.rows_of(device)
    begun, ended = columns.start_ps[rows], columns.end_ps[rows]
    longer = beyond_median(columns.op[rows].astype(np.int64), ended - begun)
    longer = np.minimum(longer, crowded.within(begun, ended))
    return union(ended - longer, ended).within(start_ps, end_ps)


def _dispatch(
    context: Context,
    device: int,
    crowded: IntervalSet,
    start_ps: Int64Array,
    end_ps: Int64Array,
) -> Int64Array:
    """The same of the dispatch before each op."""
    gaps, columns = context.idle.gaps[device], context.trace.device_columns
    after = gaps.after[gaps.gap]
    op = np.where(after == NONE, NONE, columns.op[np.maximum(after, 0)])
    lengths = np.sum([gaps.of_cause(cause) for cause in DISPATCH], axis=0)
    longer = beyond_median(op, lengths)
    longer = np.minimum(longer, crowded.within(gaps.start_ps, gaps.end_ps))
    total = np.concatenate(([0], longer.cumsum()))
    # Gaps are cut where steps begin and end, so none lies across the bound of a span.
    first, last = (np.searchsorted(gaps.start_ps, bound) for bound in (start_ps, end_ps))
    result: Int64Array = total[last] - total[first]
    return result


def beyond_median(key: Int64Array, length_ps: Int64Array) -> Int64Array:
    """How much longer each thing takes than the median of those with its key, int64; 0 for the key `NONE`."""
    order = np.lexsort((length_ps, key))
    ordered = key[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: ordered.size])
    count = np.diff(np.append(first, ordered.size))
    low = length_ps[order][first + (count - 1) // 2]
    high = length_ps[order][first + count // 2]
    usual = np.empty_like(length_ps)
    usual[order] = np.repeat(low + (high - low) // 2, count)
    result: Int64Array = np.where(key == NONE, 0, np.maximum(length_ps - usual, 0))
    return result
