"""Reads the sidecar, the file that `traceview capture` writes beside a trace; any of its fields may be missing.

Device names are those of TensorFlow, such as `/job:localhost/replica:0/task:0/device:GPU:0`; samples of NVML are by the number that
CUDA gives a GPU, which is also the number in the name of its plane.
"""

from __future__ import annotations

import binascii
import zlib
from typing import Annotated, Final, TypeVar

import numpy as np
from msgspec import Meta, Struct

from traceview.base.intervals import Int64Array
from traceview.base.location import Location
from traceview.base.record import DeviceKey, FunctionName, RecordedCount, one_of
from traceview.base.text import lazy_pattern
from traceview.base.units import PS_PER_NS
from traceview.trace.sidecar.environment import PhysicalDevice, RecordedEnvironment
from traceview.trace.sidecar.fields import LARGEST, read_as
from traceview.trace.sidecar.python_samples import (
    PythonRecord,
    PythonSamples,
    python_samples,
    unpacked,
)

_DEVICE: Final = lazy_pattern(
    r"(?:/job:(?P<job>\w{1,64}))?(?:/replica:\d{1,9})?(?:/task:(?P<task>\d{1,9}))?"
    r"/(?:device:)?(?P<type>[A-Za-z_]{1,32}):(?P<ordinal>\d{1,9})"
)


class FunctionPlacement(Struct, frozen=True):
    """One step function and the devices that its ops ask for.

    `step`: the name under which its calls are counted as steps. `op_count`: its ops, those of inner functions among them;
    `ops_per_device`: those that ask for a device. `training_loop`: the type of the op that repeats whole steps inside the
    function. `not_mirrored`: trainable variables that all replicas share, instead of a copy for each. `replica_runs`: how
    often its graph calls `Strategy.run`, if that is several times one after the other. `traced_by`: what differs between its
    graphs: a value of Python, such as a number, the shape of a tensor, or anything else.
    """

    step: FunctionName | None
    name: FunctionName | None
    op_count: RecordedCount | None
    ops_per_device: dict[DeviceKey, RecordedCount]
    training_loop: FunctionName | None
    not_mirrored: RecordedCount | None
    replica_runs: RecordedCount | None = None
    traced_by: tuple[Annotated[str, one_of("python", "shape", "other")], ...] = ()


class RecordedPlacement(Struct, frozen=True):
    """The step functions of the window."""

    functions: tuple[FunctionPlacement, ...]


def local_device(name: str, role: str | None, index: int | None) -> str:
    """`GPU:0` for a device of the process, `worker:1/GPU:0` for one of another process, else the name itself.

    `role` and `index`: the task of the process, None outside a cluster.
    """
    match = _DEVICE.fullmatch(name)
    if match is None:
        return name
    short = f"{match['type'].upper()}:{int(match['ordinal'])}"
    job, task = match["job"], int(match["task"] or 0)
    is_local = job in (None, "localhost") or (job, task) == (role, index)
    return short if is_local else f"{job}:{task}/{short}"


_Value = TypeVar("_Value")
_Number = TypeVar("_Number", int, float)


class NvmlSamples(Struct, frozen=True):
    """Columns of equal length; `t_ns` is Unix nanoseconds. None where NVML returned no value.

    Utilizations are averages over the last period of NVML, which is between a sixth of a second and a second
    (nvml.h, nvmlUtilization_t). `throttle_reasons`: bits as in nvml.h, clocks event reasons.
    """

    t_ns: tuple[int, ...]
    gpu_utilization_ratio: tuple[float | None, ...]
    memory_used_bytes: tuple[int | None, ...]
    sm_clock_hz: tuple[int | None, ...]
    throttle_reasons: tuple[int | None, ...]
    power_watts: tuple[float | None, ...]

    def shares(self, column: tuple[float | None, ...]) -> list[tuple[int, float]]:
        """Time and value of the known ratios of a column; empty if the column and the times differ in length."""
        known = [(t, value) for t, value in self.timed(column) if value is not None]
        return [(t, value) for t, value in known if 0 <= value <= 1]

    def numbers(self, column: tuple[_Number | None, ...]) -> list[_Number]:
        """The values of a column from zero on; empty if the column and the times differ in length."""
        return [value for _, value in self.timed(column) if value is not None and value >= 0]

    def timed(self, column: tuple[_Value, ...]) -> list[tuple[int, _Value]]:
        """Time and value of a column; empty if the column and the times differ in length."""
        if len(column) != len(self.t_ns):
            return []
        return list(zip(self.t_ns, column, strict=True))


class NvmlProcess(Struct, frozen=True):
    """Another process on the GPU: its largest memory and its mean utilization, if the driver reports them."""

    pid: int | None
    memory_bytes: RecordedCount | None
    utilization_ratio: float | None


