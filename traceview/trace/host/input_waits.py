"""Finds when the model waited for its input, and which replica waited for its shard.

The model waits in `IteratorGetNext…`. In a custom loop that event is on the thread that calls the step. In a step
function that takes elements from the iterator itself, as Keras `fit` does, it is on a thread of tf.data and has the
`id` of the `FunctionRun` that waits for it (TensorFlow 2.21, measured). Other iterators of a distributed dataset run
in the background and delay nothing.

`GetNextFromShard<i>` only asks for shard i and returns at once, so the wait of a replica is the time of its own
iterator. The calls of a custom loop follow one another: the first replica waits until the common source has made a
batch, and the next replica gets its part at once. So a shard is late only by the time it *arrives* after the earliest
one. The element of a replica arrives at the end of the call that made it.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import BoolArray, Int64Array
from traceview.trace.host.pipeline import (
    GENERATOR,
    InputStage,
    IteratorCalls,
    iterator_calls,
    shard_rows,
    stages_of,
)
from traceview.trace.model import NONE, Trace

_WAIT = re.compile(rb"IteratorGetNext\w*::DoCompute|[^:]*:IteratorGetNext\w*")
_COMPUTE: Final = b"::DoCompute"
_NUMBER = re.compile(r":(\d{1,9})$")


def _is_wait(name: bytes) -> bool:
    return _WAIT.fullmatch(name) is not None


class InputWaits(Struct, frozen=True, eq=False):
    """Blocking waits of the model on one host, int64 `[n]` each, by start.

    `pipeline`: number of the pipeline in `IteratorCalls`, `NONE` if no iterator ran inside. `in_turn`: whether all
    waits are on the thread of the step, one after the other.
    """

    row: Int64Array
    start_ps: Int64Array
    end_ps: Int64Array
    pipeline: Int64Array
    in_turn: bool


def find_input_waits(trace: Trace, host: int, calls: IteratorCalls) -> InputWaits:
    """The waits on the thread of the step and those of the model's graph calls."""
    columns = trace.host_columns
    rows = trace.named_on(host, _is_wait)
    marker_line, thread = trace.steps_by_host[host].marker_line, trace.thread_of_line
    # Without markers every thread of the model may run the step.
    of_step = trace.runs_model if marker_line == NONE else thread == thread[marker_line]
    on_step = of_step[columns.line[rows]]
    blocking = on_step | _block_a_call(trace, host, rows)
    rows, on_step = rows[blocking], on_step[blocking]
    order = np.argsort(columns.start_ps[rows], kind="stable")
    rows = rows[order]
    return InputWaits(
        row=rows,
        start_ps=columns.start_ps[rows],
        end_ps=columns.end_ps[rows],
        pipeline=_pipelines(trace, rows, calls),
        in_turn=bool(on_step.all()),
    )


def recorded_stages(trace: Trace) -> list[InputStage]:
    """The stages of every host over the whole recording, by host and falling self time."""
    stages: list[InputStage] = []
    for host in range(len(trace.hosts)):
        calls = iterator_calls(trace, host)
        blocking = find_input_waits(trace, host, calls).pipeline
        every_call = np.arange(calls.row.size)
        stages += stages_of(trace, host, calls, every_call, blocking[blocking != NONE])
    return stages


def _block_a_call(trace: Trace, host: int, rows: Int64Array) -> BoolArray:
    """Which events at `rows`, on whatever thread, block a graph call of the model: they share its id."""
    columns = trace.host_columns
    calls = trace.named_on(host, b"FunctionRun".__eq__)
    calls = calls[trace.runs_model[columns.line[calls]]]
    id_ = columns.stat("id")
    has_id = id_.has(rows)
    computes = trace.names.where(columns.name[rows], lambda name: name.endswith(_COMPUTE))
    of_calls = id_.at(calls[id_.has(calls)], 0)
    return computes & has_id & is_in(id_.at(rows, 0), of_calls)


