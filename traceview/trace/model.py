"""The trace as data: hosts, their devices, and every event as a row in columns of equal length.

Times are int64 picoseconds since the origin of the run, the earliest `profile_start_time` of its hosts.
Names are indices into `Trace.names`; -1 means none. Nothing changes the columns after loading.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, wraps
from typing import Annotated, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import BoolArray, Int32Array, Int64Array, places
from traceview.base.location import Location
from traceview.base.record import (
    Count,
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
from traceview.trace.sidecar.hang import Hang
from traceview.trace.sidecar.sidecar import NOTHING_RECORDED, Sidecar
from traceview.xplane.columns import joined
from traceview.xplane.planes import LARGEST_COUNT
from traceview.xplane.space import Instruction, ProgramBuffers

K = TypeVar("K")
S = TypeVar("S")
T = TypeVar("T")

NONE: Final = -1
"""The value of an index column that points to nothing: no name, no launch, no step."""

UNKNOWN_BYTES: Final = -1
_THREAD_NUMBER: Final = lazy_pattern(r"/(-?[0-9]{1,20})(?:/NVTX)?$")


def kept(method: Callable[[S, K], T]) -> Callable[[S, K], T]:
    """A method of one argument, of which its object keeps what it gives for each."""

    @wraps(method)
    def keeping(self: S, key: K) -> T:
        known: dict[K, T] = vars(self).setdefault(f"_kept {method.__name__}", {})
        if key not in known:
            known[key] = method(self, key)
        return known[key]

    return keeping


class Names:
    """Every distinct name of a trace, once. Names stay bytes until shown: they need not be valid UTF-8."""

    def __init__(self) -> None:
        self._index: dict[bytes, int] = {}
        self._values: list[bytes] = []
        self._every: dict[Callable[[bytes], object], npt.NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._values)

    def __getitem__(self, index: int) -> bytes:
        return self._values[index]

    def __reduce__(self) -> tuple[Callable[[list[bytes]], Names], tuple[list[bytes]]]:
        return Names.of, (self._values,)

    @classmethod
    def of(cls, values: Iterable[bytes]) -> Names:
        """A table of these distinct names."""
        names = cls()
        names.add_all(values)
        return names

    def add_all(self, names: Iterable[bytes]) -> Int32Array:
        """The indices of `names`, int32, in their order."""
        names, index = tuple(names), self._index
        new = [name for name in dict.fromkeys(names) if name not in index]
        first = len(index)
        index.update(zip(new, range(first, first + len(new)), strict=True))
        self._values += new
        return np.fromiter(map(index.__getitem__, names), np.int32, len(names))

    def read(self, indices: npt.NDArray[np.integer], reads: Callable[[bytes], T]) -> list[T]:
        """What a function reads from each of these names."""
        return list(map(reads, map(self._values.__getitem__, indices.tolist())))

    def text(self, index: int) -> str | None:
        """The name as text, with invalid UTF-8 replaced; None for `NONE`."""
        return None if index == NONE else self._values[index].decode("utf-8", "replace")

    def every(self, reads: Callable[[bytes], Any], dtype: Any) -> npt.NDArray[Any]:
        """What a function of a module reads from each name, by index: once, for hosts have the same names."""
        known = self._every.get(reads)
        if known is None or known.size != len(self):
            known = np.fromiter(map(reads, self), dtype, len(self))
            self._every[reads] = known
        return known

    def where(
        self, indices: npt.NDArray[np.integer], matches: Callable[[bytes], object]
    ) -> BoolArray:
        """Which of `indices` are names that match; each distinct name is asked once, `NONE` never matches."""
        known = unique_ids(indices)
        known = known[known != NONE]
        is_match = np.zeros(len(self) + 1, dtype=np.bool_)
        is_match[known] = list(map(bool, self.read(known, matches)))
        result: BoolArray = is_match[indices]
        return result

    def matching(self, indices: npt.NDArray[np.integer], wanted: Iterable[bytes]) -> BoolArray:
        """Which of `indices` are names in `wanted`."""
        ids = [self._index[name] for name in wanted if name in self._index]
        return is_in(indices, ids)


class SourceFile(Struct, frozen=True):
    """One `*.xplane.pb` of the run. `duplicate_of`: the name of the file with the same bytes, if any."""

    path: Location
    name: str
    host: str
    bytes: int
    sha256: str | None
    event_count: int
    duplicate_of: str | None


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
        residual_ps: Robust spread of the differences between their ends, drift included, in picoseconds; null
            without a comparison.
        residual_max_ps: Largest difference between their ends after alignment, in picoseconds; null without a
            comparison.
        drift_ps_per_s: Picoseconds per second that the clock gains on the reference, not corrected; null where
            the spread hides it.
    """

    method: Annotated[str, one_of("collectives", "profile_start", "none")]
    reference: Hostname | None = None
    offset_ps: Integer = 0
    collective_count: Count = 0
    residual_ps: Picoseconds | None = None
    residual_max_ps: Picoseconds | None = None
    drift_ps_per_s: Integer | None = None


