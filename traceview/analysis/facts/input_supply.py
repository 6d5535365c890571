"""Judges whether the input pipeline of each host makes batches as fast as the model takes them, and what it lacks.

Defined in docs/method.md, "Pipeline stages" and "Supply". Only the fill of `Prefetch` counts; parallel stages record calls that
still run as elements. A Python function of the pipeline, such as a generator, is one op, whether it computes or waits for a server;
while it waits, as the processor time of its thread shows, it does not need Python's lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, filterfalse
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.run import Run
from traceview.analysis.facts.selection import covered_ps, rows_in, step_bounds
from traceview.analysis.facts.threads import lock_waits
from traceview.base.ids import is_in, unique_ids, unique_inverse
from traceview.base.intervals import (
    BoolArray,
    Int64Array,
    IntervalSet,
    difference,
    places,
    union,
)
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.trace.columns import NONE
from traceview.trace.host.pipeline import (
    GENERATOR,
    PREFETCH,
    WRAPPERS,
    InputStage,
    InputWaits,
    IteratorCalls,
    find_input_waits,
    iterator_calls,
    kind_of,
    path_of,
    requests_of_buffer,
    shard_rows,
    stages_of,
)
from traceview.trace.host.state_timeline import intersection, joined_spans
from traceview.trace.model import Trace
from traceview.trace.sidecar.environment import PipelineFunction
from traceview.trace.state import State

_WORKS_AHEAD = lazy_pattern(
    r"Prefetch|Parallel|LegacyParallel|MapAndBatch|ParseExample|DataService"
)
_KEEPS = lazy_pattern(r"::\w*(?:Cache|Snapshot)\w*")
_HANDS_ON = lazy_pattern(r"(?:Finite|Forever)?(?:Repeat|Take|Skip)|Rebatch(?:V\d+)?")
_DROPS = lazy_pattern(r"(?:Finite|Forever|Parallel)?(Skip|Take|Filter|Shard)(?:V\d+)?")
_EACH = lazy_pattern(
    r"(?:Parallel)?Map(?:V\d+)?|Prefetch|(?:Memory)?Cache(?:V\d+)?|(?:Finite|Forever)?(?:Repeat|Skip|Take)"
)
"""Stages that make an element of each that they are given."""
_CHANGES_NONE = lazy_pattern(
    r"(?:Model|Prefetch|Generator|(?:Finite|Forever)?(?:Repeat|Skip|Take)|Shard|Shuffle(?:AndRepeat)?|Batch|ParallelBatch|Rebatch"
    r"|Concatenate|Zip|Tensor|TensorSlice|MaxIntraOpParallelism|PrivateThreadPool|Options)(?:V\d+)?(?:\[\d+\])?"
)
"""Stages that hand on what they are given, in whatever order; a `Generator` alone takes it from a shard, that of a script is in a `FlatMap`."""
_MAKES = lazy_pattern(rb": MakeIterator\Z")
_DROPPED_FACTOR: Final = 2
_FEWEST_DROPPED: Final = 8
"""Elements made for one that is handed on, and dropped ones: a buffer holds few. Choices of ours."""

DEBUGGED: Final = "tf.data.experimental.enable_debug_mode"
"""With this setting all of a pipeline runs in Python on one thread, and nothing works ahead, whatever the script asks for."""

WORK_RATIO: Final = 0.25
"""Of the window, or of the wait: how long the slowest stage works where the model waits for it (XProf's limit)."""
EMPTY_STEP_RATIO: Final = 0.25
"""Of the steps: in how many the buffers are empty where the model waits for the pipeline (XProf's limit)."""
EMPTY_WAIT_RATIO: Final = 0.5
"""Of the wait: how much of it is in steps with empty buffers. A pipeline that fills a buffer from time to time makes few
steps wait, and those for long."""
LOCK_WAIT_RATIO: Final = 0.02
"""Of the window: how long the thread of the step waits for Python's lock where another thread keeps it. Without a generator
it was below 0.001."""


class Dropped(Struct, frozen=True):
    """What a stage drops of what is made below it: its `kind`, and how many elements are `made` and `kept`."""

    kind: str
    made: int
    kept: int


class InputSupply(Struct, frozen=True, eq=False):
    """What the pipelines of one host deliver.

    `stages`: those in the window, longest first. `slowest`: the one to change first; `share_ratio`: its share of the work of
    all that the model waits for, `work_ratio`: of the window, `work_of_wait_ratio`: over the wait; `dropped`: that most of
    what it makes is dropped. `lacks_prefetch`: whether it does not work ahead. `empty_step_ratio`: the share of the used steps in which a
    request met an empty buffer, of the buffer for which that is least; `empty_wait_ratio`: the share of the wait in these steps. `wait_ps`: how long the thread of the steps was in calls for the next batch, in the window; `wait_of_steps`:
    in each step of the host, used or not. `gives_again`: whether the pipeline gives the same
    examples in each epoch, for nothing changes them after a cache or arrays. `is_cut`: a `take` above a cache
    above it ends before the cache is full. `iterator_count`: iterators made
    in it, if the first requests to them are most of the wait. `ahead_ratio`: the share of the window for which
    the pipeline is at work ahead of the steps, as `_ahead_ratio`. What is not known is None.
    """

    stages: tuple[InputStage, ...]
    slowest: InputStage | None
    share_ratio: float
    dropped: Dropped | None
    is_cut: bool
    lacks_prefetch: bool
    work_ratio: float | None
    work_of_wait_ratio: float | None
    empty_step_ratio: float | None
    empty_wait_ratio: float | None
    wait_ps: int | None
    wait_of_steps: tuple[int, ...] | None
    gives_again: bool
    iterator_count: int
    ahead_ratio: float

    @property
    def is_short(self) -> bool:
        """Whether the pipeline agrees that the model waits for it: it works much, and its buffers are empty.

        Where the buffers are empty while the model waits, its work is compared with that wait.
        """
        if self.empty_step_ratio is None or self.work_ratio is None:
            return True
        if (self.empty_wait_ratio or 0.0) >= EMPTY_WAIT_RATIO:
            return max(self.work_ratio, self.work_of_wait_ratio or 0.0) >= WORK_RATIO
        return self.empty_step_ratio >= EMPTY_STEP_RATIO and self.work_ratio >= WORK_RATIO

    @property
    def is_generator(self) -> bool:
        """Whether the slowest stage is a Python generator."""
        return self.slowest is not None and self.slowest.name.endswith(GENERATOR)


def input_supplies(context: Run) -> Mapping[int, InputSupply]:
    """What the pipelines of each host with an iterator deliver, by index."""
    every = {host: _supply(context, host) for host in context.selection.windows}
    return {host: supply for host, supply in every.items() if supply is not None}


def supply_of(context: Run, host: int) -> InputSupply | None:
    """What the pipelines of a host deliver; None where no iterator was recorded."""
    return context.once(input_supplies).get(host)


DETERMINED: Final = "tf.config.experimental.enable_op_determinism"
"""With this setting maps that draw random numbers make one call after the other, whatever the script asks for."""


def is_debugged(trace: Trace, host: int) -> bool:
    """Whether the pipelines of a host run in the mode that finds mistakes."""
    return DEBUGGED in trace.hosts[host].captured.environment.tracing.hooks


def is_determined(trace: Trace, host: int) -> bool:
    """Whether a host has to compute the same in each run."""
    return DETERMINED in trace.hosts[host].captured.environment.tracing.hooks


def drawing_functions(trace: Trace, host: int) -> list[PipelineFunction]:
    """The functions that the pipeline of a host calls and that draw random numbers, as the capture knows."""
    branches = trace.hosts[host].captured.environment.batch.branches
    return [each for branch in branches for each in branch.functions if each.draws]


def keeps_lock(context: Run, host: int, device: int) -> bool:
    """Whether Python of the pipeline runs while the thread of the step waits for the lock, for long enough; mostly not."""
    window, python = context.selection.windows[host], pipeline_python(context, host)
    if not window.length_ps or not python.start.size:
        return False
    waits = intersection(lock_waits(context, device), python)
    return covered_ps(waits, window) >= LOCK_WAIT_RATIO * window.length_ps


def _supply(context: Run, host: int) -> InputSupply | None:
    trace, selection, columns = context.trace, context.selection, context.trace.host_columns
    calls = iterator_calls(trace, host)
    waits = find_input_waits(trace, host, calls)
    if not (calls.row.size or waits.row.size):
        return None
    window, asked = selection.windows[host], waits.pipeline[waits.pipeline != NONE]
    inside = rows_in(columns.start_ps[calls.row], columns.end_ps[calls.row], window)
    stages = stages_of(trace, host, calls, inside, asked)
    is_distributed = bool(shard_rows(trace, host).size)
    candidates = _waited_for(stages, is_distributed=is_distributed)
    slowest = max(candidates, key=lambda stage: stage.own_ps, default=None)
    if slowest is not None and slowest.own_ps <= 0:
        slowest = None
    # Whatever the window holds of the pipeline, it is the same in all of the recording.
    whole = stages_of(trace, host, calls, np.arange(calls.row.size), asked)
    wait_ps = of_steps = None
    steps = step_bounds(selection.steps[host])
    if waits.row.size:
        spans = union(waits.start_ps, waits.end_ps)
        wait_ps, of_steps = covered_ps(spans, window), spans.within(*steps)
    waited_ps, waited = wait_ps, of_steps
    devices = trace.devices_of_host[host]
    if any(trace.device_list[device].kind != "replica" for device in devices):
        # What the thread waits while the devices have work costs nothing.
        gaps = [context.idle.gaps[device] for device in devices if device in context.idle.gaps]
        idle = [of_device.spans_with(State.INPUT).within(*steps) for of_device in gaps]
        waited = np.max(idle, axis=0) if idle else None
        waited_ps = None if waited is None else int(waited.sum())
    is_used = [step.excluded is None for step in selection.steps[host]]
    of_used = None if waited is None else waited[np.array(is_used, dtype=np.bool_)]
    empty: tuple[float | None, float | None] = (None, None)
    if slowest is not None:
        empty = _empty(
            context, host, calls, is_in(calls.pipeline, waits.pipeline), slowest, of_used
        )
    own_ps = slowest.own_ps if slowest else 0
    return InputSupply(
        stages=tuple(sorted(stages, key=lambda stage: -stage.self_ps)),
        slowest=slowest,
        share_ratio=own_ps / sum(stage.own_ps for stage in candidates) if slowest else 0.0,
        dropped=_dropped(slowest, stages) if slowest else None,
        is_cut=bool(slowest and _is_cut(slowest.name)),
        # A distributed dataset works ahead by itself, on the threads that fill the shards.
        lacks_prefetch=not (is_distributed or is_debugged(trace, host)) and _lacks_prefetch(whole),
        work_ratio=own_ps / max(window.length_ps, 1) if slowest else None,
        work_of_wait_ratio=own_ps / waited_ps if slowest and waited_ps else None,
        empty_step_ratio=empty[0],
        empty_wait_ratio=empty[1],
        wait_ps=wait_ps,
        wait_of_steps=None if of_steps is None else tuple(of_steps.tolist()),
        gives_again=all(map(_gives_again, whole)),
        iterator_count=_new_iterators(context, host, waits),
        ahead_ratio=_ahead_ratio(context, host, calls) if host in context.idle.states else 0.0,
    )


def _waited_for(stages: Sequence[InputStage], *, is_distributed: bool) -> list[InputStage]:
    """The stages that may hold up the model, without those that only pass on elements."""
    asked = [stage for stage in stages if stage.blocking or is_distributed]
    return [
        stage
        for stage in asked or stages
        if kind_of(stage.name) not in (*WRAPPERS, PREFETCH)
        and not (is_distributed and stage.blocking and stage.name.endswith(GENERATOR))
    ]


def _lacks_prefetch(stages: Sequence[InputStage]) -> bool:
    """Whether a pipeline does not work ahead, by the names of its stages; not known without names."""
    paths = [path_of(stage.name) for stage in _waited_for(stages, is_distributed=False)]
    last = [next(filterfalse(_HANDS_ON.fullmatch, path), PREFETCH) for path in paths]
    return not all(map(_WORKS_AHEAD.match, last))


def _gives_again(stage: InputStage) -> bool:
    """Whether nothing above a stage, or above the cache that it fills, changes elements."""
    parts = stage.name.split("::")
    kept = (place for place, part in enumerate(parts) if _KEEPS.search(f"::{part}"))
    return all(map(_CHANGES_NONE.fullmatch, path_of("::".join(parts[: next(kept, None)]))))


def _dropped(stage: InputStage, stages: Sequence[InputStage]) -> Dropped | None:
    """What the next stage above this one that drops elements drops of what is made below it, if that is most.

    Who skips elements asks for them without a record; but what makes each of them asks its own input.
    """
    calls: Counter[str] = Counter()
    for other in stages:
        if other.blocking == stage.blocking:
            calls[other.name] += other.calls
    parts, made = stage.name.split("::"), 0
    place = max((n for n, kind in enumerate(parts[:-1], 1) if _DROPS.fullmatch(kind)), default=0)
    if not place:
        return None
    for path in accumulate(parts, "{}::{}".format):
        if path.count("::") >= place:
            made = max(made, calls[path])
            if not _EACH.fullmatch(kind_of(path)):
                break
    else:
        made = max([made, *(calls[name] for name in calls if name.rpartition("::")[0] == path)])
    kind, kept = _DROPS.fullmatch(parts[place - 1]), max(calls["::".join(parts[:place])], 1)
    is_most = made >= max(_DROPPED_FACTOR * kept, kept + _FEWEST_DROPPED)
    return Dropped(kind[1], made, kept) if kind and is_most else None


def _is_cut(stage: str) -> bool:
    """Whether a `take` reads a cache that a stage fills; what repeats in between may read it to its end."""
    is_taken = False
    for kind in stage.split("::")[:-1]:
        if "Cache" in kind and is_taken:
            return True
        is_taken = kind in ("FiniteTake", "Take") or (is_taken and "Repeat" not in kind)
    return False


def _new_iterators(context: Run, host: int, waits: InputWaits) -> int:
    """How many iterators the window makes, if the first requests to them are most of what the model waits; else 0."""
    window, columns = context.selection.windows[host], context.trace.host_columns
    rows = context.trace.named_on(host, _MAKES.search)
    rows = rows[rows_in(columns.start_ps[rows], columns.end_ps[rows], window)]
    asked = rows_in(waits.start_ps, waits.end_ps, window)
    wait_ps = (waits.end_ps - waits.start_ps)[asked]
    following = places(waits.start_ps[asked], columns.end_ps[rows])
    first = unique_ids(following[following < asked.size])
    return rows.size if 2 * wait_ps[first].sum() >= max(wait_ps.sum(), 1) else 0


def _ahead_ratio(context: Run, host: int, calls: IteratorCalls) -> float:
    """The share of the window in which the busiest of the threads that work ahead of the model makes elements, or for which all
    that runs for the pipeline would keep all cores.

    Without Python, which others keep from its lock.
    """
    window, columns = context.selection.windows[host], context.trace.host_columns
    states, cores = context.idle.states[host], context.trace.hosts[host].usable_cores
    python = states.pipeline_python
    work_ps = np.append(calls.self_ps - calls.waiting_ps, -columns.duration_ps[python])
    rows = np.append(calls.row, python)
    inside = rows_in(columns.start_ps[rows], columns.end_ps[rows], window)
    lines, place = unique_inverse(columns.line[rows[inside]])
    ahead = is_in(lines, unique_ids(columns.line[calls.row[calls.from_other_thread]]))
    by_line = SWEEPS.totals(place, work_ps[inside], lines.size)
    longest_ps = int(by_line[ahead].max(initial=0))
    if cores and ahead.any():
        threads = states.spans_by_thread(np.setdiff1d(states.pipeline_work, python))
        whole_ps = sum(covered_ps(spans, window) for spans in threads.values())
        longest_ps = max(longest_ps, whole_ps // cores)
    return longest_ps / max(window.length_ps, 1)


def _empty(
    context: Run,
    host: int,
    calls: IteratorCalls,
    blocks: BoolArray,
    stage: InputStage,
    wait_ps: Int64Array | None,
) -> tuple[float | None, float | None]:
    """The share of the used steps, or of the window, and of the wait, in which a request met an empty buffer.

    Of the buffer for which it is least. `blocks`: which calls are of pipelines that the model waits for. `wait_ps`: of each used
    step; None where it is not known.
    """
    selection = context.selection
    steps = selection.used_of(host)
    start, end = step_bounds(steps or (selection.windows[host],))
    of_steps, of_wait = [], []
    for chosen in _buffers(calls, blocks, stage):
        begun, is_empty = requests_of_buffer(context.trace, calls, chosen)
        order = np.argsort(begun, kind="stable")
        first, last = (places(begun[order], times) for times in (start, end))
        met = np.append(0, np.cumsum(is_empty[order]))
        is_asked, is_met = first < last, met[last] > met[first]
        if is_asked.any():
            of_steps.append(int(is_met.sum()) / int(is_asked.sum()))
            if steps and wait_ps is not None and wait_ps[is_asked].any():
                of_wait.append(int(wait_ps[is_met].sum()) / int(wait_ps[is_asked].sum()))
    return min(of_steps, default=None), min(of_wait, default=None)


def _buffers(calls: IteratorCalls, blocks: BoolArray, stage: InputStage) -> Iterator[Int64Array]:
    """The calls of each prefetch stage between a stage and the model."""
    for number, name in enumerate(calls.stage_names):
        if kind_of(name) != PREFETCH:
            continue
        is_stage = calls.stage == number
        if stage.name.startswith(f"{name}::"):
            yield np.flatnonzero(is_stage & (blocks == stage.blocking))
        if not stage.blocking:
            # What fills the shards of a distributed dataset is followed by the pipelines of the replicas.
            yield np.flatnonzero(is_stage & blocks)


def pipeline_python(context: Run, host: int) -> IntervalSet:
    """When Python functions of the pipeline run, or wait for Python's lock."""
    states, rest = context.idle.states[host], _rest_by_thread(context, host)
    return joined_spans(
        difference(spans, rest[thread]) if thread in rest else spans
        for thread, spans in states.spans_by_thread(states.pipeline_python).items()
    )


def _rest_by_thread(context: Run, host: int) -> dict[int, IntervalSet]:
    """When each thread of the pipeline waits in a Python function; without samples that is not known."""
    idle = context.idle
    if host not in idle.python:
        return {}
    states, sampled = idle.states[host], idle.python[host].lines
    line = unique_ids(context.trace.host_columns.line[states.pipeline_python])
    known = [each for each in line.tolist() if sampled.thread_of(each) != NONE]
    at_rest = {int(states.thread[each]): sampled.at_rest(sampled.thread_of(each)) for each in known}
    return {
        thread: intersection(spans, at_rest[thread])
        for thread, spans in states.spans_by_thread(states.pipeline_python).items()
        if thread in at_rest
    }
