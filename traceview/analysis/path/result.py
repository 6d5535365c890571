"""Computes the critical path of each step: the chain of activity and waiting that made the step as long as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict, replace

from traceview.analysis.base import Skipped
from traceview.analysis.context import Context
from traceview.analysis.idle.result import (
    activity_name,
    around_part,
    evidence_in_gap,
    longest_first,
)
from traceview.analysis.path.parts import FIRST_CAUSE, Parts, parts_of
from traceview.analysis.path.walk import WalkedSpan, Walker
from traceview.ids import unique_ids, unique_inverse
from traceview.intervals import Int64Array, IntervalSet, union
from traceview.record import (
    Activity,
    Count,
    DeviceKey,
    Hostname,
    Integer,
    OpName,
    Picoseconds,
    Record,
    Share,
    SourceLine,
    ThreadName,
    one_of,
)
from traceview.robust import median_ps
from traceview.trace.cause import CLASS_KEYS, PATH_KEYS, Cause
from traceview.trace.model import NONE, Trace
from traceview.trace.op_names import split_op
from traceview.trace.windows import Window

"""What a path can consist of; `h2d` is a copy to the device and the wait for one."""

_KEY_OF_KIND: Final = np.array(
    [*range(FIRST_CAUSE), *(PATH_KEYS.index(cause.key) for cause in Cause)], dtype=np.uint8
)
"""By kind of part, the number of its key."""

MOST_PARTS: Final = 10
"""Parts of a step, and of the run, that a report lists, the longest ones."""
MOST_LISTED: Final = 400
"""Parts that the steps list together; each lists at least its longest one."""
MOST_OPS: Final = 10
"""Ops of the path, the longest ones: as many as the longest parts."""
MOST_UNEXPLAINED: Final = 5
"""Parts without a recorded cause, the longest ones: what a person can look at one by one."""


class PathPart(Record, frozen=True):
    """A part of the path: one event, or idle time of one cause, on one device.

    Attributes:
        device: Device that the path is on.
        cause: Class of the activity, or cause of the idle time.
        start_ps: Start, picoseconds since the origin of the run.
        duration_ps: Length, picoseconds.
        op: Op, or kernel without one, of the activity; null for idle time.
        before: Op, or kernel without one, that ended where the gap began that idle time is a part of; null at the
            start of the window, and for activity.
        after: Op, or kernel without one, that ended the gap; null at the end of the window, and for activity.
        thread: Thread of the host event.
        host_event: Host event that shows the cause of idle time; null where nothing was recorded.
        python: Line of the user's Python that ran in idle time, from samples of its stack; null where no stack was
            sampled, or where the device did not wait for Python.
    """

    device: DeviceKey
    cause: Annotated[str, one_of(*PATH_KEYS)]
    start_ps: Integer
    duration_ps: Picoseconds
    op: Activity | None
    before: Activity | None
    after: Activity | None
    thread: ThreadName | None
    host_event: str | None
    python: SourceLine | None = None


class LongPart(PathPart, frozen=True, kw_only=True):
    """One of the longest parts of the run.

    Attributes:
        host: Host of the step.
        step: Number of the step; null in a run without steps.
    """

    host: Hostname
    step: Integer | None


class UnexplainedPart(LongPart, frozen=True, kw_only=True):
    """A part without a recorded cause; `thread` launched what ended it, and `host_event` was open there, if any was.

    Attributes:
        next_event: Host event that the thread recorded next; null without any.
        is_launch_unknown: Whether the launch of the op that ended the gap was not recorded.
        previous_event: Host event that the thread recorded last before it; null without any.
    """

    next_event: str | None
    is_launch_unknown: bool
    previous_event: str | None = None


class StepPath(Record, frozen=True):
    """The path of one step.

    Attributes:
        host: Host of the step.
        step: Number of the step; null where the window of the host counts as one step.
        duration_ps: Length of the step inside the window, picoseconds.
        by_cause: Picoseconds by class of activity or cause of idle time, largest first; they sum to the length.
        part_count: Parts of the path.
        parts: Its longest parts, longest first.
    """

    host: Hostname
    step: Integer | None
    duration_ps: Picoseconds
    by_cause: dict[str, Count]
    part_count: Count
    parts: tuple[PathPart, ...]


class PathOp(Record, frozen=True):
    """What one op does on the path, over all steps.

    Attributes:
        cause: Class of its activity.
        op: Name of the op without its replica, or of the kernel without an op.
        ps_per_step: Mean per step, rounded down, picoseconds.
        share_ratio: Share of the path.
    """

    cause: Annotated[str, one_of(*CLASS_KEYS)]
    op: OpName
    ps_per_step: Picoseconds
    share_ratio: Share


class CriticalPath(Record, frozen=True):
    """What made the used steps as long as they were.

    Attributes:
        by_cause: Picoseconds per step by class of activity or cause of idle time, median over the steps, largest
            first.
        mean_by_cause: The same, mean over the steps, rounded down.
        share_by_cause: Share of all steps together, by class or cause.
        unexplained_ratio: Share of idle time without a recorded cause in all steps together.
        ops: Ops with most time on the path, all devices together.
        op_count: Ops on the path.
        longest: The longest single parts of all steps.
        unexplained: The longest parts without a recorded cause.
        steps: One entry per used step; in a run without used steps one per host, for its window.
    """

    by_cause: dict[str, Count]
    mean_by_cause: dict[str, Count]
    share_by_cause: dict[str, Share]
    unexplained_ratio: Share
    ops: tuple[PathOp, ...]
    op_count: Count
    longest: tuple[LongPart, ...]
    unexplained: tuple[UnexplainedPart, ...]
    steps: tuple[StepPath, ...]


class WalkedSteps(Struct, frozen=True, eq=False):
    """The steps that were walked, and the parts of their paths.

    `number`: None for a window. `key`: by part the number of its key, uint8.
    """

    host: tuple[int, ...]
    number: tuple[int | None, ...]
    length_ps: Int64Array
    parts: Parts
    key: npt.NDArray[np.uint8]


def walked_steps(context: Context) -> WalkedSteps | Skipped:
    """Walk every used step, or without any the window of every host."""
    if not context.idle.gaps:
        return Skipped("the trace holds no device event")
    in_use = [
        device for device, gaps in context.idle.gaps.items() if Cause.UNUSED not in gaps.by_cause
    ]
    hosts = {context.trace.device_list[device].host for device in in_use}
    bounds = [bound for bound in _bounds(context) if bound[0] in hosts and bound[2] < bound[3]]
    if not bounds:
        return Skipped("no device ran a kernel in the window")
    parts = parts_of(context, _walks(context, in_use, bounds))
    return WalkedSteps(
        host=tuple(host for host, _, _, _ in bounds),
        number=tuple(number for _, number, _, _ in bounds),
        length_ps=np.array([end - start for _, _, start, end in bounds], dtype=np.int64),
        parts=parts,
        key=_KEY_OF_KIND[parts.kind],
    )


def path_of_devices(context: Context) -> Mapping[int, IntervalSet]:
    """By device index, where the path is on it."""
    walked = context.once(walked_steps)
    if isinstance(walked, Skipped):
        return {}
    parts = walked.parts
    return {
        device: union(parts.start_ps[parts.device == device], parts.end_ps[parts.device == device])
        for device in unique_ids(parts.device).tolist()
    }


_Bound: TypeAlias = tuple[int, int | None, int, int]
"""Host, number, start and end of what is walked."""


def _walks(
    context: Context, devices: Sequence[int], bounds: Sequence[_Bound]
) -> list[list[WalkedSpan]]:
    walker = Walker(context, devices)
    return [list(walker.spans(host, start, end)) for host, _, start, end in bounds]


def _bounds(context: Context) -> list[_Bound]:
    """What is walked; a step is cut to the window."""
    windows: dict[int, Window] = context.selection.windows
    steps: list[_Bound] = [
        (
            host,
            step.number,
            max(step.start_ps, windows[host].start_ps),
            min(step.end_ps, windows[host].end_ps),
        )
        for host, of_host in context.selection.steps.items()
        for step in of_host
        if step.excluded is None
    ]
    return steps or [
        (host, None, window.start_ps, window.end_ps) for host, window in windows.items()
    ]


def compute(context: Context) -> CriticalPath | Skipped:
    """The path of every used step, what it consists of, and its longest parts."""
    walked = context.once(walked_steps)
    if isinstance(walked, Skipped):
        return walked
    parts, count = walked.parts, walked.length_ps.size
    of_steps = np.zeros((len(PATH_KEYS), count), dtype=np.int64)
    np.add.at(of_steps, (walked.key, parts.step), parts.duration_ps)
    total, whole = of_steps.sum(axis=1), int(walked.length_ps.sum())
    unknown = PATH_KEYS.index(Cause.UNATTRIBUTED.key)
    ops = _ops(context.trace, parts, count, whole)
    writer = _Writer(context, walked)
    return CriticalPath(
        by_cause=_by_key(np.array([median_ps(row) or 0 for row in of_steps], dtype=np.int64)),
        mean_by_cause=_by_key(total // count),
        share_by_cause={key: ps / whole for key, ps in _by_key(total).items()},
        unexplained_ratio=int(total[unknown]) / whole,
        ops=ops[:MOST_OPS],
        op_count=len(ops),
        longest=tuple(writer.long_parts(longest_first(walked.parts.duration_ps, MOST_PARTS))),
        unexplained=tuple(writer.unexplained_parts(unknown)),
        steps=tuple(writer.step(place, of_steps[:, place]) for place in range(count)),
    )


def _by_key(picoseconds: Int64Array) -> dict[str, int]:
    """The keys that occur, largest first."""
    values = picoseconds.tolist()
    order = sorted((i for i, value in enumerate(values) if value), key=lambda i: -values[i])
    return {PATH_KEYS[i]: values[i] for i in order}


def _ops(trace: Trace, parts: Parts, count: int, whole: int) -> tuple[PathOp, ...]:
    """Every op on the path, most time first."""
    columns = trace.device_columns
    busy = parts.kind < FIRST_CAUSE
    row = parts.row[busy]
    label = np.where(columns.op[row] == NONE, columns.name[row], columns.op[row])
    pairs, index = unique_inverse(label.astype(np.int64) * FIRST_CAUSE + parts.kind[busy])
    total = np.zeros(pairs.size, dtype=np.int64)
    np.add.at(total, index, parts.duration_ps[busy])
    by_op: dict[tuple[str, str], int] = {}
    for pair, ps in zip(pairs.tolist(), total.tolist(), strict=True):
        name, _ = split_op(trace.names.text(pair // FIRST_CAUSE) or "")
        op = (CLASS_KEYS[pair % FIRST_CAUSE], name)
        by_op[op] = by_op.get(op, 0) + ps
    ranked = sorted(by_op.items(), key=lambda item: (-item[1], item[0]))
    return tuple(PathOp(*op, ps // count, ps / whole) for op, ps in ranked)


class _Writer:
    """Writes the longest parts as records."""

    def __init__(self, context: Context, walked: WalkedSteps) -> None:
        self._context, self._walked = context, walked
        parts, self._count = walked.parts, walked.length_ps.size
        # Numbers of another type would convert the whole column.
        self._first = np.searchsorted(parts.step, np.arange(self._count + 1, dtype=np.int32))
        self._listed_count = int(np.clip(MOST_LISTED // self._count, 1, MOST_PARTS))

    def step(self, place: int, by_key: Int64Array) -> StepPath:
        """One walked step."""
        walked, first = self._walked, int(self._first[place])
        duration = walked.parts.duration_ps[first : self._first[place + 1]]
        chosen = first + longest_first(duration, self._listed_count)
        return StepPath(
            host=self._context.trace.hosts[walked.host[place]].name,
            step=walked.number[place],
            duration_ps=int(walked.length_ps[place]),
            by_cause=_by_key(by_key),
            part_count=duration.size,
            parts=tuple(self._part(part) for part in chosen.tolist()),
        )

    def long_parts(self, chosen: Int64Array) -> Iterator[LongPart]:
        """The parts of these numbers."""
        for part in chosen.tolist():
            host, step = self._step_of(part)
            yield LongPart(**asdict(self._part(part)), host=host, step=step)

    def unexplained_parts(self, key: int) -> Iterator[UnexplainedPart]:
        """The longest parts of this key, each with what the thread that was late recorded around it."""
        parts = self._walked.parts
        of_key = np.flatnonzero(self._walked.key == key)
        chosen = of_key[longest_first(parts.duration_ps[of_key], MOST_UNEXPLAINED)]
        for part, number in zip(self.long_parts(chosen), chosen.tolist(), strict=True):
            trace, device, gap = (
                self._context.trace,
                int(parts.device[number]),
                int(parts.gap[number]),
            )
            gaps = self._context.idle.gaps[device]
            states = self._context.idle.states[trace.device_list[device].host]
            end_ps = part.start_ps + part.duration_ps
            around = around_part(trace, gaps, states, gap, part.start_ps, end_ps)
            after, launch = int(gaps.after[gap]), trace.device_columns.launch
            yield UnexplainedPart(
                **asdict(replace(part, thread=around.thread, host_event=around.inside)),
                previous_event=around.before,
                next_event=around.after,
                is_launch_unknown=after != NONE and int(launch[after]) == NONE,
            )

    def _step_of(self, part: int) -> tuple[str, int | None]:
        step = int(self._walked.parts.step[part])
        return self._context.trace.hosts[self._walked.host[step]].name, self._walked.number[step]

    def _part(self, part: int) -> PathPart:
        parts, trace = self._walked.parts, self._context.trace
        device, gap = int(parts.device[part]), int(parts.gap[part])
        start, end, kind = int(parts.start_ps[part]), int(parts.end_ps[part]), int(parts.kind[part])
        before = after = evidence = line = None
        if gap != NONE:
            gaps = self._context.idle.gaps[device]
            host = trace.device_list[device].host
            states = self._context.idle.states[host]
            before = activity_name(trace, int(gaps.before[gap]))
            after = activity_name(trace, int(gaps.after[gap]))
            cause = Cause(kind - FIRST_CAUSE)
            evidence = evidence_in_gap(trace, gaps, states, gap, cause, start, end)
            python = self._context.idle.python.get(host)
            line = python and python.while_idle(cause, np.array([start]), np.array([end]))
        return PathPart(
            device=trace.device_key(device),
            cause=PATH_KEYS[int(self._walked.key[part])],
            start_ps=start,
            duration_ps=end - start,
            op=activity_name(trace, int(parts.row[part])),
            before=before,
            after=after,
            thread=evidence.thread if evidence else None,
            host_event=evidence.event if evidence else None,
            python=str(line) if line else None,
        )
