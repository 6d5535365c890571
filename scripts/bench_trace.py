"""How does one get a large trace to measure on? GPUs in training, in any shape: one step, written again and again.

By default about 1.4 million events and 6 million stats in about 115 MB: eight replicas of one step function,
each with its executor thread, its op events with the launches inside, allocator events, kernels
with all stats of the current CUDA tracer, all-reduces, an input pipeline and step markers. The same
call always gives the same bytes. Of each further step only the times and ids of the first one change.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from scripts.cuda_trace import MS, U64, US, CudaTrace, Line, Ref, Stats
from scripts.xspace import XLine, varint

KERNEL_NAME_COUNT: Final = 240
ALLOCATION_EVERY: Final = 6
POOL_THREADS: Final = 4
"""Workers of the input pipeline."""
INPUT_STAGES: Final = ("Prefetch", "Prefetch::BatchV2", "Prefetch::BatchV2::ParallelMapV2")
OP_TYPES: Final = (
    *("MatMul", "AddV2", "Mul", "Conv2D", "BiasAdd", "Softmax", "Cast", "ResourceApplyAdam"),
)
NCCL_NAME: Final = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

AROUND_OPS_PS: Final = 13 * MS
OP_PS: Final = 60 * US
LAUNCH_PS: Final = 9 * US
STAMP_NS: Final = 237_916
START_NS: Final = 1_760_000_000_000_000_000
_FUNCTION: Final = 2**63
"""Ids that join a replica's `FunctionRun` with its executor lie above it, as recorded."""


@dataclass(frozen=True)
class Shape:
    """What one host records.

    `ops` of a step on each GPU, with `kernels` of about 26 µs each.
    """

    steps: int = 51
    gpus: int = 8
    ops: int = 650
    kernels: int = 2
    collectives: int = 8

    @property
    def step_ps(self) -> int:
        """From the start of a step to that of the next."""
        return AROUND_OPS_PS + self.ops * OP_PS


@dataclass(frozen=True)
class _Op:
    """One op of the step function: its names, and the kernels it launches."""

    scope: str
    shape: str
    kernels: tuple[int, ...]


def _ops(rng: random.Random, shape: Shape) -> list[_Op]:
    ops = []
    for index in range(shape.ops):
        type_ = rng.choice(OP_TYPES)
        part = "gradient_tape/" if index % 2 else ""
        layer = f"layer_{index // 27}/attention/dense_{index % 27}"
        rows, width = rng.choice((128, 256, 384)), rng.choice((768, 1024))
        inputs = f"(float32[64,{rows},{width}];float32[{width},{width}];float32[{width}])"
        kernels = tuple(rng.randrange(KERNEL_NAME_COUNT) for _ in range(shape.kernels))
        ops.append(_Op(f"{part}model/encoder/{layer}/{type_}:{type_}", inputs, kernels))
    return ops


def _kernel_names(rng: random.Random) -> list[str]:
    stem = "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp"
    names = []
    for index in range(KERNEL_NAME_COUNT):
        arguments = ", ".join(["Eigen::Tensor<float, 1, 1, long>"] * rng.randrange(1, 14))
        names.append(f"{stem}<{arguments}>, Eigen::GpuDevice>, long>(long, {index})")
    return names


