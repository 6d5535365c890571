"""The meaning of the names of planes, lines, events and stats, in every recorded spelling, and what a thread does in an event.

Sources: XPlane schema and writers of openxla/xla (`xplane_schema.cc`, `cupti_collector.cc`,
`rocm_collector.cc`), TraceMe names of TensorFlow 2.21 (`kernel_and_device.cc`, `executor.cc`, `iterator_ops.cc`,
`tensor_handle.cc`), driver calls as CUPTI and ROCm name them, Python frames as JAX 0.8 names them, and recorded traces
from 2020 to 2026.
"""

from __future__ import annotations

import re
from enum import Enum, IntEnum
from functools import lru_cache
from typing import Final, Literal

from traceview.base.text import lazy_pattern


class PlaneKind(Enum):
    """The kind of content of a plane."""

    GPU = "gpu"
    TPU = "tpu"
    HOST = "host"
    ENVIRONMENT = "environment"
    METADATA = "metadata"
    UNKNOWN = "unknown"


_DEVICE_PLANE = lazy_pattern(rb"/device:(GPU|TPU):(\d{1,9})")
_HOST_PLANES = frozenset(
    (
        b"/host:CPU",
        b"/host:CUPTI",
        b"/host:NVTX-CUPTI",
        b"/host:ROCTRACER",
        b"/host:python-tracer",
        b"/host:TPU-runtime",
    )
)


def plane_kind(name: bytes) -> tuple[PlaneKind, int]:
    """The kind of a plane, and the device ordinal in its name (-1 except for GPU and TPU)."""
    device = _DEVICE_PLANE.fullmatch(name)
    if device:
        kind = PlaneKind.GPU if device[1] == b"GPU" else PlaneKind.TPU
        return kind, int(device[2])
    if name in _HOST_PLANES:
        return PlaneKind.HOST, -1
    if name == b"Task Environment":
        return PlaneKind.ENVIRONMENT, -1
    if name == b"/host:metadata":
        return PlaneKind.METADATA, -1
    return PlaneKind.UNKNOWN, -1


# Lines that viewers derive from other lines; some writers of 2020 stored them.
_DERIVED_IDS = range(-559038737, -559038347)
_DERIVED_NAMES = frozenset(
    (
        b"Steps",
        b"TensorFlow Ops",
        b"TensorFlow Name Scope",
        b"Framework Ops",
        b"Framework Name Scope",
        b"Launch Stats",
        b"XLA Modules",
        b"XLA Ops",
        b"Async XLA Ops",
        b"XLA TraceMe",
        b"Source code",
        b"Host Offload Ops",
        b"Tensor Core Sync Flag",
    )
)
_DERIVED_FROM_STREAM = lazy_pattern(rb"(.+) - from #.*", re.DOTALL)
STEPS_LINE: Final = b"Steps"
COUNTERS_LINE: Final = b"_counters_"
XLA_OPS_LINE: Final = b"XLA Ops"
_STREAM_TYPES = lazy_pattern(rb"Stream #-?\d+\(([^)]*)\)")
_NEVER_BUSY_TYPES = frozenset(
    (b"MemoryResidency", b"UnifiedMemory", b"MemoryAlloc", b"MemoryFree", b"Overhead", b"Generic")
)


def is_derived_line(line_id: int, name: bytes) -> bool:
    """Whether a device line repeats events of other lines, so that it must not be counted."""
    signed = line_id - (1 << 32) if line_id >= 1 << 31 else line_id
    derived = _DERIVED_FROM_STREAM.fullmatch(name)
    base = derived[1] if derived else name
    return signed in _DERIVED_IDS or base in _DERIVED_NAMES or base.startswith(b"Sparse Core ")


def is_never_busy_line(name: bytes) -> bool:
    """Whether a device line holds only counters or bookkeeping."""
    if name == COUNTERS_LINE:
        return True
    types = _STREAM_TYPES.fullmatch(name)
    return types is not None and all(
        type_.strip() in _NEVER_BUSY_TYPES for type_ in types[1].split(b",")
    )


