"""The trace as data: hosts, their devices and steps, with the columns of their events (`columns`).

Times are int64 picoseconds since the origin of the run, the earliest `profile_start_time` of its hosts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import numpy as np
from msgspec import Meta, Struct

from traceview.base.errors import UsageError
from traceview.base.ids import sorted_unique, unique_ids
from traceview.base.intervals import BoolArray, Int32Array, Int64Array, nesting, places
from traceview.base.location import Location
from traceview.base.record import (
    Count,
    FileName,
    Hostname,
    Integer,
    Key,
    Picoseconds,
    Record,
    TextKind,
    Words,
    kind_in,
    one_of,
)
from traceview.base.text import lazy_pattern
from traceview.trace.columns import NONE, CollectiveCalls, DeviceColumns, HostColumns, Names, kept
from traceview.trace.sidecar.hang import Hang
from traceview.trace.sidecar.sidecar import NOTHING_RECORDED, Sidecar
from traceview.xplane.columns import Instruction, ProgramBuffers, joined
from traceview.xplane.planes import LARGEST_COUNT

T = TypeVar("T")

_THREAD_NUMBER: Final = lazy_pattern(r"/(-?[0-9]{1,20})(?:/NVTX)?$")


class SourceFile(Record, frozen=True):
    """One file of the run.

    Attributes:
        name: File name.
        host: Host that the file is named after.
        bytes: Size in bytes.
        sha256: SHA-256 of the bytes, hexadecimal; null where the file could not be read at all.
        event_count: Events in the file; 0 where it was not read or counted as a duplicate.
        duplicate_of: Name of the file with the same bytes that was counted instead; null if there is none.
    """

    name: FileName
    host: Hostname
    bytes: Count
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None
    event_count: Count
    duplicate_of: FileName | None


class Problem(Record, frozen=True):
    """A defect of the capture that limits what the report can say.

    Attributes:
        code: Stable name of the kind of problem.
        text: The problem in one sentence.
        host: Host with the problem; null if it concerns all hosts.
        recorded: What it is about, or what the file or the system says; empty where the text says all.
        recorded_is: What that is.
    """

    code: Key
    text: Words
    host: Hostname | None = None
    recorded: Annotated[str, kind_in("recorded_is")] = ""
    recorded_is: TextKind = "message"

    @property
    def sentence(self) -> str:
        """The text with what was recorded."""
        return f"{self.text}: {self.recorded}" if self.recorded else self.text


class HostClock(Record, frozen=True):
    """How the clock of a host was aligned with the clocks of the other hosts.

    Attributes:
        method: collectives: aligned by the ends of the collectives that the host shares with the reference;
            profile_start: aligned by the recorded start of the profile; none: not aligned, so the times cannot be
            compared with those of other hosts.
        reference: Name of the host whose collectives were compared; null without a comparison.
        offset_ps: Picoseconds added to the times on top of the profile start, computed from collectives.
        collective_count: Collectives whose ends were compared, whether or not they moved the clock.
        residual_ps: Robust spread of the differences between their ends, in picoseconds; null without a comparison.
    """

    method: Annotated[str, one_of("collectives", "profile_start", "none")]
    reference: Hostname | None = None
    offset_ps: Integer = 0
    collective_count: Count = 0
    residual_ps: Picoseconds | None = None


class Host(Struct, frozen=True):
    """One profiled process. `profile_start_ns`, `profile_stop_ns`: Unix nanoseconds, None if not recorded.

    `start_ps`, `stop_ps`: the same relative to the origin of the run; 0 and None if not recorded. `sidecar`: what
    `traceview capture` wrote beside the trace. `gpus_expected`: TensorFlow named threads after GPUs, so that a missing GPU plane
    means a failed GPU trace. `clock`: how the host was aligned with others, None in a run of one host. `stops`: of the process, None if not known.
    """

    name: str
    file: str
    profile_start_ns: int | None
    profile_stop_ns: int | None
    start_ps: int
    stop_ps: int | None
    errors: tuple[str, ...]
    dropped_event_count: int
    gpus_expected: bool
    event_count: int
    sidecar: Sidecar | None = None
    clock: HostClock | None = None
    stops: tuple[tuple[int, int], ...] | None = None

    @property
    def captured(self) -> Sidecar:
        """What `traceview capture` recorded; nothing without a sidecar."""
        return self.sidecar or NOTHING_RECORDED

    @property
    def usable_cores(self) -> int | None:
        """The cores that the process may use; None where not recorded."""
        return self.captured.environment.cores.usable_count


MOST_DEVICES: Final = 1 << 15
"""Columns hold the number of a device in 16 bits, with a sign."""

TOO_MANY_DEVICES: Final = f"the run has more than {MOST_DEVICES:,} devices"


class Device(Struct, frozen=True):
    """One device of a host. `kind`: gpu, tpu, replica or other.

    `ordinal`: the number in the plane's name, which is the visible index of the process, or the number of the replica.
    """

    host: int
    name: str
    kind: str
    ordinal: int
    model: str | None
    stats: dict[str, int | float | str]

    def count(self, stat: str) -> int | None:
        """A stat of its plane that is a count or a size; None where it is not recorded or cannot be one."""
        value = self.stats.get(stat)
        return value if isinstance(value, int) and 0 <= value <= LARGEST_COUNT else None


class LineInfo(Struct, frozen=True):
    """A stream or a thread. `device` is `NONE` for threads."""

    host: int
    device: int
    id: int
    name: str

    @property
    def is_thread(self) -> bool:
        """Whether it is a thread of a host rather than a stream of a device."""
        return self.device == NONE

    @property
    def runs_model(self) -> bool:
        """Whether it is a thread of the model rather than of the input pipeline, which tf.data names `tf_data…`."""
        return self.is_thread and not self.name.startswith("tf_data")


def threads(lines: Sequence[LineInfo]) -> Int32Array:
    """The thread of each line as the first line of that thread, int32; driver calls may be on a line of their own.

    Two lines are one thread if their ids agree modulo 2**32 or if one is named after the id of the other.
    """
    first_with: dict[tuple[int, int], int] = {}
    thread = np.arange(len(lines), dtype=np.int32)
    for index, line in enumerate(lines):
        if not line.is_thread:
            continue
        named = _THREAD_NUMBER.search(line.name)
        numbers = {number % (1 << 32) for number in (line.id, int(named[1]) if named else line.id)}
        known = [first_with[line.host, n] for n in numbers if (line.host, n) in first_with]
        thread[index] = min(known, default=index)
        for number in numbers:
            first_with.setdefault((line.host, number), int(thread[index]))
    return thread


class Step(Struct, frozen=True):
    """One training step of one host. `end_ps` is exclusive; times since the origin of the run.

    `number` identifies it within its host; `recorded_number` is the number in the marker, None without one.
    `kind`: train or eval. `excluded`: why statistics leave it out, None if they include it.
    """

    host: int
    number: int
    recorded_number: int | None
    start_ps: int
    end_ps: int
    kind: str = "train"
    excluded: str | None = None

    @property
    def duration_ps(self) -> int:
        """Length of the step."""
        return self.end_ps - self.start_ps


class HostSteps(Struct, frozen=True):
    """The steps of one host in time order.

    `method` says how they were detected: marker, keras, group, function, period or none. `basis` says
    whether they begin at the markers or at the first device event of each. `markers`: host rows of the events that mark them.
    """

    host: int
    method: str
    basis: str
    steps: tuple[Step, ...]
    markers: tuple[int, ...] = ()


class Recording(Struct, frozen=True, eq=False, dict=True):
    """What the hosts of a run recorded, on one clock: a `Trace` before its steps are detected.

    `device_list`: devices by the index that columns use; of one kind by host and number. `shared_rows`: host rows of ops of
    a CPU-only run that no replica owns. `instructions`: those of XLA programs that events ran. `program_buffers`: the memory of
    these programs.
    """

    hosts: tuple[Host, ...]
    device_list: tuple[Device, ...]
    lines: tuple[LineInfo, ...]
    names: Names
    device_columns: DeviceColumns
    host_columns: HostColumns
    shared_rows: Int64Array
    collective_calls: CollectiveCalls
    instructions: tuple[Instruction, ...]
    program_buffers: tuple[ProgramBuffers, ...]

    @kept
    def once(self, make: Callable[[Recording], T]) -> T:
        """What a function makes of this recording; several topics may ask for it."""
        return make(self)

    def device_key(self, device: int) -> str:
        """The name of a device in the report: `GPU:3`, or `host/GPU:3` in a run of several hosts, also where it lacks some."""
        entry = self.device_list[device]
        return f"{self.hosts[entry.host].name}/{entry.name}" if self.has_others else entry.name

    @cached_property
    def has_others(self) -> bool:
        """Whether the run has several hosts, of which some may be missing."""
        return len(self.hosts) > 1 or bool(missing_tasks(self.hosts))

    def identity(self, device: int) -> tuple[str, str, int]:
        """The name of the host of a device, its key and its number."""
        entry = self.device_list[device]
        return self.hosts[entry.host].name, self.device_key(device), entry.ordinal

    @cached_property
    def hosts_with_device_events(self) -> frozenset[int]:
        """The hosts whose tracer recorded an event of any device."""
        return frozenset(self.device_list[i].host for i in unique_ids(self.device_columns.device))

    @cached_property
    def host_of_device(self) -> Int64Array:
        """The host of each device, int64 `[devices]`."""
        return np.array([device.host for device in self.device_list], dtype=np.int64)

    @cached_property
    def thread_of_line(self) -> Int32Array:
        """The thread of each line, int32 `[lines]` (`threads`)."""
        return threads(self.lines)

    @cached_property
    def runs_model(self) -> BoolArray:
        """Which lines are threads of the model, bool `[lines]`."""
        return np.array([line.runs_model for line in self.lines], dtype=np.bool_)

    @cached_property
    def host_of_line(self) -> Int64Array:
        """The host of each line, int64 `[lines]`."""
        return np.array([line.host for line in self.lines], dtype=np.int64)

    @cached_property
    def devices_of_host(self) -> tuple[tuple[int, ...], ...]:
        """The devices of each host, by index."""
        devices: list[list[int]] = [[] for _ in self.hosts]
        for index, device in enumerate(self.device_list):
            devices[device.host].append(index)
        return tuple(map(tuple, devices))

    def named_on(self, host: int, matches: Callable[[bytes], object]) -> Int64Array:
        """The events of a host whose name matches, as rows of the host columns; `matches`: a function of a module."""
        rows = self.host_columns.rows_of_host(host)
        is_match = self.names.every(matches, np.bool_)
        result: Int64Array = np.flatnonzero(is_match[self.host_columns.name[rows]]) + rows.start
        return result

    def device_rows(self, host: int) -> Int64Array:
        """The rows of all devices of a host in the device columns."""
        slices = [self.device_columns.rows_of(device) for device in self.devices_of_host[host]]
        return joined([np.arange(rows.start, rows.stop) for rows in slices], np.int64)


FEWEST_PER_DEVICE: Final = 20_000
"""Events. Fewer take less time than two threads lose by taking turns at Python's lock."""