def _pipelines(trace: Trace, rows: Int64Array, calls: IteratorCalls) -> Int64Array:
    """The pipeline of the first iterator call inside each wait."""
    columns = trace.host_columns
    pipeline = np.full(rows.size, NONE, dtype=np.int64)
    outer = np.flatnonzero(calls.enclosing == NONE)
    line, start = columns.line[calls.row[outer]], columns.start_ps[calls.row[outer]]
    for wait_line in unique_ids(columns.line[rows]):
        waits = np.flatnonzero(columns.line[rows] == wait_line)
        candidates = outer[line == wait_line]
        if candidates.size == 0:
            continue
        begins = start[line == wait_line]
        order = np.argsort(begins, kind="stable")
        place = np.searchsorted(begins[order], columns.start_ps[rows[waits]])
        first = order[np.minimum(place, candidates.size - 1)]
        inside = (place < candidates.size) & (begins[first] < columns.end_ps[rows[waits]])
        pipeline[waits[inside]] = calls.pipeline[candidates[first[inside]]]
    return pipeline


def shards(trace: Trace, host: int, calls: IteratorCalls, waits: InputWaits) -> dict[int, int]:
    """The shard of each pipeline that a replica waits for; empty unless every replica has exactly one pipeline.

    A pipeline takes its elements with a generator, and the generators are numbered in the order of the replicas
    (`GeneratorDataset:66`, `GeneratorDataset:67`). If those numbers are not recorded, waits that follow one another
    are in the order of the replicas.
    """
    rows = shard_rows(trace, host)
    numbers = trace.host_columns.stat("shard_num").at(rows, NONE)
    pipelines = list(dict.fromkeys(waits.pipeline[waits.pipeline != NONE].tolist()))
    count = unique_ids(numbers[numbers != NONE]).size
    if count < 2 or len(pipelines) != count:
        return {}
    number_of = _generator_numbers(trace, calls)
    if len({number_of.get(pipeline) for pipeline in pipelines} - {None}) == count:
        pipelines.sort(key=lambda pipeline: number_of[pipeline])
    elif not waits.in_turn:
        return {}
    return {pipeline: place for place, pipeline in enumerate(pipelines)}


def _generator_numbers(trace: Trace, calls: IteratorCalls) -> dict[int, int]:
    """The number in the name of each pipeline's generator, where it has one."""
    takes = np.array([name.endswith(GENERATOR) for name in calls.stage_names], dtype=np.bool_)
    takers = np.flatnonzero(takes[calls.stage])
    names = trace.host_columns.stat("dataset_name").at(calls.row[takers], NONE)
    number_of: dict[int, int] = {}
    for pipeline, name in zip(calls.pipeline[takers].tolist(), names.tolist(), strict=True):
        number = _NUMBER.search(trace.names.text(name) or "")
        if number:
            number_of[pipeline] = int(number[1])
    return number_of


def arrivals(trace: Trace, calls: IteratorCalls, waits: InputWaits) -> Int64Array:
    """When the element that ended each wait was made; in a pipeline of a single thread, the end of the wait."""
    columns = trace.host_columns
    arrived = waits.end_ps.copy()
    ahead = calls.from_other_thread
    on_line = columns.line[calls.row]
    for pipeline in unique_ids(waits.pipeline[waits.pipeline != NONE]).tolist():
        in_pipeline = np.flatnonzero(waits.pipeline == pipeline)
        of_pipeline = calls.pipeline == pipeline
        by_model = of_pipeline & is_in(on_line, columns.line[waits.row[in_pipeline]]) & ~ahead
        makers = ahead & of_pipeline & is_in(calls.above, calls.iterator[by_model])
        made = np.sort(columns.end_ps[calls.row[makers]])
        if made.size == 0:
            continue
        place = np.searchsorted(made, waits.end_ps[in_pipeline], side="right") - 1
        # An element that no recorded call made was in the buffer before the recording began.
        made_at = np.where(place >= 0, made[np.maximum(place, 0)], np.iinfo(np.int64).min)
        arrived[in_pipeline] = made_at
    return arrived
