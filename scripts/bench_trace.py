"""How does one get a large trace to measure on? GPUs in training, in any shape, written as wire bytes.

By default about 1.4 million events and 6 million stats in about 115 MB: eight replicas of one step function,
each with its executor thread, its op events with the launches inside, allocator events, kernels
with all stats of the current CUDA tracer, all-reduces, an input pipeline and step markers. The same
call always gives the same bytes. The message classes would need minutes, joined byte strings need
seconds.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

KERNEL_NAME_COUNT = 240
ALLOCATION_EVERY = 6
POOL_THREADS = 4
"""Workers of the input pipeline."""
INPUT_STAGES = ("Prefetch", "Prefetch::BatchV2", "Prefetch::BatchV2::ParallelMapV2")

US = 10**6
MS = 10**9
AROUND_OPS_PS = 13 * MS
OP_PS = 60 * US
LAUNCH_PS = 9 * US
STAMP_NS = 237_916
START_NS = 1_760_000_000_000_000_000
MASK = 2**64 - 1


@dataclass(frozen=True)
class Shape:
    """What one host records.

    `ops` of a step on each GPU, with `kernels` of about 26 µs each. `host`: its number, by which runs of several hosts tell
    files apart.
    """

    steps: int = 51
    gpus: int = 8
    ops: int = 650
    kernels: int = 2
    collectives: int = 8
    host: int = 0

    @property
    def step_ps(self) -> int:
        """From the start of a step to that of the next."""
        return AROUND_OPS_PS + self.ops * OP_PS


def varint(value: int) -> bytes:
    """A base-128 number; negative ones as 64-bit two's complement, as protobuf stores int64."""
    value &= MASK
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def block(tag: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return bytes((tag << 3 | 2,)) + varint(len(content)) + content


class PlaneBytes:
    """One XPlane under construction: interns names, collects lines."""

    def __init__(self, name: str, plane_id: int) -> None:
        self._head = b"\x08" + varint(plane_id) + block(2, name.encode())
        self._events: dict[str, int] = {}
        self._stats: dict[str, int] = {}
        self._lines: list[bytes] = []
        self._own_stats: list[bytes] = []

    def event_id(self, name: str) -> int:
        """The id of an event name, given out at first use."""
        return self._events.setdefault(name, len(self._events) + 1)

    def stat_id(self, name: str) -> int:
        """The id of a stat name or of a text that stats refer to."""
        return self._stats.setdefault(name, len(self._stats) + 1)

    def head(self, stat: str) -> bytes:
        """The field of a stat that names it; a value field follows."""
        return b"\x08" + varint(self.stat_id(stat))

    def int64(self, stat: str, value: int) -> bytes:
        """A finished stat of an event, as the four below."""
        return block(4, self.head(stat) + b"\x20" + varint(value))

    def uint64(self, stat: str, value: int) -> bytes:
        """Unsigned."""
        return block(4, self.head(stat) + b"\x18" + varint(value))

    def double(self, stat: str, value: float) -> bytes:
        """Floating point."""
        return block(4, self.head(stat) + b"\x11" + struct.pack("<d", value))

    def text(self, stat: str, value: str) -> bytes:
        """Text stored in place."""
        return block(4, self.head(stat) + block(5, value.encode()))

    def ref(self, stat: str, value: str) -> bytes:
        """Text stored once."""
        return block(4, self.head(stat) + b"\x38" + varint(self.stat_id(value)))

    def plane_stat(self, stat: bytes) -> None:
        """Make a finished event stat one of the plane: the same message below another field."""
        self._own_stats.append(b"\x32" + stat[1:])

    def add_line(self, line_id: int, name: str, events: Iterable[tuple[int, int, bytes]]) -> None:
        """A line of (start, −duration, bytes) events, sorted as the tracer sorts them."""
        head = b"\x08" + varint(line_id) + block(2, name.encode()) + b"\x18" + varint(STAMP_NS)
        self._lines.append(block(3, head + b"".join([event[2] for event in sorted(events)])))

    def done(self) -> bytes:
        """The finished field of the XSpace."""
        parts = [self._head, *self._lines]
        for tag, names in ((4, self._events), (5, self._stats)):
            for name, number in names.items():
                entry = b"\x08" + varint(number) + block(2, name.encode())
                parts.append(block(tag, b"\x08" + varint(number) + block(2, entry)))
        return block(1, b"".join([*parts, *self._own_stats]))


Timed = tuple[int, int, bytes]


def event(number: bytes, start_ps: int, duration_ps: int, stats: bytes) -> Timed:
    """An event with its sort key; `number` is the finished field that names it."""
    body = number + b"\x10" + varint(start_ps) + b"\x18" + varint(duration_ps) + stats
    return start_ps, -duration_ps, block(4, body)


def _number(plane: PlaneBytes, name: str) -> bytes:
    return b"\x08" + varint(plane.event_id(name))


@dataclass(frozen=True)
class _Op:
    """One op of the step function: its names, and the kernels it launches."""

    scope: str
    shape: str
    kernels: tuple[int, ...]


def _ops(rng: random.Random, shape: Shape) -> list[_Op]:
    types = ("MatMul", "AddV2", "Mul", "Conv2D", "BiasAdd", "Softmax", "Cast", "ResourceApplyAdam")
    ops = []
    for index in range(shape.ops):
        type_ = rng.choice(types)
        part = "gradient_tape/" if index % 2 else ""
        scope = (
            f"{part}model/encoder/layer_{index // 27}/attention/dense_{index % 27}/{type_}:{type_}"
        )
        rows, width = rng.choice((128, 256, 384)), rng.choice((768, 1024))
        inputs = f"(float32[64,{rows},{width}];float32[{width},{width}];float32[{width}])"
        kernels = tuple(rng.randrange(KERNEL_NAME_COUNT) for _ in range(shape.kernels))
        ops.append(_Op(scope, inputs, kernels))
    return ops


def _kernel_names(rng: random.Random) -> list[str]:
    stem = "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp"
    names = []
    for index in range(KERNEL_NAME_COUNT):
        arguments = ", ".join(["Eigen::Tensor<float, 1, 1, long>"] * rng.randrange(1, 14))
        names.append(f"{stem}<{arguments}>, Eigen::GpuDevice>, long>(long, {index})")
    return names


class _Replica:
    """One GPU with its host thread; writes step after step."""

    def __init__(
        self, ordinal: int, host: PlaneBytes, ops: list[_Op], names: list[str], shape: Shape
    ) -> None:
        self.ordinal = ordinal
        self.host = host
        self.shape = shape
        self.plane = PlaneBytes(f"/device:GPU:{ordinal}", ordinal)
        self.host_events: list[Timed] = []
        self.kernels: list[Timed] = []
        self.copies: list[Timed] = []
        self.collectives: list[Timed] = []
        self._rng = random.Random(ordinal)
        per_step = shape.ops * shape.kernels + shape.collectives + 1
        self._correlation_id = ordinal * max(1_000_000, shape.steps * per_step)
        self._held = 2_000_000_000
        self._prepare(ops, names)

    def _prepare(self, ops: list[_Op], names: list[str]) -> None:
        prefix = f"replica_{self.ordinal}/" if self.ordinal else ""
        host, plane = self.host, self.plane
        self._launch_head = host.int64("device_id", self.ordinal)
        self._host_correlation = b"\x22%c" + host.head("correlation_id") + b"\x20"
        self._correlation = b"\x22%c" + plane.head("correlation_id") + b"\x18"
        self._ops = [
            (
                _number(host, prefix + op.scope),
                host.text("shape", op.shape) + host.int64("is_eager", 0),
                [self._kernel(op, prefix, number, names[number]) for number in op.kernels],
            )
            for op in ops
        ]

    def _kernel(self, op: _Op, prefix: str, number: int, name: str) -> tuple[bytes, bytes, bytes]:
        plane = self.plane
        threads = 128 << number % 4
        details = (
            f"regs:{24 + number % 96} static_shared:0 dynamic_shared:{number % 7 * 4096} "
            f"grid:{number + 1},1,1 block:{threads},1,1 occ_pct:{50 + number % 3 * 12.5}"
        )
        stats = (
            plane.text("context_id", "$$1")
            + plane.ref("kernel_details", details)
            + plane.double("theoretical_occupancy_pct", 50 + number % 3 * 12.5)
            + plane.int64("occupancy_min_grid_size", 160)
            + plane.int64("occupancy_suggested_block_size", threads)
        )
        stats += plane.ref("tf_op", prefix + op.scope) + plane.text("shape", op.shape)
        return _number(self.host, name), _number(plane, name), stats

    def _link(self, head: bytes) -> bytes:
        value = varint(self._correlation_id)
        return head % (len(head) - 3 + len(value)) + value

    def _launch(self, number: bytes, at_ps: int) -> bytes:
        """Record the driver call; the finished correlation stat of the device event."""
        self._correlation_id += 1
        stats = self._launch_head + self._link(self._host_correlation)
        self.host_events.append(event(number, at_ps, 6 * US + at_ps % 2_000_000, stats))
        return self._link(self._correlation)

    def _allocate(self, at_ps: int, size: int) -> None:
        host = self.host
        self._held += size
        name = "MemoryAllocation" if size > 0 else "MemoryDeallocation"
        stats = (
            host.ref("allocator_name", f"GPU_{self.ordinal}_bfc")
            + host.int64("bytes_reserved", 0)
            + host.int64("bytes_allocated", self._held)
            + host.int64("bytes_available", 15_477_102_400 - self._held)
            + host.double("fragmentation", 0.0312)
            + host.int64("peak_bytes_in_use", 4_100_000_000)
            + host.int64("requested_bytes", abs(size))
            + host.int64("allocation_bytes", abs(size))
            + host.int64("addr", 139_760_685_864_448 + at_ps % 2**24)
            + host.ref("tf_op", "StatefulPartitionedCall")
            + host.int64("id", 0)
            + host.int64("data_type", 1)
            + host.text("shape", "[64,128,768]")
        )
        self.host_events.append(event(_number(host, name), at_ps, 0, stats))

    def _copy_input(self, start_ps: int) -> int:
        """Copy the batch to the device at the start of a step; when it is there."""
        plane = self.plane
        size = 64 * 128 * 768 * 4
        details = f"kind_src:pinned kind_dst:device size:{size} dest:{self.ordinal} async:1"
        link = self._launch(_number(self.host, "MemcpyH2D"), start_ps)
        stats = link + plane.text("context_id", "$$1") + plane.ref("memcpy_details", details)
        duration_ps = 2 * MS
        at_ps = start_ps + 12 * US
        self.copies.append(event(_number(plane, "MemcpyH2D"), at_ps, duration_ps, stats))
        return at_ps + duration_ps

    def _all_reduce(self, at_ps: int, free_ps: int, index: int) -> int:
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        plane, host = self.plane, self.host
        op = f"CollectiveReduceV2_{index}:CollectiveReduceV2"
        link = self._launch(_number(host, name), at_ps)
        stats = link + plane.ref("tf_op", op) + plane.text("context_id", "$$1")
        start_ps = max(at_ps + 10 * US, free_ps)
        duration_ps = 300 * US + self._rng.randrange(40) * US
        self.collectives.append(event(_number(plane, name), start_ps, duration_ps, stats))
        keys = host.int64("group_key", 1) + host.int64("instance_key", index)
        self.host_events.append(event(_number(host, op), at_ps - US, 40 * US, keys))
        return start_ps + duration_ps

    def step(self, index: int, start_ps: int) -> None:
        """All events of one step that this replica and its thread record."""
        host, rng = self.host, self._rng
        begin_ps = start_ps + 300 * US + self.ordinal * 11 * US
        free_ps = self._copy_input(begin_ps + 50 * US)
        at_ps = begin_ps + 100 * US
        for number, (op, stats, kernels) in enumerate(self._ops):
            self.host_events.append(event(op, at_ps, OP_PS - 3 * US, stats))
            if number % ALLOCATION_EVERY == 0:
                size = 25_165_824 if number // ALLOCATION_EVERY % 2 == 0 else -25_165_824
                self._allocate(at_ps + US, size)
            for position, (launch, kernel, kernel_stats) in enumerate(kernels):
                call_ps = at_ps + 4 * US + position * 3 * LAUNCH_PS
                link = self._launch(launch, call_ps)
                free_ps = max(call_ps + 9 * US, free_ps + US)
                duration_ps = 8 * US + rng.randrange(36_000) * 1000
                self.kernels.append(event(kernel, free_ps, duration_ps, link + kernel_stats))
                free_ps += duration_ps
            at_ps += OP_PS
        for position in range(self.shape.collectives):
            free_ps = self._all_reduce(at_ps + (2 + position * 50) * US, free_ps, position + 1)
        at_ps += (self.shape.collectives + 1) * 50 * US
        stats = (
            host.int64("id", 7_000_000 + index)
            + host.int64("iter_num", 0)
            + host.int64("_ct", 2)
            + host.uint64("_c", function_key(index, self.ordinal))
        )
        number_field = _number(host, "ExecutorState::Process")
        self.host_events.append(event(number_field, begin_ps, at_ps - begin_ps, stats))

    def finish(self) -> bytes:
        """Add the thread to the host plane; the finished GPU plane."""
        plane = self.plane
        thread_id = 5_000_000_000_000 + self.ordinal
        name = f"tf_gpu_private_{self.ordinal}/{thread_id}"
        self.host.add_line(thread_id, name, self.host_events)
        plane.add_line(20, "Stream #20(Compute)", self.kernels)
        plane.add_line(21, "Stream #21(MemcpyH2D)", self.copies)
        plane.add_line(22, "Stream #22(Compute)", self.collectives)
        for stat in _gpu_stats(plane):
            plane.plane_stat(stat)
        return plane.done()


def _gpu_stats(plane: PlaneBytes) -> list[bytes]:
    return [
        plane.text("device_vendor", "Nvidia"),
        plane.text("gpu_device_name", "Tesla V100-SXM2-16GB"),
        plane.int64("clock_rate", 1_530_000),
        plane.int64("core_count", 80),
        plane.uint64("memory_bandwidth", 898_048_000_000),
        plane.uint64("memory_size", 16_945_512_448),
        plane.int64("compute_cap_major", 7),
        plane.int64("compute_cap_minor", 0),
    ]


def function_key(step: int, ordinal: int) -> int:
    """The id that joins a replica's `FunctionRun` with its executor; above 2⁶³, as recorded."""
    return 2**63 + step * 64 + ordinal


def _python_thread(host: PlaneBytes, shape: Shape) -> list[Timed]:
    events = []
    step_ps = shape.step_ps
    for index in range(shape.steps):
        start_ps = index * step_ps
        marker = host.int64("_r", 1) + host.int64("step_num", index)
        events.append(event(_number(host, "train"), start_ps, step_ps - 200 * US, marker))
        call = host.text("tf_function_call", "notTraced-nonXla") + host.int64("tracing_count", 1)
        name = _number(host, "distributed_train_step")
        events.append(event(name, start_ps + 40 * US, step_ps - 300 * US, call))
        for ordinal in range(shape.gpus):
            run = (
                host.int64("id", 7_000_000 + index)
                + host.int64("_r", 1)
                + host.int64("_pt", 2)
                + host.uint64("_p", function_key(index, ordinal))
            )
            at_ps = start_ps + (120 + ordinal * 14) * US
            events.append(event(_number(host, "FunctionRun"), at_ps, 9 * US, run))
    return events


def _input_stage(host: PlaneBytes, index: int, stage: int) -> bytes:
    own_id = 900_000 + stage
    return (
        host.uint64("id", 2**63 + own_id)
        + host.uint64("parent_id", 2**63 + own_id - 1)
        + host.text("name", INPUT_STAGES[stage])
        + host.int64("element_id", index)
        + host.int64("parallelism", 4)
        + host.int64("buffer_limit", 8)
    )


def _input_thread(host: PlaneBytes, shape: Shape, ordinal: int) -> list[Timed]:
    """One `tf_data_iterator_get_next` thread: a short wait per step, the stages nested inside."""
    events = []
    wait = _number(host, "IteratorGetNextAsOptionalOp::DoCompute")
    for index in range(shape.steps):
        start_ps = index * shape.step_ps + (200 + ordinal * 3) * US
        stats = host.int64("id", 7_000_000 + index) + host.int64("iter_num", 0)
        events.append(event(wait, start_ps, 80 * US, stats))
        for stage, name in enumerate(INPUT_STAGES):
            number = _number(host, f"Iterator::{name}")
            at_ps = start_ps + (stage + 1) * 4 * US
            content = _input_stage(host, index, stage)
            events.append(event(number, at_ps, (70 - stage * 8) * US, content))
    return events


def _map_thread(host: PlaneBytes, shape: Shape, thread: int) -> list[Timed]:
    """One worker of the private thread pool: parsed elements, back to back, 40 of each step of the default shape."""
    events = []
    produce = _number(host, "ParallelMapProduce")
    run = _number(host, "InstantiatedCapturedFunction::Run")
    count = shape.step_ps // (1300 * US)
    for index in range(shape.steps):
        for element in range(count):
            start_ps = index * shape.step_ps + element * 1200 * US
            key = host.int64("element_id", (index * count + element) * 4 + thread)
            events.append(event(produce, start_ps, 1100 * US, key))
            function = host.int64("id", 880_000 + thread)
            events.append(event(run, start_ps + 10 * US, 1000 * US, function))
    return events


def _host_threads(host: PlaneBytes, shape: Shape) -> None:
    host.add_line(1, "python3", _python_thread(host, shape))
    for ordinal in range(shape.gpus):
        number = 6_000_000_000_000 + ordinal
        events = _input_thread(host, shape, ordinal)
        host.add_line(number, f"tf_data_iterator_get_next_as_optional/{number}", events)
    for thread in range(POOL_THREADS):
        number = 6_100_000_000_000 + thread
        events = _map_thread(host, shape, thread)
        host.add_line(number, f"tf_data_private_threadpool/{number}", events)


def environment(shape: Shape) -> bytes:
    """The plane that says when the profile started and stopped; hosts start a microsecond after each other."""
    plane = PlaneBytes("Task Environment", 0)
    start_ns = START_NS + 1000 * shape.host
    stop_ns = start_ns + (shape.steps + 1) * shape.step_ps // 1000
    plane.plane_stat(plane.uint64("profile_start_time", start_ns))
    plane.plane_stat(plane.uint64("profile_stop_time", stop_ns))
    return plane.done()


def recorded_bytes(shape: Shape) -> Iterable[bytes]:
    """The planes of host and devices, one each, in the order TensorFlow stores them."""
    rng = random.Random(20)
    ops, names = _ops(rng, shape), _kernel_names(rng)
    host = PlaneBytes("/host:CPU", 0)
    _host_threads(host, shape)
    devices = []
    for ordinal in range(shape.gpus):
        replica = _Replica(ordinal, host, ops, names, shape)
        for index in range(shape.steps):
            replica.step(index, index * shape.step_ps)
        devices.append(replica.finish())
    yield host.done()
    yield from devices


def trace_bytes(shape: Shape) -> Iterable[bytes]:
    """The trace in pieces."""
    yield from recorded_bytes(shape)
    yield environment(shape)
    yield block(4, b"bench-host")


def write_trace(path: Path, shape: Shape) -> Path:
    """Store the trace, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.writelines(trace_bytes(shape))
    return part.rename(path)


def write_alike_hosts(folder: Path, shape: Shape, count: int) -> Path:
    """Store traces of several hosts, which record the same and start one after another."""
    folder.mkdir(parents=True, exist_ok=True)
    recorded = b"".join(recorded_bytes(shape))
    for number in range(count):
        with (folder / f"host{number}.xplane.pb").open("wb") as file:
            name = block(4, f"host{number}".encode())
            file.writelines((recorded, environment(replace(shape, host=number)), name))
    return folder
