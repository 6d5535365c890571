"""Where does the input pipeline spend its time? Its stages, rebuilt from the calls of their iterators.

Every call of a tf.data iterator is a host event `Iterator::Root::Prefetch::…`, named after the path from
the root; a number in brackets, as in `Interleave[3]`, tells apart inputs of one stage. Calls of one
iterator share an `id`, and `parent_id` is that of the iterator that asked, on whatever thread; both are
compared modulo 2**64, because one id may be recorded signed or unsigned (TensorFlow 2.21, measured).

    model      ▕ IteratorGetNextOp::DoCompute   ▏
               ▕ Root ▕ Prefetch                ▏▏     self time of Prefetch, all of it waiting
    worker          ▕ Prefetch::Map            ▏       id of Prefetch = parent_id of Map
                    ▕ Map::TFRecord ▏                  the rest is self time of Map

The self time of a call is its duration without the calls nested in it on the same thread. A stage that
works ahead (`Prefetch`, `ParallelMapV2`) only hands over what threads of its own made: its self time is
waiting while a call of one of its inputs runs on another thread, which is counted apart. What a parallel
stage's user function does is recorded nowhere as a call, so it is self time of that stage, when asked
for faster than it is done. Iterators of a distributed dataset ask a shard for elements through a function
call, without an id; they wait for the calls of the threads that fill the shards.

A buffer's fill is recorded where the lock is free at the start of a call, and left out when it is zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from traceview.ids import unique_ids, unique_inverse
from traceview.intervals import BoolArray, Int64Array, nesting, union
from traceview.record import Count, Hostname, Picoseconds, Ratio, Record, StageName, ThreadNames
from traceview.robust import median_ps
from traceview.trace.model import NONE, HostStat, Trace
from traceview.units import PS_PER_US

SLOW_CALL_PS: Final = 50 * PS_PER_US
"""A longer call of an iterator did more than take an element from a buffer (XProf counts the same)."""

GENERATOR: Final = "::Generator"
"""The end of a stage's name that takes elements from a Python function or from a shard."""

_ITERATOR: Final = b"Iterator::"
_SHARDS: Final = (b"GetNextFromShard", b"MultiDeviceIteratorGetNextFromShard:")
_INPUT_NUMBER = re.compile(r"\[\d+\]")
_SHARD_THREAD: Final = "tf_data_multi_device_iterator"
_PREFETCH: Final = "::Prefetch"
_INJECTED: Final = b"inject/prefetch"
_DEEPEST: Final = 64
_LONGEST_AXIS: Final = 1 << 62


@dataclass(frozen=True, eq=False)
class IteratorCalls:
    """The calls of all iterators of one host, int64 `[n]` each, in the order of lines and file.

    `row`: of the host columns. `stage`: index into `stage_names`. `enclosing`: the call around it on its
    thread, -1 without. `iterator`, `above`: number of the iterator and of the one that asked it, itself for
    a root. `pipeline`: number of the iterator at the top. `self_ps`; `waiting_ps`: the part of it in which
    an input ran on another thread.
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
        """Calls that another thread than that of the asking iterator makes: they work ahead of it."""
        around = np.where(self.enclosing == NONE, NONE, self.iterator[self.enclosing])
        result: BoolArray = (self.above != self.iterator) & (around != self.above)
        return result


class InputStage(Record, frozen=True):
    """One stage of a host's pipelines over some calls, with their whole durations.

    Attributes:
        host: Name of the host.
        name: Path of the stage from the root, without the numbers of inputs.
        blocking: Whether the model asks its pipeline; others run in the background.
        calls: Calls.
        total_ps: Sum of durations, picoseconds.
        self_ps: Sum of durations without calls of other stages nested on the same thread, picoseconds.
        waiting_ps: The part of the self time in which an input of the stage ran on another thread, picoseconds.
        slow_count: Calls longer than 50 µs.
        parallelism: Largest recorded parallelism; null without one.
        buffer_limit: Largest recorded size of the buffer, elements; null without one.
        buffered_median: Elements in the buffer at the start of a call, median rounded down; null where not
            recorded.
        empty_ratio: Share of the calls with a known fill that found the buffer empty; null where not recorded.
        threads: Names of the threads that ran it, without their numbers, comma-separated.
        injected: Whether TensorFlow put the stage in by itself.
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
    threads: ThreadNames
    injected: bool

    @property
    def own_ps(self) -> int:
        """Self time in which the stage did not wait for its inputs."""
        return self.self_ps - self.waiting_ps