class Trace(Recording, frozen=True, eq=False):
    """One run: what its hosts recorded, its steps, and the files that it was read from."""

    logdir: Location
    run: str
    other_runs: tuple[str, ...]
    files: tuple[SourceFile, ...]
    steps_by_host: tuple[HostSteps, ...]
    problems: tuple[Problem, ...]
    hangs: tuple[Hang, ...] = ()

    @property
    def threads_beside(self) -> int:
        """How many threads beside this one shorten what is made of each device: 1, or 0 for few events or on one core."""
        few = self.device_columns.count < FEWEST_PER_DEVICE * len(self.device_list)
        return int(not few and (os.cpu_count() or 1) > 1)

    def __repr__(self) -> str:
        steps = sum(len(host_steps.steps) for host_steps in self.steps_by_host)
        return (
            f"<Trace of run {self.run!r}: {len(self.hosts)} host(s), {len(self.device_list)} device(s), "
            f"{self.device_columns.count} device events, {steps} step(s)>"
        )


def damaged_hosts(trace: Trace) -> frozenset[str]:
    """The names of the hosts whose files are cut off or damaged: what they hold was there, what they lack may have been."""
    damaged = {problem.host for problem in trace.problems if problem.code == "damaged-file"}
    return frozenset(host.name for host in trace.hosts if host.name in damaged)


