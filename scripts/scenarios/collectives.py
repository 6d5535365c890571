"""How do the devices sum their gradients, and who waits for whom? Runs that differ in nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scripts.cuda_trace import NCCL_NAME, PROFILE_START_NS, CudaTrace, Ref, Stats
from scripts.scenarios.model import (
    Scenario,
    Step,
    Truth,
    findings_truth,
    marked_steps,
    ms,
    new_trace,
    scenario,
)

NCCL_GATHER_NAME = "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
SEND_NAME = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
OLD_NCCL_NAME = "ncclAllReduceRingLLKernel_sum_f32(ncclColl)"
RCCL_NAME = "void rcclGenericKernel<1, false>(ncclDevComm*, unsigned long, ncclWork*)"
REDUCE_OP = "adam/CollectiveReduceV2:CollectiveReduceV2"
BUFFER_BYTES = 100_000_000
GRADIENT_BYTES = 25_000_000

Span = tuple[float, float]


def _scenario(trace: CudaTrace, *must: str, **truth: Any) -> Scenario:
    return scenario(trace, must, ["unused-gpu", "marginal-gpu"], **truth)


def all_reduce(
    step: Step,
    spans: Sequence[Span],
    *,
    instance: int,
    asked_ms: float,
    op: str = REDUCE_OP,
    size: int = BUFFER_BYTES,
) -> None:
    """One all-reduce with everything that TensorFlow 2.21 says of it; the span of each GPU in their order.

    The op of the last GPU to ask schedules it, and a thread per GPU launches it there.
    """
    trace = step.trace
    op_thread = trace.thread("collective_ops", 9_001)
    keys: Stats = {"group_key": 1, "instance_key": instance, "step_id": 77}
    step.host(op, asked_ms, asked_ms + 0.4, keys, thread=op_thread)
    context = 1_000_000 + instance
    step.host(
        "Schedule Collective", asked_ms + 0.1, asked_ms + 0.2, {"_pt": 0, "_p": context},
        thread=op_thread,
    )  # fmt: skip
    for ordinal, (start_ms, end_ms) in enumerate(spans):
        thread = trace.thread("nccl_kernel_launch", 9_100 + ordinal)
        at_ms = asked_ms + 0.2
        consumed: Stats = {"_ct": 0, "_c": context}
        step.host("Run Collective", at_ms, at_ms + 0.1, consumed, thread=thread)
        called: Stats = {"buffer_size": size, "collective_type": "all_reduce"}
        step.host("ncclAllReduce", at_ms + 0.02, at_ms + 0.08, called, thread=thread)
        launched = Step(trace, step.start_ms, thread=thread)
        launched.kernel(
            ordinal, start_ms, end_ms, name=NCCL_NAME, op="ncclAllReduce", stream=22,
            launch_ms=at_ms + 0.04,
        )  # fmt: skip


def layer_step(
    step: Step, first_instance: int, *, length_ms: float = 1, layer: str = "batch_normalization"
) -> None:
    """A step of two GPUs: four layers that exchange data in both passes, 2 ms of compute before each, then the optimizer.

    `length_ms`: of each of the eight collectives.
    """
    spans = [(2 + 3 * place, 4 + 3 * place) for place in range(8)]
    for place, (start_ms, end_ms) in enumerate(spans):
        number = place if place < 4 else 7 - place
        scope = f"functional_1/{layer}_{number}"
        op = f"{scope}/Sum:Sum" if place < 4 else f"gradient_tape/{scope}/Tile:Tile"
        asked = f"{scope}/" if place < 4 else ""
        for ordinal in range(2):
            step.kernel(ordinal, start_ms, end_ms, op=op)
        all_reduce(
            step,
            [(end_ms, end_ms + length_ms)] * 2,
            instance=first_instance + place,
            asked_ms=start_ms,
            op=f"StatefulPartitionedCall/{asked}CollectiveReduceV2_{place}:CollectiveReduceV2",
            size=512,
        )
    for ordinal in range(2):
        step.kernel(
            ordinal, 26, 30, op="gradient_tape/functional_1/conv2d/Conv2DBackpropFilter:Mul"
        )
        step.kernel(ordinal, 31, 33, op="adam/update_0/Mul:Mul")
    all_reduce(step, [(30, 31)] * 2, instance=first_instance + 8, asked_ms=29)


def layer_collectives() -> Scenario:
    """Synchronised batch normalisation: eight collectives of four layers take 8 of 50 ms, beside the sum of the gradients."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace)):
        layer_step(step, 100 * index)
    return _scenario(trace, "small-collectives")


