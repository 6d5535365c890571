"""Every recorded spelling has its meaning, and a name that only resembles one has not."""

from __future__ import annotations

import pytest

from traceview.xplane.planes import (
    HostMemory,
    NameKind,
    PlaneKind,
    copy_direction,
    details_bytes,
    details_direction,
    details_host_memory,
    is_derived_line,
    is_never_busy_line,
    name_kind,
    parse_details,
    plane_kind,
    xla_op_kind,
)

FIRST_DERIVED, LAST_DERIVED = 0xDEADBEEF, 0xDEADBEEF + 389


@pytest.mark.parametrize(
    ("name", "kind", "ordinal"),
    [
        (b"/device:GPU:0", PlaneKind.GPU, 0),
        (b"/device:GPU:15", PlaneKind.GPU, 15),
        (b"/device:TPU:3", PlaneKind.TPU, 3),
        (b"/device:TPU:3 SparseCore 1", PlaneKind.OTHER_DEVICE, -1),
        (b"#Chip TPU Non-Core HBM 0", PlaneKind.OTHER_DEVICE, -1),
        (b"/device:CUSTOM:Megascale Trace", PlaneKind.OTHER_DEVICE, -1),
        (b"/device:CUSTOM:MOSAIC:x", PlaneKind.OTHER_DEVICE, -1),
        (b"/virtualdevice:x", PlaneKind.OTHER_DEVICE, -1),
        (b"/device:GPU:", PlaneKind.OTHER_DEVICE, -1),
        (b"/device:GPU:-1", PlaneKind.OTHER_DEVICE, -1),
        (b"/device:GPU:0\n", PlaneKind.OTHER_DEVICE, -1),
        (b"/device:GPU:99999999999999999999", PlaneKind.OTHER_DEVICE, -1),
        (b"/host:CPU", PlaneKind.HOST, -1),
        (b"/host:CUPTI", PlaneKind.HOST, -1),
        (b"/host:NVTX-CUPTI", PlaneKind.HOST, -1),
        (b"/host:ROCTRACER", PlaneKind.HOST, -1),
        (b"/host:python-tracer", PlaneKind.HOST, -1),
        (b"/host:TPU-runtime", PlaneKind.HOST, -1),
        (b"Task Environment", PlaneKind.ENVIRONMENT, -1),
        (b"/host:metadata", PlaneKind.METADATA, -1),
        (b"/host:__ScopeRangeCallStack__", PlaneKind.UNKNOWN, -1),
        (b"/host:tfstreamz", PlaneKind.UNKNOWN, -1),
        (b"/host:CPU [123]", PlaneKind.UNKNOWN, -1),
        (b"Host CPUs", PlaneKind.UNKNOWN, -1),
        (b"Syscalls", PlaneKind.UNKNOWN, -1),
        (b"\xff", PlaneKind.UNKNOWN, -1),
        (b"", PlaneKind.UNKNOWN, -1),
    ],
)
def test_plane_kinds(name: bytes, kind: PlaneKind, ordinal: int) -> None:
    assert plane_kind(name) == (kind, ordinal)


@pytest.mark.parametrize(
    ("line_id", "derived"),
    [
        (FIRST_DERIVED, True),
        (LAST_DERIVED, True),
        (FIRST_DERIVED - (1 << 32), True),
        (LAST_DERIVED - (1 << 32), True),
        (-559038734, True),
        (FIRST_DERIVED - 1, False),
        (LAST_DERIVED + 1, False),
        (FIRST_DERIVED - 1 - (1 << 32), False),
        (LAST_DERIVED + 1 - (1 << 32), False),
        (0, False),
        (20, False),
        (-1, False),
        (2**31, False),
        (2**63 - 1, False),
    ],
)
def test_derived_lines_by_id(line_id: int, derived: bool) -> None:
    assert is_derived_line(line_id, b"Stream #20(Compute)") is derived


