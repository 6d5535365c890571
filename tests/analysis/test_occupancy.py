"""What fills little of a GPU follows from the blocks and the occupancy that a trace records, and from nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import traceview
from scripts.cuda_trace import MS
from scripts.scenarios.model import marked_steps, new_trace
from tests.analysis.made import finding_of
from tests.command import Command
from traceview.analysis.rules.finding import Finding
from traceview.analysis.workload.kernels import DeviceOccupancy, launch_of

ADD = "void Eigen::internal::EigenMetaKernel<float>"
GEMM = "volta_sgemm_128x64_nn"
FULL = "regs:32 static_shared:0 dynamic_shared:0 grid:160,1,1 block:256,1,1 occ_pct:100"


def written(folder: Path, details: str, *, kernel: str = ADD, length_ms: float = 10) -> None:
    """Four steps of 50 ms: 20 ms of a kernel that fills the GPU, and then of one with these details."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 22, name=ADD, op="model/dense/Mul:Mul", details=FULL)
        step.kernel(0, 22, 22 + length_ms, name=kernel, op="model/out/Add:AddV2", details=details)
    trace.write(folder)


def only(folder: Path) -> tuple[DeviceOccupancy, Finding | None]:
    report = traceview.analyze(folder)
    assert report.results.occupancy is not None
    (row,) = report.results.occupancy.devices
    return row, finding_of(report, "low-occupancy")


def details(grid: int, *, occupancy: float | str = 100) -> str:
    return f"regs:32 static_shared:0 grid:{grid},1,1 block:256,1,1 occ_pct:{occupancy}"


@pytest.mark.parametrize(
    ("given", "kernel", "is_sparse"),
    [
        (details(40), ADD, False),
        (details(160, occupancy=24.9), ADD, True),
        (details(160, occupancy=25), ADD, False),
        # Products need few warps, but blocks all the same.
        (details(160, occupancy=12.5), GEMM, False),
        (details(8, occupancy=12.5), GEMM, True),
        # Without a recorded occupancy.
        (details(160, occupancy=0), ADD, False),
        (details(8, occupancy="x"), ADD, True),
    ],
)
def test_both_sides_of_each_limit(given: str, kernel: str, is_sparse: bool, tmp_path: Path) -> None:
    written(tmp_path, given, kernel=kernel)
    row, finding = only(tmp_path)
    assert row.sparse_ps_per_step == (10 * MS if is_sparse else 0)
    assert (finding is not None) is is_sparse


def test_a_tenth_of_the_gpu_time(tmp_path: Path) -> None:
    written(tmp_path, details(1), length_ms=4.9)
    row, finding = only(tmp_path)
    assert row.sparse_ps_per_step == round(4.9 * MS)
    assert finding is None


def test_what_is_not_recorded_is_not_known(tmp_path: Path, command: Command) -> None:
    written(tmp_path, "regs:32 grid:many block:256,1,1")
    row, finding = only(tmp_path)
    assert row.known_ratio == pytest.approx(20 / 30)
    assert finding is None
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 22, details=None)
    trace.write(tmp_path / "without")
    report = traceview.analyze(tmp_path / "without")
    assert report.results.occupancy is None
    assert report.skipped["occupancy"] == "no kernel recorded how it was launched"


@pytest.mark.parametrize(
    ("text", "launch"),
    [
        (b"regs:38 shm:0 grid:160,2,1 block:1024,1,1 occ_pct:62.5", (320, 0.625)),
        (b"grid:1,1,1 block:512,1,1", (1, np.nan)),
        (b"grid:1,1,1 block:512,1,1 occ_pct:nan", (1, np.nan)),
        (b"grid:1,1,1 block:512,1,1 occ_pct:101", (1, np.nan)),
        (b"grid:0,1,1 block:512,1,1 occ_pct:50", (np.nan, np.nan)),
        (b"grid:1,1,1 block:2048,1,1 occ_pct:50", (np.nan, np.nan)),
        (b"grid:9999999999,9999999999,9 block:1,1,1 occ_pct:50", (np.nan, np.nan)),
        (b"", (np.nan, np.nan)),
    ],
)
def test_details_as_tracers_write_them(text: bytes, launch: tuple[float, float]) -> None:
    assert launch_of(text) == pytest.approx(launch, nan_ok=True)


@pytest.mark.shared
def test_real_kernels(shared_traces: Path) -> None:
    """TensorFlow wrote no occupancy in 2020, and ROCm writes none."""
    rows = traceview.analyze(shared_traces / "bert-8xV100").results.occupancy
    assert rows is not None
    assert [row.device for row in rows.devices] == ["GPU:4", "GPU:6"]
    assert {row.occupancy_ratio for row in rows.devices} == {None}
    amd = traceview.analyze(shared_traces / "jax-gemm-1of8").results.occupancy
    assert amd is not None
    assert [row.occupancy_ratio for row in amd.devices] == [None]