class ActivityClass(IntEnum):
    """The class of a device event, in the order in which exposed time is attributed."""

    COMPUTE = 0
    COLLECTIVE = 1
    H2D = 2
    D2H = 3
    D2D = 4
    MEMSET = 5


CLASS_KEYS: Final = tuple(class_.name.lower() for class_ in ActivityClass)
"""The names of the classes in the report."""


class NameKind(IntEnum):
    """The kind of a device event by its name alone; the first six are the members of `ActivityClass`."""

    COMPUTE = 0
    COLLECTIVE = 1
    H2D = 2
    D2H = 3
    D2D = 4
    MEMSET = 5
    P2P = 6  # d2d between two GPUs
    COPY = 7  # a copy whose name does not show the direction
    LINKED_COPY = 8  # a copy with the direction of its host call
    GRAPH = 9  # a whole CUDA graph as one event
    NEVER_BUSY = 10


_COLLECTIVE_START = lazy_pattern(rb"(?:void )?[nr]ccl", re.IGNORECASE)
_COLLECTIVE_PART = lazy_pattern(rb"ncclkernel|nccldevkernel|rcclkernel", re.IGNORECASE)
_COLLECTIVE_OP = lazy_pattern(
    rb"%?(?:all-reduce|all-gather|(?:ragged-)?all-to-all|reduce-scatter|collective-|(?:send|recv)(?:-done)?\b)",
    re.IGNORECASE,
)
_XLA_COPY: Final = lazy_pattern(
    rb"%?(?:copy|slice|dynamic-slice|dynamic-update-slice)-(?:start|done)\b"
)
_XLA_CONTAINER: Final = lazy_pattern(rb"%?(?:while|cond(?:itional)?|call)\b")
_LONGEST_COPY: Final = len(b"%dynamic-update-slice-start")
_HOST_SPACE: Final = b"S(5)"
"""The memory of the host in the layout of an HLO shape."""
_COPY = lazy_pattern(
    rb"\[?(?:cuda|hip)?(?:memcpy|copy(?=[hdp]))(h2d|htod|hosttodevice|d2h|dtoh|devicetohost|d2d|dtod"
    rb"|devicetodevice|p2p|ptop|peertopeer|other|h2h|htoh|hosttohost)?(?:async)?\]?"
)
_COPY_KINDS: Final = {
    b"h2d": NameKind.H2D,
    b"htod": NameKind.H2D,
    b"hosttodevice": NameKind.H2D,
    b"d2h": NameKind.D2H,
    b"dtoh": NameKind.D2H,
    b"devicetohost": NameKind.D2H,
    b"d2d": NameKind.D2D,
    b"dtod": NameKind.D2D,
    b"devicetodevice": NameKind.D2D,
    b"p2p": NameKind.P2P,
    b"ptop": NameKind.P2P,
    b"peertopeer": NameKind.P2P,
}
_MEMSET = lazy_pattern(rb"\[?(?:cuda |hip)?memset(?:d\d+)?(?:async)?(?:[ \]].*)?", re.IGNORECASE)


_KEPT_NAMES: Final = 1 << 14
"""The devices of a host, and hosts, run the same."""


@lru_cache(_KEPT_NAMES)
def name_kind(name: bytes) -> NameKind:
    """The kind of an event on a GPU stream, by its name."""
    if name.startswith(b"UM_"):
        return NameKind.NEVER_BUSY
    if name.startswith(b"CudaGraphExec:"):
        return NameKind.GRAPH
    if name.startswith(b"__amd_rocclr_copy"):
        return NameKind.LINKED_COPY
    if name.startswith(b"__amd_rocclr_fill") or _MEMSET.fullmatch(name):
        return NameKind.MEMSET
    if len(name) < 40:
        copy = _COPY.fullmatch(name.lower().replace(b" ", b"").replace(b"_", b""))
        if copy:
            return _COPY_KINDS.get(copy[1], NameKind.COPY)
    if _COLLECTIVE_START.match(name) or _COLLECTIVE_PART.search(name):
        return NameKind.COLLECTIVE
    return NameKind.COMPUTE


