"""The activity of a thread while a host event of some name is open (docs/method.md, "State of a host thread")."""

from __future__ import annotations

import re
from functools import cache

from tests.oracle.classes import direction_of_name, is_copy_name

CHECKPOINT_TYPES = {
    "Save",
    "SaveV2",
    "SaveSlices",
    "Restore",
    "RestoreV2",
    "RestoreSlice",
    "MergeV2Checkpoints",
    "ShardedFilename",
}
PLUMBING_TYPES = {
    *("_Send", "_Recv", "_HostSend", "_HostRecv"),
    *("While", "If", "Case", "StatelessWhile", "StatelessIf", "StatelessCase"),
}
DISPATCHING = (
    "EagerExecute",
    "EagerKernelExecute",
    "EagerCopyToDevice",
    "ValidateInputTypeAndPlacement",
    "convert_to_tensor",
)
JAX_READS = (
    *("np.asarray(jax.Array)", "ArrayImpl.copy_to_host_async"),
    *("D2H Dispatch", "D2H Copy From Staging Buffer"),
)
DRIVERS = ("cuda", "cu", "hip")


def type_of_op(name: str) -> str | None:
    """The type in `scope/name:Type`; there is no `::`, and the scope does not begin with a space."""
    scope, colon, op_type = name.rpartition(":")
    if not colon or not scope or "::" in name or scope[0] in " \t\n\r\f\v:":
        return None
    return op_type if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", op_type) else None


def _of_type(op_type: str) -> str:
    if op_type.removeprefix("MultiDevice").startswith("IteratorGetNext"):
        return "input"
    if op_type in CHECKPOINT_TYPES:
        return "checkpoint"
    if op_type == "SyncDevice":
        return "sync"
    if op_type in PLUMBING_TYPES or op_type.startswith("RemoteCall"):
        return "dispatch"
    return "dispatch" if op_type.endswith("PartitionedCall") else "op"


def _of_driver_call(name: str) -> str:
    """The kind of a driver call; allocating or registering pinned memory stages a copy to the device."""
    for driver in DRIVERS:
        call = name.removeprefix(driver)
        if call == name:
            continue
        if re.match(r"(Stream|Ctx|Event|Device|Thread)Synchronize", call):
            return "sync"
        if re.match(r"(Mem)?Host(Alloc|Register|Malloc)", call):
            return "h2d"
    call = re.sub(r"(_v2)?(_ptsz)?$", "", name)
    call = call.removeprefix("cu") if call.startswith("cuMem") else call
    call = call.removeprefix("hip") if call.startswith("hipMem") else call
    call = call.removeprefix("cuda")
    plain = re.sub(r"async$", "", call.lower().replace(" ", "").replace("_", ""))
    if is_copy_name(plain) or re.fullmatch(r"(memcpy)?copy?[hd]to[hd]", plain):
        direction = direction_of_name(plain)
        return direction if direction in ("h2d", "d2h") else "other"
    return "other"


def is_compilation(name: str) -> bool:
    """Whether a name without the scope of an op or the file of a frame is that of a compilation."""
    compiles = re.search(
        r"XlaCompil|::Compile|Autotun|ModuleLoad|LibraryLoad|^(?:backend_compile|lower_sharding_computation|lower_jaxpr|trace_to_jaxpr)",
        name,
    )
    return compiles is not None and "/" not in name and not name.startswith("$")


def calls_jax(name: str) -> bool:
    return name.startswith("PjitFunction(") and name.endswith(")")


def is_begun_by_python(name: str) -> bool:
    """Whether only Python begins such an event: an eager op, a handle, a tensor from an array, or a graph."""
    eager = ("EagerExecute", "EagerCopyToDevice", "convert_to_tensor", "DevicePut", *JAX_READS[:2])
    graphs = ("FunctionRun", "KernelAndDeviceFunc::Run")
    begun = re.fullmatch(r"EagerLocalExecute: .*|TFE_\w+", name) is not None
    return begun or name in eager or name in graphs or calls_jax(name)


@cache
def kind_of(name: str) -> str:
    """One of input, async_input, h2d, d2h, compile, sync, checkpoint, op, dispatch, executor, call, other."""
    if re.fullmatch(r"EagerLocalExecute: \w+", name):
        # The op waits for input in an event of its own inside.
        kind = _of_type(name.split(": ")[1])
        return "dispatch" if kind in ("op", "input") else kind
    op_type = type_of_op(name)
    if op_type is not None:
        return _of_type(op_type)
    if re.match(r"IteratorGetNext(AsOptional|Sync)?Op::DoCompute", name):
        return "async_input"
    if re.fullmatch(r"GetNextFromShard\d+", name) or name.startswith("Iterator::"):
        return "input"
    if name in ("FunctionRun", "KernelAndDeviceFunc::Run") or calls_jax(name):
        return "call"
    if name == "ExecutorState::Process":
        return "executor"
    if name in JAX_READS:
        return "sync"
    if name in ("H2D Dispatch", "tf.constant") or re.match(r"\w+::BufferFromHostBuffer\(", name):
        return "h2d"
    if re.fullmatch(r"command_buffer::\w+", name):
        return "launch"
    last = name.rsplit("::", 1)[-1]
    if last in ("BlockHostUntilDone", "SynchronizeStream"):
        return "sync"
    if re.fullmatch(r"[\w:. ]*(WaitReady|BlockUntilReady)", name):
        return "sync"
    if re.fullmatch(r"\$[^ ]+:[0-9]+ block_until_ready", name):
        return "sync"
    if is_compilation(name):
        return "compile"
    if name in DISPATCHING or re.fullmatch(r"EagerLocalExecute: .*|TFE_\w+", name):
        return "dispatch"
    if name.startswith("ExecutorState::ProcessAsync"):
        return "dispatch"
    return _of_driver_call(name)
