"""Every recorded spelling has its meaning, and a name that only resembles one has not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.oracle.host_names import kind_of
from traceview.xplane.planes import (
    HostMemory,
    HostNameKind,
    NameKind,
    PlaneKind,
    copy_direction,
    details_bytes,
    details_direction,
    details_host_memory,
    host_name_kind,
    is_derived_line,
    is_never_busy_line,
    name_kind,
    op_type,
    parse_details,
    plane_kind,
    xla_op_kind,
)

FIRST_DERIVED, LAST_DERIVED = 0xDEADBEEF, 0xDEADBEEF + 389


PLANE_KINDS = {
    (PlaneKind.GPU, 0): b"/device:GPU:0",
    (PlaneKind.GPU, 15): b"/device:GPU:15",
    (PlaneKind.TPU, 3): b"/device:TPU:3",
    (PlaneKind.HOST, -1): (
        b"/host:CPU|/host:CUPTI|/host:NVTX-CUPTI|/host:ROCTRACER|/host:python-tracer|"
        b"/host:TPU-runtime"
    ),
    (PlaneKind.ENVIRONMENT, -1): b"Task Environment",
    (PlaneKind.METADATA, -1): b"/host:metadata",
    (PlaneKind.UNKNOWN, -1): (
        b"/device:TPU:3 SparseCore 1|#Chip TPU Non-Core HBM 0|/device:CUSTOM:Megascale Trace|"
        b"/device:GPU:|/device:GPU:-1|/device:GPU:0\n|/device:GPU:99999999999999999999|"
        b"/host:__ScopeRangeCallStack__|/host:tfstreamz|/host:CPU [123]|Host CPUs|Syscalls|\xff|"
    ),
}
"""Names with a bar between them; the last one is the empty name."""


def test_derived_lines_by_id() -> None:
    """Ids of 32 bits, which are recorded with a sign or without one."""
    name = b"Stream #20(Compute)"
    for shift in (0, 1 << 32):
        for line_id in (FIRST_DERIVED, LAST_DERIVED, 0xDEADBEF2):
            assert is_derived_line(line_id - shift, name)
        for line_id in (FIRST_DERIVED - 1, LAST_DERIVED + 1):
            assert not is_derived_line(line_id - shift, name)
    assert not any(is_derived_line(line_id, name) for line_id in (0, 20, -1, 2**31, 2**63 - 1))


DERIVED_NAMES = (
    b"Steps|TensorFlow Ops|TensorFlow Name Scope|Framework Ops|Framework Name Scope|Launch Stats|"
    b"XLA Modules|XLA Ops|Async XLA Ops|Source code|Host Offload Ops|Tensor Core Sync Flag|"
    b"Sparse Core Steps"
)


@pytest.mark.parametrize("name", DERIVED_NAMES.split(b"|"))
def test_derived_lines_by_name(name: bytes) -> None:
    assert is_derived_line(7, name)
    assert is_derived_line(7, name + b" - from #20")
    assert is_derived_line(7, name + b" - from #20(Compute,\nMemcpyH2D)")
    assert not is_derived_line(7, b"My " + name)
    assert not is_derived_line(7, name + b"2 - from #20") or name.startswith(b"Sparse Core ")


NEVER_BUSY = {
    True: (
        b"_counters_|Stream #0(MemoryResidency)|Stream #268435457(UnifiedMemory)|"
        b"Stream #5(MemoryAlloc,MemoryFree)|Stream #5(Generic, Overhead)|Stream #-5(Generic)"
    ),
    # "CUPTI overhead" may hold kernels: its events are judged one by one.
    False: (
        b"Stream #5(Overhead,Compute)|Stream #5(Compute,MemoryAlloc)|Stream #5(MemcpyP2P)|"
        b"Stream #5(CudaGraph)|Stream #5(SomethingNew)|Stream #5(Kernel)|Stream #5()|Stream #5|"
        b"CUPTI overhead|Generic|"
    ),
}
NAME_KINDS = {
    NameKind.H2D: b"MemcpyH2D|MEMCPYHtoD|Memcpy HtoD|CopyHostToDevice|hipMemcpyHtoDAsync",
    NameKind.D2H: b"MemcpyD2H|MEMCPYDtoH|[CUDA memcpy DtoH]|CopyDeviceToHost",
    NameKind.D2D: b"MemcpyD2D|MEMCPYDtoD|CopyDeviceToDevice",
    NameKind.P2P: b"MemcpyP2P|MEMCPYPtoP|[CUDA memcpy PtoP]",
    NameKind.COPY: b"MemcpyOther",
    NameKind.MEMSET: b"Memset 2|Memset|[CUDA memset]|__amd_rocclr_fillBufferAligned.kd",
    NameKind.GRAPH: b"CudaGraphExec:12",
    NameKind.LINKED_COPY: (
        b"__amd_rocclr_copyBuffer.kd|__amd_rocclr_copyBuffer|__amd_rocclr_copyBufferAligned.kd"
    ),
    NameKind.COLLECTIVE: (
        b"ncclAllReduceRingLLKernel_sum_f32(ncclColl)|"
        b"void ncclAllReduceRingLLKernel_sum_f32(ncclColl)|"
        b"ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)|"
        b"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)|"
        b"void ncclDevKernel_Generic<4>(x)|NCCLDevKernel_Broadcast|rcclGenericKernel<1>(x)|"
        b"my::rcclKernel"
    ),
    NameKind.NEVER_BUSY: b"UM_BYTES_TRANSFER_HTOD",
    NameKind.COMPUTE: (
        b"my_memcpyh2d_kernel|MemcpyH2DKernel|memset_kernel|void memset_kernel<float>(float*)|"
        b"memset32_post(int*)|copy|copy_fusion|copy_device_to_shared_kernel|"
        b"void cub::DeviceCopyKernel<int>(int*)|my_nccl_free_reduce|void my::nccl_like(int)|"
        b"CudaGraphExecutor|amd_rocclr_copyBuffer|Cijk_Ailk_Bljk_SB_MT64x64x16_SE_K1.kd|"
        b"void tensorflow::BiasNHWCKernel<float>(int, float const*) [clone .kd]|"
        b"kernel with [brackets] / : # < > and a\nnewline \xff|" + b"x" * 4096 + b"|"
    ),
}
COPY_CALLS = {
    NameKind.H2D: b"hipMemcpyHtoDAsync|cuMemcpyHtoDAsync_v2",
    NameKind.D2H: b"hipMemcpyDtoHAsync|cuMemcpyDtoH_v2",
    NameKind.D2D: b"hipMemcpyDtoDAsync",
    NameKind.P2P: b"MemcpyP2P",
    NameKind.COPY: b"hipLaunchHostFunc|hipStreamWaitEvent|hipMemcpyWithStream|",
}
XLA_OPS = {
    NameKind.COLLECTIVE: (
        b"all-reduce.1|%all-gather-start|reduce-scatter|ragged-all-to-all|collective-permute-done.2|"
        b"%recv-done.4 = (f32[8]{0}, token[]) recv-done(...)"
    ),
    NameKind.COMPUTE: (
        b"reduce.1|fusion.all-reduce|%copy.3 = f32[8]{0} copy(f32[8]{0:S(5)} %x)|%sender.1"
    ),
    NameKind.COPY: b"copy-done.7",
    NameKind.H2D: (
        b"%copy-start.7 = (f32[8]{0}, f32[8]{0:S(5)}, u32[]) copy-start(f32[8]{0:S(5)} %x)|"
        b"%copy-done.7 = f32[8]{0} copy-done((f32[8]{0}, f32[8]{0:S(5)}, u32[]) %y)"
    ),
    NameKind.D2H: (
        b"%copy-start.7 = (f32[8]{0:S(5)}, f32[8]{0}, u32[]) copy-start(f32[8]{0} %x)|"
        b"%copy-done.7 = f32[8]{0:S(5)} copy-done((f32[8]{0:S(5)}, f32[8]{0}, u32[]) %y)"
    ),
    NameKind.D2D: b"%slice-done.7 = f32[8]{0:S(1)} slice-done((f32[9]{0}, f32[8]{0:S(1)}) %y)",
}
SIZES = {
    112: b"size:112 dest:4 async:0",
    655360: b"kind:Unknown size:655360 dest:2 async:1",
    25165824: b"kind_src:pinned kind_dst:device size:25165824 dest:0 async:1",
    4096: b"kind:device num_bytes:4096 async:1",
    512: b"kind:device\nnum_bytes:512\n",
    0: b"size:0 dest:512",  # whether 0 means unknown depends on the event's duration
    None: b"size:-1|size:|size:1.5|size:99999999999999999999|dest:4|addr:0x7f:aa|no pair|",
}
DIRECTIONS = {
    NameKind.H2D: b"kind_src:pinned kind_dst:device|kind_src:pageable kind_dst:array|kind:HostToDevice",
    NameKind.D2H: b"kind_src:device kind_dst:pinned|kind_src:device_static kind_dst:pageable",
    NameKind.D2D: b"kind_src:device kind_dst:device|kind:DeviceToDevice size:8",
    NameKind.COPY: (
        b"kind_src:managed kind_dst:device|kind_src:unknown kind_dst:unknown|kind_src:pinned|"
        b"kind:Unknown size:655360 dest:2 async:1|size:112 dest:4 async:0|"
    ),
}
MEMORIES = {
    HostMemory.PAGEABLE: b"kind_src:pageable kind_dst:device|kind_src:device kind_dst:pageable",
    HostMemory.PINNED: b"kind_src:pinned kind_dst:device|kind_src:device kind_dst:pinned",
    HostMemory.UNKNOWN: b"kind_src:device kind_dst:device|size:112 dest:4 async:0|kind:Unknown|",
}
OP_TYPES = {
    b"MatMul": b"model/dense/MatMul:MatMul",
    b"_Recv": b"x:_Recv",
    None: b"MatMul:|:MatMul|MatMul|A::MatMul|$file.py:12 f|x:9",
}


def of_details(meaning: Callable[[dict[bytes, bytes]], object]) -> Callable[[bytes], object]:
    """What the pairs mean that stand in a text."""
    return lambda text: meaning(parse_details(text))


@pytest.mark.parametrize(
    ("meaning", "meanings"),
    [
        (plane_kind, PLANE_KINDS),
        (is_never_busy_line, NEVER_BUSY),
        (name_kind, NAME_KINDS),
        (copy_direction, COPY_CALLS),
        (xla_op_kind, XLA_OPS),
        (op_type, OP_TYPES),
        (of_details(details_bytes), SIZES),
        (of_details(details_direction), DIRECTIONS),
        (of_details(details_host_memory), MEMORIES),
    ],
)
def test_what_a_name_means(
    meaning: Callable[[bytes], object], meanings: Mapping[object, bytes]
) -> None:
    for expected, names in meanings.items():
        for name in names.split(b"|"):
            assert meaning(name) == expected, name


# Host events

HOST_NAMES = {
    HostNameKind.INPUT: (
        "IteratorGetNext:IteratorGetNext|cond/IteratorGetNext_1:IteratorGetNextAsOptional|"
        "replica_1/MultiDeviceIteratorGetNextFromShard:MultiDeviceIteratorGetNextFromShard|"
        "GetNextFromShard3|Iterator::Root::Prefetch"
    ),
    HostNameKind.ASYNC_INPUT: (
        "IteratorGetNextOp::DoCompute|IteratorGetNextAsOptionalOp::DoCompute"
    ),
    HostNameKind.H2D: (
        "cuMemcpyHtoDAsync_v2|cuMemcpyHtoD_v2_ptsz|hipMemcpyHtoDAsync|MemcpyH2D|"
        "cuMemHostAlloc|cuMemHostRegister_v2|hipHostMalloc|cudaHostAlloc"
    ),
    HostNameKind.D2H: "cuMemcpyDtoHAsync_v2|hipMemcpyDtoH|MemcpyD2H",
    HostNameKind.COMPILE: "XlaCompilationCache::Compile|Autotuning|cuModuleLoadDataEx",
    HostNameKind.SYNC: (
        "cuStreamSynchronize|cuCtxSynchronize_ptsz|hipEventSynchronize|cudaDeviceSynchronize|"
        "se::gpu::GpuExecutor::SynchronizeStream|Stream::BlockHostUntilDone|"
        "TensorHandle::WaitReady|SyncDevice:SyncDevice|EagerLocalExecute: SyncDevice"
    ),
    HostNameKind.CHECKPOINT: (
        "save/SaveV2:SaveV2|RestoreV2:RestoreV2|EagerLocalExecute: SaveV2|"
        "MergeV2Checkpoints:MergeV2Checkpoints"
    ),
    HostNameKind.OP: "model/dense/MatMul:MatMul|a:b:Add|model/x:SaveV3",
    HostNameKind.DISPATCH: (
        "EagerExecute|EagerKernelExecute|EagerLocalExecute: MatMul|"
        "EagerLocalExecute: IteratorGetNext|EagerLocalExecute: Addons>Gelu|"
        "TFE_Py_FastPathExecute_C|while:StatelessWhile|x/_5:_Recv|"
        "PartitionedCall:StatefulPartitionedCall|RemoteCall:RemoteCall"
    ),
    HostNameKind.EXECUTOR: "ExecutorState::Process",
    HostNameKind.CALL: "FunctionRun|KernelAndDeviceFunc::Run",
    HostNameKind.OTHER: (
        "|train|cuLaunchKernel|cuMemcpyDtoDAsync_v2|$train.py:12 step|model/Iterator::x|"
        " IteratorGetNext|sgemm_128x64"
    ),
}


@pytest.mark.parametrize(("kind", "names"), HOST_NAMES.items())
def test_host_names_show_the_activity_of_their_thread(kind: HostNameKind, names: str) -> None:
    for name in names.split("|"):
        assert host_name_kind(name.encode()) is kind, name
        assert kind_of(name) == kind.name.lower()


def test_host_names_need_not_be_text() -> None:
    assert host_name_kind(b"\xff\xfe:MatMul") is HostNameKind.OP
    assert host_name_kind(b"\xff\xfe") is HostNameKind.OTHER
    assert host_name_kind(b"Iterator::\n\xff") is HostNameKind.INPUT
