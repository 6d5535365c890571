"""Detects the training steps of a host, from markers or from other events that repeat once per step (docs/method.md, "Steps")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceview.base.ids import unique_ids, unique_inverse
from traceview.base.intervals import Int64Array
from traceview.base.stats import median
from traceview.trace.columns import NONE
from traceview.trace.device.correlation import Roots, calls_of_runs, innermost_value, steps_of_rows
from traceview.trace.model import HostSteps, Recording, Step
from traceview.xplane.planes import ActivityClass, is_compilation

RUN_AHEAD_RATIO: Final = 0.10
"""The share of the devices' time in the work of a step that lies after the next marker, from which on steps are the devices'. Of
214 captures of an H100 and an H200 none has between 0.08 and 0.14."""

_MARKER_STARTS: Final = (b"train", b"test", b"TraceContext")
_EVAL_START: Final = b"test"
_NEVER: Final = np.iinfo(np.int64).max


StoredStep: TypeAlias = tuple[int, int, int]
"""A step of one device that the writer of the file derived: its number, start and end."""


class _Markers(Struct, frozen=True, eq=False):
    """Candidate steps in time order: host rows, and their recorded numbers.

    `roots`: the rows to which the work of a step is traced back: the markers, or all components of a call.
    """

    method: str
    row: Int64Array
    number: list[int | None]
    roots: Roots


def find_steps(recording: Recording, stored: Sequence[StoredStep]) -> HostSteps:
    """The steps of a recording of one host. `stored`: those that the writer of the file derived."""
    markers = _explicit_markers(recording) or _outermost(
        recording, "keras", recording.named_on(0, b"Profiled batch".__eq__)
    )
    if markers is None and (groups := _stored_groups(recording, stored)):
        return _with_exclusions(recording, HostSteps(0, "group", "marker", groups))
    markers = markers or _function_markers(recording)
    if markers is not None:
        return _with_exclusions(recording, _between_markers(recording, markers))
    if steps := periodic_steps(recording):
        return _with_exclusions(recording, HostSteps(0, "period", "device", steps))
    return HostSteps(0, "none", "marker", ())


# Markers


def _explicit_markers(recording: Recording) -> _Markers | None:
    columns = recording.host_columns
    rows = columns.stat("step_num").row
    chosen = columns.stat("root").has(rows) | recording.names.where(
        columns.name[rows], lambda name: name.startswith(_MARKER_STARTS) and b"/" not in name
    )
    return _outermost(recording, "marker", rows[chosen])


def _outermost(recording: Recording, method: str, rows: Int64Array) -> _Markers | None:
    """Markers in time order, without markers inside another one."""
    if rows.size == 0:
        return None
    columns = recording.host_columns
    start, end = columns.start_ps[rows], columns.end_ps[rows]
    order = np.lexsort((-end, start))
    reach = np.maximum.accumulate(end[order])
    is_outer = np.append(True, (start[order][1:] >= reach[:-1]) | (end[order][1:] > reach[:-1]))
    outer = rows[order[is_outer]]
    numbers = [n if n != NONE else None for n in columns.stat("step_num").at(outer, NONE).tolist()]
    roots = Roots(outer, np.arange(outer.size, dtype=np.int64))
    return _Markers(method, outer, numbers, roots)


def _function_markers(recording: Recording) -> _Markers | None:
    """The calls of the function that is called most often from one thread, one marker per call."""
    columns = recording.host_columns
    rows = recording.named_on(0, b"FunctionRun".__eq__)
    rows = rows[recording.runs_model[columns.line[rows]]]
    if rows.size == 0:
        return None
    rows = rows[np.argsort(columns.start_ps[rows], kind="stable")]
    # The function is the innermost `tf.function` call around on the same line.
    called = columns.stat("tf_function_call").row
    function = innermost_value(rows, called, columns.name[called], columns)
    thread = recording.thread_of_line[columns.line[rows]]
    # The components of one call, one per device, share its id.
    call = columns.stat("id").at(rows, NONE)
    calls: dict[tuple[int, int], dict[int, list[int]]] = {}
    for row, *key, id_ in zip(*(of.tolist() for of in (rows, thread, function, call)), strict=True):
        calls.setdefault((key[0], key[1]), {}).setdefault(id_, []).append(row)
    repeated = list(max(calls.values(), key=len).values())
    if len(repeated) < 2:
        return None
    first = np.array([components[0] for components in repeated], dtype=np.int64)
    step = np.repeat(np.arange(first.size), [len(components) for components in repeated])
    return _Markers("function", first, [None] * first.size, Roots(np.concatenate(repeated), step))


# Steps that the writer of the file stored


def _stored_groups(recording: Recording, stored: Sequence[StoredStep]) -> tuple[Step, ...]:
    """Stored steps by number over all devices, earliest start to latest end."""
    if not stored:
        columns = recording.device_columns
        rows = np.flatnonzero(columns.group != NONE)
        members = columns.group[rows], columns.start_ps[rows], columns.end_ps[rows]
        stored = list(zip(*(column.tolist() for column in members), strict=True))
    spans: dict[int, tuple[int, int]] = {}
    for number, start, end in stored:
        known = spans.get(number, (start, end))
        spans[number] = (min(known[0], start), max(known[1], end))
    return tuple(
        Step(0, number, number, start, end)
        for number, (start, end) in sorted(spans.items(), key=lambda item: (item[1], item[0]))
    )


# From markers to steps


def _between_markers(recording: Recording, markers: _Markers) -> HostSteps:
    columns = recording.host_columns
    begins = columns.start_ps[markers.row].tolist()
    work_begins, last_end_ps, is_behind = _work_of_steps(recording, markers)
    basis, used = "marker", list(range(len(begins)))
    # A call ends when the last of its components ends.
    components = markers.roots.row[markers.roots.step == used[-1]]
    ends = [max(int(columns.end_ps[components].max()), last_end_ps)]
    # Replicas run on the host itself, which cannot run ahead of them.
    has_planes = any(device.kind != "replica" for device in recording.device_list)
    runs_ahead = has_planes and is_behind
    if runs_ahead:
        basis, begins = "device", work_begins.tolist()
    elif not has_planes and (runs := _runs_behind(recording, markers)):
        # The last program has no successor to end it.
        basis, used, begins, ends = "device", list(runs), list(runs.values()), []
    ends = [*begins[1:], *(max(last, begins[-1]) for last in ends)]
    recorded = [markers.number[index] for index in used]
    is_eval = recording.names.where(
        columns.name[markers.row[used]], lambda name: name.startswith(_EVAL_START)
    )
    whole = zip(_numbers(recorded), recorded, begins, ends, is_eval.tolist(), strict=False)
    steps = [
        Step(0, number, in_marker, begin, finish, "eval" if evaluates else "train")
        for number, in_marker, begin, finish, evaluates in whole
    ]
    if runs_ahead:
        steps[-1] = replace(steps[-1], excluded="the last step has no successor to end it")
    return HostSteps(0, markers.method, basis, tuple(steps), tuple(markers.row.tolist()))


def _runs_behind(recording: Recording, markers: _Markers) -> dict[int, int]:
    """By marker, in time order, when its program began on a CPU device of XLA; empty unless most began after the next marker.

    Those that began after the recording ended are missing.
    """
    columns = recording.host_columns
    ops = recording.device_columns.launch.astype(np.int64)
    calls = calls_of_runs(recording, 0) if ops.size else {}
    if not calls:
        return {}
    rows = np.array(list(calls.values()), dtype=np.int64)
    step = steps_of_rows(rows, markers.roots, columns, recording.thread_of_line)
    step_of_run = dict(zip(calls, step.tolist(), strict=True))
    begun: dict[int, int] = {}
    of_ops = zip(
        columns.stat("run_id").at(ops, NONE).tolist(), columns.start_ps[ops].tolist(), strict=True
    )
    for run, start_ps in of_ops:
        number = step_of_run.get(run, NONE)
        if number != NONE:
            begun[number] = min(start_ps, begun.get(number, start_ps))
    begun = dict(sorted(begun.items()))
    next_ps = [*columns.start_ps[markers.row].tolist()[1:], _NEVER]
    behind = sum(start_ps >= next_ps[number] for number, start_ps in begun.items())
    in_order = all(a < b for a, b in pairwise(begun.values()))
    return begun if len(begun) > 1 and in_order and 2 * behind > len(begun) else {}


def _numbers(recorded: list[int | None]) -> list[int]:
    """The recorded numbers if they grow, else 0, 1, … in time order."""
    known = [number for number in recorded if number is not None]
    grows = all(a < b for a, b in pairwise(known))
    return known if len(known) == len(recorded) and grows else list(range(len(recorded)))


def _work_of_steps(recording: Recording, markers: _Markers) -> tuple[Int64Array, int, bool]:
    """When the devices began with what each marker launched, int64 `[n]`, `_NEVER` without; when they had done all for the last one;
    and whether the host runs ahead: they work on each step, in order, and for much of their time on one when the next has begun.
    """
    device = recording.device_columns
    rows = np.flatnonzero(device.launch != NONE)
    launched, place = unique_inverse(device.launch[rows])
    step = steps_of_rows(launched, markers.roots, recording.host_columns, recording.thread_of_line)[
        place
    ]
    rows, step = rows[step != NONE], step[step != NONE]
    start, end = device.start_ps[rows], device.end_ps[rows]
    first = np.full(markers.row.size, _NEVER, dtype=np.int64)
    np.minimum.at(first, step, start)
    next_ps = np.append(recording.host_columns.start_ps[markers.row[1:]], _NEVER)[step]
    has_next = next_ps < _NEVER
    late_ps = int(np.maximum(end - np.maximum(start, next_ps), 0)[has_next].sum())
    whole_ps = int((end - start)[has_next].sum())
    in_order = first.size > 1 and first[-1] < _NEVER and (np.diff(first) > 0).all()
    is_behind = bool(in_order) and late_ps > RUN_AHEAD_RATIO * whole_ps
    return first, int(end[~has_next].max(initial=0)), is_behind


def _with_exclusions(recording: Recording, host_steps: HostSteps) -> HostSteps:
    """Mark the steps that statistics leave out, with the reason, and drop those of the edges."""
    host = recording.hosts[0]
    sidecar = host.sidecar if host_steps.method == "marker" else None
    edges, cuts = (sidecar.window.edge_steps, sidecar.window.cut_steps) if sidecar else ((), ())
    # The capture records a step on either side of the requested ones, so that those are complete.
    steps = [step for step in host_steps.steps if step.recorded_number not in edges]
    # Buffers fill up: events are missing from the last recorded device event on.
    starts = recording.device_columns.start_ps
    last = int(starts.max()) if starts.size else steps[0].start_ps if steps else 0
    has_both = {step.kind for step in steps} == {"train", "eval"}
    is_warm_up = _begins_with_tracing(recording, steps)
    marked: list[Step] = []
    for step in steps:
        reasons = (
            (not marked and is_warm_up, "the first step holds tracing or compilation"),
            (step.recorded_number in cuts, "an exception ended it"),
            (step.excluded, step.excluded),
            (host.dropped_event_count and step.end_ps > last, "the tracer dropped events in it"),
            (has_both and step.kind == "eval", "evaluation"),
        )
        excluded = next((reason for applies, reason in reasons if applies), None)
        marked.append(replace(step, excluded=excluded))
    return replace(host_steps, steps=tuple(marked))


def _begins_with_tracing(recording: Recording, steps: Sequence[Step]) -> bool:
    """Whether the first step holds tracing, and none after the second does: then it goes on."""
    if not steps or not _holds_tracing(recording, steps[0].start_ps, steps[0].end_ps):
        return False
    others = steps[2:]
    return not (others and _holds_tracing(recording, others[0].start_ps, others[-1].end_ps))


def _holds_tracing(recording: Recording, start_ps: int, end_ps: int) -> bool:
    """Whether a `tf.function` was traced or XLA compiled in a span."""
    columns = recording.host_columns
    calls = columns.stat("tf_function_call")
    traced = recording.names.where(calls.value, lambda name: name.startswith(b"traced-"))
    inside = (columns.start_ps >= start_ps) & (columns.start_ps < end_ps)
    names = unique_ids(columns.name[inside])
    is_traced = bool(inside[calls.row[traced]].any())
    return is_traced or any(recording.names.read(names, is_compilation))


# Steps from other events that repeat

FEWEST_REPEATS: Final = 3
"""Two occurrences have one distance and no second one to compare it with."""
_SAME_RATIO: Final = 0.8
"""This share of the periods has to be alike; the first may hold more, and the last may be cut."""
_HELD_RATIO: Final = 0.8
"""The periods have to hold this share of the kernels: kernels that repeat only now and then are no step."""
_FEWEST_KERNELS: Final = 2
"""A single repeated kernel is no period: it may be part of a step, or many steps."""
_MOST_ANCHORS: Final = 200
"""This many names are tried, the rarest first; more frequent names occur many times in a step."""


def periodic_steps(recording: Recording) -> tuple[Step, ...]:
    """Steps from one occurrence of the anchor to the next (docs/method.md, "Steps without a marker"); empty without one."""
    columns = recording.device_columns
    kernels = {
        device: rows[columns.class_[rows] <= ActivityClass.COLLECTIVE]
        for device, entry in enumerate(recording.device_list)
        if entry.kind != "replica"
        for rows in [np.arange(*columns.rows_of(device).indices(columns.count))]
    }
    if not kernels:
        return ()
    busiest = max(kernels, key=lambda device: kernels[device].size)
    rows = kernels[busiest]
    anchors = _anchors(columns.name[rows].astype(np.int64), columns.start_ps[rows])
    if anchors.size == 0:
        return ()
    period = int(median(np.diff(anchors)))
    name = columns.name[rows[anchors[0]]]
    found = {device: np.flatnonzero(columns.name[own] == name) for device, own in kernels.items()}
    begins = {device: columns.start_ps[kernels[device][at]] for device, at in found.items()}
    alike = [device for device, at in found.items() if at.size == anchors.size]
    together = np.stack([begins[device] for device in alike])
    starts = together.min(axis=0)
    if (together.max(axis=0)[:-1] >= starts[1:]).any():
        # One of them begins a repetition only after another has begun the next.
        alike, starts = [busiest], begins[busiest]
    last = [kernels[device][found[device][-1] :][:period] for device in alike]
    end = max(int(columns.end_ps[own].max()) for own in last)
    is_cut = kernels[busiest][anchors[-1] :].size < period
    spans = pairwise([*starts.tolist(), *([] if is_cut else [end])])
    return tuple(Step(0, number, None, *span) for number, span in enumerate(spans))


def _anchors(names: Int64Array, starts: Int64Array) -> Int64Array:
    """The indices at which a period begins; empty if nothing repeats."""
    count = np.bincount(names) if names.size else names
    candidates = np.flatnonzero(count >= FEWEST_REPEATS)
    first = {int(name): index for index, name in reversed(list(enumerate(names.tolist())))}
    # The rarest name first, of equally rare ones the earliest.
    rarest = sorted(candidates.tolist(), key=lambda name: (count[name], first[name]))
    for name in rarest[:_MOST_ANCHORS]:
        places = np.flatnonzero(names == name)
        periods = [tuple(names[a:b].tolist()) for a, b in pairwise(places.tolist())]
        period, alike = Counter(periods).most_common(1)[0]
        if len(set(period)) < _FEWEST_KERNELS:
            continue
        is_regular = alike >= FEWEST_REPEATS - 1 and alike >= _SAME_RATIO * len(periods)
        # Steps take time: kernels that begin together are in one step.
        is_regular &= bool((np.diff(starts[places]) > 0).all())
        if is_regular and places.size * len(period) >= _HELD_RATIO * names.size:
            return places
    return np.empty(0, dtype=np.int64)
