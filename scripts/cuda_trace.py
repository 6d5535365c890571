"""How does one write, in a few lines, the trace that TensorFlow would write on a CUDA machine?

`CudaTrace` holds one host: its threads, its GPUs, and the events put on them. It writes messages
as TensorFlow's tracer does (openxla/xla `cupti_collector.cc`): names and texts interned per plane,
details as references, correlation ids unsigned on the device and signed on the host, streams named
after what ran on them.

All times are integer picoseconds after `base_ns`, the stamp of every line unless a line is given
its own; an event keeps its time whatever stamp its line has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.xspace import XSpace

US = 10**6
MS = 10**9

BASE_NS = 1000
PROFILE_START_NS = 1_760_000_000_000_000_000

KERNEL_NAME = "sgemm_128x64"
KERNEL_OP = "model/dense/MatMul:MatMul"
NCCL_NAME = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
KERNEL_DETAILS = (
    "regs:38 static_shared:0 dynamic_shared:32768 grid:160,1,1 block:256,1,1 occ_pct:62.5"
)


@dataclass(frozen=True)
class U64:
    """A stat value to be stored unsigned, as the tracer stores ids and sizes on the device."""

    value: int


@dataclass(frozen=True)
class Ref:
    """A text to be stored once, as the name of a stat metadata entry, and pointed at."""

    text: str | bytes


@dataclass(frozen=True)
class Dangling:
    """A metadata id without an entry: as an event's name, a stat's key or a reference."""

    metadata_id: int


Value = int | float | str | bytes | U64 | Ref | Dangling
Name = str | bytes | Dangling
Stats = Mapping[Name, Value]

V100_STATS: Stats = {
    "device_vendor": "Nvidia",
    "gpu_device_name": "Tesla V100-SXM2-16GB",
    "clock_rate": 1_530_000,
    "core_count": 80,
    "memory_bandwidth": U64(898_048_000_000),
    "memory_size": U64(16_945_512_448),
    "compute_cap_major": 7,
    "compute_cap_minor": 0,
}


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


@dataclass
class Event:
    """One event before it is written. `stats` keeps its order."""

    name: Name
    start_ps: int
    duration_ps: int
    stats: Stats


@dataclass
class Line:
    """One thread or stream; `types` are what the stream's name will list."""

    line_id: int
    name: str | bytes | None = None
    stamp_ns: int | None = None
    types: dict[str, None] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def add(self, name: Name, start_ps: int, end_ps: int, stats: Stats | None = None) -> None:
        """Put an event on the line, in any order: the writer sorts as the tracer does."""
        self.events.append(Event(name, start_ps, end_ps - start_ps, dict(stats or {})))

    def title(self) -> bytes:
        """The given name, or `Stream #<id>(<types>)`."""
        if self.name is not None:
            return _bytes(self.name)
        suffix = f"({','.join(self.types)})" if self.types else ""
        return f"Stream #{self.line_id}{suffix}".encode()


@dataclass
class Plane:
    """A plane before it is written; `first_metadata_id` makes two planes number differently."""

    name: str
    plane_id: int = 0
    stats: dict[Name, Value] = field(default_factory=dict)
    lines: dict[int | str, Line] = field(default_factory=dict)
    first_metadata_id: int = 1

    def line(
        self,
        line_id: int,
        name: str | bytes | None = None,
        *,
        key: int | str | None = None,
        stamp_ns: int | None = None,
    ) -> Line:
        """The line of that id, made at the first call; `key` tells apart two of one id."""
        found = self.lines.get(line_id if key is None else key)
        if found is None:
            found = Line(line_id, name, stamp_ns)
            self.lines[line_id if key is None else key] = found
        return found


class _PlaneWriter:
    """Fills one XPlane message, numbering names and stats as they appear."""

    def __init__(self, message: Any, first_id: int) -> None:
        self._message = message
        self._first_id = first_id
        self._events: dict[bytes, int] = {}
        self._stats: dict[bytes, int] = {}

    def _number(self, name: Name, known: dict[bytes, int], entries: Any) -> int:
        if isinstance(name, Dangling):
            return name.metadata_id
        key = _bytes(name)
        if key not in known:
            number = known[key] = self._first_id + len(known)
            entries[number].id, entries[number].name = number, key
        return known[key]

    def _stat_id(self, name: Name) -> int:
        return self._number(name, self._stats, self._message.stat_metadata)

    def _write_value(self, stat: Any, value: Value) -> None:
        match value:
            case U64():
                stat.uint64_value = value.value
            case Ref():
                stat.ref_value = self._stat_id(value.text)
            case Dangling():
                stat.ref_value = value.metadata_id
            case int():
                stat.int64_value = value
            case float():
                stat.double_value = value
            case str() | bytes():
                stat.str_value = _bytes(value)

    def write_stats(self, owner: Any, stats: Stats) -> None:
        for name, value in stats.items():
            self._write_value(owner.stats.add(metadata_id=self._stat_id(name)), value)

    def write_line(self, line: Line, base_ns: int) -> None:
        stamp_ns = base_ns if line.stamp_ns is None else line.stamp_ns
        shift_ps = (base_ns - stamp_ns) * 1000
        message = self._message.lines.add(id=line.line_id, name=line.title(), timestamp_ns=stamp_ns)
        for event in sorted(line.events, key=lambda event: (event.start_ps, -event.duration_ps)):
            written = message.events.add(
                metadata_id=self._number(event.name, self._events, self._message.event_metadata),
                offset_ps=event.start_ps + shift_ps,
                duration_ps=event.duration_ps,
            )
            self.write_stats(written, event.stats)