def iterator_calls(trace: Trace, host: int) -> IteratorCalls:
    """The calls of the iterators of one host, with their self times."""
    columns = trace.host_columns
    named = np.array([name.startswith(_ITERATOR) for name in trace.names], dtype=np.bool_)
    row = np.flatnonzero(named[columns.name] & (columns.host == host)) if named.any() else _none()
    stage, stage_names = _stages(trace, row)
    own = values_at(columns.stat("id"), row, 0)
    above = _parents(columns.stat("parent_id"), row, own)
    ids, number = np.unique(np.concatenate((own, above)), return_inverse=True)
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

    `blocking`: numbers of the pipelines that the model asks; stages of one name are one stage within those
    and one within the others, so that the replicas of a distributed dataset are counted together.
    """
    columns = trace.host_columns
    asked = np.isin(calls.pipeline[chosen], blocking)
    _, group = unique_inverse(calls.stage[chosen] * 2 + asked)
    # Dense, so that a group's calls are a slice of the calls in the order of groups.
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(int(group.max(initial=-1)) + 2))
    facts = {
        key: values_at(columns.stat(key), calls.row[chosen], NONE)
        for key in ("parallelism", "buffer_limit", "buffered_elements", "dataset_name")
    }
    duration = columns.duration_ps[calls.row[chosen]]
    found = []
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        mine = order[first:last]
        of_stage = {key: values[mine] for key, values in facts.items()}
        fill = _fill(of_stage)
        name = calls.stage_names[int(calls.stage[chosen[mine[0]]])]
        found.append(
            InputStage(
                host=trace.hosts[host].name,
                name=name,
                blocking=bool(asked[mine[0]]),
                calls=int(mine.size),
                total_ps=int(duration[mine].sum()),
                self_ps=int(calls.self_ps[chosen[mine]].sum()),
                waiting_ps=int(calls.waiting_ps[chosen[mine]].sum()),
                slow_count=int((duration[mine] > SLOW_CALL_PS).sum()),
                parallelism=_largest(of_stage["parallelism"]),
                buffer_limit=_largest(of_stage["buffer_limit"]),
                buffered_median=median_ps(fill),
                empty_ratio=float((fill == 0).mean()) if fill.size else None,
                threads=_threads(trace, columns.line[calls.row[chosen[mine]]]),
                injected=name.endswith(_PREFETCH) and _is_injected(trace, of_stage["dataset_name"]),
            )
        )
    return sorted(found, key=lambda stage: (-stage.self_ps, stage.name, stage.blocking))


def values_at(stat: HostStat, rows: Int64Array, default: int) -> Int64Array:
    """The value of a stat at each of `rows`, `default` where the event has none."""
    if stat.row.size == 0:
        return np.full(rows.size, default, dtype=np.int64)
    place = np.minimum(np.searchsorted(stat.row, rows), stat.row.size - 1)
    return np.where(stat.row[place] == rows, stat.value[place], default)


def shard_rows(trace: Trace, host: int) -> Int64Array:
    """The host rows in which a replica asks the distributed dataset for its shard.

    `GetNextFromShard<i>` with a `shard_num`; in 2020 the op without it.
    """
    columns = trace.host_columns
    named = np.array([name.startswith(_SHARDS) for name in trace.names], dtype=np.bool_)
    if not named.any():
        return _none()
    return np.flatnonzero(named[columns.name] & (columns.host == host))


def _none() -> Int64Array:
    return np.empty(0, dtype=np.int64)


def _stages(trace: Trace, row: Int64Array) -> tuple[Int64Array, tuple[str, ...]]:
    """The stage of each call: its name without the numbers of inputs."""
    names, of_row = unique_inverse(trace.host_columns.name[row])
    index: dict[str, int] = {}
    stage = [
        index.setdefault(_INPUT_NUMBER.sub("", trace.names.text(int(name)) or ""), len(index))
        for name in names
    ]
    return np.array(stage, dtype=np.int64)[of_row], tuple(index)


def _parents(stat: HostStat, row: Int64Array, own: Int64Array) -> Int64Array:
    """The id of the asking iterator, the iterator's own for a root."""
    has_parent = np.isin(row, stat.row)
    return np.where(has_parent, values_at(stat, row, 0), own)


def _tops(count: int, iterator: Int64Array, above: Int64Array) -> Int64Array:
    """For each iterator the one at the top of its pipeline; of a damaged trace's circle any in it."""
    top = np.arange(count, dtype=np.int64)
    top[iterator] = above
    for _ in range(_DEEPEST):
        further = top[top]
        if (further == top).all():
            break
        top = further
    return top


def _enclosing(trace: Trace, row: Int64Array) -> Int64Array:
    columns = trace.host_columns
    enclosing = np.full(row.size, NONE, dtype=np.int64)
    for mine in _by_value(columns.line[row].astype(np.int64)):
        parent = nesting(columns.start_ps[row[mine]], columns.end_ps[row[mine]]).parent
        enclosing[mine] = np.where(parent == NONE, NONE, mine[parent])
    return enclosing


