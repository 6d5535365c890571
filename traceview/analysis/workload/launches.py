"""Launches: how the host launches the kernels of each GPU: how many, how late, and from which threads.

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

from traceview.analysis.facts.activity import DeviceActivity
from traceview.analysis.facts.kernels import EagerScopes, computing_gpus
from traceview.analysis.facts.selection import Selection, covered_ps, step_bounds
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.rules.finding import Evidence, Finding, OfDevice, Skipped
from traceview.analysis.rules.rule import Rule, devices_argument
from traceview.analysis.rules.words import Number, Time
from traceview.base.ids import unique_ids, unique_inverse
from traceview.base.intervals import Int32Array, Int64Array, IntervalSet, places, union
from traceview.base.record import (
    Count,
    DeviceKey,
    ModuleName,
    Picoseconds,
    Record,
    Share,
    ThreadName,
    one_of,
)
from traceview.base.stats import median_ps, p95_ps
from traceview.base.sweeping import SWEEPS
from traceview.base.units import PS_PER_US
from traceview.document import model as doc
from traceview.document import numbers
from traceview.trace.model import NONE, Step, Trace
from traceview.trace.windows import Window
from traceview.xplane.host_names import is_graph_launch

BLOCKED_CALL_PS: Final = 100 * PS_PER_US
"""A longer launch call was blocked: ordinary calls take 5 to 40 µs (TensorFlow's GPU guide)."""

TOP_NAMES: Final = 5
"""Threads and XLA programs per device in a report."""

_MODES: Final = (
    (re.compile(r"tf_gpu_private_\d+(?:/|$)"), "gpu_private"),
    (re.compile(r"tf_gpu_shared(?:/|$)"), "gpu_shared"),
    (re.compile(r"tf_Compute(?:/|$)"), "global"),
)


class LaunchThread(Record, frozen=True):
    """A thread that launches kernels of a device.

    Attributes:
        thread: Name of the thread.
        call_count: Launch calls that it made for the device.
    """

    thread: ThreadName
    call_count: Count


class Contention(Record, frozen=True):
    """Whether launching threads compete.

    Attributes:
        thread_count: Threads that launch kernels of the device.
        overlap_ratio: Of the time in which any of them is in a launch call, the share in which two or more are;
            null without calls.
        shared_with: Keys of other devices for which one of these threads launches as well.
    """

    thread_count: Count
    overlap_ratio: Share | None
    shared_with: tuple[DeviceKey, ...]


class GraphLaunches(Record, frozen=True):
    """The CUDA graphs of a device.

    Attributes:
        launch_count: Graphs started.
        kernel_count: Kernels of graphs whose kernels are recorded one by one.
        kernels_per_launch: Median of these per graph; null without any.
        opaque_count: Graphs recorded as one event.
        opaque_ps: Union of these in the window, picoseconds.
    """

    launch_count: Count
    kernel_count: Count
    kernels_per_launch: Count | None
    opaque_count: Count
    opaque_ps: Picoseconds


class XlaKernels(Record, frozen=True):
    """Kernels of programs that XLA compiled.

    Attributes:
        kernel_count: Such kernels.
        kernel_ratio: Share of the kernels.
        compute_ratio: Share of the compute time.
        modules: Names of the programs, the one with the longest kernels first; no more than five.
        module_count: Programs with a name.
    """

    kernel_count: Count
    kernel_ratio: Share
    compute_ratio: Share
    modules: tuple[ModuleName, ...]
    module_count: Count


class DeviceLaunches(OfDevice, frozen=True):
    """The kernels of one GPU in its window, and the calls that launched them.

    Attributes:
        kernel_count: Kernels.
        kernels_per_step: Kernels that start in a step, median over the used ones; null without any.
        kernel_median_ps: Median duration of the kernels, picoseconds; null without any.
        unlinked_count: Kernels whose launch is not recorded.
        call_count: Calls that launched them; one may start several kernels.
        call_median_ps: Median duration of the calls, picoseconds; null without any.
        delay_p50_ps: Median time from the start of a call to the start of its first kernel, picoseconds, with
            the wait in the queue of the stream; null without any.
        delay_p95_ps: 95th percentile of that by nearest rank, picoseconds; null without any.
        negative_delay_count: Calls whose first kernel seems to start before them, as clocks differ; their delay
            counts as 0.
        short_kernel_ratio: Share of the calls whose kernels together ran shorter than the call; null without
            any.
        blocked_call_count: Calls that took more than 100 µs.
        thread_mode: TF_GPU_THREAD_MODE by the names of the launching threads; null where they do not show it.
        threads: The launching threads, most calls first; no more than five.
        contention: Whether launching threads compete.
        eager_call_count: Calls made by ops that ran one by one, outside of any graph; null where this is not
            recorded.
        graphs: CUDA graphs.
        xla: Kernels of programs that XLA compiled.
    """

    kernel_count: Count
    kernels_per_step: Count | None
    kernel_median_ps: Picoseconds | None
    unlinked_count: Count
    call_count: Count
    call_median_ps: Picoseconds | None
    delay_p50_ps: Picoseconds | None
    delay_p95_ps: Picoseconds | None
    negative_delay_count: Count
    short_kernel_ratio: Share | None
    blocked_call_count: Count
    thread_mode: Annotated[str, one_of("gpu_private", "gpu_shared", "global")] | None
    threads: tuple[LaunchThread, ...]
    contention: Contention
    eager_call_count: Count | None
    graphs: GraphLaunches
    xla: XlaKernels


class Launches(Record, frozen=True):
    """The launches of every GPU with compute in its window.

    Attributes:
        devices: GPUs in the order of hosts and ordinals.
    """

    devices: tuple[DeviceLaunches, ...]


class _Calls(Struct, frozen=True, eq=False):
    """Launch calls of one device: host row of each, and number, first start and total duration of its kernels."""

    row: Int64Array
    kernel_count: Int64Array
    first_start_ps: Int64Array
    total_ps: Int64Array


class _Launched(Struct, frozen=True, eq=False):
    """Rows of the kernels and of the opaque graphs of one device, its calls, their threads, and the place of each call's."""

    kernels: Int64Array
    opaque: Int64Array
    calls: _Calls
    threads: Int64Array
    place: Int64Array


def compute(
    trace: Trace, selection: Selection, activities: Sequence[DeviceActivity]
) -> Launches | Skipped:
    """The launches of each GPU in its window; `activities` by device index."""
    computing = computing_gpus(trace, selection)
    if isinstance(computing, Skipped):
        return computing
    run = _Run(trace, {index: rows for index, (_, rows) in computing.items()})
    return Launches(
        tuple(
            run.device(index, window, selection.used_of(window.host), activities[index])
            for index, (window, _) in computing.items()
        )
    )


class _Run:
    """All devices of a run, for threads may launch kernels of several of them."""

    def __init__(self, trace: Trace, rows: dict[int, Int64Array]) -> None:
        columns = trace.device_columns
        self._trace = trace
        self._thread = trace.thread_of_line
        self._rows = rows
        line = trace.host_columns.line
        launches = {i: columns.launch[own[~columns.opaque[own]]] for i, own in rows.items()}
        threads_of = {
            i: unique_ids(self._thread[line[launch[launch != NONE]]])
            for i, launch in launches.items()
        }
        self._keys = [trace.device_key(device) for device in range(len(trace.device_list))]
        self._devices_of: dict[int, list[int]] = {}
        for device, of_device in threads_of.items():
            for thread in of_device.tolist():
                self._devices_of.setdefault(thread, []).append(device)
        self._place = {device: place for place, device in enumerate(threads_of)}
        self._eager = EagerScopes(trace.host_columns, trace.names, self._thread)

    def device(
        self, index: int, window: Window, steps: tuple[Step, ...], activity: DeviceActivity
    ) -> DeviceLaunches:
        trace, columns, host = self._trace, self._trace.device_columns, self._trace.host_columns
        launched = self._launched(index)
        kernels, calls = launched.kernels, launched.calls
        delay = calls.first_start_ps - host.start_ps[calls.row]
        lasted = host.duration_ps[calls.row]
        is_shorter = calls.total_ps < lasted
        first, last = (places(columns.start_ps[kernels], at) for at in step_bounds(steps))
        return DeviceLaunches(
            *trace.identity(index),
            kernel_count=int(kernels.size),
            kernels_per_step=median_ps(last - first),
            kernel_median_ps=median_ps(columns.duration_ps[kernels]),
            unlinked_count=int(kernels.size - calls.kernel_count.sum()),
            call_count=int(calls.row.size),
            call_median_ps=median_ps(lasted),
            delay_p50_ps=median_ps(np.maximum(delay, 0)),
            delay_p95_ps=p95_ps(np.maximum(delay, 0)),
            negative_delay_count=int((delay < 0).sum()),
            short_kernel_ratio=float(is_shorter.mean()) if is_shorter.size else None,
            blocked_call_count=int((lasted > BLOCKED_CALL_PS).sum()),
            thread_mode=self._mode(launched),
            threads=self._threads(launched),
            contention=self._contention(index, launched),
            eager_call_count=self._eager.count(calls.row),
            graphs=self._graphs(launched, window),
            xla=self._xla(kernels, window, activity),
        )

    def _launched(self, index: int) -> _Launched:
        """What one device launched; of all devices at once it would take a quarter of the memory of their columns."""
        own, is_opaque = self._rows[index], self._trace.device_columns.opaque[self._rows[index]]
        kernels = own[~is_opaque]
        calls = _calls(self._trace, kernels)
        threads, place = unique_inverse(self._thread[self._trace.host_columns.line[calls.row]])
        return _Launched(kernels, own[is_opaque], calls, threads, place)

    # Threads

    def _call_counts(self, launched: _Launched) -> list[tuple[int, int]]:
        """Threads and their calls, most calls first."""
        counts = np.bincount(launched.place, minlength=launched.threads.size).tolist()
        pairs = zip(launched.threads.tolist(), counts, strict=True)
        return sorted(pairs, key=lambda pair: (-pair[1], self._name(pair[0])))

    def _name(self, thread: int) -> str:
        """The name that TensorFlow gave a thread, which may have a line of calls besides its own."""
        names = [self._trace.lines[line].name for line in np.flatnonzero(self._thread == thread)]
        own = [name for name in names if not name.startswith("Host Threads/")]
        return (own or names)[0]

    def _mode(self, launched: _Launched) -> str | None:
        for thread, _ in self._call_counts(launched):
            for pattern, mode in _MODES:
                if pattern.match(self._name(thread)):
                    return mode
        return None

    def _threads(self, launched: _Launched) -> tuple[LaunchThread, ...]:
        counts = self._call_counts(launched)[:TOP_NAMES]
        return tuple(LaunchThread(self._name(thread), count) for thread, count in counts)

    def _contention(self, index: int, launched: _Launched) -> Contention:
        host, rows = self._trace.host_columns, launched.calls.row
        own, place = launched.threads, launched.place
        others = {other for thread in own.tolist() for other in self._devices_of[thread]}
        sharing = sorted(others - {index}, key=self._place.__getitem__)
        by_thread = [
            union(host.start_ps[calls], host.end_ps[calls])
            for calls in (rows[place == thread] for thread in range(own.size))
        ]
        return Contention(
            int(own.size),
            _overlap_ratio(by_thread),
            tuple(map(self._keys.__getitem__, sharing)),
        )

    # Graphs and programs

    def _graphs(self, launched: _Launched, window: Window) -> GraphLaunches:
        columns, calls, opaque = self._trace.device_columns, launched.calls, launched.opaque
        names, place = unique_inverse(self._trace.host_columns.name[calls.row])
        is_graph = np.array([is_graph_launch(self._trace.names[int(n)]) for n in names], np.bool_)
        of_graph = calls.kernel_count[is_graph[place]]
        covered = union(columns.start_ps[opaque], columns.end_ps[opaque])
        return GraphLaunches(
            launch_count=int(of_graph.size + opaque.size),
            kernel_count=int(of_graph.sum()),
            kernels_per_launch=median_ps(of_graph),
            opaque_count=int(opaque.size),
            opaque_ps=covered_ps(covered, window),
        )

    def _xla(self, kernels: Int64Array, window: Window, activity: DeviceActivity) -> XlaKernels:
        columns = self._trace.device_columns
        compiled = kernels[columns.module[kernels] != NONE]
        covered = union(columns.start_ps[compiled], columns.end_ps[compiled])
        compute_ps = covered_ps(activity.compute, window)
        modules = _longest(columns.module[compiled], columns.duration_ps[compiled])
        named = [name for module in modules if (name := self._trace.names.text(module))]
        return XlaKernels(
            kernel_count=int(compiled.size),
            kernel_ratio=compiled.size / kernels.size if kernels.size else 0.0,
            compute_ratio=covered_ps(covered, window) / compute_ps if compute_ps else 0.0,
            modules=tuple(named[:TOP_NAMES]),
            module_count=len(named),
        )


def _calls(trace: Trace, kernels: Int64Array) -> _Calls:
    columns = trace.device_columns
    linked = kernels[columns.launch[kernels] != NONE]
    launch = columns.launch[linked]
    # The calls for a device are close together: counted from the first, their rows are small numbers.
    lowest = launch.min() if launch.size else 0
    row, place = unique_inverse(launch - lowest)
    row = row + lowest
    first = np.zeros(row.size, dtype=np.int64)
    # In order of start: written from last to first, the start of the first kernel of a call remains.
    first[place[::-1]] = columns.start_ps[linked][::-1]
    total = SWEEPS.totals(place, columns.duration_ps[linked], row.size)
    return _Calls(row, np.bincount(place, minlength=row.size), first, total)


def _longest(ids: Int32Array, duration_ps: Int64Array) -> list[int]:
    """The distinct ids, the one with the longest sum of durations first."""
    distinct, place = unique_inverse(ids)
    total = SWEEPS.totals(place, duration_ps, distinct.size)
    return [int(distinct[i]) for i in np.argsort(-total, kind="stable")]


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
    rows = [row for row in result.devices if row.graphs.opaque_count]
    if not rows:
        return
    keys = [row.device for row in rows]
    yield OPAQUE_CUDA_GRAPH.finding(
        arguments={
            "who": devices_argument(context, keys),
            "graphs": Number(sum(row.graphs.opaque_count for row in rows), "CUDA graph"),
            "longest": Time(max(row.graphs.opaque_ps for row in rows)),
        },
        evidence=[Evidence("opaque_count", row.graphs.opaque_count, 0, row.device) for row in rows],
        devices=keys,
        notes=("longest",),
    )


# Section


NOTABLE_RATIO: Final = 0.01
"""Share of the launch calls, or of the time in them, from which a note says that they are slow."""


def launches_section(view: View, result: Launches) -> doc.Section | None:
    """A row per GPU that ran kernels, and notes on launches that are slow or no launches of single kernels."""
    if not result.devices:
        return None
    rows, others = view.split(result.devices)
    return doc.Section(
        "launches",
        "Launches",
        (
            *_launches(
                rows[: view.most_rows], len(rows), f"{view.command('analyze')} --format json"
            ),
            *doc.remarks(_range(others)),
            *doc.notes(*_notes(result.devices)),
        ),
        lead="Delay: from a launch call to the start of its kernel, with the wait in the queue of the stream.",
    )


def _launches(rows: Sequence[DeviceLaunches], row_count: int, rest: str) -> tuple[doc.Table, ...]:
    return doc.table(
        "Launches by device",
        (
            doc.devices("device", [row.device for row in rows]),
            doc.counts("kernels per step", [row.kernels_per_step for row in rows], priority=1),
            doc.counts("kernels", [row.kernel_count for row in rows], priority=8),
            doc.times("median kernel", [row.kernel_median_ps for row in rows], priority=3),
            doc.times("median call", [row.call_median_ps for row in rows], priority=7),
            doc.times("median delay", [row.delay_p50_ps for row in rows]),
            doc.times("p95 delay", [row.delay_p95_ps for row in rows], priority=5),
            doc.shares(
                "kernels shorter than launch",
                [row.short_kernel_ratio for row in rows],
                priority=6,
                meaning="launch calls whose kernels together ran shorter than the call itself",
            ),
            doc.names(
                "thread mode",
                [row.thread_mode for row in rows],
                priority=4,
                meaning="TF_GPU_THREAD_MODE",
            ),
        ),
        row_count=row_count,
        rest=rest,
    )


def _range(rows: Sequence[DeviceLaunches]) -> str | None:
    """The delays of the devices without a row."""
    if not rows:
        return None
    delays = numbers.time_range(row.delay_p50_ps for row in rows)
    return f"{numbers.plural(len(rows), 'other GPU')}: median delay {delays}."


def _notes(devices: Sequence[DeviceLaunches]) -> Iterator[str]:
    """A sentence for each kind of unusual launches, with the devices that have them."""
    rows = [row for row in devices if (_blocked_ratio(row) or 0.0) >= NOTABLE_RATIO]
    if rows:
        yield (
            f"Blocked launches on {_keys(rows)}: {numbers.share_range(map(_blocked_ratio, rows))} of the calls took "
            f"more than {numbers.time(BLOCKED_CALL_PS)}."
        )
    rows = [row for row in devices if (row.contention.overlap_ratio or 0.0) >= NOTABLE_RATIO]
    if rows:
        most = max(row.contention.thread_count for row in rows)
        overlaps = numbers.share_range(row.contention.overlap_ratio for row in rows)
        yield (
            f"Up to {most} threads launch the kernels of {_keys(rows)}, two or more at once for {overlaps} of the time "
            "in launch calls."
        )
    rows = [row for row in devices if row.eager_call_count]
    if rows:
        count = sum(row.eager_call_count or 0 for row in rows)
        yield f"Eager ops made {numbers.plural(count, 'launch', 'launches')} on {_keys(rows)}, outside of any graph."
    rows = [row for row in devices if row.graphs.launch_count]
    if rows:
        count = sum(row.graphs.launch_count for row in rows)
        opaque_count = sum(row.graphs.opaque_count for row in rows)
        opaque = f"; {numbers.count(opaque_count)} recorded without kernels" if opaque_count else ""
        yield f"{numbers.plural(count, 'CUDA graph')} launched on {_keys(rows)}{opaque}."
    rows = [row for row in devices if row.xla.kernel_count]
    if rows:
        shares_of_compute = numbers.share_range(row.xla.compute_ratio for row in rows)
        yield f"XLA programs take {shares_of_compute} of the compute on {_keys(rows)}."


def _blocked_ratio(row: DeviceLaunches) -> float | None:
    return doc.ratio(row.blocked_call_count, row.call_count)


def _keys(rows: Sequence[DeviceLaunches]) -> str:
    return numbers.joined_devices(row.device for row in rows)


ANALYSIS: Final = Analysis[Launches](
    "launches",
    compute=lambda context: compute(context.trace, context.selection, context.activities),
    join=lambda hosts: Launches(hosts.rows(lambda result: result.devices)),
    rules=(OPAQUE_CUDA_GRAPH,),
    leads=lambda context: bool(context.trace.device_columns.opaque.any()),
    diagnose=_diagnose,
    sections=(launches_section,),
)
