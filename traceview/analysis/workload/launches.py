"""Launches: how the host launches the kernels of each GPU: how many, how late, and from how many threads.

A launch is a call of the driver with the correlation id of a kernel. Its delay lasts until its first kernel starts
and includes the wait in the queue of the stream; a long delay therefore means that the host runs ahead, which is
good. Kernels here are those of class compute; a CUDA graph that the tracer recorded as one event is no kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.kernels import EagerScopes, computing_gpus
from traceview.analysis.facts.selection import covered_ps, step_bounds
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.rules.finding import Evidence, Finding, OfDevice, Skipped
from traceview.analysis.rules.rule import Rule, devices_argument
from traceview.analysis.rules.words import Number, Time
from traceview.base.ids import unique_inverse
from traceview.base.intervals import Int64Array, IntervalSet, places, union
from traceview.base.record import Count, Picoseconds, Record, Share, one_of
from traceview.base.stats import median_ps, p95_ps
from traceview.base.sweeping import SWEEPS
from traceview.base.units import PS_PER_US
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown, table
from traceview.trace.model import NONE, Trace
from traceview.trace.windows import Window
from traceview.xplane.host_names import is_graph_launch

BLOCKED_CALL_PS: Final = 100 * PS_PER_US
"""A longer launch call was blocked: ordinary calls take 5 to 40 µs (TensorFlow's GPU guide)."""

_MODES: Final = (
    (re.compile(r"tf_gpu_private_\d+(?:/|$)"), "gpu_private"),
    (re.compile(r"tf_gpu_shared(?:/|$)"), "gpu_shared"),
    (re.compile(r"tf_Compute(?:/|$)"), "global"),
)


class DeviceLaunches(OfDevice, frozen=True):
    """The kernels of one GPU in its window, and the calls that launched them.

    Attributes:
        kernel_count: Kernels.
        kernels_per_step: Kernels that start in a step, median over the used ones; null without any.
        kernel_median_ps: Median duration of the kernels, picoseconds; null without any.
        call_count: Calls that launched them; one may start several kernels.
        call_median_ps: Median duration of the calls, picoseconds; null without any.
        delay_p50_ps: Median time from the start of a call to the start of its first kernel, picoseconds, with
            the wait in the queue of the stream; 0 where it seems to start before, as clocks differ; null without any.
        delay_p95_ps: 95th percentile of that by nearest rank, picoseconds; null without any.
        short_kernel_ratio: Share of the calls whose kernels together ran shorter than the call; null without
            any.
        blocked_call_count: Calls that took more than 100 µs.
        thread_mode: TF_GPU_THREAD_MODE by the names of the launching threads; null where they do not show it.
        thread_count: Threads that launch its kernels.
        thread_overlap_ratio: Of the time in which any of them is in a launch call, the share in which two or more are;
            null without calls.
        eager_call_count: Calls made by ops that ran one by one, outside of any graph; null where this is not
            recorded.
        graph_count: CUDA graphs started.
        opaque_count: CUDA graphs recorded as one event.
        opaque_ps: Union of these in the window, picoseconds.
        xla_compute_ratio: Share of the compute time in kernels of programs that XLA compiled.
    """

    kernel_count: Count
    kernels_per_step: Count | None
    kernel_median_ps: Picoseconds | None
    call_count: Count
    call_median_ps: Picoseconds | None
    delay_p50_ps: Picoseconds | None
    delay_p95_ps: Picoseconds | None
    short_kernel_ratio: Share | None
    blocked_call_count: Count
    thread_mode: Annotated[str, one_of("gpu_private", "gpu_shared", "global")] | None
    thread_count: Count
    thread_overlap_ratio: Share | None
    eager_call_count: Count | None
    graph_count: Count
    opaque_count: Count
    opaque_ps: Picoseconds
    xla_compute_ratio: Share

    @property
    def blocked_ratio(self) -> float | None:
        """Share of the calls that were blocked."""
        return doc.ratio(self.blocked_call_count, self.call_count)


class Launches(Record, frozen=True):
    """The launches of every GPU with compute in its window.

    Attributes:
        devices: GPUs in the order of hosts and ordinals.
    """

    devices: tuple[DeviceLaunches, ...]


class _Calls(Struct, frozen=True, eq=False):
    """Launch calls of one device: host row of each, and first start and total duration of its kernels."""

    row: Int64Array
    first_start_ps: Int64Array
    total_ps: Int64Array


def compute(context: Context) -> Launches | Skipped:
    """The launches of each GPU in its window."""
    trace = context.trace
    computing = computing_gpus(trace, context.selection)
    if isinstance(computing, Skipped):
        return computing
    eager = EagerScopes(trace.host_columns, trace.names, trace.thread_of_line)
    return Launches(
        tuple(_row(context, eager, device, *of_gpu) for device, of_gpu in computing.items())
    )


def _row(
    context: Context, eager: EagerScopes, device: int, window: Window, rows: Int64Array
) -> DeviceLaunches:
    """What one device launched; of all devices at once it would take a quarter of the memory of their columns."""
    trace, events, host = context.trace, context.trace.device_columns, context.trace.host_columns
    opaque, kernels = rows[events.opaque[rows]], rows[~events.opaque[rows]]
    calls = _calls(trace, kernels)
    delay = np.maximum(calls.first_start_ps - host.start_ps[calls.row], 0)
    lasted = host.duration_ps[calls.row]
    is_shorter = calls.total_ps < lasted
    steps = context.selection.used_of(window.host)
    first, last = (places(events.start_ps[kernels], at) for at in step_bounds(steps))
    threads, thread_of_call = unique_inverse(trace.thread_of_line[host.line[calls.row]])
    of_thread = [calls.row[thread_of_call == place] for place in range(threads.size)]
    compiled = kernels[events.instruction[kernels] != NONE]
    compute_ps = covered_ps(context.activities[device].compute, window)

    def covered(those: Int64Array) -> int:
        return covered_ps(union(events.start_ps[those], events.end_ps[those]), window)

    return DeviceLaunches(
        *trace.identity(device),
        kernel_count=int(kernels.size),
        kernels_per_step=median_ps(last - first),
        kernel_median_ps=median_ps(events.duration_ps[kernels]),
        call_count=int(calls.row.size),
        call_median_ps=median_ps(lasted),
        delay_p50_ps=median_ps(delay),
        delay_p95_ps=p95_ps(delay),
        short_kernel_ratio=float(is_shorter.mean()) if is_shorter.size else None,
        blocked_call_count=int((lasted > BLOCKED_CALL_PS).sum()),
        thread_mode=_mode(trace, dict(zip(threads.tolist(), map(len, of_thread), strict=True))),
        thread_count=int(threads.size),
        thread_overlap_ratio=_overlap_ratio(
            [union(host.start_ps[own], host.end_ps[own]) for own in of_thread]
        ),
        eager_call_count=eager.count(calls.row),
        graph_count=_graph_count(trace, calls.row) + int(opaque.size),
        opaque_count=int(opaque.size),
        opaque_ps=covered(opaque),
        xla_compute_ratio=covered(compiled) / compute_ps if compute_ps else 0.0,
    )


def _calls(trace: Trace, kernels: Int64Array) -> _Calls:
    events = trace.device_columns
    linked = kernels[events.launch[kernels] != NONE]
    launch = events.launch[linked]
    # The calls for a device are close together: counted from the first, their rows are small numbers.
    lowest = launch.min() if launch.size else 0
    row, place = unique_inverse(launch - lowest)
    row = row + lowest
    first = np.zeros(row.size, dtype=np.int64)
    # In order of start: written from last to first, the start of the first kernel of a call remains.
    first[place[::-1]] = events.start_ps[linked][::-1]
    total = SWEEPS.totals(place, events.duration_ps[linked], row.size)
    return _Calls(row, first, total)


def _graph_count(trace: Trace, calls: Int64Array) -> int:
    """How many of these calls start a CUDA graph whose kernels are recorded one by one."""
    names, place = unique_inverse(trace.host_columns.name[calls])
    is_graph = np.array([is_graph_launch(trace.names[int(name)]) for name in names], np.bool_)
    return int(is_graph[place].sum())


def _mode(trace: Trace, call_counts: dict[int, int]) -> str | None:
    """The mode that the names of threads show, of those with most calls first."""
    names: dict[int, str] = {}
    for thread in call_counts:
        of_lines = [
            trace.lines[line].name for line in np.flatnonzero(trace.thread_of_line == thread)
        ]
        # A thread may have a line of calls besides that with its own name.
        own = [name for name in of_lines if not name.startswith("Host Threads/")]
        names[thread] = (own or of_lines)[0]
    ranked = sorted(call_counts, key=lambda thread: (-call_counts[thread], names[thread]))
    shown = (mode for thread in ranked for known, mode in _MODES if known.match(names[thread]))
    return next(shown, None)


def _overlap_ratio(unions: Sequence[IntervalSet]) -> float | None:
    """Of the time that any of the unions covers, the share that two or more cover; None where none covers any."""
    covered = sum(spans.length for spans in unions)
    if len(unions) < 2 or not covered:
        return 0.0 if covered else None
    start = np.concatenate([spans.start for spans in unions])
    moments = np.concatenate((start, *(spans.end for spans in unions)))
    order = np.argsort(moments, kind="stable")
    open_ = np.cumsum(np.where(order < start.size, 1, -1))[:-1]
    lasted = np.diff(moments[order])
    return int(lasted[open_ >= 2].sum()) / int(lasted[open_ >= 1].sum())


OPAQUE_CUDA_GRAPH: Final = Rule(
    code="opaque-cuda-graph",
    severity="info",
    starts_at="any CUDA graph that is recorded as one event",
    title="{who:runs/run} {graphs} recorded without kernels",
    meaning=(
        "The tracer recorded CUDA graphs without their kernels. They count as compute; which kernels, ops and "
        "collectives ran in them, and in which precision, is not in the trace."
    ),
    notes={"longest": "They take up to {longest} of a GPU's window."},
    action="Capture once without graphs to see kernels: XLA's are off with `XLA_FLAGS=--xla_gpu_enable_command_buffer=`.",
    metrics={"opaque_count": "CUDA graphs recorded as one event"},
    example="GPU:0 runs 12 CUDA graphs recorded without kernels",
)


def _diagnose(context: Context, result: Launches) -> Iterator[Finding]:
    """CUDA graphs of which only the whole is recorded."""
    rows = [row for row in result.devices if row.opaque_count]
    if not rows:
        return
    keys = [row.device for row in rows]
    yield OPAQUE_CUDA_GRAPH.finding(
        arguments={
            "who": devices_argument(context, keys),
            "graphs": Number(sum(row.opaque_count for row in rows), "CUDA graph"),
            "longest": Time(max(row.opaque_ps for row in rows)),
        },
        evidence=[Evidence("opaque_count", row.opaque_count, 0, row.device) for row in rows],
        devices=keys,
        notes=("longest",),
    )


# Section

NOTABLE_RATIO: Final = 0.01
"""Share of the launch calls, or of the time in them, from which a note says that they are slow."""

_COLUMNS: Final = (
    DEVICE,
    Shown("kernels per step", "kernels_per_step", 1, "count"),
    Shown("kernels", "kernel_count", 8),
    Shown("median kernel", "kernel_median_ps", 3),
    Shown("median call", "call_median_ps", 7),
    Shown("median delay", "delay_p50_ps"),
    Shown("p95 delay", "delay_p95_ps", 5),
    Shown(
        "kernels shorter than launch",
        "short_kernel_ratio",
        6,
        meaning="launch calls whose kernels together ran shorter than the call itself",
    ),
    Shown("thread mode", "thread_mode", 4, meaning="TF_GPU_THREAD_MODE"),
)


def launches_section(view: View, result: Launches) -> doc.Section | None:
    """A row per GPU that ran kernels, and notes on launches that are slow or no launches of single kernels."""
    if not result.devices:
        return None
    rows, others = view.split(result.devices)
    return doc.Section(
        "launches",
        "Launches",
        (
            *table(
                "Launches by device",
                rows,
                _COLUMNS,
                most_rows=view.most_rows,
                rest=f"{view.command('analyze')} --format json",
            ),
            *doc.remarks(_range(others)),
            *doc.notes(*_notes(result.devices)),
        ),
        lead="Delay: from a launch call to the start of its kernel, with the wait in the queue of the stream.",
    )


def _range(rows: Sequence[DeviceLaunches]) -> str | None:
    """The delays of the devices without a row."""
    if not rows:
        return None
    delays = numbers.time_range(row.delay_p50_ps for row in rows)
    return f"{numbers.plural(len(rows), 'other GPU')}: median delay {delays}."


def _notes(devices: Sequence[DeviceLaunches]) -> Iterator[str]:
    """A sentence for each kind of unusual launches, with the devices that have them."""
    if rows := _with(devices, "blocked_ratio", NOTABLE_RATIO):
        blocked = numbers.share_range(row.blocked_ratio for row in rows)
        limit = numbers.time(BLOCKED_CALL_PS)
        yield f"Blocked launches on {_keys(rows)}: {blocked} of the calls took more than {limit}."
    if rows := _with(devices, "thread_overlap_ratio", NOTABLE_RATIO):
        most = max(row.thread_count for row in rows)
        overlaps = numbers.share_range(row.thread_overlap_ratio for row in rows)
        yield (
            f"Up to {most} threads launch the kernels of {_keys(rows)}, two or more at once for {overlaps} of the time "
            "in launch calls."
        )
    if rows := _with(devices, "eager_call_count"):
        count = sum(row.eager_call_count or 0 for row in rows)
        yield f"Eager ops made {numbers.plural(count, 'launch', 'launches')} on {_keys(rows)}, outside of any graph."
    if rows := _with(devices, "graph_count"):
        count = sum(row.graph_count for row in rows)
        opaque_count = sum(row.opaque_count for row in rows)
        opaque = f"; {numbers.count(opaque_count)} recorded without kernels" if opaque_count else ""
        yield f"{numbers.plural(count, 'CUDA graph')} launched on {_keys(rows)}{opaque}."
    if rows := _with(devices, "xla_compute_ratio"):
        shares = numbers.share_range(row.xla_compute_ratio for row in rows)
        yield f"XLA programs take {shares} of the compute on {_keys(rows)}."


def _with(
    devices: Sequence[DeviceLaunches], field: str, least: float = 0.0
) -> list[DeviceLaunches]:
    """The devices of which a number is known, not 0, and not below `least`."""
    return [row for row in devices if (value := getattr(row, field)) and value >= least]


def _keys(rows: Sequence[DeviceLaunches]) -> str:
    return numbers.joined_devices(row.device for row in rows)


ANALYSIS: Final = Analysis[Launches](
    "launches",
    compute=compute,
    rules=(OPAQUE_CUDA_GRAPH,),
    leads=lambda context: bool(context.trace.device_columns.opaque.any()),
    diagnose=_diagnose,
    sections=(launches_section,),
)