def is_damaged_throughout(trace: Trace) -> bool:
    """Whether no host has a whole file."""
    return len(damaged_hosts(trace)) == len(trace.hosts)


_SERVER: Final = "ps"
_OUTSIDE: Final = "evaluator"
_LABEL: Final = lazy_pattern(r".+?_(w|worker|chief|master|ps|evaluator|r|p)(\d{1,6})(?:_p\d{1,6})?")
"""`traceview capture` adds this to the name of a host when it records several of its processes."""
_SHORT: Final = {"w": "worker", "r": "rank"}
_PROCESS: Final = "p"
"""One of several processes that nothing else tells apart."""
_MOST_TASKS: Final = 10_000
"""A damaged sidecar may hold any number."""


class Role(Struct, frozen=True):
    """One task of a cluster, as TF_CONFIG or the launcher names it; `index` None where it is not recorded."""

    name: str
    index: int | None

    def __str__(self) -> str:
        return self.name if self.index is None else f"{self.name} {self.index}"


def role_of(host: Host) -> Role | None:
    """The role in the sidecar, else the one in the name of the file; None if neither holds it."""
    task = host.captured.environment.cluster
    if task.role is not None:
        return Role(task.role, task.index)
    label = _LABEL.fullmatch(host.name)
    if label is None or label[1] == _PROCESS:
        return None
    return Role(_SHORT.get(label[1], label[1]), int(label[2]))


