"""Counted by XProf's rules, the cases of `scripts/scenarios/peers.py` give the numbers that XProf gave."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.crosscheck.answer import Answer, KernelAnswer, StepAnswer
from scripts.crosscheck.recount import recount, without_ends
from scripts.cuda_trace import CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import Scenario, marked_steps
from traceview.trace.reading.load import load

MS = 1_000_000_000


def counted(name: str, tmp_path: Path) -> Answer:
    SCENARIOS[name]().write(tmp_path)
    return recount(load(tmp_path))


@pytest.mark.parametrize(
    ("case", "step", "idle_ms", "devices"),
    [
        ("A", StepAnswer(38 * MS, compute_ps=35 * MS, other_ps=3 * MS), 148, 2),
        (
            "B",
            StepAnswer(38 * MS, compute_ps=22 * MS, collective_ps=10 * MS, other_ps=6 * MS),
            203,
            2,
        ),
        ("C", StepAnswer(40 * MS, compute_ps=40 * MS), 165, 2),
        ("D", StepAnswer(40 * MS, compute_ps=40 * MS), 30, 8),
        ("E", StepAnswer(45 * MS, compute_ps=45 * MS), 0, 1),
        ("F", StepAnswer(40 * MS, compute_ps=40 * MS), 30, 1),
        ("G", StepAnswer(10 * MS, compute_ps=10 * MS), 240, 2),
    ],
)
def test_cases_that_xprof_was_asked_about(
    case: str, step: StepAnswer, idle_ms: int, devices: int, tmp_path: Path
) -> None:
    found = counted(case, tmp_path)
    assert found.steps == (step,) * 4
    assert found.idle_ps == idle_ms * MS
    assert found.device_count == devices
    assert found.verdict == ("potential" if case in "AB" else "none")
    assert found.kernels == {}


def test_overlapping_classes_and_steps_at_the_ends(tmp_path: Path) -> None:
    """XProf 2.24.2 was asked about this one too: six steps of 22 ms, compute 18, collectives 3, input 1."""
    trace = CudaTrace("host0")
    for ordinal in range(2):
        trace.gpu(ordinal, plane_id=10 + ordinal)
    for index, step in enumerate(marked_steps(trace, count=8, launch_name="cuLaunchKernel")):
        step.kernel(0, 2, 10 + index, details=None)
        step.kernel(1, 5, 20, details=None)
        step.kernel(0, 20, 22, name="MEMCPYHToD", op=None, details=None)
        step.kernel(0, 21, 24, name="ncclDevKernel_AllReduce(x)", details=None)
    Scenario("eight", {"host0": trace}, {}).write(tmp_path)
    found = recount(load(tmp_path))
    one = StepAnswer(22 * MS, compute_ps=18 * MS, collective_ps=3 * MS, input_ps=MS)
    assert found.steps == (one,) * 6
    assert found.idle_ps == 501 * MS


@pytest.mark.parametrize(("count", "kept"), [(0, 0), (1, 1), (5, 5), (6, 4), (8, 6)])
def test_of_many_steps_the_ends_go(count: int, kept: int) -> None:
    found = without_ends(range(count))
    assert len(found) == kept
    assert count == kept or found == tuple(range(1, count - 1))


def test_without_a_gpu_a_step_is_its_marker(fixtures: Path) -> None:
    found = recount(load(fixtures / "slow-input-2"))
    assert found.device_count == 0
    assert found.steps is not None
    # As XProf 2.24.2 has them.
    assert [step.duration_ps // 1000 for step in found.steps[:2]] == [57_622_039, 67_285_401]
    assert (found.idle_ps, found.verdict, found.kernels) == (None, None, {})


def test_what_marks_no_step_for_xprof(fixtures: Path, tmp_path: Path) -> None:
    assert recount(load(fixtures / "keras-fit-2")).steps == ()
    assert counted("keras_batches", tmp_path).steps == ()


@pytest.mark.shared
def test_bert_as_xprof_has_it(shared_traces: Path) -> None:
    found = recount(load(shared_traces / "bert-8xV100"))
    assert found.steps == (
        StepAnswer(21_310_352_000, compute_ps=14_875_539_000, other_ps=6_434_813_000),
    )
    # Both files hold the same host.
    assert found.device_count == 16
    assert found.idle_ps == 2 * 623_195_950_000
    assert found.kernels is not None
    assert sum(kernel.count for kernel in found.kernels.values()) == 2 * 1330
    assert sum(kernel.total_ps for kernel in found.kernels.values()) == 2 * 29_690_748_000


@pytest.mark.shared
def test_copies_with_kernel_details_are_in_the_table(shared_traces: Path) -> None:
    found = recount(load(shared_traces / "jax-8xMI300X"))
    assert found.kernels is not None
    assert found.kernels["__amd_rocclr_copyBuffer.kd"] == KernelAnswer(35, 563_521_000)
    assert sum(kernel.count for kernel in found.kernels.values()) == 235
    assert (found.steps, found.idle_ps) == ((), None)
