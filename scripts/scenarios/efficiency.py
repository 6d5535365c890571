"""Does the compute use what the GPU has? Kernels with few blocks, and a step that is far from the peak."""

from __future__ import annotations

from scripts.scenarios.model import (
    Scenario,
    marked_steps,
    new_trace,
    scenario,
)

PRODUCT = "product_fp16_kernel"


def few_blocks() -> Scenario:
    """Steps of 50 ms on one GPU of 80 multiprocessors: 25 ms of a kernel that fills it, 15 ms of one with eight blocks."""
    trace = new_trace()
    few = "regs:38 static_shared:0 dynamic_shared:0 grid:8,1,1 block:256,1,1 occ_pct:62.5"
    for step in marked_steps(trace):
        step.kernel(0, 2, 27)
        step.kernel(0, 27, 42, name="reduce", op="model/norm/Sum:Sum", details=few)
    return scenario(trace, ["low-occupancy"], ["low-mfu"])


def far_from_the_peak() -> Scenario:
    """Steps of 50 ms on one V100: 10 ms of a product in 16 bits at half of the peak, 30 ms of what multiplies nothing."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 12, name=PRODUCT, op="model/dense/MatMul:MatMul")
        step.kernel(0, 12, 42, name="mul", op="model/norm/Mul:Mul")
    return scenario(
        trace,
        ["low-mfu"],
        ["low-occupancy"],
        sidecar={"graphs": {"flops": {"model/dense/MatMul": 625_000_000_000}}},
    )