def overlapped_collectives() -> Scenario:
    """The same sum under the kernels that compute the other gradients: it costs nothing."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace)):
        for ordinal in range(4):
            step.kernel(ordinal, 0.1, 46)
        all_reduce(step, [(20, 32)] * 4, instance=100 + index, asked_ms=0.5)
    return _scenario(trace)


def mixed_collectives() -> Scenario:
    """Two sums per step with the same keys in every step, one hidden and one half hidden: 3 of 50 ms show."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 0.1, 43)
        all_reduce(step, [(10, 16)] * 2, instance=7, asked_ms=0.5)
        all_reduce(step, [(40, 46)] * 2, instance=8, asked_ms=1.5)
    return _scenario(
        trace,
        collectives={
            "count": 8,
            "count_per_step": 2,
            "matched_by": "keys",
            "transfer_ps": ms(48),
            "transfer_per_step_ps": ms(12),
            "overlap_ratio": 0.75,
            "bus_bytes_per_second": 800_000_000_000 // 48,
        },
    )


def late_by_turns() -> Scenario:
    """Another GPU of four comes 6 ms late to the sum in each step; the other three wait for it."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace)):
        spans = []
        for ordinal in range(4):
            end_ms = 38 if ordinal == index else 32
            step.kernel(ordinal, end_ms - 30, end_ms)
            spans.append((end_ms, 40.0))
        all_reduce(step, spans, instance=100 + index, asked_ms=0.5)
    return _scenario(trace, "late-by-turns")


def pipeline_of_two() -> Scenario:
    """Two stages: GPU:1 waits 10 of 50 ms for what GPU:0 sends, GPU:0 20 ms for what comes back, and GPU:1 at the sum of the loss."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace)):
        for ordinal, spans in enumerate((((2, 12), (33, 43)), ((13, 32),))):
            for start_ms, end_ms in spans:
                step.kernel(ordinal, start_ms, end_ms)
        for sent_at, waits_from in ((12, (12, 2)), (32, (13, 32))):
            for ordinal, start_ms in enumerate(waits_from):
                step.kernel(ordinal, start_ms, sent_at + 1, name=SEND_NAME, stream=22)
        all_reduce(step, [(43, 44), (33, 44)], instance=200 + index, asked_ms=0.5)
    return _scenario(trace, "pipeline-bubble")


def cut_collectives() -> Scenario:
    """Old NCCL, no keys: GPU 1 was not yet recorded when the first sum ran, so its first is GPU 0's second.

    Two sums per step, of 2 and 4 ms; GPU 1 comes 1 ms late to the second one.
    """
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace)):
        for ordinal in range(2):
            step.kernel(ordinal, 0.1, 44)
            for place, (start_ms, end_ms) in enumerate(((10.0, 12.0), (30.0, 35.0))):
                if (index, place, ordinal) == (0, 0, 1):
                    continue
                late_ms = float(place == 1 and ordinal == 1)
                step.kernel(
                    ordinal, start_ms + late_ms, end_ms, name=OLD_NCCL_NAME,
                    op="allreduce/NcclAllReduce:NcclAllReduce", stream=22,
                )  # fmt: skip
    return _scenario(
        trace,
        collectives={
            "count": 8,
            "incomplete_count": 1,
            "count_per_step": 2,
            "matched_by": "order",
            # Three times 2 ms, four times 4.
            "transfer_ps": ms(22),
            "last_counts": {"GPU:0": 0, "GPU:1": 4},
            "overlap_ratio": 1.0,
            "bytes": None,
            "bus_bytes_per_second": None,
        },
    )


def rccl() -> Scenario:
    """ROCm: the kernel says only that it is RCCL's; the op tells what it does."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 0.1, 40)
            step.kernel(ordinal, 36, 42, name=RCCL_NAME, op=REDUCE_OP, stream=22)
    return _scenario(trace)


# Ways without NCCL


def _sum(step: Step, ordinal: int, start_ms: float, end_ms: float, op: str) -> None:
    step.kernel(ordinal, start_ms, end_ms, name="AddNKernel<float>", op=f"{op}:AddN")


def _p2p(step: Step, source: int, target: int, start_ms: float, end_ms: float, size: int) -> None:
    step.copy(source, "P2P", start_ms, end_ms, size=size, dest=target)


def cpu_bounce() -> Scenario:
    """Two GPUs send their gradients to the host, which sums them and sends the result back."""
    trace = new_trace()
    executor = trace.thread("tf_Compute", 8_001)
    summed: Stats = {"tf_op": Ref("sgd/AddN/_9:_Recv")}
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 0.1, 42)
            step.copy(ordinal, "D2H", 42.1, 43.1, size=GRADIENT_BYTES, stream=23)
        step.host("sgd/AddN:AddN", 43.2, 43.6, thread=executor)
        for ordinal in range(2):
            step.copy(
                ordinal, "H2D", 43.7, 44.7, size=GRADIENT_BYTES, stats=summed, launch_ms=43.65
            )
            step.kernel(ordinal, 44.8, 46, op="sgd/update:ResourceApplyGradientDescent")
    return _scenario(trace, "reduction-off-gpu")


def one_device() -> Scenario:
    """All four GPUs send their gradients to GPU 0, which sums them and sends the result to each."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(4):
            step.kernel(ordinal, 0.1, 40)
        for source in (1, 2, 3):
            _p2p(step, source, 0, 40.1, 42.1, GRADIENT_BYTES)
        _sum(step, 0, 42.2, 42.7, "sgd/AddN")
        for place, target in enumerate((1, 2, 3)):
            _p2p(step, 0, target, 42.8 + 2 * place, 44.8 + 2 * place, GRADIENT_BYTES)
    return _scenario(trace, "d2d-copies")