DERIVED_NAMES = (
    b"Steps",
    b"TensorFlow Ops",
    b"TensorFlow Name Scope",
    b"Framework Ops",
    b"Framework Name Scope",
    b"Launch Stats",
    b"XLA Modules",
    b"XLA Ops",
    b"Async XLA Ops",
    b"Source code",
    b"Host Offload Ops",
    b"Tensor Core Sync Flag",
    b"Sparse Core Steps",
)


@pytest.mark.parametrize("name", DERIVED_NAMES)
def test_derived_lines_by_name(name: bytes) -> None:
    assert is_derived_line(7, name)
    assert is_derived_line(7, name + b" - from #20")
    assert is_derived_line(7, name + b" - from #20(Compute,\nMemcpyH2D)")
    assert not is_derived_line(7, b"My " + name)
    assert not is_derived_line(7, name + b"2 - from #20") or name.startswith(b"Sparse Core ")


@pytest.mark.parametrize(
    ("name", "never"),
    [
        (b"_counters_", True),
        (b"Stream #0(MemoryResidency)", True),
        (b"Stream #268435457(UnifiedMemory)", True),
        (b"Stream #5(MemoryAlloc,MemoryFree)", True),
        (b"Stream #5(Generic, Overhead)", True),
        (b"Stream #-5(Generic)", True),
        (b"Stream #5(Overhead,Compute)", False),
        (b"Stream #5(Compute,MemoryAlloc)", False),
        (b"Stream #5(MemcpyP2P)", False),
        (b"Stream #5(CudaGraph)", False),
        (b"Stream #5(SomethingNew)", False),
        (b"Stream #5(Kernel)", False),
        (b"Stream #5()", False),
        (b"Stream #5", False),
        (b"CUPTI overhead", False),  # may hold kernels: its events are judged one by one
        (b"Generic", False),
        (b"", False),
    ],
)
def test_never_busy_lines(name: bytes, never: bool) -> None:
    assert is_never_busy_line(name) is never


NAME_KINDS = {
    NameKind.H2D: (
        b"MemcpyH2D",
        b"MEMCPYHtoD",
        b"Memcpy HtoD",
        b"CopyHostToDevice",
        b"hipMemcpyHtoDAsync",
    ),
    NameKind.D2H: (
        b"MemcpyD2H",
        b"MEMCPYDtoH",
        b"[CUDA memcpy DtoH]",
        b"CopyDeviceToHost",
    ),
    NameKind.D2D: (
        b"MemcpyD2D",
        b"MEMCPYDtoD",
        b"CopyDeviceToDevice",
    ),
    NameKind.P2P: (
        b"MemcpyP2P",
        b"MEMCPYPtoP",
        b"[CUDA memcpy PtoP]",
    ),
    NameKind.COPY: (b"MemcpyOther",),
    NameKind.MEMSET: (
        b"Memset 2",
        b"Memset",
        b"[CUDA memset]",
        b"__amd_rocclr_fillBufferAligned.kd",
    ),
    NameKind.GRAPH: (b"CudaGraphExec:12",),
    NameKind.LINKED_COPY: (
        b"__amd_rocclr_copyBuffer.kd",
        b"__amd_rocclr_copyBuffer",
        b"__amd_rocclr_copyBufferAligned.kd",
    ),
    NameKind.COLLECTIVE: (
        b"ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
        b"void ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
        b"ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)",
        b"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        b"void ncclDevKernel_Generic<4>(x)",
        b"NCCLDevKernel_Broadcast",
        b"rcclGenericKernel<1>(x)",
        b"my::rcclKernel",
    ),
    NameKind.NEVER_BUSY: (b"UM_BYTES_TRANSFER_HTOD",),
    NameKind.COMPUTE: (
        b"my_memcpyh2d_kernel",
        b"MemcpyH2DKernel",
        b"memset_kernel",
        b"void memset_kernel<float>(float*)",
        b"memset32_post(int*)",
        b"copy",
        b"copy_fusion",
        b"copy_device_to_shared_kernel",
        b"void cub::DeviceCopyKernel<int>(int*)",
        b"my_nccl_free_reduce",
        b"void my::nccl_like(int)",
        b"CudaGraphExecutor",
        b"amd_rocclr_copyBuffer",
        b"Cijk_Ailk_Bljk_SB_MT64x64x16_SE_K1.kd",
        b"void tensorflow::BiasNHWCKernel<float>(int, float const*) [clone .kd]",
        b"kernel with [brackets] / : # < > and a\nnewline \xff",
        b"x" * 4096,
        b"",
    ),
}


