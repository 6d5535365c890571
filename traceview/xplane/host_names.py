"""Tells the activity of a thread from the name of a host event.

Sources: TraceMe names of TensorFlow 2.21 (`kernel_and_device.cc`, `executor.cc`, `iterator_ops.cc`,
`tensor_handle.cc`), driver calls as CUPTI and ROCm name them, Python frames as JAX 0.8 names them, and recorded traces
from 2020 to 2026.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from traceview.base.codes import Code
from traceview.base.text import lazy_pattern
from traceview.xplane.planes import NameKind, is_compilation, name_kind


class HostNameKind(Code):
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