class CudaTrace:
    """One host's recording. Events are added by the methods below, `write` stores the file.

    `start_ns` and `stop_ns` fill the `Task Environment` plane; without `start_ns` there is none, as
    before 2021.
    """

    def __init__(
        self,
        host: str = "host0",
        *,
        base_ns: int = BASE_NS,
        start_ns: int | None = None,
        stop_ns: int | None = None,
    ) -> None:
        self.host = host
        self.hostnames: list[str] = [host]
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.base_ns = base_ns
        self.host_plane = Plane("/host:CPU")
        self.gpus: dict[int, Plane] = {}
        self.extra_planes: list[Plane] = []
        self._next_correlation_id = 1
        times = {"profile_start_time": start_ns, "profile_stop_time": stop_ns}
        stats: dict[Name, Value] = {name: U64(ns) for name, ns in times.items() if ns is not None}
        if stats:
            self.extra_planes.append(Plane("Task Environment", stats=stats))

    # Devices and threads

    def gpu(
        self, ordinal: int, *, plane_id: int | None = None, stats: Stats | None = None
    ) -> Plane:
        """The plane of a visible GPU, made at the first call: a V100 unless `stats` differ."""
        if ordinal not in self.gpus:
            chosen = V100_STATS if stats is None else stats
            number = ordinal if plane_id is None else plane_id
            self.gpus[ordinal] = Plane(f"/device:GPU:{ordinal}", number, dict(chosen))
        return self.gpus[ordinal]

    def thread(self, name: str = "python3", thread_id: int = 1) -> Line:
        """The host line of that id; `tf_…` threads carry their id in the name, as recorded."""
        title = f"{name}/{thread_id}" if name.startswith("tf_") else name
        return self.host_plane.line(thread_id, title)

    def correlation_id(self) -> int:
        """A new launch number of this process."""
        self._next_correlation_id += 1
        return self._next_correlation_id - 1

    # Host events

    def host_event(
        self,
        name: Name,
        start_ps: int,
        end_ps: int,
        stats: Stats | None = None,
        *,
        thread: Line | None = None,
    ) -> None:
        """An event on a thread, the main one unless given."""
        (self.thread() if thread is None else thread).add(name, start_ps, end_ps, stats)

    def marker(self, number: int, start_ps: int, end_ps: int) -> None:
        """A step marker as `tf.profiler.experimental.Trace` writes it."""
        self.host_event("train", start_ps, end_ps, {"_r": 1, "step_num": number})

    def allocation(
        self,
        ordinal: int,
        at_ps: int,
        *,
        held_bytes: int,
        peak_bytes: int,
        changed_bytes: int,
        freed: bool = False,
        capacity_bytes: int = 15_477_102_400,
        allocator: str | None = None,
        stats: Stats | None = None,
        thread: Line | None = None,
    ) -> None:
        """What GPU `ordinal`'s allocator reports after it gave out or took back `changed_bytes`; `stats` replace its own."""
        own: dict[Name, Value] = {
            "allocator_name": Ref(allocator or f"GPU_{ordinal}_bfc"),
            "bytes_reserved": 0,
            "bytes_allocated": held_bytes,
            "bytes_available": capacity_bytes - held_bytes,
            "fragmentation": 0,
            "peak_bytes_in_use": peak_bytes,
            "requested_bytes": changed_bytes,
            "allocation_bytes": changed_bytes,
            "addr": 139_760_685_864_448 + at_ps % 4096,
            "id": 0,
            "data_type": 0,
        }
        name = "MemoryDeallocation" if freed else "MemoryAllocation"
        self.host_event(name, at_ps, at_ps, {**own, **(stats or {})}, thread=thread)

    def launch(
        self,
        name: Name,
        at_ps: int,
        correlation_id: int,
        *,
        device_id: int = 0,
        duration_ps: int = 500_000,
        thread: Line | None = None,
        stats: Stats | None = None,
    ) -> None:
        """The driver call that starts the device events of the same number."""
        own: Stats = {"device_id": device_id, "correlation_id": correlation_id}
        self.host_event(name, at_ps, at_ps + duration_ps, {**own, **(stats or {})}, thread=thread)

    # Device events

    def device_event(
        self,
        ordinal: int,
        name: Name,
        start_ps: int,
        end_ps: int,
        *,
        stream: int = 20,
        type_: str | None = "Compute",
        stats: Stats | None = None,
        launch_ps: int | None = None,
        launch_name: Name | None = None,
        launch_thread: Line | None = None,
        correlation_id: int | None = None,
    ) -> int:
        """An event on a stream, and its launch if `launch_ps` is given; returns its correlation id.

        Give `correlation_id` to let several device events share one launch.
        """
        number = self.correlation_id() if correlation_id is None else correlation_id
        line = self.gpu(ordinal).line(stream)
        if type_ is not None:
            line.types[type_] = None
        line.add(name, start_ps, end_ps, {"correlation_id": U64(number), **(stats or {})})
        if launch_ps is not None:
            launched = name if launch_name is None else launch_name
            self.launch(launched, launch_ps, number, device_id=ordinal, thread=launch_thread)
        return number

    def kernel(
        self,
        ordinal: int,
        start_ps: int,
        end_ps: int,
        *,
        name: Name = KERNEL_NAME,
        op: str | None = KERNEL_OP,
        details: str | None = KERNEL_DETAILS,
        stats: Stats | None = None,
        **options: Any,
    ) -> int:
        """A kernel with the stats of the current CUDA tracer; `options` and what is returned as of `device_event`."""
        own: dict[Name, Value] = {"context_id": "$$1"}
        if details is not None:
            own["kernel_details"] = Ref(details)
            own["theoretical_occupancy_pct"] = 62.5
        if op is not None:
            own["tf_op"] = Ref(op)
        stats = {**own, **(stats or {})}
        return self.device_event(ordinal, name, start_ps, end_ps, stats=stats, **options)

    def copy(
        self,
        ordinal: int,
        direction: str,
        start_ps: int,
        end_ps: int,
        *,
        size: int | None,
        host_kind: str = "pinned",
        dest: int | None = None,
        stream: int = 21,
        details: Value | None = None,
        stats: Stats | None = None,
        **options: Any,
    ) -> int:
        """A copy of `direction` `H2D`, `D2H`, `D2D` or `P2P`; without `size` it has no details.

        `details` replaces the text of `memcpy_details`, for the formats of other years; `options` as of `device_event`.
        """
        own: dict[Name, Value] = {"context_id": "$$1"}
        source = host_kind if direction == "H2D" else "device"
        target = host_kind if direction == "D2H" else "device"
        if size is not None:
            where = ordinal if dest is None else dest
            text = f"kind_src:{source} kind_dst:{target} size:{size} dest:{where} async:1"
            own["memcpy_details"] = Ref(text) if details is None else details
        options |= {
            "stream": stream,
            "type_": f"Memcpy{direction}",
            "stats": {**own, **(stats or {})},
        }
        return self.device_event(ordinal, f"Memcpy{direction}", start_ps, end_ps, **options)

    # Writing

    def planes(self) -> Iterable[Plane]:
        """Host first, then the GPUs, then the rest: the order of current TensorFlow."""
        if self.host_plane.lines:
            yield self.host_plane
        yield from self.gpus.values()
        yield from self.extra_planes

    def space(self) -> Any:
        """The XSpace message of the recording."""
        space = XSpace(
            errors=[_bytes(text) for text in self.errors],
            warnings=[_bytes(text) for text in self.warnings],
            hostnames=[_bytes(name) for name in self.hostnames],
        )
        for plane in self.planes():
            message = space.planes.add(id=plane.plane_id, name=_bytes(plane.name))
            writer = _PlaneWriter(message, plane.first_metadata_id)
            writer.write_stats(message, plane.stats)
            for line in plane.lines.values():
                writer.write_line(line, self.base_ns)
        return space

    def write(self, logdir: Path, run: str = "run1", *, file_host: str | None = None) -> Path:
        """Store `<logdir>/plugins/profile/<run>/<host>.xplane.pb` and return its path."""
        folder = Path(logdir) / "plugins" / "profile" / run
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{file_host or self.host}.xplane.pb"
        path.write_bytes(self.space().SerializeToString(deterministic=True))
        return path
