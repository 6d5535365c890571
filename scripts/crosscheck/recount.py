"""Counts a trace by the rules of XProf.

The rules are those of its source and of its pages (version `KNOWN_VERSION`). All GPUs of a host are one. A step
is as long as the longest span, from its first to its last event, on one GPU. Each instant of it belongs to the
highest class that any GPU was in: compute, copies to the host, copies between devices, collectives, copies to
the device. A class is read off the name of the event: copies are `MEMCPYHToD` and so on, collectives begin with
`nccl`, all else is compute. Waits of the host are looked for only where there is no GPU. Of more than five steps the first
and the last are left out.

Where these numbers are those of XProf, its rules are the reason why it differs from traceview.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from scripts.crosscheck.answer import Answer, KernelAnswer, StepAnswer
from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import Int64Array, union
from traceview.base.location import Location
from traceview.trace.columns import NONE, Names
from traceview.trace.model import Trace
from traceview.xplane.planes import ActivityClass, PlaneKind, is_derived_line
from traceview.xplane.read import read_file
from traceview.xplane.table import PlaneTable, build_table

_Step = TypeVar("_Step")

KNOWN_VERSION: Final = "2.24.2"
"""The XProf whose rules these are; other versions differ in some rules, such as which steps they keep."""

MANY_STEPS: Final = 5
"""Of more steps XProf leaves out the first and the last."""

HIGH_SHARE: Final = 0.20
MODERATE_SHARE: Final = 0.05
POTENTIAL_SHARE: Final = 0.03
"""Shares of the step at which its verdict on the input changes: of its input, and of what is nothing else."""

_COMPUTE, _D2H, _D2D, _COLLECTIVE, _H2D = range(5)
"""Its classes in the order in which they claim time."""

_COPIES: Final = ((b"memcpyhtod", _H2D), (b"memcpydtoh", _D2H), (b"memcpydtod", _D2D))
_PART_OF: Final = {
    _COMPUTE: "compute_ps",
    _D2H: "d2h_ps",
    _D2D: "d2d_ps",
    _COLLECTIVE: "collective_ps",
    _H2D: "input_ps",
}


def class_of(name: bytes) -> int:
    """The class that XProf reads off the name of a device event."""
    lowered = name.lower()
    for start, class_ in _COPIES:
        if lowered.startswith(start):
            return class_
    return _COLLECTIVE if lowered.startswith(b"nccl") else _COMPUTE


def is_named_for_xprof(name: bytes, class_: int) -> bool:
    """Whether XProf sees in the name what traceview says the event is (`ActivityClass`)."""
    expected = {
        ActivityClass.COLLECTIVE: _COLLECTIVE,
        ActivityClass.H2D: _H2D,
        ActivityClass.D2H: _D2H,
        ActivityClass.D2D: _D2D,
        ActivityClass.COMPUTE: _COMPUTE,
    }
    return class_of(name) == expected.get(ActivityClass(class_))


def recount(trace: Trace) -> Answer:
    """The answer that XProf's rules give; None for what the known rules do not determine.

    Not determined are all steps of several hosts, the idle time of programs that XLA compiled, and which compute is
    in 16 bits.
    """
    copies = _copies(trace)
    planes = [
        (copies[file.name], table)
        for file in trace.files
        if file.duplicate_of is None
        for table in _gpu_tables(file.path)
    ]
    if len(trace.hosts) > 1:
        steps = None
    else:
        steps = _device_steps(trace) if has_gpu_events(trace) else _host_steps(trace)
    return Answer(
        device_count=sum(times for times, _ in planes)
        + sum(device.kind == "tpu" for device in trace.device_list),
        steps=None if steps is None else without_ends(steps),
        idle_ps=_idle(planes),
        half_ratio=None,
        verdict=_verdict(steps) if steps and has_gpu_events(trace) else None,
        kernels=_kernels(planes),
    )


def has_gpu_events(trace: Trace) -> bool:
    """Whether any device worked in the eyes of XProf, for which replicas on the CPU are no devices."""
    return any(
        trace.device_list[i].kind in ("gpu", "tpu") for i in unique_ids(trace.device_columns.device)
    )


def has_roots(trace: Trace) -> bool:
    """Whether anything marks a step for XProf: an event with `_r`. It ignores other markers."""
    return trace.host_columns.stat("root").row.size > 0


def without_ends(steps: Sequence[_Step]) -> tuple[_Step, ...]:
    """The steps that XProf keeps."""
    return tuple(steps[1:-1] if len(steps) > MANY_STEPS else steps)


def _copies(trace: Trace) -> Counter[str]:
    """How many files of the run hold the recording of each file that was read."""
    return Counter(file.duplicate_of or file.name for file in trace.files)


def _verdict(steps: tuple[StepAnswer, ...]) -> str:
    whole = max(1, sum(step.duration_ps for step in steps))
    waiting = sum(step.input_ps for step in steps) / whole
    if waiting >= MODERATE_SHARE:
        return "high" if waiting >= HIGH_SHARE else "moderate"
    other = sum(step.other_ps for step in steps) / whole
    return "potential" if other >= POTENTIAL_SHARE else "none"


def steps_of_events(trace: Trace) -> Int64Array:
    """The step of each device event as XProf groups it, `NONE` for events that it ignores."""
    columns = trace.device_columns
    step = np.full(columns.count, NONE, dtype=np.int64)
    if (columns.group != NONE).any():
        return np.where(columns.has_correlation, columns.group, NONE)
    for steps in trace.steps_by_host:
        if steps.method != "marker" or not has_roots(trace):
            continue
        begins = np.array([start for start, _ in steps.marker_spans], dtype=np.int64)
        devices = [i for i, device in enumerate(trace.device_list) if device.host == steps.host]
        rows = np.flatnonzero(is_in(columns.device, devices) & (columns.launch != NONE))
        launched = trace.host_columns.start_ps[columns.launch[rows]]
        step[rows] = np.searchsorted(begins, launched, side="right") - 1
    return step


def _device_steps(trace: Trace) -> tuple[StepAnswer, ...]:
    step = steps_of_events(trace)
    class_of_name = np.array([class_of(name) for name in trace.names], dtype=np.int64)
    class_ = class_of_name[trace.device_columns.name]
    return tuple(
        _device_step(trace, np.flatnonzero(step == number), class_)
        for number in unique_ids(step[step != NONE]).tolist()
    )


def _device_step(trace: Trace, rows: Int64Array, class_: Int64Array) -> StepAnswer:
    """One step: its longest span on a device, and what any device did in that span."""
    begin, end = step_span(trace, rows)
    parts, so_far = {}, 0
    for highest, part in _PART_OF.items():
        covered = _covered(trace, rows[class_[rows] <= highest], begin, end)
        parts[part] = covered - so_far
        so_far = covered
    return StepAnswer(duration_ps=end - begin, **parts, other_ps=end - begin - so_far)


def step_span(trace: Trace, rows: Int64Array) -> tuple[int, int]:
    """First start and last end of the events on the device where they lie furthest apart."""
    columns = trace.device_columns
    spans = [
        (int(columns.start_ps[of_device].min()), int(columns.end_ps[of_device].max()))
        for device in unique_ids(columns.device[rows]).tolist()
        for of_device in [rows[columns.device[rows] == device]]
    ]
    return max(spans, key=lambda span: span[1] - span[0])


def _covered(trace: Trace, rows: Int64Array, begin: int, end: int) -> int:
    columns = trace.device_columns
    return int(union(columns.start_ps[rows], columns.end_ps[rows]).within(begin, end))


def _host_steps(trace: Trace) -> tuple[StepAnswer, ...]:
    """Without a GPU: the markers, of which only the length is determined."""
    steps = trace.steps_by_host[0]
    if steps.method != "marker" or not has_roots(trace):
        return ()
    return tuple(StepAnswer(end - start) for start, end in steps.marker_spans)


def _gpu_tables(path: Location) -> Iterator[PlaneTable]:
    """The events of each GPU plane of a file as they are recorded, without the lines that repeat others."""
    space = read_file(path, salvage=True)
    for plane in space.planes:
        if plane.kind is PlaneKind.GPU:
            lines = [
                line
                for line in plane.lines
                if not is_derived_line(line.header.id, line.header.name)
            ]
            yield build_table(plane, lines, 0)


def _idle(planes: Sequence[tuple[int, PlaneTable]]) -> int | None:
    """The spans of the planes without the summed times of the kernels that carry the name of an op."""
    if any(table.texts("hlo_op").event.size for _, table in planes):
        return None
    total, has_events = 0, False
    for times, table in planes:
        if table.count:
            has_events = True
            named = table.texts("tf_op").event
            span = int((table.start_ps + table.duration_ps).max() - table.start_ps.min())
            total += times * (span - int(table.duration_ps[named].sum()))
    return max(0, total) if has_events else None


def _kernels(planes: Sequence[tuple[int, PlaneTable]]) -> dict[str, KernelAnswer]:
    """By name all events of GPUs with `kernel_details`, whatever they do; files that exist twice count twice."""
    kernels: dict[str, KernelAnswer] = {}
    for times, table in planes:
        rows = table.texts("kernel_details").event
        summed = summed_by_name(table.name[rows], table.duration_ps[rows], table.names)
        for name, kernel in summed.items():
            known = kernels.get(name, KernelAnswer(0, 0))
            kernels[name] = KernelAnswer(
                known.count + times * kernel.count, known.total_ps + times * kernel.total_ps
            )
    return kernels


def kernels_of(trace: Trace) -> dict[str, KernelAnswer]:
    """The kernels of GPUs, collectives included, by name."""
    columns = trace.device_columns
    gpus = [index for index, device in enumerate(trace.device_list) if device.kind == "gpu"]
    rows = np.flatnonzero(
        (columns.class_ <= ActivityClass.COLLECTIVE) & is_in(columns.device, gpus)
    )
    return summed_by_name(columns.name[rows], columns.duration_ps[rows], trace.names)


def summed_by_name(
    name: npt.NDArray[np.integer], duration_ps: Int64Array, names: Names | Sequence[bytes]
) -> dict[str, KernelAnswer]:
    """How many events have each name, and how long they are in all; `name`: indices into `names`, `[n]`."""
    order = np.argsort(name, kind="stable")
    if not order.size:
        return {}
    first = np.flatnonzero(np.diff(name[order].astype(np.int64), prepend=-1))
    totals = np.add.reduceat(duration_ps[order], first)
    counts = np.diff(np.append(first, order.size))
    return {
        names[index].decode("utf-8", "replace"): KernelAnswer(count, total)
        for index, count, total in zip(
            name[order][first].tolist(), counts.tolist(), totals.tolist(), strict=True
        )
    }
