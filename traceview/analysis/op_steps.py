"""Measures what each op takes of the used steps and of the critical path, for a comparison with another run.

The table of ops says what takes the window. A comparison needs more: how sure the time of a step is, and what of the
length of the step it makes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Final, NamedTuple, TypeVar

import numpy as np

from traceview.analysis.base import Skipped
from traceview.analysis.context import Analysis, Context
from traceview.analysis.path.parts import FIRST_CAUSE
from traceview.analysis.path.result import walked_steps
from traceview.analysis.selection import step_bounds
from traceview.ids import unique_ids, unique_inverse
from traceview.intervals import Int32Array, Int64Array
from traceview.mean_variance import Float64Array, variance_of_mean
from traceview.record import Count, KernelName, OpName, OpType, Picoseconds, Record, one_of
from traceview.trace.cause import CLASS_KEYS
from traceview.trace.model import NONE, Trace
from traceview.trace.ops import split_op

T = TypeVar("T")

MOST_OPS: Final = 100
"""Ops by the time of a step, and as many by their time on the path."""
_SIGNATURE: Final = re.compile(r"[<(]")
_UNNAMED: Final = "(anonymous namespace)::"


class OpInSteps(Record, frozen=True):
    """An op with a kernel in the used steps, on all devices; events count in the step in which they start.

    Attributes:
        class_: Class of activity.
        op: Name of the op without its replica part; null where not recorded.
        op_type: Type of the op; null where not recorded.
        kernel: Name of the kernel without arguments and types; null for host ops of a replica.
        device_count: Devices on which it ran.
        count: Events in all used steps, on all devices.
        ps_per_step: Sum of their durations over all devices, mean of the used steps, rounded down, picoseconds.
        error_ps: Standard error of this mean, picoseconds; null for fewer than two steps.
        error_degrees: Degrees of freedom of the standard error; null where that is.
        path_ps: Its time on the critical path, all walked steps together, picoseconds.
    """

    class_: Annotated[str, one_of(*CLASS_KEYS)]
    op: OpName | None
    op_type: OpType | None
    kernel: KernelName | None
    device_count: Count
    count: Count
    ps_per_step: Picoseconds
    error_ps: float | None
    error_degrees: float | None
    path_ps: Picoseconds


class OpSteps(Record, frozen=True):
    """What the ops take of the used steps.

    Attributes:
        rows: The ops that take longest, and those that take most of the path, longest first.
        step_count: Used steps, with those of the same number on several hosts as one.
        walked_count: Steps of all hosts whose path was walked; path_ps is of all of them.
        left_out_count: Ops that are not among the rows.
        left_out_ps_per_step: Time of the longest of them in a step, picoseconds; 0 without any.
    """

    rows: tuple[OpInSteps, ...]
    step_count: Count
    walked_count: Count
    left_out_count: Count
    left_out_ps_per_step: Picoseconds


class _Op(NamedTuple):
    """What makes two events the same op."""

    class_: int
    op: str | None
    op_type: str | None
    kernel: str | None


def kernel_stem(name: str) -> str:
    """`void gemm<float, 4>(float*)` without types and arguments: `gemm`."""
    short = name.removeprefix("void ").replace(_UNNAMED, "")
    return _SIGNATURE.split(short, maxsplit=1)[0].strip() or name


def compute(context: Context) -> OpSteps | Skipped:
    """The ops of the used steps with the largest time."""
    trace, selection = context.trace, context.selection
    numbers = sorted({step.number for step in selection.used_steps})
    if not numbers:
        return Skipped("no used step")
    rows, step = _events_in_steps(context, numbers)
    walked = context.once(walked_steps)
    path_rows = np.empty(0, dtype=np.int64)
    path_ps = np.empty(0, dtype=np.int64)
    if not isinstance(walked, Skipped):
        is_activity = walked.parts.kind < FIRST_CAUSE
        path_rows, path_ps = walked.parts.row[is_activity], walked.parts.duration_ps[is_activity]
    ops, number = _ops_of(trace, np.concatenate([rows, path_rows]))
    of_event, of_part = number[: rows.size], number[rows.size :]
    duration = trace.device_columns.duration_ps[rows]
    total = _sums(of_event, duration, len(ops))
    on_path = _sums(of_part, path_ps, len(ops))
    chosen = _largest(total, on_path)
    count = np.bincount(of_event, minlength=len(ops))
    series = _series(of_event, step, duration, chosen, len(numbers))
    devices = _device_counts(of_event, trace.device_columns.device[rows].astype(np.int64), len(ops))
    is_left_out = np.ones(len(ops), dtype=np.bool_)
    is_left_out[chosen] = False
    made = []
    for place, op in enumerate(chosen.tolist()):
        variance, degrees = variance_of_mean(series[place]) if len(numbers) > 1 else (None, None)
        made.append(
            OpInSteps(
                class_=CLASS_KEYS[ops[op].class_],
                op=ops[op].op,
                op_type=ops[op].op_type,
                kernel=ops[op].kernel,
                device_count=int(devices[op]),
                count=int(count[op]),
                ps_per_step=int(total[op]) // len(numbers),
                error_ps=None if variance is None else round(variance**0.5, 1),
                error_degrees=None if degrees is None else round(degrees, 2),
                path_ps=int(on_path[op]),
            )
        )
    return OpSteps(
        rows=tuple(made),
        step_count=len(numbers),
        walked_count=0 if isinstance(walked, Skipped) else int(walked.length_ps.size),
        left_out_count=int(is_left_out.sum()),
        left_out_ps_per_step=int(total[is_left_out].max(initial=0)) // len(numbers),
    )


def _events_in_steps(context: Context, numbers: list[int]) -> tuple[Int64Array, Int64Array]:
    """The device events that start in a used step, and the place of its number among `numbers`."""
    trace, columns = context.trace, context.trace.device_columns
    place_of = {number: place for place, number in enumerate(numbers)}
    found, steps = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for index, device in enumerate(trace.device_list):
        used = context.selection.used_of(device.host)
        if not used:
            continue
        start, end = step_bounds(used)
        rows = columns.rows_of(index)
        begun = columns.start_ps[rows]
        place = np.searchsorted(start, begun, side="right") - 1
        inside = np.flatnonzero((place >= 0) & (begun < end[place]))
        found.append(inside + rows.start)
        steps.append(np.array([place_of[step.number] for step in used])[place[inside]])
    return np.concatenate(found), np.concatenate(steps)


def _ops_of(trace: Trace, rows: Int64Array) -> tuple[list[_Op], Int64Array]:
    """The ops of these events, and for each event the place of its own."""
    columns = trace.device_columns
    if not rows.size:
        return [], rows
    is_replica = np.array([device.kind == "replica" for device in trace.device_list])
    kernel = np.where(is_replica[columns.device[rows]], NONE, columns.name[rows])
    ops, of_op = _coded(columns.op[rows], lambda name: _op_of(trace.names.text(name)))
    kernels, of_kernel = _coded(kernel, lambda name: _stem_of(trace.names.text(name)))
    class_ = columns.class_[rows].astype(np.int64)
    codes, number = unique_inverse((of_op * len(kernels) + of_kernel) * FIRST_CAUSE + class_)
    made = []
    for code in codes.tolist():
        pair, of_class = divmod(code, FIRST_CAUSE)
        name, type_ = ops[pair // len(kernels)]
        made.append(_Op(of_class, name, type_, kernels[pair % len(kernels)]))
    return made, number


def _coded(names: Int32Array, made_of: Callable[[int], T]) -> tuple[list[T], Int64Array]:
    """What is made of each name, each once, and for each of `names` the place of its own."""
    ids, index = unique_inverse(names.astype(np.int64))
    places: dict[T, int] = {}
    of_id = [places.setdefault(made_of(name), len(places)) for name in ids.tolist()]
    return list(places), np.array(of_id, dtype=np.int64)[index]


def _op_of(text: str | None) -> tuple[str | None, str | None]:
    return (None, None) if text is None else split_op(text)


def _stem_of(text: str | None) -> str | None:
    return None if text is None else kernel_stem(text)


def _sums(group: Int64Array, values: Int64Array, count: int) -> Int64Array:
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, group, values)
    return total


def _largest(total: Int64Array, on_path: Int64Array) -> Int64Array:
    """The ops of most time and of most time on the path, those of most time first."""
    by_total, by_path = np.argsort(-total, kind="stable"), np.argsort(-on_path, kind="stable")
    of_path = [op for op in by_path[:MOST_OPS].tolist() if on_path[op]]
    chosen = np.array(sorted({*by_total[:MOST_OPS].tolist(), *of_path}), dtype=np.int64)
    return chosen[np.argsort(-total[chosen], kind="stable")]


def _series(
    group: Int64Array, step: Int64Array, duration: Int64Array, chosen: Int64Array, count: int
) -> Float64Array:
    """The time of the chosen ops in each step, float64 `[chosen, steps]`."""
    place = np.full(int(group.max(initial=-1)) + 1, NONE, dtype=np.int64)
    known = chosen < place.size
    place[chosen[known]] = np.flatnonzero(known)
    row = place[group]
    kept = row != NONE
    flat = np.bincount(
        row[kept] * count + step[kept],
        weights=duration[kept].astype(np.float64),
        minlength=chosen.size * count,
    )
    return np.asarray(flat, dtype=np.float64).reshape(chosen.size, count)


def _device_counts(group: Int64Array, device: Int64Array, count: int) -> Int64Array:
    """On how many devices each op ran."""
    if not group.size:
        return np.zeros(count, dtype=np.int64)
    most = int(device.max()) + 1
    pairs = unique_ids(group * most + device)
    return np.bincount(pairs // most, minlength=count).astype(np.int64)


ANALYSIS: Final = Analysis[OpSteps]("op_steps", compute)