class Host(Struct, frozen=True):
    """One profiled process. `profile_start_ns`, `profile_stop_ns`: Unix nanoseconds, None if not recorded.

    `start_ps`, `stop_ps`: the same relative to the origin of the run; 0 and None if not recorded.
    `sidecar`: what `traceview capture` wrote beside the trace. `tracer_levels`: tracer levels in force by name,
    None where the trace does not hold them. `gpus_expected`: TensorFlow named threads after GPUs, so that a
    missing GPU plane means a failed GPU trace. `clock`: how the host was aligned with others, None in a run of
    one host.
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
    tracer_levels: dict[str, int] | None = None
    clock: HostClock | None = None

    @property
    def captured(self) -> Sidecar:
        """What `traceview capture` recorded; nothing without a sidecar."""
        return self.sidecar or NOTHING_RECORDED


MOST_DEVICES: Final = 1 << 15
"""Columns hold the number of a device in 16 bits, with a sign."""

TOO_MANY_DEVICES: Final = f"the run has more than {MOST_DEVICES:,} devices"


class Device(Struct, frozen=True):
    """One device of a host. `kind`: gpu, tpu, replica or other.

    `ordinal` is the number in the plane's name, which is the visible index of the process, or the number
    of the replica.
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
    plane: str
    id: int
    name: str

    @property
    def is_thread(self) -> bool:
        """Whether it is a thread of a host rather than a stream of a device."""
        return self.device == NONE

    @property
    def runs_model(self) -> bool:
        """Whether it is a thread of the model rather than of the input pipeline, which tf.data names `tf_data…`."""
        return self.device == NONE and not self.name.startswith("tf_data")


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


class _Rows:
    """The rows with each value of a sorted column of numbers from 0 on; looked up for every device and line."""

    def __init__(self, column: npt.NDArray[np.integer]) -> None:
        count = int(column[-1]) + 1 if column.size else 0
        # Another type of number would convert the whole column.
        first = column.searchsorted(np.arange(count, dtype=column.dtype))
        self._first: list[int] = [*first.tolist(), column.size]

    def of(self, value: int) -> slice:
        """The rows with a value; none where it does not occur, or is `NONE`."""
        first = self._first
        if 0 <= value < len(first) - 1:
            return slice(first[value], first[value + 1])
        # Where they would be: rows of several values go from the first of one to the last of another.
        place = first[-1 if value > 0 else 0]
        return slice(place, place)


class _EventColumns(Struct, frozen=True, eq=False, dict=True):
    """What device and host columns have in common."""

    start_ps: Int64Array
    duration_ps: Int64Array

    @property
    def count(self) -> int:
        """Number of events."""
        return int(self.start_ps.size)

    @cached_property
    def end_ps(self) -> Int64Array:
        """Exclusive end of each event, int64 picoseconds."""
        return self.start_ps + self.duration_ps


class DeviceColumns(_EventColumns, frozen=True, eq=False):
    """Device activity: one row per event that counts as activity, by device and start, of several the longest first.

    int16 `device`; int32 `line`, `name`, `op` (the recorded op text, `scope/name:Type`), `instruction` (the place
    among the instructions of the recording, `NONE` for events that are not of XLA), `details` (the `kernel_details` of a kernel, `NONE`
    where not recorded); int64 `start_ps`, `duration_ps`, `bytes`, `correlation_id`, `launch` (row in the host columns), `group` (the
    recorded `group_id`, -1 without); uint8 `class_` (`ActivityClass`), `host_memory` (`HostMemory` of a copy's host side); bool
    `has_correlation`, `p2p`, `opaque` (a whole CUDA graph as one event), `unknown_direction`.
    """

    device: npt.NDArray[np.int16]
    line: Int32Array
    start_ps: Int64Array
    duration_ps: Int64Array
    name: Int32Array
    op: Int32Array
    instruction: Int32Array
    details: Int32Array
    class_: npt.NDArray[np.uint8]
    correlation_id: Int64Array
    has_correlation: BoolArray
    launch: Int64Array
    bytes: Int64Array
    host_memory: npt.NDArray[np.uint8]
    group: Int64Array
    p2p: BoolArray
    opaque: BoolArray
    unknown_direction: BoolArray

    def rows_of(self, device: int) -> slice:
        """The rows of one device; they are contiguous and sorted by start."""
        return self._rows.of(device)

    @cached_property
    def _rows(self) -> _Rows:
        return _Rows(self.device)

    def names_at(self, rows: Int32Array) -> tuple[Int32Array, Int32Array]:
        """The op and the name of the events at some rows, `NONE` where a row is `NONE`."""
        known = rows != NONE
        op, name = np.full((2, rows.size), NONE, dtype=np.int32)
        op[known], name[known] = self.op[rows[known]], self.name[rows[known]]
        return op, name