def xla_op_kind(name: bytes) -> NameKind:
    """The kind of an event of the line `XLA Ops`, by its name: an HLO expression, or only its op.

    The second half of an asynchronous copy waits for it. The memory spaces of its result and of its operands show the
    direction; it is unknown without them.
    """
    if _COLLECTIVE_OP.match(name):
        return NameKind.COLLECTIVE
    if not _XLA_COPY.match(name):
        return NameKind.COMPUTE
    is_start = b"-start" in name[:_LONGEST_COPY]
    result, is_expression, operands = name.partition(b"-start(" if is_start else b"-done(")
    if not is_expression:
        return NameKind.COPY
    # The first half has the source as operand; the second half the pair of target and source, and the target as result.
    from_host = _HOST_SPACE in operands
    to_host = _HOST_SPACE in result
    if is_start:
        return NameKind.H2D if from_host else NameKind.D2H if to_host else NameKind.D2D
    return NameKind.D2H if to_host else NameKind.H2D if from_host else NameKind.D2D


def is_xla_container(name: bytes) -> bool:
    """Whether an event of the line `XLA Ops` is a loop or a call, whose ops have events of their own."""
    return _XLA_CONTAINER.match(name) is not None


def copy_direction(call: bytes) -> NameKind:
    """The direction in the name of a host call such as `hipMemcpyHtoDAsync`; COPY without one."""
    lowered = call.lower()
    for spelling, kind in _COPY_KINDS.items():
        if spelling in lowered:
            return kind
    return NameKind.COPY


class HostMemory(IntEnum):
    """The memory on the host side of a copy; a GPU can read directly only from pinned memory."""

    UNKNOWN = 0
    PAGEABLE = 1
    PINNED = 2


_HOST_MEMORY = frozenset((b"pageable", b"pinned", b"host"))
_DEVICE_MEMORY = frozenset((b"device", b"array", b"device_static"))


def parse_details(text: bytes) -> dict[bytes, bytes]:
    """The `key:value` pairs of a detail string, in any of the recorded layouts."""
    pairs = (word.split(b":", 1) for word in text.split())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def details_direction(details: dict[bytes, bytes]) -> NameKind:
    """The direction of a copy, from the kinds of memory on both sides; COPY where they do not show it."""
    source, target = details.get(b"kind_src", b""), details.get(b"kind_dst", b"")
    if source in _HOST_MEMORY and target in _DEVICE_MEMORY:
        return NameKind.H2D
    if source in _DEVICE_MEMORY and target in _HOST_MEMORY:
        return NameKind.D2H
    if source in _DEVICE_MEMORY and target in _DEVICE_MEMORY:
        return NameKind.D2D
    kind = details.get(b"kind", b"").lower()
    return _COPY_KINDS.get(kind, NameKind.COPY)


def details_host_memory(details: dict[bytes, bytes]) -> HostMemory:
    """The memory on the host side of a copy; UNKNOWN if there is no host side or the details do not show it."""
    kinds = {details.get(b"kind_src"), details.get(b"kind_dst")}
    if b"pageable" in kinds:
        return HostMemory.PAGEABLE
    return HostMemory.PINNED if b"pinned" in kinds else HostMemory.UNKNOWN


def details_bytes(details: dict[bytes, bytes]) -> int | None:
    """The size of a copy, fill or allocation in bytes; None where not recorded."""
    text = details.get(b"size", details.get(b"num_bytes", b""))
    if not text.isdigit() or len(text) > 18:
        return None
    size = int(text)
    return size if size <= LARGEST_COPY else None


