"""The name of a host event shows the activity of its thread."""

from __future__ import annotations

import pytest

from tests.oracle.host_names import kind_of
from traceview.xplane.planes import HostNameKind, host_name_kind, op_type

NAMES = {
    HostNameKind.INPUT: (
        "IteratorGetNext:IteratorGetNext",
        "cond/IteratorGetNext_1:IteratorGetNextAsOptional",
        "replica_1/MultiDeviceIteratorGetNextFromShard:MultiDeviceIteratorGetNextFromShard",
        "GetNextFromShard3",
        "Iterator::Root::Prefetch",
    ),
    HostNameKind.ASYNC_INPUT: (
        "IteratorGetNextOp::DoCompute",
        "IteratorGetNextAsOptionalOp::DoCompute",
    ),
    HostNameKind.H2D: (
        *("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoD_v2_ptsz", "hipMemcpyHtoDAsync", "MemcpyH2D"),
        *("cuMemHostAlloc", "cuMemHostRegister_v2", "hipHostMalloc", "cudaHostAlloc"),
    ),
    HostNameKind.D2H: ("cuMemcpyDtoHAsync_v2", "hipMemcpyDtoH", "MemcpyD2H"),
    HostNameKind.COMPILE: ("XlaCompilationCache::Compile", "Autotuning", "cuModuleLoadDataEx"),
    HostNameKind.SYNC: (
        *("cuStreamSynchronize", "cuCtxSynchronize_ptsz", "hipEventSynchronize"),
        *("cudaDeviceSynchronize", "se::gpu::GpuExecutor::SynchronizeStream"),
        *("Stream::BlockHostUntilDone", "TensorHandle::WaitReady", "SyncDevice:SyncDevice"),
        "EagerLocalExecute: SyncDevice",
    ),
    HostNameKind.CHECKPOINT: (
        "save/SaveV2:SaveV2",
        "RestoreV2:RestoreV2",
        "EagerLocalExecute: SaveV2",
        "MergeV2Checkpoints:MergeV2Checkpoints",
    ),
    HostNameKind.OP: ("model/dense/MatMul:MatMul", "a:b:Add", "model/x:SaveV3"),
    HostNameKind.DISPATCH: (
        "EagerExecute",
        "EagerKernelExecute",
        "EagerLocalExecute: MatMul",
        "EagerLocalExecute: IteratorGetNext",
        "EagerLocalExecute: Addons>Gelu",
        "TFE_Py_FastPathExecute_C",
        "while:StatelessWhile",
        "x/_5:_Recv",
        "PartitionedCall:StatefulPartitionedCall",
        "RemoteCall:RemoteCall",
    ),
    HostNameKind.EXECUTOR: ("ExecutorState::Process",),
    HostNameKind.CALL: ("FunctionRun", "KernelAndDeviceFunc::Run"),
    HostNameKind.OTHER: (
        "",
        "train",
        "cuLaunchKernel",
        "cuMemcpyDtoDAsync_v2",
        "$train.py:12 step",
        "model/Iterator::x",
        " IteratorGetNext",
        "sgemm_128x64",
    ),
}


@pytest.mark.parametrize(("kind", "names"), NAMES.items())
def test_kind(kind: HostNameKind, names: tuple[str, ...]) -> None:
    for name in names:
        assert host_name_kind(name.encode()) is kind, name
        assert kind_of(name) == kind.name.lower()


def test_names_need_not_be_text() -> None:
    assert host_name_kind(b"\xff\xfe:MatMul") is HostNameKind.OP
    assert host_name_kind(b"\xff\xfe") is HostNameKind.OTHER
    assert host_name_kind(b"Iterator::\n\xff") is HostNameKind.INPUT


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("model/dense/MatMul:MatMul", "MatMul"),
        ("MatMul:", None),
        (":MatMul", None),
        ("MatMul", None),
        ("A::MatMul", None),
        ("$file.py:12 f", None),
        ("x:9", None),
        ("x:_Recv", "_Recv"),
    ],
)
def test_type_of_an_op(name: str, type_: str | None) -> None:
    assert op_type(name.encode()) == (None if type_ is None else type_.encode())