def scalar_loss() -> Scenario:
    """Two GPUs that share nothing but the loss: 4 bytes to GPU 0, a sum, 4 bytes to the host."""
    trace = new_trace()
    executor = trace.thread("tf_Compute", 8_001)
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 0.1, 42)
        _p2p(step, 1, 0, 42.1, 42.11, 4)
        _sum(step, 0, 42.2, 42.21, "AddN")
        step.copy(0, "D2H", 42.3, 42.31, size=4, stream=23)
        step.host("Sum_1/AddN:AddN", 42.4, 42.41, thread=executor)
    return _scenario(trace)


def collective_ring() -> Scenario:
    """Virtual GPUs: the collective op copies between them itself, in a ring."""
    trace = new_trace()
    op_thread = trace.thread("collective_ops", 9_001)
    keys: Stats = {"group_key": 1, "instance_key": 5, "step_id": 77}
    for step in marked_steps(trace):
        step.host(REDUCE_OP, 40, 43, keys, thread=op_thread)
        for ordinal in range(2):
            step.kernel(ordinal, 0.1, 40)
            _p2p(step, ordinal, 1 - ordinal, 40.1, 42.1, GRADIENT_BYTES)
    return _scenario(trace)


def embedding() -> Scenario:
    """Two GPUs sum dense gradients and gather those of an embedding, which are IndexedSlices."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 0.1, 46)
            for start_ms, kind in ((20, "Reduce"), (30, "Gather"), (32, "Gather")):
                op = f"adam/Collective{kind}V2:Collective{kind}V2"
                name = NCCL_NAME if kind == "Reduce" else NCCL_GATHER_NAME
                step.kernel(ordinal, start_ms, start_ms + 1, name=name, op=op, stream=22)
    return _scenario(trace)


def several_packs() -> Scenario:
    """Four GPUs sum 100 MB of gradients in four calls of 2 ms each, though the strategy has one pack."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(4):
            step.kernel(ordinal, 0.1, 30)
            for start_ms in (30, 32, 34, 36):
                step.kernel(
                    ordinal, start_ms, start_ms + 2, name=NCCL_NAME, op=REDUCE_OP, stream=22
                )
    collectives: Truth = {
        "count": 16,
        "count_per_step": 4,
        "transfer_per_step_ps": ms(8),
        "bytes": BUFFER_BYTES,
        # 100 MB in 8 ms; each device sends 2 · 3/4 of them.
        "bus_bytes_per_second": 18_750_000_000,
    }
    sidecar = {
        "training": {"gradient_bytes": BUFFER_BYTES},
        "strategy": {"class": "MirroredStrategy", "packs": 1},
    }
    return _scenario(trace, "collective-exposed", sidecar=sidecar, collectives=collectives)


# Several hosts


def collectives_of_two_hosts() -> Scenario:
    """Two hosts of two GPUs sum together; the clock of the second is 7 ms ahead of what its profile says.

    Its GPU 1 comes 4 ms after all others.
    """
    traces = {}
    for host, skew_ms in (("host0", 0.0), ("host1", 7.0)):
        trace = CudaTrace(host, start_ns=PROFILE_START_NS, stop_ns=PROFILE_START_NS + 250_000_000)
        for index, step in enumerate(marked_steps(trace, first_ms=10 + skew_ms)):
            late_ms = [0.0, 4.0 if host == "host1" else 0.0]
            for ordinal in range(2):
                step.kernel(ordinal, 0.1 + late_ms[ordinal], 40 + late_ms[ordinal])
            spans = [(40 + late, 46.0) for late in late_ms]
            all_reduce(step, spans, instance=100 + index, asked_ms=0.5)
        traces[host] = trace
    others = ("host0/GPU:0", "host0/GPU:1", "host1/GPU:0")
    truth: Truth = {
        "clocks": {
            "host0": {"method": "profile_start", "offset_ps": 0},
            "host1": {"method": "collectives", "offset_ps": -ms(7), "residual_ps": 0},
        },
        "collectives": {
            "count": 4,
            "transfer_ps": ms(8),
            "matched_by": "keys",
            "incomplete_count": 0,
            "device_count": 4,
            "last_counts": {**dict.fromkeys(others, 0), "host1/GPU:1": 4},
            "bus_bytes_per_second": 75_000_000_000,
        },
        "findings": findings_truth(["straggler-gpu"], ["collective-exposed", "unused-gpu"]),
    }
    return Scenario(traces, truth)