def machine_of(host: Host) -> str:
    """The machine of a host: its name without the label of the process."""
    label = _LABEL.fullmatch(host.name)
    return host.name if label is None else host.name[: label.start(1) - 1]


def part_in_training(host: Host) -> str:
    """The part of a host in the training: chief and workers do the same work, other roles do not."""
    role = role_of(host)
    return role.name if role is not None and role.name in (_SERVER, _OUTSIDE) else "worker"


def step_groups(hosts: Sequence[Host]) -> tuple[tuple[int, ...], ...]:
    """The hosts (by index) in groups that make their steps together; a host that works alone is its own group."""
    parts = list(map(part_in_training, hosts))
    is_alone = _SERVER in parts or _SERVER in _sizes(hosts)
    alone = [index for index, part in enumerate(parts) if is_alone or part == _OUTSIDE]
    together = tuple(index for index in range(len(hosts)) if index not in alone)
    return (*((together,) if together else ()), *((index,) for index in alone))


def missing_tasks(hosts: Sequence[Host]) -> tuple[Role, ...]:
    """Tasks that make steps together with recorded ones, but were not recorded; none if no sidecar holds the size of the cluster."""
    if _SERVER in _sizes(hosts):
        return ()
    return tuple(role for role in unrecorded_tasks(hosts) if role.name != _OUTSIDE)


def unrecorded_tasks(hosts: Sequence[Host]) -> tuple[Role, ...]:
    """All tasks of the cluster that were not recorded, including parameter servers and evaluators."""
    recorded = set(map(role_of, hosts))
    sizes = sorted((name, min(count, _MOST_TASKS)) for name, count in _sizes(hosts).items())
    tasks = (Role(name, index) for name, count in sizes for index in range(count))
    return tuple(role for role in tasks if role not in recorded)


def _sizes(hosts: Sequence[Host]) -> dict[str, int]:
    """The number of tasks by role, from the sidecars."""
    sizes: dict[str, int] = {}
    for host in hosts:
        for name, count in (host.captured.environment.cluster.sizes or {}).items():
            sizes[name] = max(sizes.get(name, 0), count)
    return sizes


def missing_steps(trace: Trace) -> tuple[tuple[int, ...], ...]:
    """For each host the recorded step numbers that other hosts of its group have and it lacks, sorted; none of steps without."""
    missing: list[tuple[int, ...]] = [()] * len(trace.hosts)
    for group in step_groups(trace.hosts):
        numbers = dict[int, set[int]]()
        for host in group:
            recorded = [step.recorded_number for step in trace.steps_by_host[host].steps]
            if None not in recorded:
                numbers[host] = {number for number in recorded if number is not None}
        every = set[int]().union(*numbers.values())
        for host, known in numbers.items():
            missing[host] = tuple(sorted(every - known))
    return tuple(missing)


WindowKind: TypeAlias = Literal["auto", "steps", "devices", "trace"]
SpanKind: TypeAlias = Literal["steps", "devices", "trace"]
WINDOW_KINDS: Final[tuple[WindowKind, ...]] = ("auto", "steps", "devices", "trace")


class StepRange(Struct, frozen=True):
    """Steps from `first` up to but not including `last`, by number; None leaves an end open."""

    first: int | None
    last: int | None

    def holds(self, step: Step) -> bool:
        """Whether the range includes a step."""
        after = self.first is None or step.number >= self.first
        return after and (self.last is None or step.number < self.last)

    def __str__(self) -> str:
        first = "" if self.first is None else self.first
        return f"{first}:{'' if self.last is None else self.last}"


class StepBounds(Struct, frozen=True, eq=False):
    """Where steps of a host begin and end, sorted, int64 `[n]`, and the index of the step before the first, and after each.

    `step`, int32 `[n + 1]`: of several the last begun; `NONE` outside of steps.
    """

    time: Int64Array
    step: Int32Array

    @classmethod
    def of(cls, steps: Sequence[Step]) -> StepBounds:
        """The bounds of some steps of a host."""
        start = np.array([step.start_ps for step in steps], dtype=np.int64)
        end = np.array([step.end_ps for step in steps], dtype=np.int64)
        time = sorted_unique(np.concatenate((start, end)))
        step = np.append(NONE, nesting(start, end).innermost(time))
        return cls(time, step.astype(np.int32))