_COMPILATION = lazy_pattern(
    rb"XlaCompil|::Compile|Autotun|ModuleLoad|LibraryLoad|^(?:backend_compile|lower_sharding_computation|lower_jaxpr|trace_to_jaxpr)"
)


@lru_cache(_KEPT_NAMES)
def is_compilation(name: bytes) -> bool:
    """Whether a host event is compilation by XLA, autotuning or module loading; ops and Python frames are not."""
    return b"/" not in name and not name.startswith(b"$") and bool(_COMPILATION.search(name))


LARGEST_COUNT: Final = 1 << 53
"""No count, size in bytes or number of a step is larger; sums of a thousand of them fit into int64."""

LARGEST_COPY: Final = 1 << 40
"""No copy or allocation has more bytes; the sums of a million of them fit into int64."""

MILLION: Final = 1_000_000


class StatColumn:
    """A stat of events that becomes a column, with every spelling that writers have used.

    `kind`: a `number`; a `count`, which is not recorded where it is negative or above `LARGEST_COUNT`; a `ratio`, which is
    not recorded outside of 0 to 1, and of which the column holds millionths; or a `text`.
    """

    def __init__(
        self, kind: Literal["number", "count", "ratio", "text"], *spellings: bytes
    ) -> None:
        self.kind = kind
        self.spellings = spellings


DEVICE_STATS: Final = {
    "correlation_id": StatColumn("number", b"correlation_id"),
    "kernel_details": StatColumn("text", b"kernel_details"),
    "memcpy_details": StatColumn("text", b"memcpy_details"),
    "memset_details": StatColumn("text", b"Memset_details", b"memset_details"),
    "not_activity": StatColumn(
        "number",
        b"MemoryResidency_details",
        b"memalloc_details",
        b"MemAlloc_details",
        b"MemFree_details",
        b"memfree_details",
        b"counter_value",
    ),
    "tf_op": StatColumn("text", b"tf_op"),
    "hlo_op": StatColumn("text", b"hlo_op"),
    "hlo_module": StatColumn("text", b"hlo_module"),
    "program_id": StatColumn("number", b"program_id"),
    "annotation": StatColumn("text", b"annotation"),
    "level_0": StatColumn("text", b"level 0"),
    "group_id": StatColumn("count", b"group_id"),
    "device_offset_ps": StatColumn("count", b"device_offset_ps"),
    "device_duration_ps": StatColumn("count", b"device_duration_ps"),
}
HOST_STATS: Final = {
    "correlation_id": StatColumn("number", b"correlation_id"),
    "root": StatColumn("number", b"_r"),
    "producer_type": StatColumn("number", b"_pt"),
    "producer_id": StatColumn("number", b"_p"),
    "consumer_type": StatColumn("number", b"_ct"),
    "consumer_id": StatColumn("number", b"_c"),
    "id": StatColumn("number", b"id", b"step_id"),
    "step_num": StatColumn("count", b"step_num"),
    "tf_function_call": StatColumn("text", b"tf_function_call"),
    "tracing_count": StatColumn("count", b"tracing_count"),
    "allocator_name": StatColumn("text", b"allocator_name"),
    "bytes_allocated": StatColumn("count", b"bytes_allocated"),
    "bytes_available": StatColumn("count", b"bytes_available"),
    "peak_bytes_in_use": StatColumn("count", b"peak_bytes_in_use"),
    "allocation_bytes": StatColumn("count", b"allocation_bytes"),
    "address": StatColumn("number", b"addr"),
    "fragmentation": StatColumn("ratio", b"fragmentation"),
    "region_type": StatColumn("text", b"region_type"),
    "tf_op": StatColumn("text", b"tf_op"),
    "group_key": StatColumn("number", b"group_key"),
    "instance_key": StatColumn("number", b"instance_key"),
    "buffer_size": StatColumn("count", b"buffer_size"),
    "parent_id": StatColumn("number", b"parent_id"),
    "buffer_limit": StatColumn("count", b"buffer_limit"),
    "buffered_elements": StatColumn("count", b"buffered_elements"),
    "parallelism": StatColumn("count", b"parallelism"),
    "dataset_name": StatColumn("text", b"name"),
    "rendezvous_key": StatColumn("text", b"key"),
    "kernel_type": StatColumn("text", b"kernel_type"),
    "device_ordinal": StatColumn("count", b"device_ordinal"),
    "run_id": StatColumn("number", b"run_id"),
    "hlo_module": StatColumn("text", b"hlo_module"),
    "program_id": StatColumn("number", b"program_id"),
}
TEXT_STATS: Final = frozenset(
    key
    for columns in (DEVICE_STATS, HOST_STATS)
    for key, column in columns.items()
    if column.kind == "text"
)


