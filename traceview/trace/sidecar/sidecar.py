"""Reads the sidecar, the file that `traceview capture` writes beside a trace; any of its fields may be missing.

Device names are those of TensorFlow, such as `/job:localhost/replica:0/task:0/device:GPU:0`.
"""

from __future__ import annotations

import binascii
import zlib
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import numpy as np
from msgspec import DecodeError, Meta, Struct, ValidationError, json
from msgspec.structs import asdict

from traceview.base.intervals import Int32Array, Int64Array
from traceview.base.location import Location
from traceview.base.record import DeviceKey, FunctionName, RecordedCount, one_of
from traceview.base.text import lazy_pattern
from traceview.base.units import PS_PER_NS
from traceview.trace.sidecar.environment import (
    LARGEST,
    Number,
    NvmlRecord,
    PhysicalDevice,
    RecordedEnvironment,
)

_MOST_BYTES: Final = 1 << 26
"""Of a text when unpacked; the largest that traceview writes has a quarter of it."""
_ROW_BYTES: Final = 16
_Moment: TypeAlias = Annotated[int, Meta(ge=0, lt=LARGEST // 2)]
_Index: TypeAlias = Annotated[int, Meta(ge=0, le=LARGEST)]
_WAITS: Final[dict[str, tuple[str, ...]]] = {
    "concurrent/futures/_base.py": ("result", "wait"),
    "multiprocessing/connection.py": ("_poll", "_recv", "wait"),
    "multiprocessing/popen_fork.py": ("poll", "wait"),
    "multiprocessing/queues.py": ("get", "put"),
    "multiprocessing/synchronize.py": ("__enter__", "wait"),
    "queue.py": ("get", "join", "put"),
    "selectors.py": ("select",),
    "socket.py": ("accept", "readinto"),
    "subprocess.py": ("_try_wait", "wait"),
    "tensorflow/python/training/server_lib.py": ("join",),
    "threading.py": ("_wait_for_tstate_lock", "acquire", "join", "wait"),
}
"""Functions that wait where they call nothing in Python: of the standard library (3.10 to 3.14), and that of a server."""
_GENERATED_OPS: Final = "tensorflow/python/ops/gen_"
_NATIVE: Final[dict[str, tuple[str, ...]]] = {
    "tensorflow/python/eager/execute.py": ("execute_with_cancellation", "quick_execute"),
    "tensorflow/python/eager/executor.py": ("wait",),
    "tensorflow/python/framework/ops.py": ("_numpy", "_numpy_internal"),
}
"""Functions that hand ops or graphs to the native code of TensorFlow, and fetch values (2.15 to 2.21)."""


class SidecarError(Exception):
    """The sidecar exists but is not readable; the message says why."""


class PythonThread(Struct, frozen=True):
    """A sampled thread.

    `ident`: the address that pthread_self returns. `name`, `native_id`: None unless Python started it.
    """

    ident: Number | None = None
    name: str | None = None
    native_id: Number | None = None


Sampler: TypeAlias = Literal["native", "python"]


class PythonRecord(Struct, frozen=True):
    """The group of the sidecar. `collections`: start, length and generation of each long garbage collection."""

    sampler: Sampler | None = None
    threads: tuple[PythonThread, ...] = ()
    stacks: str | None = None
    samples: str | None = None
    cpu: str | None = None
    late: str | None = None
    held: str | None = None
    collections: tuple[tuple[_Moment, _Moment, _Moment], ...] = ()


PythonState: TypeAlias = Literal["runs", "waits", "native"]


class PythonFrame(Struct, frozen=True):
    """A line of Python that was executing. `is_user`: in code of the user, not of a library."""

    file: str
    function: str
    line: int
    is_user: bool

    @property
    def state(self) -> PythonState:
        """What a thread does whose innermost frame this is.

        It waits for another thread, another process or a file, is in native code of TensorFlow, or runs Python.
        """
        if self.is_user:
            return "runs"
        if self.function in _WAITS.get(self.file, ()):
            return "waits"
        is_generated = self.file.startswith(_GENERATED_OPS)
        is_native = is_generated or self.function in _NATIVE.get(self.file, ())
        return "native" if is_native else "runs"

    @property
    def code(self) -> str:
        """The function that it is in."""
        return f"{self.file} in {self.function}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


class PythonSamples(Struct, frozen=True, eq=False):
    """The samples of one host in time order, all `[n]`: int64 `t_ns` (Unix), int32 `thread`, `stack`, `around`, int64 `cpu_us`, `late_ns`.

    `cpu_us`: processor time that the thread had taken so far; `late_ns`: by how much the round came late; negative where that was not
    recorded.
    `stacks`: numbers of frames, the innermost first; a stack ends at the first frame of the user's code.
    `callers`: the same of the user's code that called that frame, by `around`.
    `collected_ns`: start and length of each long garbage collection, int64 `[k, 2]`.
    `sampler`: `native` samples lie where a thread spends its time, and late rounds had no core; those of `python` lie where threads
    let go of Python's lock, and late rounds waited for it, too. None in recordings that do not say, which are of the latter kind.
    `held`: int64 `[n]`, of each sample how often Python's lock had been handed over so far (modulo 2**30), if the thread held it,
    else -1: no other had it between two samples of the same number. None where nobody looked: unless `native`.
    """

    t_ns: Int64Array
    thread: Int32Array
    stack: Int32Array
    around: Int32Array
    cpu_us: Int64Array
    late_ns: Int64Array
    threads: tuple[PythonThread, ...]
    frames: tuple[PythonFrame, ...]
    stacks: tuple[tuple[int, ...], ...]
    callers: tuple[tuple[int, ...], ...]
    collected_ns: Int64Array
    sampler: Sampler | None = None
    held: Int64Array | None = None

    @property
    def count(self) -> int:
        """Number of samples."""
        return int(self.t_ns.size)


class _Tables(Struct, frozen=True):
    files: tuple[str, ...]
    functions: tuple[str, ...]
    frames: tuple[tuple[_Index, _Index, _Index, _Index], ...]
    stacks: tuple[tuple[_Index, ...], ...]


def python_samples(record: PythonRecord) -> PythonSamples | None:
    """The samples of a record; None without any. Raises `SidecarError` where they are not readable."""
    if record.samples is None or record.stacks is None:
        return None
    try:
        tables = json.decode(unpacked(record.stacks), type=_Tables)
        samples = _joined(record.samples, tables, record)
    except (*_UNREADABLE, IndexError) as error:
        raise SidecarError("no samples of Python - at `$.python`") from error
    return samples if samples.count else None


_UNREADABLE: Final = (binascii.Error, zlib.error, ValueError, DecodeError, RecursionError)


def unpacked(text: str) -> bytes:
    """What a text of the sidecar holds; raises `binascii.Error`, `zlib.error` or `ValueError` where it is none or too long."""
    unpacking = zlib.decompressobj()
    content = unpacking.decompress(b64decode(text, validate=True), _MOST_BYTES)
    if not unpacking.eof:
        raise ValueError("cut, or too long")
    return content


def _joined(samples: str, tables: _Tables, record: PythonRecord) -> PythonSamples:
    """The columns and the tables; raises `IndexError` or `ValueError` where they do not fit together."""
    content = unpacked(samples)
    count, rest = divmod(len(content), _ROW_BYTES)
    passed = np.frombuffer(content, "<i8", count).astype(np.int64)
    # Without a sign, so that a negative number is none of a thread or a stack either.
    thread, stack = np.frombuffer(content, "<u4", 2 * count, 8 * count).reshape(2, count)
    t_ns = np.cumsum(passed)
    if rest or (passed < 0).any() or (t_ns < 0).any() or (thread >= len(record.threads)).any():
        raise ValueError("no samples")
    late_us = _of_each(record.late, "<i4", count)
    frames = [
        PythonFrame(tables.files[file], tables.functions[function], line, bool(is_user))
        for file, function, line, is_user in tables.frames
    ]
    cut = [_cut([frames[frame] for frame in each]) for each in tables.stacks]
    parts = list(zip(tables.stacks, cut, strict=True))
    stacks, own = _numbered([each[begin:end] for each, (begin, end) in parts])
    callers, around = _numbered([each[end:] for each, (_, end) in parts])
    return PythonSamples(
        t_ns=t_ns,
        thread=thread.astype(np.int32),
        stack=own[stack],
        around=around[stack],
        cpu_us=_of_each(record.cpu, "<i8", count),
        late_ns=np.where(late_us < 0, -1, late_us * 1000),
        threads=record.threads,
        frames=tuple(frames),
        stacks=stacks,
        callers=callers,
        collected_ns=np.array(record.collections, np.int64).reshape(-1, 3)[:, :2],
        sampler=record.sampler,
        held=None if record.held is None else np.maximum(_of_each(record.held, "<i4", count), -1),
    )


def _cut(stack: Sequence[PythonFrame]) -> tuple[int, int]:
    """Which part of a stack is its innermost frames up to the first of the user's code.

    Python calls JAX when it has collected garbage, wherever it is: no line of the stack does that.
    """
    begin = next((at + 1 for at, frame in enumerate(stack) if frame.code == _AFTER_GARBAGE), 0)
    begin = begin if begin < len(stack) else 0
    own = (at + 1 for at, frame in enumerate(stack) if frame.is_user and at >= begin)
    return begin, next(own, len(stack))


_AFTER_GARBAGE: Final = "jax/_src/lib/__init__.py in _xla_gc_callback"
"""JAX 0.10; most samples of Python that makes many objects lie there, for it lets go of Python's lock."""


def _numbered(
    values: Sequence[tuple[int, ...]],
) -> tuple[tuple[tuple[int, ...], ...], Int32Array]:
    """The different values, and which one each is."""
    number_of = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return tuple(number_of), np.array([number_of[value] for value in values], dtype=np.int32)


def _of_each(text: str | None, type_: str, count: int) -> Int64Array:
    """A number for each sample, -1 where there is not one for each."""
    content = b"" if text is None else unpacked(text)
    if len(content) != np.dtype(type_).itemsize * count:
        return np.full(count, -1, dtype=np.int64)
    return np.frombuffer(content, type_, count).astype(np.int64)


_DEVICE: Final = lazy_pattern(
    r"(?:/job:(?P<job>\w{1,64}))?(?:/replica:\d{1,9})?(?:/task:(?P<task>\d{1,9}))?"
    r"/(?:device:)?(?P<type>[A-Za-z_]{1,32}):(?P<ordinal>\d{1,9})"
)


class FunctionPlacement(Struct, frozen=True):
    """One step function and the devices that its ops ask for.

    `step`: the name under which its calls are counted as steps. `ops_per_device`: the ops, those of inner functions among them,
    that ask for a device. `training_loop`: the type of the op that repeats whole steps inside the
    function. `not_mirrored`: trainable variables that all replicas share, instead of a copy for each. `replica_runs`: how
    often its graph calls `Strategy.run`, if that is several times one after the other. `traced_by`: what differs between its
    graphs: how many tensors an argument holds, a value of Python, the shape of a tensor, or anything else.
    """

    step: FunctionName | None = None
    name: FunctionName | None = None
    ops_per_device: Mapping[DeviceKey, RecordedCount] = {}
    training_loop: FunctionName | None = None
    not_mirrored: RecordedCount | None = None
    replica_runs: RecordedCount | None = None
    traced_by: tuple[Annotated[str, one_of("structure", "python", "shape", "other")], ...] = ()


class RecordedPlacement(Struct, frozen=True):
    """The step functions of the window."""

    functions: tuple[FunctionPlacement, ...] = ()


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


_COLUMNS: Final = 5
_MOST_THREADS: Final = 1 << 15
"""No process that trains has more."""


class ThreadsRecord(Struct, frozen=True):
    """The group of the sidecar."""

    rows: str | None = None
    unnamed: tuple[RecordedCount, ...] = ()


class ThreadTimes(Struct, frozen=True, eq=False):
    """The clocks of the threads of one host, all int64 `[n]`, by thread and time.

    `t_ns`: Unix. `thread`: the kernel's numbers. `ident`: what pthread_self returns, 0 where not known. `ran_ns`, `waited_ns`:
    how long it had run until then, and how long it had been ready without a core. `unnamed`: the threads that nobody has named.
    """

    t_ns: Int64Array
    thread: Int64Array
    ident: Int64Array
    ran_ns: Int64Array
    waited_ns: Int64Array
    unnamed: frozenset[int]


def thread_times(record: ThreadsRecord) -> ThreadTimes | None:
    """The clocks of a record; None without any. Raises `SidecarError` where they are not readable."""
    if record.rows is None:
        return None
    try:
        differences = np.frombuffer(unpacked(record.rows), "<i8").reshape(_COLUMNS, -1)
    except _UNREADABLE as error:
        raise SidecarError("no clocks of threads - at `$.threads.rows`") from error
    t_ns, thread, ident, ran_ns, waited_ns = columns = np.cumsum(
        differences, axis=1, dtype=np.int64
    )
    new = np.diff(thread) != 0
    if (
        new.sum() >= _MOST_THREADS
        or (columns < 0).any()
        or (columns[:3] > LARGEST).any()
        or (columns[3:] > LARGEST // PS_PER_NS).any()
        or (np.diff(thread) < 0).any()
        or any((np.diff(column)[~new] < 0).any() for column in (t_ns, ran_ns, waited_ns))
    ):
        raise SidecarError("clocks of threads that none can be - at `$.threads.rows`")
    unnamed = frozenset(record.unnamed)
    return ThreadTimes(t_ns, thread, ident, ran_ns, waited_ns, unnamed) if t_ns.size else None


_ARRAY: Final = r"^~?(?:bool|u?int\d{1,2}|b?float\d[\dbefmnuz_]{0,14}|complex\d{2,3}|key<[a-z_]{1,12}>)?\[[\d,]{0,99}\]$"
"""Shapes of the types that JAX has; redaction leaves them."""
_STATIC: Final = r"^(?:bool|bytes|complex|float|frozenset|int|NoneType|object|str|tuple)$"
SUFFIX: Final = ".traceview.json"
_TRACE_SUFFIX: Final = ".xplane.pb"


class RecordedEvaluation(Struct, frozen=True):
    """What was evaluated after the step of number `after`: calls by function."""

    after: RecordedCount | None = None
    functions: Mapping[str, RecordedCount] = {}


class RecordedWindow(Struct, frozen=True):
    """The steps of the window.

    `edge_steps`: recorded beside the requested ones. `cut_steps`: ended by an exception. `steps_per_call`: the numbers of steps that
    a call with one marker made. `evaluations`: what ran between steps.
    """

    edge_steps: tuple[RecordedCount, ...] = ()
    cut_steps: tuple[RecordedCount, ...] = ()
    steps_per_call: tuple[RecordedCount, ...] = ()
    evaluations: tuple[RecordedEvaluation, ...] = ()


class ClockReading(Struct, frozen=True):
    """Unix nanoseconds at a moment of the capture."""

    wall_ns: Annotated[int, Meta(ge=0, le=LARGEST)] | None = None


class RecordedClock(Struct, frozen=True):
    """The moments just before the profile started and stopped."""

    starting: ClockReading = ClockReading()
    stopped: ClockReading = ClockReading()


class GraphValues(Struct, frozen=True):
    """What the graphs of the step functions say of ops, by name.

    A thousand of each at most: `float64_ops`: those in float64, `constant_ops`: that compute the same in every step, `batch_ops`:
    that depend on the batch alone, `variable_ops`: on variables alone, `untrained_ops`: on which no update of a trained variable
    depends. `fixed_ops`: those of the constant and batch ones that read variables which no graph changes. `summed_ops`:
    gradients through ops of which others are computed, too, where they are only summed. `dense_ops`: that make the gradient of a table dense for
    what depends on no batch, and its update. `again_ops`: of passes without gradients over drawn ids, which a later one computes
    again. `idle_ops`: on which only updates by zeros depend. `sent_ops`: exchanges of what all devices have alike. `pair_ops`: that
    combine all pairs of rows number by number, which are then summed. `apart_ops`: gradients of a matrix that are made for each part of
    the batch and then summed. `recomputed_ops`: of a forward pass that is computed again for its gradient. `same_ops`: that compute what another
    has computed from the same values. `shifted_ops`: that copy a variable whole to change a part of it. `carried_ops`: of loops that need what the
    iteration before has computed. `saved_percent`: how much
    of products is needless, at least, by the kind: "dropped" by slices, "copied" rows that were repeated, "zero" in one factor, "separable"
    filters, which are a column times a row. `same_batch`: the replicas that read the same batch, each all of it.
    `makes_batches`: other functions that give tensors of a kind that a step takes and does not give itself.
    `lines`: of the script. `callers`: by line the one that called its function, "" where that is not known. `line_of`: which of them made each op, or, where a name ends with a slash, all ops of a
    scope; None where ops of several functions have the name. `flops`: the floating-point operations of each product of
    matrices and each convolution, by the name of the op and of what may be fused with it. `layers`: the names of layers of
    Keras 3, to each of which graphs add a number.
    """

    float64_ops: tuple[str, ...] = ()
    constant_ops: tuple[str, ...] = ()
    batch_ops: tuple[str, ...] = ()
    untrained_ops: tuple[str, ...] = ()
    variable_ops: tuple[str, ...] = ()
    fixed_ops: tuple[str, ...] = ()
    summed_ops: tuple[str, ...] = ()
    dense_ops: tuple[str, ...] = ()
    again_ops: tuple[str, ...] = ()
    idle_ops: tuple[str, ...] = ()
    sent_ops: tuple[str, ...] = ()
    pair_ops: tuple[str, ...] = ()
    dropped_ops: tuple[str, ...] = ()
    apart_ops: tuple[str, ...] = ()
    copied_ops: tuple[str, ...] = ()
    zero_ops: tuple[str, ...] = ()
    separable_ops: tuple[str, ...] = ()
    recomputed_ops: tuple[str, ...] = ()
    same_ops: tuple[str, ...] = ()
    shifted_ops: tuple[str, ...] = ()
    carried_ops: tuple[str, ...] = ()
    saved_percent: Mapping[str, RecordedCount] = {}
    same_batch: RecordedCount | None = None
    makes_batches: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    callers: tuple[str, ...] = ()
    line_of: Mapping[str, RecordedCount | None] = {}
    flops: Mapping[str, RecordedCount] = {}
    layers: tuple[str, ...] = ()


class CompiledFor(Struct, frozen=True):
    """What an argument was when a function of JAX was compiled: `type`, as `float32[96,128]`, or `static`, its type in Python.

    `~` before a type: that of a Python number.
    """

    type: Annotated[str, Meta(pattern=_ARRAY)] | None = None
    static: Annotated[str, Meta(pattern=_STATIC)] | None = None


class ArgumentChange(Struct, frozen=True):
    """An argument that differs from the time before; None where there was none of this name."""

    name: str | None = None
    old: CompiledFor | None = None
    new: CompiledFor | None = None


class RecordedCompilation(Struct, frozen=True):
    """A function of JAX was compiled again; `t_ns`: Unix. `is_new_function`: the script has made it anew."""

    t_ns: Annotated[int, Meta(ge=0, le=LARGEST)] | None = None
    is_new_function: bool | None = None
    changes: tuple[ArgumentChange, ...] = ()


class RecompiledFunction(Struct, frozen=True):
    """A function of the script, and when it was compiled again."""

    name: FunctionName | None = None
    compilations: tuple[RecordedCompilation, ...] = ()


class RecordedCompilations(Struct, frozen=True):
    """The functions that JAX compiled."""

    functions: tuple[RecompiledFunction, ...] = ()


class RecordedLoad(Struct, frozen=True):
    """What the `cores` of the machine did while the window was open: busy time of all processes, and of this one.

    `children_ns` is that of the processes that it had started, in another time, which begins earlier.
    """

    elapsed_ns: RecordedCount | None = None
    busy_ns: RecordedCount | None = None
    own_ns: RecordedCount | None = None
    children_elapsed_ns: RecordedCount | None = None
    children_ns: RecordedCount | None = None
    cores: RecordedCount | None = None

    @property
    def free_cores(self) -> float | None:
        """The cores that no other process took, mean over the window; None where not known."""
        if not self.elapsed_ns or not self.cores or self.busy_ns is None:
            return None
        return self.cores - max(self.busy_ns - (self.own_ns or 0), 0) / self.elapsed_ns


class _Groups(Struct, frozen=True):
    """The groups of the sidecar that are used as they are read."""

    window: RecordedWindow = RecordedWindow()
    clock: RecordedClock = RecordedClock()
    placement: RecordedPlacement = RecordedPlacement()
    graphs: GraphValues = GraphValues()
    jax: RecordedCompilations = RecordedCompilations()
    load: RecordedLoad = RecordedLoad()
    outside_view: NvmlRecord = NvmlRecord()


class _Recorded(_Groups, frozen=True):
    python: PythonRecord = PythonRecord()
    threads: ThreadsRecord = ThreadsRecord()


class Sidecar(_Groups, frozen=True):
    """The part of the sidecar that the analysis uses. `python`: samples of Python stacks. `threads`: clocks of all threads."""

    environment: RecordedEnvironment = RecordedEnvironment()
    python: PythonSamples | None = None
    threads: ThreadTimes | None = None

    @property
    def physical_gpus(self) -> tuple[PhysicalDevice, ...]:
        """The GPUs that TensorFlow listed, in the order of their planes."""
        physical = self.environment.devices.physical or ()
        return tuple(device for device in physical if device.type == "GPU")

    @property
    def has_virtual_gpus(self) -> bool:
        """Whether a GPU is divided into several logical devices."""
        return any((gpu.logical_devices or 1) > 1 for gpu in self.physical_gpus)


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
    try:
        return _sidecar(path.read_bytes())
    except OSError as error:
        raise SidecarError(f"{path.name}: {error.strerror or error}") from error
    except (ValidationError, SidecarError) as error:
        raise SidecarError(f"{path.name} is not as traceview writes it: {error}") from error
    except (DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise SidecarError(f"{path.name} is damaged or cut off: {error}") from error


def _sidecar(content: bytes) -> Sidecar:
    recorded = json.decode(content, type=_Recorded)
    read: dict[str, Any] = {
        "environment": json.decode(content, type=RecordedEnvironment),
        "python": python_samples(recorded.python),
        "threads": thread_times(recorded.threads),
    }
    return Sidecar(**(asdict(recorded) | read))


NOTHING_RECORDED: Final = Sidecar()
"""Stands for the sidecar of a host that has none."""
