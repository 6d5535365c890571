"""Detects the training steps of each host, from markers or from other events that repeat once per step.

The first method that applies is used: `marker` (an event with `_r` and `step_num`, or named `train…`, `test…`,
`TraceContext` with `step_num`), `keras` (`Profiled batch`), `group` (`Steps` lines or `group_id`s that the writer of
the file stored), `function` (repeated root `FunctionRun`s of one function), `iterator` and `period` (other repeating
events, see `step_methods`), else none.

A step runs from the start of its marker to the start of the next marker. The last step runs to the end of its marker
or of the last device event linked to it, whichever is later. A marker spans the work of the host. If the host runs
ahead of the devices, the period of the markers is not the step time; then each step begins at its first linked device
event instead. Ops of XLA's CPU devices are linked by the number of their run, which the call of the program in the marker has.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceview.base.ids import unique_ids
from traceview.base.intervals import Int64Array, nesting
from traceview.base.stats import median
from traceview.trace.device.correlation import Roots, steps_of_rows
from traceview.trace.model import NONE, DeviceColumns, HostSteps, Recording, Step
from traceview.trace.strategy.step_methods import iterator_steps, periodic_steps
from traceview.xplane.planes import is_compilation

RUN_AHEAD_RATIO: Final = 0.10
"""If the lag from marker to first device event grows faster than this, in steps per step, the basis is device."""

_MARKER_STARTS: Final = (b"train", b"test", b"TraceContext")
_EVAL_START: Final = b"test"


class _Markers(Struct, frozen=True, eq=False):
    """Candidate steps of one host in time order: host rows, and their recorded numbers.

    `roots`: the rows to which the work of a step is traced back: the markers, or all components of a call.
    """

    method: str
    row: Int64Array
    number: list[int | None]
    roots: Roots


def find_steps(recording: Recording) -> tuple[HostSteps, ...]:
    """The steps of every host, in the order of hosts."""
    thread_of_line = recording.thread_of_line
    return tuple(
        _with_exclusions(recording, _host_steps(recording, host, thread_of_line))
        for host in range(len(recording.hosts))
    )


def _host_steps(
    recording: Recording, host: int, thread_of_line: np.ndarray[tuple[int], np.dtype[np.int32]]
) -> HostSteps:
    markers = _explicit_markers(recording, host) or _keras_markers(recording, host)
    if markers is None:
        groups = _stored_groups(recording, host)
        if groups:
            return HostSteps(host, "group", "marker", groups)
        markers = _function_markers(recording, host, thread_of_line)
    if markers is None:
        return _repeating(recording, host)
    return _cut(recording, host, markers, thread_of_line)


def _repeating(recording: Recording, host: int) -> HostSteps:
    """Steps from other events that repeat once per step, if there are any."""
    by_input = iterator_steps(recording, host)
    if by_input:
        return HostSteps(host, "iterator", "marker", by_input)
    by_period = periodic_steps(recording, host)
    if by_period:
        return HostSteps(host, "period", "device", by_period)
    return HostSteps(host, "none", "marker", ())


# Markers


def _explicit_markers(recording: Recording, host: int) -> _Markers | None:
    columns = recording.host_columns
    step_num = columns.stat("step_num").among(columns.rows_of_host(host))
    rows, numbers = step_num.row, step_num.value
    has_root = columns.stat("root").has(rows)
    named = np.array(
        [_is_marker_name(recording.names[int(n)]) for n in columns.name[rows]], dtype=np.bool_
    )
    chosen = has_root | named
    return _outermost(recording, "marker", rows[chosen], numbers[chosen].tolist())


def _is_marker_name(name: bytes) -> bool:
    return name.startswith(_MARKER_STARTS) and b"/" not in name


def _keras_markers(recording: Recording, host: int) -> _Markers | None:
    columns = recording.host_columns
    rows = recording.named_on(host, b"Profiled batch".__eq__)
    numbers = columns.stat("step_num").at(rows, NONE).tolist()
    return _outermost(recording, "keras", rows, [None if n == NONE else n for n in numbers])


def _outermost(
    recording: Recording, method: str, rows: Int64Array, numbers: list[int | None]
) -> _Markers | None:
    """Markers in time order, without markers inside another one."""
    if rows.size == 0:
        return None
    columns = recording.host_columns
    start, end = columns.start_ps[rows], columns.end_ps[rows]
    kept = []
    reach = None
    for index in np.lexsort((-end, start)).tolist():
        inside = reach is not None and start[index] < reach and end[index] <= reach
        if not inside:
            kept.append(index)
            reach = max(int(end[index]), reach or int(end[index]))
    outer = rows[kept]
    roots = Roots(outer, np.arange(outer.size, dtype=np.int64))
    return _Markers(method, outer, [numbers[index] for index in kept], roots)


def _function_markers(
    recording: Recording, host: int, thread_of_line: np.ndarray[tuple[int], np.dtype[np.int32]]
) -> _Markers | None:
    """The calls of the function that is called most often from one thread, one marker per call."""
    columns = recording.host_columns
    rows = recording.named_on(host, b"FunctionRun".__eq__)
    rows = rows[recording.runs_model[columns.line[rows]]]
    if rows.size == 0:
        return None
    function = _function_around(recording, rows)
    call = columns.stat("id").at(rows, NONE)
    order = np.argsort(columns.start_ps[rows], kind="stable")
    calls: dict[tuple[int, int], dict[int, list[int]]] = {}
    for index in order.tolist():
        key = (int(thread_of_line[columns.line[rows[index]]]), int(function[index]))
        # The components of one call, one per device, share its id.
        components = calls.setdefault(key, {}).setdefault(int(call[index]), [])
        components.append(int(rows[index]))
    repeated = list(max(calls.values(), key=len).values())
    if len(repeated) < 2:
        return None
    first = np.array([components[0] for components in repeated], dtype=np.int64)
    step = np.repeat(np.arange(first.size), [len(components) for components in repeated])
    return _Markers("function", first, [None] * first.size, Roots(np.concatenate(repeated), step))


def _function_around(recording: Recording, rows: Int64Array) -> Int64Array:
    """The name of the innermost `tf.function` call around each row, `NONE` without one."""
    columns = recording.host_columns
    function_calls = columns.stat("tf_function_call").row
    result = np.full(rows.size, NONE, dtype=np.int64)
    for line in unique_ids(columns.line[rows]):
        on_line = np.flatnonzero(columns.line[rows] == line)
        around = function_calls[columns.line[function_calls] == line]
        if around.size == 0:
            continue
        nest = nesting(columns.start_ps[around], columns.end_ps[around])
        inner = nest.innermost(columns.start_ps[rows[on_line]])
        hit = inner != NONE
        result[on_line[hit]] = columns.name[around[inner[hit]]]
    return result


# Steps that the writer of the file stored


def _stored_groups(recording: Recording, host: int) -> tuple[Step, ...]:
    """Stored steps by number over all devices of the host, earliest start to latest end."""
    spans: dict[int, tuple[int, int]] = {}

    def widen(number: int, start: int, end: int) -> None:
        known = spans.get(number, (start, end))
        spans[number] = (min(known[0], start), max(known[1], end))

    for stored in recording.stored_steps:
        if stored.host == host:
            widen(stored.number, stored.start_ps, stored.end_ps)
    if not spans:
        columns, rows = recording.device_columns, recording.device_rows(host)
        rows = rows[columns.group[rows] != NONE]
        for number in unique_ids(columns.group[rows]).tolist():
            members = rows[columns.group[rows] == number]
            widen(number, int(columns.start_ps[members].min()), int(columns.end_ps[members].max()))
    return tuple(
        Step(host, number, number, start, end)
        for number, (start, end) in sorted(spans.items(), key=lambda item: (item[1], item[0]))
    )


# From markers to steps


def _cut(
    recording: Recording,
    host: int,
    markers: _Markers,
    thread_of_line: np.ndarray[tuple[int], np.dtype[np.int32]],
) -> HostSteps:
    columns = recording.host_columns
    start = columns.start_ps[markers.row].tolist()
    end = columns.end_ps[markers.row]
    # A call ends when the last of its components ends.
    np.maximum.at(end, markers.roots.step, columns.end_ps[markers.roots.row])
    first_linked, last_linked = _linked_span(recording, host, markers, thread_of_line)
    basis = "marker"
    if _has_planes(recording, host) and _runs_ahead(start, end.tolist(), first_linked):
        basis, start = "device", [time for time in first_linked if time is not None]
    elif runs := _runs_behind(recording, host, markers, thread_of_line):
        return _of_runs(recording, host, markers, runs)
    ends = [*start[1:], max(int(end[-1]), last_linked or int(end[-1]), start[-1])]
    steps = [
        Step(
            host=host,
            number=number,
            recorded_number=recorded,
            start_ps=begin,
            end_ps=finish,
            kind="eval"
            if recording.names[int(columns.name[row])].startswith(_EVAL_START)
            else "train",
        )
        for number, recorded, begin, finish, row in zip(
            _numbers(markers.number), markers.number, start, ends, markers.row, strict=True
        )
    ]
    if basis == "device":
        steps[-1] = replace(steps[-1], excluded="the last step has no successor to end it")
    spans = zip(columns.start_ps[markers.row].tolist(), end.tolist(), strict=True)
    line = int(columns.line[markers.row[0]])
    return HostSteps(host, markers.method, basis, tuple(steps), line, tuple(spans))


def _runs_behind(
    recording: Recording,
    host: int,
    markers: _Markers,
    thread_of_line: np.ndarray[tuple[int], np.dtype[np.int32]],
) -> dict[int, int]:
    """By marker, in time order, when its program began on a CPU device of XLA; empty unless most began after the next marker.

    Those that began after the recording ended are missing.
    """
    columns, run_id = recording.host_columns, recording.host_columns.stat("run_id")
    ops = recording.device_columns.launch[recording.device_rows(host)].astype(np.int64)
    if _has_planes(recording, host) or not ops.size or not run_id.row.size:
        return {}
    calls = run_id.among(columns.rows_of_host(host))
    is_call = ~columns.stat("device_ordinal").has(calls.row)
    step = steps_of_rows(calls.row[is_call], markers.roots, columns, thread_of_line)
    step_of_run = dict(zip(calls.value[is_call].tolist(), step.tolist(), strict=True))
    begun: dict[int, int] = {}
    of_ops = zip(run_id.at(ops, NONE).tolist(), columns.start_ps[ops].tolist(), strict=True)
    for run, start_ps in of_ops:
        number = step_of_run.get(run, NONE)
        if number != NONE:
            begun[number] = min(start_ps, begun.get(number, start_ps))
    begun = dict(sorted(begun.items()))
    next_ps = [*columns.start_ps[markers.row].tolist()[1:], np.iinfo(np.int64).max]
    behind = sum(start_ps >= next_ps[number] for number, start_ps in begun.items())
    in_order = all(a < b for a, b in pairwise(begun.values()))
    return begun if len(begun) > 1 and in_order and 2 * behind > len(begun) else {}


def _of_runs(recording: Recording, host: int, markers: _Markers, runs: dict[int, int]) -> HostSteps:
    """Steps from the beginning of each program to that of the next one."""
    columns = recording.host_columns
    recorded, starts = [markers.number[number] for number in runs], list(runs.values())
    names = [recording.names[int(columns.name[markers.row[number]])] for number in runs]
    whole = zip(_numbers(recorded), recorded, names, pairwise(starts), strict=False)
    steps = [
        Step(
            host=host,
            number=number,
            recorded_number=in_marker,
            start_ps=start_ps,
            end_ps=end_ps,
            kind="eval" if name.startswith(_EVAL_START) else "train",
        )
        for number, in_marker, name, (start_ps, end_ps) in whole
    ]
    start, end = columns.start_ps[markers.row], columns.end_ps[markers.row]
    spans = tuple(zip(start.tolist(), end.tolist(), strict=True))
    line = int(columns.line[markers.row[0]])
    return HostSteps(host, markers.method, "device", tuple(steps), line, spans)


def _numbers(recorded: list[int | None]) -> list[int]:
    """The recorded numbers if they grow, else 0, 1, … in time order."""
    known = [number for number in recorded if number is not None]
    grows = all(a < b for a, b in pairwise(known))
    return known if len(known) == len(recorded) and grows else list(range(len(recorded)))


def _linked_span(
    recording: Recording,
    host: int,
    markers: _Markers,
    thread_of_line: np.ndarray[tuple[int], np.dtype[np.int32]],
) -> tuple[list[int | None], int | None]:
    """Start of the first device event linked to each marker, and end of the last event linked to the last marker."""
    device: DeviceColumns = recording.device_columns
    columns = recording.host_columns
    rows = recording.device_rows(host)
    launch = device.launch[rows]
    rows, launch = rows[launch != NONE], launch[launch != NONE]
    count = markers.row.size
    launched = unique_ids(launch)
    # The rows of a host stand together, so a table from the least to the largest is small.
    least, most = (int(launched[0]), int(launched[-1])) if launched.size else (0, 0)
    step_of = np.full(most - least + 1, NONE, dtype=np.int32)
    step_of[launched - least] = steps_of_rows(launched, markers.roots, columns, thread_of_line)
    step = step_of[launch - least]
    rows, step = rows[step != NONE], step[step != NONE]
    never = np.iinfo(np.int64).max
    first = np.full(count, never, dtype=np.int64)
    np.minimum.at(first, step, device.start_ps[rows])
    ends = device.end_ps[rows[step == count - 1]]
    last_end = int(ends.max()) if ends.size else None
    return [None if start == never else start for start in first.tolist()], last_end


def _has_planes(recording: Recording, host: int) -> bool:
    """Whether the host has devices with planes; replicas run on the host itself, which cannot run ahead of them."""
    return any(device.host == host and device.kind != "replica" for device in recording.device_list)


def _runs_ahead(start: list[int], end: list[int], first_linked: list[int | None]) -> bool:
    """Whether every step has a first device event, in order, and these fall further behind with every step.

    Behind both ends of the marker: what delays the host lies inside the marker, and moves its end as well.
    """
    known = [time for time in first_linked if time is not None]
    if len(known) < len(first_linked) or any(a >= b for a, b in pairwise(known)):
        return False
    if len(known) < 2:
        return False
    growth = min(known[-1] - of[-1] - (known[0] - of[0]) for of in (start, end))
    periods = np.diff(np.array(start, dtype=np.int64))
    return growth / (len(known) - 1) > RUN_AHEAD_RATIO * median(periods)


def _with_exclusions(recording: Recording, host_steps: HostSteps) -> HostSteps:
    """Mark the steps that statistics leave out, with the reason, and drop those of the edges."""
    host = recording.hosts[host_steps.host]
    has_edges = host_steps.method == "marker"
    edges = host.sidecar.edge_steps if host.sidecar and has_edges else frozenset()
    # The capture records a step on either side of the requested ones, so that those are complete.
    steps = [step for step in host_steps.steps if step.recorded_number not in edges]
    if not steps:
        return replace(host_steps, steps=())
    cuts = host.sidecar.cut_steps if host.sidecar and has_edges else frozenset()
    steps = [
        replace(step, excluded="an exception ended it") if step.recorded_number in cuts else step
        for step in steps
    ]
    if _holds_tracing(recording, steps[0]):
        steps[0] = replace(steps[0], excluded="the first step holds tracing or compilation")
    if host.dropped_event_count:
        # Buffers fill up: events are missing from the last recorded device event on.
        starts = recording.device_columns.start_ps[recording.device_rows(host_steps.host)]
        last = int(starts.max()) if starts.size else steps[0].start_ps
        steps = [
            replace(step, excluded=step.excluded or "the tracer dropped events in it")
            if step.end_ps > last
            else step
            for step in steps
        ]
    if {step.kind for step in steps} == {"train", "eval"}:
        steps = [
            replace(step, excluded=step.excluded or "evaluation") if step.kind == "eval" else step
            for step in steps
        ]
    return replace(host_steps, steps=tuple(steps))


def _holds_tracing(recording: Recording, step: Step) -> bool:
    """Whether a `tf.function` was traced or XLA compiled while the step ran."""
    columns = recording.host_columns
    rows = columns.rows_of_host(step.host)
    calls = columns.stat("tf_function_call").among(rows)
    traced = np.array(
        [recording.names[int(v)].startswith(b"traced-") for v in calls.value], dtype=np.bool_
    )
    start = columns.start_ps[rows]
    inside = (start >= step.start_ps) & (start < step.end_ps)
    names = unique_ids(columns.name[rows][inside])
    return bool(inside[calls.row[traced] - rows.start].any()) or any(
        is_compilation(recording.names[int(name)]) for name in names
    )