class HostStat(Struct, frozen=True, eq=False):
    """A stat of some host events: `row` (sorted) and `value`, both int64 `[n]`.

    For text stats the values are indices into `Trace.names`.
    """

    row: Int64Array
    value: Int64Array

    def among(self, rows: slice) -> HostStat:
        """The same of a range of rows."""
        first, last = np.searchsorted(self.row, (rows.start, rows.stop)).tolist()
        return HostStat(self.row[first:last], self.value[first:last])

    def has(self, rows: Int64Array) -> BoolArray:
        """Which of `rows` have the stat."""
        if not self.row.size:
            return np.zeros(rows.size, dtype=np.bool_)
        result: BoolArray = self.row[np.minimum(places(self.row, rows), self.row.size - 1)] == rows
        return result

    def at(self, rows: Int64Array, default: int) -> Int64Array:
        """The value at each of `rows` (host rows or `NONE`), `default` where there is none."""
        if not self.row.size:
            return np.full(rows.size, default, dtype=np.int64)
        place = np.minimum(places(self.row, rows), self.row.size - 1)
        return np.where(self.row[place] == rows, self.value[place], default)


_NO_STAT: Final = HostStat(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


class HostColumns(_EventColumns, frozen=True, eq=False):
    """Thread activity: one row per host event, in the order of hosts, lines and file.

    int16 `host`; int32 `line`, `name`; int64 `start_ps`, `duration_ps`; `stats` by key.
    """

    host: npt.NDArray[np.int16]
    line: Int32Array
    start_ps: Int64Array
    duration_ps: Int64Array
    name: Int32Array
    stats: dict[str, HostStat]

    def rows_of_host(self, host: int) -> slice:
        """The rows of one host; they are contiguous."""
        return self._rows_by_host.of(host)

    @cached_property
    def _rows_by_host(self) -> _Rows:
        return _Rows(self.host)

    def rows_of(self, line: int) -> slice:
        """The rows of one line; they are contiguous."""
        return self._rows_by_line.of(line)

    @cached_property
    def _rows_by_line(self) -> _Rows:
        return _Rows(self.line)

    def stat(self, key: str) -> HostStat:
        """A stat by its key; empty where no event has it."""
        return self.stats.get(key, _NO_STAT)


class CollectiveCalls(Struct, frozen=True, eq=False):
    """The host calls behind the device events of class collective; int64 arrays, one entry per event, in their order.

    `op`: host row of the op that holds the keys, `NONE` without; `group`, `instance`: its keys. `call`: host
    row of the call of NCCL around the launch; `bytes`: size of its buffer. `arrival`: host row at whose start a
    replica handed the op over, `NONE` on GPUs.
    """

    op: Int64Array
    group: Int64Array
    instance: Int64Array
    call: Int64Array
    bytes: Int64Array
    arrival: Int64Array


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

    `method` says how they were detected: marker, keras, group, function, iterator, period or none. `basis` says
    whether they begin at the markers or at the first device event of each. `marker_line`: the line of the markers,
    `NONE` without; `marker_spans`: start and end of each marker, the time that the host spent in the step.
    """

    host: int
    method: str
    basis: str
    steps: tuple[Step, ...]
    marker_line: int = NONE
    marker_spans: tuple[tuple[int, int], ...] = ()


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

    def once(self, make: Callable[[Recording], T]) -> T:
        """What a function makes of this recording; several topics may ask for it."""
        made = self._made.get(make)
        if made is None:
            made = self._made[make] = make(self)
        return made

    @cached_property
    def _made(self) -> dict[Callable[[Recording], Any], Any]:
        return {}

    def device_key(self, device: int) -> str:
        """The name of a device in the report: `GPU:3`, or `host/GPU:3` in a run of several hosts."""
        entry = self.device_list[device]
        return f"{self.hosts[entry.host].name}/{entry.name}" if len(self.hosts) > 1 else entry.name

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
