"""Kernels of command buffers are joined with the schedule of their program, or with nothing where that is not certain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scripts.cuda_trace import MS, CudaTrace
from tests.analysis.made import in_program
from tests.xplane.hlo_messages import ModuleWriter, add_programs
from traceview.base.errors import TraceFormatError
from traceview.trace.model import Trace
from traceview.trace.reading.load import load

GEMM = "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n"
REST = "splitKreduce_kernel"
BUFFER = "command_buffer_1"
OF_BUFFER: dict[str, Any] = {"op": "XlaModule:", "stats": in_program(BUFFER, "jit_f", 7)}

PROGRAM = (
    ("x", "parameter"),
    ("copy.1", "copy"),
    ("custom-call.2", "custom-call"),
    ("get-tuple-element.2", "get-tuple-element"),
    ("fusion.3", "fusion"),
    ("custom-call.1", "custom-call"),
    ("fusion.4", "fusion"),
    ("loop_add_fusion.1", "fusion"),
    ("all-reduce-start", "all-reduce-start"),
    ("all-reduce-done", "all-reduce-done"),
)
"""In the order of its schedule; the order in which it is written is another one."""


def program(instructions: Sequence[tuple[str, str]] = PROGRAM) -> ModuleWriter:
    module = ModuleWriter()
    ids = {
        name: module.add(name, opcode, scope=f"jit(f)/{name}", shape=(len(name.partition(".")[0]),))
        for name, opcode in reversed(instructions)
    }
    sequence = module.message.schedule.sequences.add(key=1)
    sequence.value.instruction_ids.extend(ids[name] for name, _ in instructions)
    return module


def joined(folder: Path, *launches: Sequence[str], module: ModuleWriter | None = None) -> list[str]:
    """The instructions of the kernels of some launches of a graph, each of one kernel in a millisecond."""
    trace = CudaTrace()
    at = 0
    for number, kernels in enumerate(launches, start=1):
        for kernel in kernels:
            trace.kernel(0, at, at + MS, name=kernel, correlation_id=number, **OF_BUFFER)
            at += MS
    add_programs(trace.write(folder), {"jit_f(7)": module or program()})
    loaded = load(folder)
    ops = names(loaded)
    instructions = [
        loaded.instructions[each] for each in loaded.device_columns.instruction.tolist()
    ]
    assert [each.name.decode() for each in instructions] == ops
    assert all(
        each.scope == f"jit(f)/{op}" or op == BUFFER
        for each, op in zip(instructions, ops, strict=True)
    )
    return ops


def names(trace: Trace) -> list[str]:
    return [trace.names.text(op) or "" for op in trace.device_columns.op.tolist()]


def test_in_the_order_of_the_schedule(tmp_path: Path) -> None:
    """`fusion.4` has the code of `fusion.3`, so both run one kernel; a product may run several of a library."""
    kernels = [GEMM, "fusion_3", GEMM, REST, "fusion_3", "loop_add_fusion_1"]
    expected = [
        "custom-call.2",
        "fusion.3",
        *["custom-call.1"] * 2,
        "fusion.4",
        "loop_add_fusion.1",
    ]
    assert joined(tmp_path, kernels, kernels) == 2 * expected


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        (["loop_add_fusion_1"], ["loop_add_fusion.1"]),
        (
            ["fusion_4", "loop_add_fusion_1", "nccl"],
            ["fusion.4", "loop_add_fusion.1", "all-reduce-start"],
        ),
        # Only a copy has a kernel that copies.
        ([GEMM, GEMM, "fusion_3"], ["custom-call.2"] * 2 + ["fusion.3"]),
        (["memcpy128", GEMM, "fusion_3"], ["copy.1", "custom-call.2", "fusion.3"]),
        # Calls of libraries fill their workspace.
        (
            [GEMM, "fusion_3", "Memset 0", GEMM],
            ["custom-call.2", "fusion.3", BUFFER, "custom-call.1"],
        ),
        ([GEMM] * 3 + ["fusion_3"], ["custom-call.2"] * 3 + ["fusion.3"]),
        # `loop_add_fusion.1` has another shape than `fusion.3`, `fusion.4` another name.
        (["fusion_3", GEMM], ["fusion.3", "custom-call.1"]),
        (["Memset 0", "Memset 1"], None),
        # Two products may be meant.
        ([GEMM], None),
        # `fusion.3` would run its own kernel, as it does elsewhere.
        (["fusion_4", GEMM, "fusion_3"], None),
        (["fusion_3", GEMM, "fusion_3", "other"], None),
        (["unknown_1"] * 12, None),
    ],
)
def test_only_where_one_stretch_fits(
    kernels: list[str], expected: list[str] | None, tmp_path: Path
) -> None:
    assert joined(tmp_path, kernels) == (expected or [BUFFER] * len(kernels))


def test_without_a_schedule_nothing_is_known(tmp_path: Path) -> None:
    module = program()
    module.message.ClearField("schedule")
    assert joined(tmp_path, ["fusion_3", GEMM], module=module) == [BUFFER] * 2


def test_a_hostile_schedule_is_damage_or_ends(tmp_path: Path) -> None:
    """Each of 3000 kernels fits each of 3000 fusions but for the last."""
    many = [(f"fusion.{number}", "fusion") for number in range(3000)]
    kernels = ["fusion_0"] * 1500 + ["fusion_1"]
    assert joined(tmp_path, kernels, module=program(many)) == [BUFFER] * len(kernels)
    module = program()
    broken = module.message.SerializeToString() + b"\x3a\x02\x0a\x7f"
    trace = CudaTrace()
    trace.kernel(0, 0, MS, name="fusion_3", **OF_BUFFER)
    path = trace.write(tmp_path / "broken")
    add_programs(
        path, {"jit_f(7)": b"\x0a" + bytes([len(broken) % 128 | 128, len(broken) // 128]) + broken}
    )
    with pytest.raises(TraceFormatError, match="damaged program"):
        load(tmp_path / "broken")
    assert names(load(tmp_path / "broken", salvage=True)) == [BUFFER]
