"""Rebuilds the stages of an input pipeline, and their times, from the calls of their iterators (docs/method.md, "Pipeline stages").

    model      ▕ IteratorGetNextOp::DoCompute   ▏
               ▕ Root ▕ Prefetch                ▏▏     self time of Prefetch, all of it waiting
    worker          ▕ Prefetch::Map            ▏       id of Prefetch = parent_id of Map
                    ▕ Map::TFRecord ▏                  the rest is self time of Map

A number in brackets, as in `Interleave[3]`, distinguishes the inputs of one stage. One id may be recorded signed or unsigned
(TensorFlow 2.21, measured). `GetNextFromShard<i>` only asks for shard i and returns at once, so the wait of a replica is the time
of its own iterator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, dropwhile, groupby
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.base.ids import groups_of, is_in, unique_ids, unique_inverse
from traceview.base.intervals import BoolArray, Int64Array, nesting, union
from traceview.base.record import (
    Count,
    Hostname,
    Picoseconds,
    Ratio,
    Record,
    SourceLine,
    StageName,
)
from traceview.base.stats import median_ps
from traceview.base.text import lazy_pattern
from traceview.base.units import PS_PER_US
from traceview.trace.columns import NONE
from traceview.trace.model import Trace
from traceview.trace.sidecar.environment import PipelineFunction

SLOW_CALL_PS: Final = 50 * PS_PER_US
"""A longer call of an iterator did more than take an element from a buffer (XProf uses the same threshold)."""

GENERATOR: Final = "::Generator"
"""How the name of a stage ends that takes elements from a Python function or from a shard."""

WRAPPERS: Final = frozenset(
    (
        *("Root", "Model", "Options", "Finalize", "MaxIntraOpParallelism", "PrivateThreadPool"),
        *("AssertCardinality", "AssertNext", "AssertPrev", "NonSerializable"),
    )
)
"""Stages that set something or check something, and hand on each element as it is (kDatasetType in TensorFlow)."""

PREFETCH: Final = "Prefetch"

_ITERATOR: Final = lazy_pattern(rb"Iterator::")
_SHARD: Final = lazy_pattern(rb"GetNextFromShard|MultiDeviceIteratorGetNextFromShard:")
_INPUT_NUMBER = lazy_pattern(r"\[\d+\]")
_SHARD_THREAD: Final = "tf_data_multi_device_iterator"
_FILLS: Final = ("parallelism", "buffer_limit", "buffered_elements")
_CALLS = lazy_pattern(r"(?:Parallel)?(FlatMap|Map|Filter|Interleave)(?:AndBatch)?(?:V\d+)?")
"""Stages that call a function, whether TensorFlow has made them parallel or not."""
_MADE_BY: Final = ("FlatMap", "Interleave")
_MOST_BRANCHES: Final = 200
_DEEPEST: Final = 64
"""Stages above each other: more than a pipeline has."""


class IteratorCalls(Struct, frozen=True, eq=False):
    """The calls of all iterators of one host, int64 `[n]` each, in the order of lines and file.

    `row`: row of the host columns. `stage`: index into `stage_names`. `enclosing`: the call around it on its thread,
    -1 without. `iterator`: number of the iterator. `above`: number of the iterator that asked it, its own for a root.
    `pipeline`: number of the iterator at the top. `self_ps`: self time. `waiting_ps`: the part of the self time in
    which an input ran on another thread.
    """

    row: Int64Array
    stage: Int64Array
    stage_names: tuple[str, ...]
    enclosing: Int64Array
    iterator: Int64Array
    above: Int64Array
    pipeline: Int64Array
    self_ps: Int64Array
    waiting_ps: Int64Array

    @property
    def from_other_thread(self) -> BoolArray:
        """Calls made on another thread than the one of the asking iterator: they work ahead of it."""
        around = np.where(self.enclosing == NONE, NONE, self.iterator[self.enclosing])
        result: BoolArray = (self.above != self.iterator) & (around != self.above)
        return result


class InputStage(Record, frozen=True):
    """One stage of a host's input pipelines, with the whole durations of its calls.

    Attributes:
        host: Name of the host.
        name: Path of the stage from the root, without the numbers of inputs, of stages of one kind in each other once.
        blocking: Whether the model waits for this pipeline; other pipelines run in the background.
        calls: Number of calls.
        total_ps: Sum of durations, picoseconds.
        self_ps: Sum of durations without calls of other stages nested on the same thread, picoseconds.
        waiting_ps: The part of the self time in which an input of the stage ran on another thread, picoseconds.
        slow_count: Calls longer than 50 µs.
        parallelism: Largest recorded parallelism; null if none was recorded.
        buffer_limit: Largest recorded size of the buffer, elements; null if none was recorded.
        buffered_median: Median number of elements in the buffer at the start of a call, rounded down; null where
            not recorded.
        empty_ratio: Share of the calls with a recorded fill that waited at an empty buffer; null where not recorded.
        function: First line of the user's function that it calls; null where the sidecar names none.
    """

    host: Hostname
    name: StageName
    blocking: bool
    calls: Count
    total_ps: Picoseconds
    self_ps: Picoseconds
    waiting_ps: Picoseconds
    slow_count: Count
    parallelism: Count | None
    buffer_limit: Count | None
    buffered_median: Count | None
    empty_ratio: Ratio | None
    function: SourceLine | None = None

    @property
    def own_ps(self) -> int:
        """Self time in which the stage worked: it did not wait for its inputs."""
        return self.self_ps - self.waiting_ps


def path_of(name: str) -> list[str]:
    """The components of the name of a stage, without the wrappers around its pipeline."""
    parts = name.split("::")[1:]
    return list(dropwhile(WRAPPERS.__contains__, parts))


def kind_of(name: str) -> str:
    """The last component of the path of a stage."""
    return name.rpartition("::")[2]


def iterator_calls(trace: Trace, host: int) -> IteratorCalls:
    """The calls of the iterators of one host, with their self times."""
    columns = trace.host_columns
    row = trace.named_on(host, _ITERATOR.match)
    if not row.size:
        return IteratorCalls(row, row, (), *[row] * 6)
    stage, stage_names = _stages(trace, row)
    own = columns.stat("id").at(row, 0)
    # A root asks itself.
    parent = columns.stat("parent_id")
    above = np.where(parent.has(row), parent.at(row, 0), own)
    ids, number = unique_inverse(np.concatenate((own, above)))
    iterator, above = number[: row.size].astype(np.int64), number[row.size :].astype(np.int64)
    enclosing = _enclosing(trace, row)
    calls = IteratorCalls(
        row=row,
        stage=stage,
        stage_names=stage_names,
        enclosing=enclosing,
        iterator=iterator,
        above=above,
        pipeline=_tops(ids.size, iterator, above)[iterator],
        self_ps=_without_nested(trace, row, enclosing),
        waiting_ps=np.zeros(row.size, dtype=np.int64),
    )
    _add_waiting(trace, host, calls)
    return calls


def stages_of(
    trace: Trace, host: int, calls: IteratorCalls, chosen: Int64Array, blocking: Int64Array
) -> list[InputStage]:
    """The stages of a host that `chosen` calls belong to, by falling self time.

    `blocking`: numbers of the pipelines that the model waits for. Stages of one name are one stage within those and
    one within the others, so that the replicas of a distributed dataset are counted together.
    """
    if not chosen.size:
        return []
    columns = trace.host_columns
    blocks = is_in(calls.pipeline[chosen], blocking)
    facts = {key: columns.stat(key).at(calls.row[chosen], NONE) for key in _FILLS}
    duration = columns.duration_ps[calls.row[chosen]]
    called = _functions(trace, host, calls.stage_names)
    stages = []
    is_inner = (calls.enclosing != NONE) & (calls.stage[calls.enclosing] == calls.stage)
    for every in groups_of(calls.stage[chosen], blocks.view(np.uint8)):
        group = every[~is_inner[chosen[every]]] if is_inner.any() else every
        group = group if group.size else every
        of_stage = {key: values[group] for key, values in facts.items()}
        fill, is_empty = _fill(of_stage), _met_empty(of_stage, duration[group])
        name = calls.stage_names[int(calls.stage[chosen[group[0]]])]
        stages.append(
            InputStage(
                host=trace.hosts[host].name,
                name=name,
                blocking=bool(blocks[group[0]]),
                calls=int(group.size),
                total_ps=int(duration[group].sum()),
                self_ps=int(calls.self_ps[chosen[every]].sum()),
                waiting_ps=int(calls.waiting_ps[chosen[every]].sum()),
                slow_count=int((duration[group] > SLOW_CALL_PS).sum()),
                parallelism=_largest(of_stage["parallelism"]),
                buffer_limit=_largest(of_stage["buffer_limit"]),
                buffered_median=median_ps(fill),
                empty_ratio=float(is_empty.mean()) if fill.size else None,
                function=called.get(name),
            )
        )
    return sorted(stages, key=lambda stage: (-stage.self_ps, stage.name, stage.blocking))


def _functions(trace: Trace, host: int, names: Collection[str]) -> dict[str, str | None]:
    """The lines of the functions that stages call, by the names of the stages, as far as the sidecar names them.

    What TensorFlow puts behind a pipeline may be gone from the one that runs, so that branches are compared from their ends on. What a
    flat map makes looks like what it reads: there nothing is known.
    """
    branches = trace.hosts[host].captured.environment.batch.branches[:_MOST_BRANCHES]
    found: dict[str, str | None] = {}
    above = {name.rpartition("::")[0] for name in names}
    for name in names if branches else ():
        if name in above or name.count("::") > _DEEPEST:
            continue
        calling = list(_calling(name))
        kinds = [kind for kind, _ in calling]
        fitting = {
            lines for branch in branches if (lines := _lines(branch.functions, kinds)) is not None
        }
        for lines in fitting if len(fitting) == 1 else ():
            for (_, stage), line in zip(calling, lines, strict=True):
                found[stage] = line if found.get(stage, line) == line else None
    return found


def _calling(name: str) -> Iterator[tuple[str, str]]:
    """The stages that call a function on the path to one: their kinds, the same where they are parallel, and their names."""
    for stage in accumulate(name.split("::"), "{}::{}".format):
        if kind := _CALLS.fullmatch(kind_of(stage)):
            yield kind[1], stage
            if kind[1] in _MADE_BY:
                return


def _lines(
    functions: Sequence[PipelineFunction], kinds: Sequence[str]
) -> tuple[str | None, ...] | None:
    """The lines of the functions of a branch for stages of these kinds; None where these are others."""
    surplus = len(functions) - len(kinds)
    own = functions[max(surplus, 0) :]
    of_kinds = [
        found and found[1] for each in own for found in (_CALLS.fullmatch(each.stage or ""),)
    ]
    is_same = of_kinds == kinds and not any(each.line for each in functions[: max(surplus, 0)])
    return tuple(each.line for each in own) if is_same else None


def shard_rows(trace: Trace, host: int) -> Int64Array:
    """The host rows in which a replica asks the distributed dataset for its shard."""
    return trace.named_on(host, _SHARD.match)


def _stages(trace: Trace, row: Int64Array) -> tuple[Int64Array, tuple[str, ...]]:
    """The stage of each call: its name without the numbers of inputs. Stages of one kind, each in the next, are one, as of many
    data sets that are put together one after the other.
    """
    names, of_row = unique_inverse(trace.host_columns.name[row])
    index: dict[str, int] = {}
    texts = (_INPUT_NUMBER.sub("", trace.names.text(int(name)) or "") for name in names)
    kinds = ((kind for kind, _ in groupby(text.split("::"))) for text in texts)
    stage = [index.setdefault("::".join(each), len(index)) for each in kinds]
    return np.array(stage, dtype=np.int64)[of_row], tuple(index)


def _tops(count: int, iterator: Int64Array, above: Int64Array) -> Int64Array:
    """For each iterator the iterator at the top of its pipeline; in the circle of a damaged trace any of its members."""
    top = np.arange(count, dtype=np.int64)
    top[iterator] = above
    for _ in range(_DEEPEST):
        above_top = top[top]
        if (above_top == top).all():
            break
        top = above_top
    return top


def _enclosing(trace: Trace, row: Int64Array) -> Int64Array:
    columns = trace.host_columns
    enclosing = np.full(row.size, NONE, dtype=np.int64)
    for on_line in groups_of(columns.line[row]):
        parent = nesting(columns.start_ps[row[on_line]], columns.end_ps[row[on_line]]).parent
        enclosing[on_line] = np.where(parent == NONE, NONE, on_line[parent])
    return enclosing


def _without_nested(trace: Trace, row: Int64Array, enclosing: Int64Array) -> Int64Array:
    """Durations without the parts of directly nested calls that lie inside."""
    start, end = trace.host_columns.start_ps[row], trace.host_columns.end_ps[row]
    self_ps: Int64Array = end - start
    inner = np.flatnonzero(enclosing != NONE)
    outer = enclosing[inner]
    np.subtract.at(self_ps, outer, np.minimum(end[inner], end[outer]) - start[inner])
    return self_ps


def _add_waiting(trace: Trace, host: int, calls: IteratorCalls) -> None:
    """Add to each call the part of its self time in which one of its inputs ran on another thread."""
    from_shard = is_in(calls.iterator, _shard_takers(trace, host, calls))
    calls.waiting_ps[from_shard] = calls.self_ps[from_shard]
    columns = trace.host_columns
    start, end = columns.start_ps[calls.row], columns.end_ps[calls.row]
    nested = np.flatnonzero(calls.enclosing != NONE)
    calls_of = _by_number(np.arange(calls.row.size), calls.iterator)
    nested_in = _by_number(nested, calls.iterator[calls.enclosing[nested]])
    makers = np.flatnonzero(calls.from_other_thread)
    for asker, by in _by_number(makers, calls.above[makers]).items():
        made = union(start[by], end[by])
        own = calls_of.get(asker, nested[:0])
        calls.waiting_ps[own] += made.within(start[own], end[own])
        inner = nested_in.get(asker, nested[:0])
        outer = calls.enclosing[inner]
        reach = np.minimum(end[inner], end[outer])
        np.subtract.at(calls.waiting_ps, outer, made.within(start[inner], reach))


def _by_number(rows: Int64Array, number: Int64Array) -> dict[int, Int64Array]:
    """Rows by a number of each."""
    return {int(number[group[0]]): rows[group] for group in groups_of(number)}


def _shard_takers(trace: Trace, host: int, calls: IteratorCalls) -> Int64Array:
    """The iterators that take from a shard; they ask no other iterator."""
    if shard_rows(trace, host).size == 0:
        return np.empty(0, dtype=np.int64)
    filling = np.array(
        [line.name.startswith(_SHARD_THREAD) for line in trace.lines], dtype=np.bool_
    )
    is_root = calls.iterator == calls.above
    fills = is_root & filling[trace.host_columns.line[calls.row]]
    takes = np.array([name.endswith(GENERATOR) for name in calls.stage_names], dtype=np.bool_)
    # A generator of the user, among the stages that fill the shards, does not take from a shard.
    is_replicas = ~is_in(calls.pipeline, calls.pipeline[fills])
    takers = unique_ids(calls.iterator[takes[calls.stage] & is_replicas])
    return takers[~is_in(takers, calls.above[~is_root])]


def requests_of_buffer(
    trace: Trace, calls: IteratorCalls, chosen: Int64Array
) -> tuple[Int64Array, BoolArray]:
    """Of the chosen calls with a recorded fill, when they began, int64 picoseconds, and which met an empty buffer."""
    columns = trace.host_columns
    row = calls.row[chosen]
    facts = {key: columns.stat(key).at(row, NONE) for key in _FILLS}
    return columns.start_ps[row[_has_fill(facts)]], _met_empty(facts, columns.duration_ps[row])


def _met_empty(of_stage: dict[str, Int64Array], duration_ps: Int64Array) -> BoolArray:
    """Which of the calls with a recorded fill met an empty buffer, and waited for that.

    With `autotune.enabled` off a buffer of four was empty at each request, and handed on its element in 30 µs (TensorFlow 2.21).
    """
    result: BoolArray = (_fill(of_stage) == 0) & (duration_ps[_has_fill(of_stage)] > SLOW_CALL_PS)
    return result


def _has_fill(of_stage: dict[str, Int64Array]) -> BoolArray:
    """The calls that recorded how many elements the buffer holds; an empty buffer omits its fill."""
    with_buffer = (of_stage["parallelism"] >= 0) | (of_stage["buffer_limit"] >= 0)
    if not with_buffer.any():
        return with_buffer
    return with_buffer | (of_stage["buffered_elements"] >= 0)


def _fill(of_stage: dict[str, Int64Array]) -> Int64Array:
    """Elements in the buffer, for the calls that recorded them."""
    return np.maximum(of_stage["buffered_elements"][_has_fill(of_stage)], 0)


def _largest(values: Int64Array) -> int | None:
    largest = int(values.max(initial=NONE))
    return largest if largest >= 0 else None


# Waits of the model

_WAIT = lazy_pattern(rb"IteratorGetNext\w*::DoCompute|[^:]*:IteratorGetNext\w*")
_COMPUTE: Final = b"::DoCompute"


class InputWaits(Struct, frozen=True, eq=False):
    """Blocking waits of the model on one host, int64 `[n]` each, by start.

    `pipeline`: number of the pipeline in `IteratorCalls`, `NONE` if no iterator ran inside.
    """

    row: Int64Array
    start_ps: Int64Array
    end_ps: Int64Array
    pipeline: Int64Array


def find_input_waits(trace: Trace, host: int, calls: IteratorCalls) -> InputWaits:
    """The waits on the thread of the step and those of the model's graph calls."""
    columns = trace.host_columns
    rows = trace.named_on(host, _WAIT.fullmatch)
    if not rows.size:
        return InputWaits(rows, rows, rows, rows)
    markers, thread = trace.steps_by_host[host].markers, trace.thread_of_line
    # Without markers every thread of the model may run the step.
    of_step = thread == thread[columns.line[markers[0]]] if markers else trace.runs_model
    rows = rows[of_step[columns.line[rows]] | _block_a_call(trace, host, rows)]
    rows = rows[np.argsort(columns.start_ps[rows], kind="stable")]
    return InputWaits(
        row=rows,
        start_ps=columns.start_ps[rows],
        end_ps=columns.end_ps[rows],
        pipeline=_pipelines(trace, rows, calls),
    )


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