@pytest.mark.parametrize(
    ("name", "kind"), [(n, kind) for kind, names in NAME_KINDS.items() for n in names]
)
def test_name_kinds(name: bytes, kind: NameKind) -> None:
    assert name_kind(name) is kind


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (b"hipMemcpyHtoDAsync", NameKind.H2D),
        (b"hipMemcpyDtoHAsync", NameKind.D2H),
        (b"hipMemcpyDtoDAsync", NameKind.D2D),
        (b"cuMemcpyHtoDAsync_v2", NameKind.H2D),
        (b"cuMemcpyDtoH_v2", NameKind.D2H),
        (b"MemcpyP2P", NameKind.P2P),
        (b"hipLaunchHostFunc", NameKind.COPY),
        (b"hipStreamWaitEvent", NameKind.COPY),
        (b"hipMemcpyWithStream", NameKind.COPY),
        (b"", NameKind.COPY),
    ],
)
def test_copy_directions(call: bytes, kind: NameKind) -> None:
    assert copy_direction(call) is kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (b"all-reduce.1", NameKind.COLLECTIVE),
        (b"%all-gather-start", NameKind.COLLECTIVE),
        (b"reduce-scatter", NameKind.COLLECTIVE),
        (b"ragged-all-to-all", NameKind.COLLECTIVE),
        (b"collective-permute-done.2", NameKind.COLLECTIVE),
        (b"%recv-done.4 = (f32[8]{0}, token[]) recv-done(...)", NameKind.COLLECTIVE),
        (b"reduce.1", NameKind.COMPUTE),
        (b"fusion.all-reduce", NameKind.COMPUTE),
        (b"%copy.3 = f32[8]{0} copy(f32[8]{0:S(5)} %x)", NameKind.COMPUTE),
        (b"%sender.1", NameKind.COMPUTE),
        (b"copy-done.7", NameKind.COPY),
        (
            b"%copy-start.7 = (f32[8]{0}, f32[8]{0:S(5)}, u32[]) copy-start(f32[8]{0:S(5)} %x)",
            NameKind.H2D,
        ),
        (
            b"%copy-start.7 = (f32[8]{0:S(5)}, f32[8]{0}, u32[]) copy-start(f32[8]{0} %x)",
            NameKind.D2H,
        ),
        (
            b"%copy-done.7 = f32[8]{0} copy-done((f32[8]{0}, f32[8]{0:S(5)}, u32[]) %y)",
            NameKind.H2D,
        ),
        (
            b"%copy-done.7 = f32[8]{0:S(5)} copy-done((f32[8]{0:S(5)}, f32[8]{0}, u32[]) %y)",
            NameKind.D2H,
        ),
        (
            b"%slice-done.7 = f32[8]{0:S(1)} slice-done((f32[9]{0}, f32[8]{0:S(1)}) %y)",
            NameKind.D2D,
        ),
    ],
)
def test_xla_ops(name: bytes, kind: NameKind) -> None:
    assert xla_op_kind(name) is kind


