"""When did the model wait for its input, and which replica for its shard?

The model waits in `IteratorGetNext…`: on the thread that calls the step in a custom loop; in a step function
that takes from the iterator itself, as Keras `fit` does, on a thread of tf.data, with the `id` of the
`FunctionRun` that waits for it (TensorFlow 2.21, measured). Other iterators of a distributed dataset run in
the background and hold up nothing.

`GetNextFromShard<i>` only asks for shard i and returns at once, so what a replica waited is the time of its
own iterator. The calls of a custom loop follow one another: the first replica waits until the common source
has made a batch, and the next finds its part already there. So a shard is late only by what it *arrived*
later than the earliest, where a replica's element arrives with the end of the call that made it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from traceview.ids import unique_ids
from traceview.intervals import BoolArray, Int64Array
from traceview.trace.correlation import threads
from traceview.trace.model import NONE, HostSteps, Trace
from traceview.trace.pipeline import (
    GENERATOR,
    InputStage,
    IteratorCalls,
    iterator_calls,
    shard_rows,
    stages_of,
    values_at,
)

_WAIT = re.compile(rb"IteratorGetNext\w*::DoCompute|[^:]*:IteratorGetNext\w*")
_COMPUTE: Final = b"::DoCompute"
_DATA_THREAD: Final = "tf_data"
_NUMBER = re.compile(r":(\d{1,9})$")


@dataclass(frozen=True, eq=False)
class InputWaits:
    """Blocking waits of the model on one host, int64 `[n]` each, by start.

    `pipeline`: number of the pipeline in `IteratorCalls`, `NONE` where no iterator ran inside. `in_turn`:
    all of them on the thread of the step, one after the other.
    """

    row: Int64Array
    start_ps: Int64Array
    end_ps: Int64Array
    pipeline: Int64Array
    in_turn: bool


def input_waits(trace: Trace, host: int, calls: IteratorCalls) -> InputWaits:
    """The waits of the step's thread and of the graph calls of the model."""
    columns = trace.host_columns
    waits = np.array([_WAIT.fullmatch(name) is not None for name in trace.names], dtype=np.bool_)
    rows = np.flatnonzero(waits[columns.name] & (columns.host == host))
    on_step = _is_step_line(trace, trace.steps_by_host[host])[columns.line[rows]]
    blocking = on_step | _of_a_call(trace, host, rows)
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
    found = []
    for host in range(len(trace.hosts)):
        calls = iterator_calls(trace, host)
        asked = input_waits(trace, host, calls).pipeline
        everything = np.arange(calls.row.size)
        found += stages_of(trace, host, calls, everything, asked[asked != NONE])
    return found


def _model_lines(trace: Trace) -> BoolArray:
    return np.array(
        [line.device == NONE and not line.name.startswith(_DATA_THREAD) for line in trace.lines],
        dtype=np.bool_,
    )


def _is_step_line(trace: Trace, found: HostSteps) -> BoolArray:
    """The lines of the thread with the step markers; without markers those of every thread of the model."""
    if found.marker_line == NONE:
        return _model_lines(trace)
    thread = threads(trace.lines)
    result: BoolArray = thread == thread[found.marker_line]
    return result


def _of_a_call(trace: Trace, host: int, rows: Int64Array) -> BoolArray:
    """Waits elsewhere that a graph call of the model waits for: they share its id."""
    columns = trace.host_columns
    runs = trace.names.matching(columns.name, [b"FunctionRun"]) & (columns.host == host)
    calls = np.flatnonzero(runs)
    calls = calls[_model_lines(trace)[columns.line[calls]]]
    id_ = columns.stat("id")
    has_id = np.isin(rows, id_.row)
    computes = np.array(
        [trace.names[int(name)].endswith(_COMPUTE) for name in columns.name[rows]], dtype=np.bool_
    )
    of_calls = values_at(id_, calls[np.isin(calls, id_.row)], 0)
    return computes & has_id & np.isin(values_at(id_, rows, 0), of_calls)


def _pipelines(trace: Trace, rows: Int64Array, calls: IteratorCalls) -> Int64Array:
    """The pipeline of the first iterator call inside each wait."""
    columns = trace.host_columns
    pipeline = np.full(rows.size, NONE, dtype=np.int64)
    outer = np.flatnonzero(calls.enclosing == NONE)
    line, start = columns.line[calls.row[outer]], columns.start_ps[calls.row[outer]]
    for one in unique_ids(columns.line[rows]):
        mine = np.flatnonzero(columns.line[rows] == one)
        here = outer[line == one]
        if here.size == 0:
            continue
        begins = start[line == one]
        order = np.argsort(begins, kind="stable")
        place = np.searchsorted(begins[order], columns.start_ps[rows[mine]])
        first = order[np.minimum(place, here.size - 1)]
        inside = (place < here.size) & (begins[first] < columns.end_ps[rows[mine]])
        pipeline[mine[inside]] = calls.pipeline[here[first[inside]]]
    return pipeline


def shards(trace: Trace, host: int, calls: IteratorCalls, waits: InputWaits) -> dict[int, int]:
    """The shard of each pipeline that a replica waits in; empty unless every replica has exactly one.

    Each takes its elements with a generator, and the generators are numbered in the order of the replicas
    (`GeneratorDataset:66`, `GeneratorDataset:67`). Where that is not recorded and the waits follow one
    another, they do so in the order of the replicas, too.
    """
    rows = shard_rows(trace, host)
    numbers = values_at(trace.host_columns.stat("shard_num"), rows, NONE)
    pipelines = list(dict.fromkeys(waits.pipeline[waits.pipeline != NONE].tolist()))
    count = np.unique(numbers[numbers != NONE]).size
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
    names = values_at(trace.host_columns.stat("dataset_name"), calls.row[takers], NONE)
    found: dict[int, int] = {}
    for pipeline, name in zip(calls.pipeline[takers].tolist(), names.tolist(), strict=True):
        number = _NUMBER.search(trace.names.text(name) or "")
        if number:
            found[pipeline] = int(number[1])
    return found


def arrivals(trace: Trace, calls: IteratorCalls, waits: InputWaits) -> Int64Array:
    """When the element that each wait ended with was made; for a pipeline of one thread the wait's end."""
    columns = trace.host_columns
    arrived = waits.end_ps.copy()
    ahead = calls.from_other_thread
    on_line = columns.line[calls.row]
    for pipeline in unique_ids(waits.pipeline[waits.pipeline != NONE]).tolist():
        mine = np.flatnonzero(waits.pipeline == pipeline)
        of_pipeline = calls.pipeline == pipeline
        asked_here = of_pipeline & np.isin(on_line, columns.line[waits.row[mine]]) & ~ahead
        makers = ahead & of_pipeline & np.isin(calls.above, calls.iterator[asked_here])
        made = np.sort(columns.end_ps[calls.row[makers]])
        if made.size == 0:
            continue
        place = np.searchsorted(made, waits.end_ps[mine], side="right") - 1
        # What no recorded call made was in the buffer from before the recording.
        arrived[mine] = np.where(place >= 0, made[np.maximum(place, 0)], np.iinfo(np.int64).min)
    return arrived