class NvmlGpu(Struct, frozen=True):
    """One GPU. `other_processes`: None where unknown. `missing`: why a field could not be read."""

    ordinal: RecordedCount | None
    name: str | None
    samples: NvmlSamples
    sm_clock_max_hz: RecordedCount | None
    power_limit_watts: float | None
    memory_total_bytes: RecordedCount | None
    other_processes: tuple[NvmlProcess, ...] | None
    missing: dict[str, str]


class NvmlRecord(Struct, frozen=True):
    """The samples of all GPUs; `reason`: why there are none."""

    reason: str | None
    devices: tuple[NvmlGpu, ...]


_COLUMNS: Final = 5
_ROW_BYTES: Final = 8 * _COLUMNS
_MOST_THREADS: Final = 1 << 15
"""No process that trains has more."""


class ThreadsRecord(Struct, frozen=True):
    """The group of the sidecar."""

    rows: str | None


class ThreadTimes(Struct, frozen=True, eq=False):
    """The clocks of the threads of one host, all int64 `[n]`, by thread and time.

    `t_ns`: Unix. `thread`: the kernel's numbers. `ident`: what pthread_self returns, 0 where not known. `ran_ns`, `waited_ns`:
    how long it had run until then, and how long it had been ready without a core.
    """

    t_ns: Int64Array
    thread: Int64Array
    ident: Int64Array
    ran_ns: Int64Array
    waited_ns: Int64Array


