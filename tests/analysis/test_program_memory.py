"""What programs say that they take is in the memory of GPUs: by layer, phase and argument, and only of programs that ran."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.cuda_trace import U64, Ref
from scripts.scenarios.model import marked_steps, new_trace
from tests.command import Command
from tests.xplane.hlo_messages import add_programs
from tests.xplane.test_hlo_buffers import written
from traceview.analysis.measures.program_memory import HeldByProgram, ProgramMemory


def run(folder: Path, *, ran: bool = True, has_allocator: bool = True) -> None:
    """Four steps with one kernel of the program `jit_f`."""
    trace = new_trace()
    for step in marked_steps(trace):
        stats = {"hlo_op": Ref("a"), "hlo_module": Ref("jit_f"), "program_id": U64(1)}
        step.kernel(0, 2, 30, name="a", op="XlaModule:", stats=stats if ran else {})
        if has_allocator:
            trace.allocation(0, step.at(1), held_bytes=2000, peak_bytes=2000, changed_bytes=1000)
    path = trace.write(folder)
    writer = written()
    writer.program()
    add_programs(path, {"jit_f(1)": writer.message.SerializeToString()})


def programs(folder: Path) -> tuple[ProgramMemory, ...]:
    memory = traceview.analyze(folder).results.memory
    assert memory is not None
    return memory.programs


def test_what_a_program_takes_by_layer_and_argument(tmp_path: Path) -> None:
    run(tmp_path)
    (program,) = programs(tmp_path)
    assert (program.program, program.whole_bytes, program.live_bytes) == ("jit_f", 1508, 500)
    assert program.held == (
        HeldByProgram("temporary", "f/Model/dense", "forward", 500, 2),
        HeldByProgram("argument", "weights[0]", "other", 400, 1),
        HeldByProgram("result", "f", "other", 400, 1),
        HeldByProgram("argument", "batch", "other", 100, 1),
        HeldByProgram("constant", None, "other", 8, 1),
    )


def test_a_program_that_did_not_run_takes_nothing(tmp_path: Path) -> None:
    run(tmp_path, ran=False)
    assert programs(tmp_path) == ()


def test_it_is_shown(tmp_path: Path, command: Command) -> None:
    run(tmp_path)
    shown = command("show", "memory", str(tmp_path), "--width", "160").out
    assert "Live at the peak of jit_f" in shown
    assert "f/Model/dense" in shown


@pytest.mark.shared
def test_a_real_program(shared_traces: Path) -> None:
    """A convolution on MI300X, whose operands are transposed first: the result twice, and 14 MB."""
    (program,) = programs(shared_traces / "jax-8xMI300X")[:1]
    assert program.program == "jit_forward_3d_conv"
    result = 5120 * 34 * 31 * 53 * 2
    assert program.result_bytes == result
    assert 0 < program.live_bytes - result < 8_000_000
    assert program.live_bytes <= program.temporary_bytes