@pytest.mark.parametrize(
    ("text", "details"),
    [
        (  # 2020
            b"regs:38 shm:0 grid:160,1,1 block:1024,1,1",
            {b"regs": b"38", b"shm": b"0", b"grid": b"160,1,1", b"block": b"1024,1,1"},
        ),
        (b"regs:38\nshm:0\ngrid:1,1,1\n", {b"regs": b"38", b"shm": b"0", b"grid": b"1,1,1"}),
        (
            b"regs:24 static_shared:0 dynamic_shared:4096 grid:1,1,1 block:128,1,1 occ_pct:62.5",
            {
                b"regs": b"24",
                b"static_shared": b"0",
                b"dynamic_shared": b"4096",
                b"grid": b"1,1,1",
                b"block": b"128,1,1",
                b"occ_pct": b"62.5",
            },
        ),
        (  # ROCm 0.8
            b" grid:1,1,1 private_mem:0 group_mem:16 occ_pct:0",
            {b"grid": b"1,1,1", b"private_mem": b"0", b"group_mem": b"16", b"occ_pct": b"0"},
        ),
        (b"addr:0x7f:aa kind:device", {b"addr": b"0x7f:aa", b"kind": b"device"}),
        (b"regs: static_shared:1", {b"regs": b"", b"static_shared": b"1"}),
        (b"no pairs at all", {}),
        (b"\xff:\xfe", {b"\xff": b"\xfe"}),
        (b"", {}),
    ],
)
def test_detail_formats(text: bytes, details: dict[bytes, bytes]) -> None:
    assert parse_details(text) == details


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (b"size:112 dest:4 async:0", 112),
        (b"kind:Unknown size:655360 dest:2 async:1", 655360),
        (b"kind_src:pinned kind_dst:device size:25165824 dest:0 async:1", 25165824),
        (b"kind:device num_bytes:4096 async:1", 4096),
        (b"kind:device num_bytes:512", 512),
        (b"size:0 dest:512", 0),  # whether 0 means unknown depends on the event's duration
        (b"size:-1", None),
        (b"size:", None),
        (b"size:1.5", None),
        (b"size:99999999999999999999", None),
        (b"dest:4", None),
        (b"", None),
    ],
)
def test_bytes_in_details(text: bytes, size: int | None) -> None:
    assert details_bytes(parse_details(text)) == size


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"kind_src:pinned kind_dst:device", NameKind.H2D),
        (b"kind_src:pageable kind_dst:array", NameKind.H2D),
        (b"kind_src:device kind_dst:pinned", NameKind.D2H),
        (b"kind_src:device_static kind_dst:pageable", NameKind.D2H),
        (b"kind_src:device kind_dst:device", NameKind.D2D),
        (b"kind_src:managed kind_dst:device", NameKind.COPY),
        (b"kind_src:unknown kind_dst:unknown", NameKind.COPY),
        (b"kind_src:pinned", NameKind.COPY),
        (b"kind:HostToDevice size:8", NameKind.H2D),
        (b"kind:DeviceToDevice size:8", NameKind.D2D),
        (b"kind:Unknown size:655360 dest:2 async:1", NameKind.COPY),
        (b"size:112 dest:4 async:0", NameKind.COPY),
        (b"", NameKind.COPY),
    ],
)
def test_directions_in_details(text: bytes, kind: NameKind) -> None:
    assert details_direction(parse_details(text)) is kind


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        (b"kind_src:pageable kind_dst:device size:4 dest:0 async:1", HostMemory.PAGEABLE),
        (b"kind_src:pinned kind_dst:device size:4 dest:0 async:1", HostMemory.PINNED),
        (b"kind_src:device kind_dst:pageable size:4 dest:0 async:0", HostMemory.PAGEABLE),
        (b"kind_src:device kind_dst:pinned size:4 dest:0 async:1", HostMemory.PINNED),
        (b"kind_src:device kind_dst:device size:4 dest:0 async:1", HostMemory.UNKNOWN),
        (b"size:112 dest:4 async:0", HostMemory.UNKNOWN),
        (b"kind:Unknown size:655360 dest:2 async:1", HostMemory.UNKNOWN),
        (b"", HostMemory.UNKNOWN),
    ],
)
def test_memory_on_the_side_of_the_host(text: bytes, memory: HostMemory) -> None:
    assert details_host_memory(parse_details(text)) is memory