def thread_times(record: ThreadsRecord, wrong: list[str], path: str) -> ThreadTimes | None:
    """The clocks of a record; None without any. What is not readable is named in `wrong`, and nothing of it is kept."""
    if record.rows is None:
        return None
    try:
        content = unpacked(record.rows)
    except (binascii.Error, zlib.error, ValueError):
        wrong.append(f"{path}.rows")
        return None
    count, rest = divmod(len(content), _ROW_BYTES)
    differences = np.frombuffer(content, "<i8", _COLUMNS * count).reshape(_COLUMNS, count)
    t_ns, thread, ident, ran_ns, waited_ns = columns = np.cumsum(
        differences, axis=1, dtype=np.int64
    )
    new = np.diff(thread) != 0
    if (
        rest
        or new.sum() >= _MOST_THREADS
        or (columns < 0).any()
        or (columns[:3] > LARGEST).any()
        or (columns[3:] > LARGEST // PS_PER_NS).any()
        or (np.diff(thread) < 0).any()
        or any((np.diff(column)[~new] < 0).any() for column in (t_ns, ran_ns, waited_ns))
    ):
        wrong.append(f"{path}.rows")
        return None
    return ThreadTimes(t_ns, thread, ident, ran_ns, waited_ns) if count else None


_SIZES: Final = r"^[\d,]{0,99}$"
_ARRAY: Final = r"^~?(?:bool|u?int\d{1,2}|b?float\d[\dbefmnuz_]{0,14}|complex\d{2,3}|key<[a-z_]{1,12}>)\[[\d,]{0,99}\]$"
"""Shapes of the types that JAX has; redaction leaves them."""
STATIC_TYPES: Final = (
    *(
        "bool",
        "bytes",
        "complex",
        "float",
        "frozenset",
        "int",
        "NoneType",
        "object",
        "str",
        "tuple",
    ),
)
SUFFIX: Final = ".traceview.json"
_TRACE_SUFFIX: Final = ".xplane.pb"


class RecordedEvaluation(Struct, frozen=True):
    """What was evaluated after the step of number `after`: calls by function, and when, by the monotonic clock."""

    after: RecordedCount | None
    functions: dict[str, RecordedCount]
    begun_ns: RecordedCount | None
    ended_ns: RecordedCount | None


class RecordedWindow(Struct, frozen=True):
    """The steps of the window.

    `edge_steps`: on either side of the requested ones, recorded but not requested. `cut_steps`: ended by an exception.
    `steps_per_call`: the numbers of training steps that a call with one marker made; empty if not recorded. `evaluations`: what
    ran between steps.
    """

    edge_steps: tuple[RecordedCount, ...]
    cut_steps: tuple[RecordedCount, ...]
    steps_per_call: tuple[RecordedCount, ...]
    evaluations: tuple[RecordedEvaluation, ...]


class ClockReading(Struct, frozen=True):
    """Unix nanoseconds at a moment of the capture."""

    wall_ns: Annotated[int, Meta(ge=0, le=LARGEST)] | None


class RecordedClock(Struct, frozen=True):
    """The moments just before the profile started and stopped."""

    starting: ClockReading
    stopped: ClockReading


class GraphValues(Struct, frozen=True):
    """What the graphs of the step functions say of ops, by name.

    `float64_ops`, `constant_ops`: a thousand of each at most: those in float64, and those that compute the same in every step.
    `lines`: of the script, each once. `line_of`: which of them made each op, or, where a name ends with a slash, all ops of a
    scope; None where ops of several functions have the name. `flops`: the floating-point operations of each product of
    matrices and each convolution, by the name of the op and of what may be fused with it.
    """

    float64_ops: tuple[str, ...]
    constant_ops: tuple[str, ...]
    lines: tuple[str, ...]
    line_of: dict[str, RecordedCount | None]
    flops: dict[str, RecordedCount]


class CompiledFor(Struct, frozen=True):
    """What an argument was when a function of JAX was compiled: `type`, as `float32[96,128]`, or `static`, its type in Python.

    `~` before a type: that of a Python number. `devices`, `shard`: on how many, and the shape on each; None where it is on none by choice.
    """

    type: Annotated[str, Meta(pattern=_ARRAY)] | None
    static: Annotated[str, one_of(*STATIC_TYPES)] | None
    devices: RecordedCount | None
    shard: Annotated[str, Meta(pattern=_SIZES)] | None


class ArgumentChange(Struct, frozen=True):
    """An argument that differs from the time before; None where there was none of this name."""

    name: str | None
    old: CompiledFor | None
    new: CompiledFor | None


class RecordedCompilation(Struct, frozen=True):
    """A function of JAX was compiled again; `t_ns`: Unix. `is_new_function`: the script has made it anew."""

    t_ns: Annotated[int, Meta(ge=0, le=LARGEST)] | None
    is_new_function: bool | None
    changes: tuple[ArgumentChange, ...]


class RecompiledFunction(Struct, frozen=True):
    """A function of the script, and when it was compiled again."""

    name: FunctionName | None
    compilations: tuple[RecordedCompilation, ...]


class RecordedCompilations(Struct, frozen=True):
    """The functions that JAX compiled."""

    functions: tuple[RecompiledFunction, ...]


class RecordedLoad(Struct, frozen=True):
    """What the `cores` of the machine did while the window was open: busy time of all processes, and of this one."""

    elapsed_ns: RecordedCount | None
    busy_ns: RecordedCount | None
    own_ns: RecordedCount | None
    cores: RecordedCount | None

    @property
    def free_cores(self) -> float | None:
        """The cores that no other process took, mean over the window; None where not known."""
        if not self.elapsed_ns or not self.cores or self.busy_ns is None:
            return None
        return self.cores - max(self.busy_ns - (self.own_ns or 0), 0) / self.elapsed_ns


class Sidecar(Struct, frozen=True):
    """The part of the sidecar that the analysis uses.

    `python`: samples of Python stacks. `threads`: clocks of all threads. `wrong_fields`: dotted names of fields of the wrong
    type, which were left out.
    """

    window: RecordedWindow
    clock: RecordedClock
    environment: RecordedEnvironment
    placement: RecordedPlacement
    graphs: GraphValues
    jax: RecordedCompilations
    load: RecordedLoad
    outside_view: NvmlRecord
    python: PythonSamples | None
    threads: ThreadTimes | None
    wrong_fields: tuple[str, ...]

    @property
    def physical_gpus(self) -> tuple[PhysicalDevice, ...]:
        """The GPUs that TensorFlow listed, in the order of their planes."""
        physical = self.environment.devices.physical or ()
        return tuple(device for device in physical if device.type == "GPU")

    @property
    def has_virtual_gpus(self) -> bool:
        """Whether a GPU is divided into several logical devices."""
        return any((gpu.logical_devices or 1) > 1 for gpu in self.physical_gpus)


class _File(Struct, frozen=True):
    window: RecordedWindow
    clock: RecordedClock
    placement: RecordedPlacement
    graphs: GraphValues
    jax: RecordedCompilations
    load: RecordedLoad
    outside_view: NvmlRecord
    python: PythonRecord
    threads: ThreadsRecord


class SidecarError(Exception):
    """The sidecar exists but is not readable; the message says why."""


def sidecar_of(trace: Location) -> Location:
    """Where the sidecar of a trace file lies."""
    return trace.with_name(trace.name.removesuffix(_TRACE_SUFFIX) + SUFFIX)


def read_sidecar(trace: Location) -> Sidecar | None:
    """The sidecar beside a trace file; None if there is none. Raises `SidecarError` if it is not readable."""
    path = sidecar_of(trace)
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise SidecarError(f"{path.name} is not a regular file")
    except OSError:
        # The name is too long with this suffix.
        return None
    import json

    try:
        content = json.loads(path.read_text("utf-8", "strict"))
    except (OSError, ValueError, RecursionError) as error:
        raise SidecarError(f"{path.name} is not readable: {error}") from error
    return _sidecar(content)


def _sidecar(content: object) -> Sidecar:
    wrong: list[str] = []
    environment, file = read_as(RecordedEnvironment, content, wrong), read_as(_File, content, wrong)
    python = python_samples(file.python, wrong, "python")
    threads = thread_times(file.threads, wrong, "threads")
    return Sidecar(
        window=file.window,
        clock=file.clock,
        environment=environment,
        placement=file.placement,
        graphs=file.graphs,
        jax=file.jax,
        load=file.load,
        outside_view=file.outside_view,
        python=python,
        threads=threads,
        wrong_fields=tuple(dict.fromkeys(wrong)),
    )


NOTHING_RECORDED: Final = _sidecar({})
"""Stands for the sidecar of a host that has none."""