class HostNameKind(IntEnum):
    """The activity of a thread while an event of that name is open."""

    OTHER = 0
    INPUT = 1  # asks a dataset for the next element
    H2D = 2  # copies to a device, or prepares pinned memory for that
    D2H = 3  # copies from a device
    COMPILE = 4
    SYNC = 5  # waits for a device, or for a value
    CHECKPOINT = 6  # saves or restores variables
    OP = 7  # runs an op
    DISPATCH = 8  # decides what to run and hands it on
    EXECUTOR = 9  # runs ready ops of a graph, one after the other
    CALL = 10  # runs a graph
    ASYNC_INPUT = 11  # as INPUT, for an op that runs on a thread of its own
    LAUNCH = 12  # prepares or makes a launch


_TYPE: Final = lazy_pattern(rb"[A-Za-z_]\w*")
_EAGER_OP: Final = lazy_pattern(rb"EagerLocalExecute: (\w+)")
_INPUT_TYPE: Final = lazy_pattern(rb"(?:MultiDevice)?IteratorGetNext\w*")
_CHECKPOINT_TYPE: Final = lazy_pattern(
    rb"Save(?:V2|Slices)?|Restore(?:V2|Slice)?|MergeV2Checkpoints|ShardedFilename"
)
_PLUMBING_TYPE: Final = lazy_pattern(
    rb"_(?:Host)?(?:Send|Recv)|RemoteCall.*|.*PartitionedCall|(?:Stateless)?(?:While|If|Case)"
)
_CALL: Final = lazy_pattern(rb"FunctionRun|KernelAndDeviceFunc::Run|PjitFunction\(.*\)", re.DOTALL)
_PYTHON_CALL: Final = lazy_pattern(
    rb"EagerExecute|EagerLocalExecute: .*|EagerCopyToDevice|TFE_\w+|convert_to_tensor"
    rb"|DevicePut|np\.asarray\(jax\.Array\)|ArrayImpl\.copy_to_host_async"
)
_PIPELINE: Final = lazy_pattern(rb"Iterator::.*|InstantiatedCapturedFunction::Run.*", re.DOTALL)
_KINDS: Final = (
    (rb"IteratorGetNext(?:AsOptional|Sync)?Op::DoCompute.*", HostNameKind.ASYNC_INPUT),
    (rb"GetNextFromShard\d+|Iterator::.*", HostNameKind.INPUT),
    (_CALL.pattern, HostNameKind.CALL),
    (rb"ExecutorState::Process", HostNameKind.EXECUTOR),
    (
        (
            rb"(?:cu|cuda|hip)(?:Stream|Ctx|Event|Device|Thread)Synchronize.*|(?:\w+::)*BlockHostUntilDone"
            rb"|(?:\w+::)*SynchronizeStream|[\w:. ]*(?:WaitReady|BlockUntilReady)|\$[^ ]+:\d+ block_until_ready"
            rb"|np\.asarray\(jax\.Array\)|ArrayImpl\.copy_to_host_async|D2H (?:Dispatch|Copy From Staging Buffer)"
        ),
        HostNameKind.SYNC,
    ),
    (
        (
            rb"EagerExecute|EagerKernelExecute|TFE_\w+|EagerCopyToDevice|ValidateInputTypeAndPlacement"
            rb"|convert_to_tensor|ExecutorState::ProcessAsync.*|EagerLocalExecute: .*"
        ),
        HostNameKind.DISPATCH,
    ),
    (rb"command_buffer::\w+", HostNameKind.LAUNCH),
    (
        (
            rb"(?:cu|cuda|hip)(?:Mem)?Host(?:Alloc|Register|Malloc).*|H2D Dispatch|tf\.constant"
            rb"|\w+::BufferFromHostBuffer\(.*"
        ),
        HostNameKind.H2D,
    ),
)
"""The whole name by the activity; of several that fit the first."""