class _Replica:
    """One GPU with its host thread, in the first step."""

    def __init__(self, trace: CudaTrace, ordinal: int) -> None:
        self.trace = trace
        self.ordinal = ordinal
        self.prefix = f"replica_{ordinal}/" if ordinal else ""
        self.thread = trace.thread(f"tf_gpu_private_{ordinal}", 5_000_000_000_000 + ordinal)
        self.rng = random.Random(ordinal)
        self.held_bytes = 2_000_000_000

    def step(self, ops: list[_Op], names: list[str], collectives: int) -> None:
        """All events that this replica and its thread record."""
        begin_ps = 300 * US + self.ordinal * 11 * US
        free_ps = self._copy_input(begin_ps + 50 * US)
        at_ps = begin_ps + 100 * US
        for number, op in enumerate(ops):
            stats: Stats = {"shape": op.shape, "is_eager": 0}
            end_ps = at_ps + OP_PS - 3 * US
            self.trace.host_event(self.prefix + op.scope, at_ps, end_ps, stats, thread=self.thread)
            if number % ALLOCATION_EVERY == 0:
                self._allocate(at_ps + US, freed=number // ALLOCATION_EVERY % 2 == 1)
            for position, kernel in enumerate(op.kernels):
                call_ps = at_ps + 4 * US + position * 3 * LAUNCH_PS
                free_ps = max(call_ps + 9 * US, free_ps + US)
                end_ps = free_ps + 8 * US + self.rng.randrange(36_000) * 1000
                self._kernel(op, kernel, names[kernel], call_ps, (free_ps, end_ps))
                free_ps = end_ps
            at_ps += OP_PS
        for position in range(collectives):
            free_ps = self._all_reduce(at_ps + (2 + position * 50) * US, free_ps, position + 1)
        at_ps += (collectives + 1) * 50 * US
        consumed: Stats = {
            "id": 7_000_000,
            "iter_num": 0,
            "_ct": 2,
            "_c": U64(_FUNCTION + self.ordinal),
        }
        name = "ExecutorState::Process"
        self.trace.host_event(name, begin_ps, at_ps, consumed, thread=self.thread)

    def _kernel(self, op: _Op, number: int, name: str, call_ps: int, span: tuple[int, int]) -> None:
        threads = 128 << number % 4
        details = (
            f"regs:{24 + number % 96} static_shared:0 dynamic_shared:{number % 7 * 4096} "
            f"grid:{number + 1},1,1 block:{threads},1,1 occ_pct:{50 + number % 3 * 12.5}"
        )
        stats: Stats = {
            "theoretical_occupancy_pct": 50 + number % 3 * 12.5,
            "occupancy_min_grid_size": 160,
            "occupancy_suggested_block_size": threads,
            "shape": op.shape,
        }
        start_ps, end_ps = span
        names: Any = {"name": name, "op": self.prefix + op.scope, "details": details}
        launch: Any = {"launch_ps": call_ps, "launch_thread": self.thread}
        self.trace.kernel(self.ordinal, start_ps, end_ps, stats=stats, **names, **launch)

    def _allocate(self, at_ps: int, *, freed: bool) -> None:
        size = 25_165_824
        self.held_bytes += -size if freed else size
        stats: Stats = {
            "tf_op": Ref("StatefulPartitionedCall"),
            "data_type": 1,
            "shape": "[64,128,768]",
        }
        self.trace.allocation(
            self.ordinal,
            at_ps,
            held_bytes=self.held_bytes,
            peak_bytes=4_100_000_000,
            changed_bytes=size,
            freed=freed,
            stats=stats,
            thread=self.thread,
        )

    def _copy_input(self, start_ps: int) -> int:
        """Copy the batch to the device; when it is there."""
        at_ps = start_ps + 12 * US
        size = 64 * 128 * 768 * 4
        copied = self.trace.copy(self.ordinal, "H2D", at_ps, at_ps + 2 * MS, size=size)
        self.trace.launch("MemcpyH2D", start_ps, copied, device_id=self.ordinal, thread=self.thread)
        return at_ps + 2 * MS

    def _all_reduce(self, at_ps: int, free_ps: int, index: int) -> int:
        op = f"CollectiveReduceV2_{index}:CollectiveReduceV2"
        start_ps = max(at_ps + 10 * US, free_ps)
        end_ps = start_ps + 300 * US + self.rng.randrange(40) * US
        names: Any = {"name": NCCL_NAME, "op": op, "details": None, "stream": 22}
        launch: Any = {"launch_ps": at_ps, "launch_thread": self.thread}
        self.trace.kernel(self.ordinal, start_ps, end_ps, **names, **launch)
        keys: Stats = {"group_key": 1, "instance_key": index}
        self.trace.host_event(op, at_ps - US, at_ps + 39 * US, keys, thread=self.thread)
        return end_ps


def _python_thread(trace: CudaTrace, shape: Shape) -> None:
    trace.marker(0, 0, shape.step_ps - 200 * US)
    call: Stats = {"tf_function_call": "notTraced-nonXla", "tracing_count": 1}
    trace.host_event("distributed_train_step", 40 * US, shape.step_ps - 260 * US, call)
    for ordinal in range(shape.gpus):
        run: Stats = {"id": 7_000_000, "_r": 1, "_pt": 2, "_p": U64(_FUNCTION + ordinal)}
        at_ps = (120 + ordinal * 14) * US
        trace.host_event("FunctionRun", at_ps, at_ps + 9 * US, run)


def _input_thread(trace: CudaTrace, thread: Line, ordinal: int) -> None:
    """A short wait, the stages nested inside."""
    begin_ps = (200 + ordinal * 3) * US
    wait: Stats = {"id": 7_000_000, "iter_num": 0}
    name = "IteratorGetNextAsOptionalOp::DoCompute"
    trace.host_event(name, begin_ps, begin_ps + 80 * US, wait, thread=thread)
    for stage, name in enumerate(INPUT_STAGES):
        own: Stats = {
            "id": U64(_FUNCTION + 900_000 + stage),
            "parent_id": U64(_FUNCTION + 899_999 + stage),
            "name": name,
            "parallelism": 4,
            "buffer_limit": 8,
        }
        at_ps = begin_ps + (stage + 1) * 4 * US
        end_ps = at_ps + (70 - stage * 8) * US
        trace.host_event(f"Iterator::{name}", at_ps, end_ps, own, thread=thread)


def _map_thread(trace: CudaTrace, thread: Line, shape: Shape, number: int) -> None:
    """One worker of the private thread pool: parsed elements, back to back, 40 of each step of the default shape."""
    for element in range(shape.step_ps // (1300 * US)):
        start_ps = element * 1200 * US
        key: Stats = {"element_id": element * 4 + number}
        trace.host_event("ParallelMapProduce", start_ps, start_ps + 1100 * US, key, thread=thread)
        run: Stats = {"id": 880_000 + number}
        name = "InstantiatedCapturedFunction::Run"
        trace.host_event(name, start_ps + 10 * US, start_ps + 1010 * US, run, thread=thread)


def _first_step(shape: Shape) -> CudaTrace:
    rng = random.Random(20)
    ops, names = _ops(rng, shape), _kernel_names(rng)
    trace = CudaTrace("bench-host", base_ns=STAMP_NS)
    trace.hostnames = []
    _python_thread(trace, shape)
    for ordinal in range(shape.gpus):
        name = "tf_data_iterator_get_next_as_optional"
        _input_thread(trace, trace.thread(name, 6_000_000_000_000 + ordinal), ordinal)
    for number in range(POOL_THREADS):
        thread = trace.thread("tf_data_private_threadpool", 6_100_000_000_000 + number)
        _map_thread(trace, thread, shape, number)
    for ordinal in range(shape.gpus):
        _Replica(trace, ordinal).step(ops, names, shape.collectives)
    return trace


def _block(tag: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return bytes((tag << 3 | 2,)) + varint(len(content)) + content


def _moved_ids(plane: Any, by: dict[bytes, int]) -> dict[int, int]:
    """By the number of a stat what its value grows by from step to step."""
    return {key: by[entry.name] for key, entry in plane.stat_metadata.items() if entry.name in by}


def _later_steps(line: Any, moved: dict[int, int], shape: Shape) -> Iterator[bytes]:
    """The events of a line in each step but the first; protobuf joins them."""
    events = XLine(events=line.events)
    stats = [
        (stat, stat.WhichOneof("value"), moved[stat.metadata_id])
        for event in events.events
        for stat in event.stats
        if stat.metadata_id in moved
    ]
    for _ in range(shape.steps - 1):
        for event in events.events:
            event.offset_ps += shape.step_ps
        for stat, field, by in stats:
            setattr(stat, field, getattr(stat, field) + by)
        yield events.SerializeToString()


def recorded_bytes(shape: Shape) -> Iterator[bytes]:
    """The planes of host and devices, in the order TensorFlow stores them."""
    trace = _first_step(shape)
    ids = {
        b"step_num": 1,
        b"_c": shape.gpus,
        b"_p": shape.gpus,
        b"correlation_id": trace.correlation_id(),
    }
    for plane in trace.space().planes:
        moved = _moved_ids(plane, ids)
        lines = [
            _block(3, b"".join((line.SerializeToString(), *_later_steps(line, moved, shape))))
            for line in plane.lines
        ]
        del plane.lines[:]
        yield _block(1, b"".join((plane.SerializeToString(deterministic=True), *lines)))


def _environment(shape: Shape, host: str, number: int = 0) -> bytes:
    """When the profile started and stopped, and on which host; hosts start a microsecond after each other."""
    start_ns = START_NS + 1000 * number
    stop_ns = start_ns + (shape.steps + 1) * shape.step_ps // 1000
    content: bytes = CudaTrace(host, start_ns=start_ns, stop_ns=stop_ns).space().SerializeToString()
    return content


def trace_bytes(shape: Shape) -> Iterable[bytes]:
    """The trace in pieces."""
    return chain(recorded_bytes(shape), [_environment(shape, "bench-host")])


def write_trace(path: Path, shape: Shape) -> Path:
    """Store the trace."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.writelines(trace_bytes(shape))
    return path


def write_alike_hosts(folder: Path, shape: Shape, count: int) -> Path:
    """Store traces of several hosts, which record the same and start one after another."""
    folder.mkdir(parents=True, exist_ok=True)
    recorded = b"".join(recorded_bytes(shape))
    for number in range(count):
        content = (recorded, _environment(shape, f"host{number}", number))
        (folder / f"host{number}.xplane.pb").write_bytes(b"".join(content))
    return folder