def _by_value(values: Int64Array) -> Iterator[Int64Array]:
    """The indices of each distinct value, together."""
    order = np.argsort(values, kind="stable").astype(np.int64)
    edges = np.flatnonzero(np.diff(values[order])) + 1
    return (part for part in np.split(order, edges) if part.size)


def _without_nested(trace: Trace, row: Int64Array, enclosing: Int64Array) -> Int64Array:
    """Durations without the calls directly inside, as far as those lie inside."""
    start, end = trace.host_columns.start_ps[row], trace.host_columns.end_ps[row]
    self_ps = end - start
    inner = np.flatnonzero(enclosing != NONE)
    outer = enclosing[inner]
    np.subtract.at(self_ps, outer, np.minimum(end[inner], end[outer]) - start[inner])
    return self_ps


def _add_waiting(trace: Trace, host: int, calls: IteratorCalls) -> None:
    """Fill in how much of each call's self time one of its inputs ran on another thread.

    For all iterators at once: each gets a stretch of one long time axis for its own calls and its inputs'.
    """
    ahead = np.flatnonzero(calls.from_other_thread)
    takers, fills = _from_shards(trace, host, calls)
    makers = np.concatenate((ahead, np.tile(fills, takers.size)))
    asker = np.concatenate((calls.above[ahead], np.repeat(takers, fills.size)))
    if makers.size == 0:
        return
    nested = np.flatnonzero(calls.enclosing != NONE)
    everything = np.arange(calls.row.size)
    iterator_count = int(max(calls.iterator.max(), calls.above.max())) + 1
    columns = trace.host_columns
    start, end = columns.start_ps[calls.row], columns.end_ps[calls.row]
    start, end = start - start.min(), end - start.min()
    stretch = int(end.max()) + 1
    askers = np.unique(asker)
    at_once = max(_LONGEST_AXIS // stretch, 1)
    for first in range(0, askers.size, at_once):
        some = askers[first : first + at_once]
        place = np.full(iterator_count, NONE, dtype=np.int64)
        place[some] = np.arange(some.size) * stretch
        by, shift = _placed(place, makers, asker)
        made = union(start[by] + shift, end[by] + shift)
        waiting, shift = _placed(place, everything, calls.iterator)
        calls.waiting_ps[waiting] += made.within(start[waiting] + shift, end[waiting] + shift)
        inner, shift = _placed(place, nested, calls.iterator[calls.enclosing[nested]])
        outer = calls.enclosing[inner]
        reach = np.minimum(end[inner], end[outer])
        np.subtract.at(calls.waiting_ps, outer, made.within(start[inner] + shift, reach + shift))


def _placed(
    place: Int64Array, chosen: Int64Array, iterator: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Those of the calls `chosen` whose `iterator` has a place on the time axis, and their places."""
    shift = place[iterator]
    return chosen[shift != NONE], shift[shift != NONE]


def _from_shards(trace: Trace, host: int, calls: IteratorCalls) -> tuple[Int64Array, Int64Array]:
    """The iterators that take from a shard, which no other iterator is asked by, and the calls that fill them."""
    if shard_rows(trace, host).size == 0:
        return _none(), _none()
    filling = np.array(
        [line.name.startswith(_SHARD_THREAD) for line in trace.lines], dtype=np.bool_
    )
    is_root = calls.iterator == calls.above
    fills = np.flatnonzero(is_root & filling[trace.host_columns.line[calls.row]])
    takes = np.array([name.endswith(GENERATOR) for name in calls.stage_names], dtype=np.bool_)
    # A generator of the user's, among the stages that fill the shards, takes from none.
    is_replicas = ~np.isin(calls.pipeline, calls.pipeline[fills])
    takers = np.unique(calls.iterator[takes[calls.stage] & is_replicas])
    return np.setdiff1d(takers, calls.above[~is_root]), fills


def _fill(of_stage: dict[str, Int64Array]) -> Int64Array:
    """Elements in the buffer, for the calls that could look; a buffer without any leaves its fill out."""
    with_buffer = (of_stage["parallelism"] >= 0) | (of_stage["buffer_limit"] >= 0)
    if not with_buffer.any():
        return _none()
    looked = with_buffer | (of_stage["buffered_elements"] >= 0)
    return np.maximum(of_stage["buffered_elements"][looked], 0)


def _largest(values: Int64Array) -> int | None:
    largest = int(values.max(initial=NONE))
    return largest if largest >= 0 else None


def _threads(trace: Trace, lines: np.ndarray[tuple[int], np.dtype[np.int32]]) -> str:
    names = (trace.lines[int(line)].name.partition("/")[0] for line in unique_ids(lines))
    return ", ".join(sorted(set(names)))


def _is_injected(trace: Trace, names: Int64Array) -> bool:
    return any(
        trace.names[int(name)].startswith(_INJECTED) for name in np.unique(names[names != NONE])
    )