class Window(Struct, frozen=True):
    """The window of one host: `kind` is steps, devices or trace; `end_ps` is exclusive."""

    host: int
    kind: SpanKind
    start_ps: int
    end_ps: int

    @property
    def length_ps(self) -> int:
        """Length of the window."""
        return self.end_ps - self.start_ps


def step_numbers_at(
    steps_by_host: Sequence[HostSteps], host: Int64Array, time_ps: Int64Array
) -> tuple[Int64Array, BoolArray]:
    """The number of the step that each instant belongs to on its host, int64 `[n]`, and bool `[n]` whether it has one.

    `host`: index into the hosts, `[n]`. `time_ps`: since the origin of the run, `[n]`. `NONE` outside of all steps.
    """
    number = np.full(time_ps.size, NONE, dtype=np.int64)
    in_step = np.zeros(time_ps.size, dtype=np.bool_)
    by_host = np.argsort(host, kind="stable")
    bounds = np.searchsorted(host[by_host], np.arange(len(steps_by_host) + 1))
    for host_steps in steps_by_host:
        own = by_host[bounds[host_steps.host] : bounds[host_steps.host + 1]]
        if not host_steps.steps or not own.size:
            continue
        bounds_of_steps = StepBounds.of(host_steps.steps)
        index = bounds_of_steps.step[places(bounds_of_steps.time, time_ps[own], right=True)]
        numbers = np.array([*(step.number for step in host_steps.steps), NONE], dtype=np.int64)
        number[own], in_step[own] = numbers[index], index != NONE
    return number, in_step


def chosen_steps(host_steps: HostSteps, steps: StepRange | None) -> tuple[Step, ...]:
    """The steps of a host that the range includes."""
    return tuple(step for step in host_steps.steps if steps is None or steps.holds(step))


def windows_of(
    trace: Trace, kind: WindowKind = "auto", steps: StepRange | None = None
) -> dict[int, Window]:
    """The window of each host that has one.

    `auto`: steps if the host has any, else devices, else trace. `steps` narrows the window to these steps. Raises
    `UsageError` if no host has any of these steps, or a window of the requested `kind`.
    """
    every = {host: _window(trace, host, kind, steps) for host in range(len(trace.hosts))}
    windows = {host: window for host, window in every.items() if window is not None}
    if steps is not None and not windows:
        numbers = [step.number for host in trace.steps_by_host for step in host.steps]
        available = f"steps {min(numbers)} to {max(numbers)}" if numbers else "no steps"
        raise UsageError(f"--steps {steps}: the trace has none of them; it has {available}")
    if kind != "auto" and not windows:
        missing = {"steps": "steps", "devices": "device events"}.get(kind, "events")
        raise UsageError(f"--window {kind}: the trace has no {missing}", hint="try --window auto")
    return windows


def _window(trace: Trace, host: int, kind: WindowKind, steps: StepRange | None) -> Window | None:
    chosen = chosen_steps(trace.steps_by_host[host], steps)
    begin = min((step.start_ps for step in chosen), default=0)
    until = max((step.end_ps for step in chosen), default=0)
    by_steps = Window(host, "steps", begin, until) if chosen else None
    if kind in ("auto", "steps") and (by_steps or kind == "steps" or steps is not None):
        return by_steps
    window = _recorded(trace, host, kind)
    if window is None or steps is None:
        return window
    start, end = max(window.start_ps, begin), min(window.end_ps, until)
    return Window(host, window.kind, start, end) if start < end else None


def _recorded(trace: Trace, host: int, kind: WindowKind) -> Window | None:
    """The window of the device events of a host, else, and for the kind trace, that of all that was recorded."""
    devices = _extent(trace.device_columns, trace.device_rows(host))
    if devices and kind in ("auto", "devices"):
        return Window(host, "devices", *devices)
    if kind == "devices":
        return None
    entry = trace.hosts[host]
    if entry.stop_ps is not None:
        return Window(host, "trace", entry.start_ps, entry.stop_ps)
    events = _extent(trace.host_columns, trace.host_columns.rows_of_host(host))
    spans = [span for span in (devices, events) if span]
    return Window(host, "trace", min(spans)[0], max(end for _, end in spans)) if spans else None


def _extent(
    columns: DeviceColumns | HostColumns, rows: Int64Array | slice
) -> tuple[int, int] | None:
    """When the first of some events begins and the last ends; None without any."""
    start = columns.start_ps[rows]
    return (int(start.min()), int(columns.end_ps[rows].max())) if start.size else None