_OF_KIND: Final = lazy_pattern(b"|".join(b"(%b)" % pattern for pattern, _ in _KINDS), re.DOTALL)


def op_type(name: bytes) -> bytes | None:
    """The type of the op that a host event of this name ran (`scope/name:Type`); None if the name is not of an op."""
    scope, _, type_ = name.rpartition(b":")
    # `a::b` is a C++ name; the name of a Python frame begins with a blank or has a line number after the colon.
    if not scope or scope[:1].isspace() or b"::" in name or name[:1] == b":":
        return None
    return type_ if _TYPE.fullmatch(type_) else None


def is_python_call(name: bytes) -> bool:
    """Whether Python begins a host event of this name: it hands on an op or a tensor, reads one, or runs a graph."""
    return (_PYTHON_CALL.fullmatch(name) or _CALL.fullmatch(name)) is not None


def is_copy_to_device(name: bytes) -> bool:
    """Whether XLA copies an array to a device meanwhile, which a CPU device may be, too."""
    return name == b"H2D Dispatch"


def is_python_frame(name: bytes) -> bool:
    """Whether a Python tracer recorded a host event of this name: `$file.py:line function`."""
    return name[:1] == b"$"


def is_pipeline_call(name: bytes) -> bool:
    """Whether what runs inside of a host event of this name, or under its id, belongs to the input pipeline."""
    return _PIPELINE.fullmatch(name) is not None


def host_name_kind(name: bytes) -> HostNameKind:
    """The activity of a thread while a host event of this name is open."""
    eager = _EAGER_OP.fullmatch(name)
    if eager:
        # The op waits in an event of its own, inside the dispatch.
        kind = _of_type(eager[1], HostNameKind.DISPATCH)
        return HostNameKind.DISPATCH if kind is HostNameKind.INPUT else kind
    type_ = op_type(name)
    if type_ is not None:
        return _of_type(type_, HostNameKind.OP)
    known = _OF_KIND.fullmatch(name)
    if known is not None and known.lastindex is not None:
        return _KINDS[known.lastindex - 1][1]
    return HostNameKind.COMPILE if is_compilation(name) else _of_driver_call(name)


@lru_cache(maxsize=1024)
def _of_type(type_: bytes, otherwise: HostNameKind) -> HostNameKind:
    if _INPUT_TYPE.fullmatch(type_):
        return HostNameKind.INPUT
    if _CHECKPOINT_TYPE.fullmatch(type_):
        return HostNameKind.CHECKPOINT
    if type_ == b"SyncDevice":
        return HostNameKind.SYNC
    return HostNameKind.DISPATCH if _PLUMBING_TYPE.fullmatch(type_) else otherwise


def _of_driver_call(name: bytes) -> HostNameKind:
    call = name[name.find(b"Mem") :] if name.startswith((b"cuMem", b"hipMem")) else name
    match name_kind(call.removesuffix(b"_ptsz").removesuffix(b"_v2")):
        case NameKind.H2D:
            return HostNameKind.H2D
        case NameKind.D2H:
            return HostNameKind.D2H
        case _:
            return HostNameKind.OTHER
