"""Samples of NVML are joined with the steps in which they lie: energy of a step, of an example, and throttled steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.cuda_trace import PROFILE_START_NS
from scripts.scenarios.model import marked_steps, new_trace
from tests.command import Command
from tests.sidecars import write_sidecar
from traceview.analysis.machine.nvml import Nvml

HEAT = 0x20


def sampled(
    folder: Path,
    *,
    gpus: int = 2,
    every_ms: int = 100,
    period_ms: float = 300,
    throttled: tuple[int, ...] = (),
    batch: int | None = 64,
) -> Nvml:
    """Four steps, each GPU at 100 W more than the one before; `throttled`: samples in which heat held the clocks back."""
    length_ms = round(4 * period_ms)
    trace = new_trace(length_ms=length_ms)
    for step in marked_steps(trace, period_ms=period_ms, marker_ms=period_ms):
        for gpu in range(gpus):
            step.kernel(gpu, 2, period_ms - 10)
    count = -(-length_ms // every_ms)
    devices: list[dict[str, Any]] = [
        {
            "ordinal": gpu,
            "samples": {
                "t_ns": [
                    PROFILE_START_NS + 2000 + every_ms * 1_000_000 * at for at in range(count)
                ],
                "power_watts": [100.0 * (gpu + 1)] * count,
                "throttle_reasons": [HEAT if at in throttled else 0 for at in range(count)],
            },
        }
        for gpu in range(gpus)
    ]
    fields: dict[str, Any] = {"outside_view": {"devices": devices}}
    if batch:
        fields["batch"] = {"global": batch, "per_replica": batch // gpus}
    write_sidecar(trace.write(folder), fields)
    found = traceview.analyze(folder).results.outside_view
    assert found is not None
    return found


def test_energy_of_a_step_and_an_example(tmp_path: Path, command: Command) -> None:
    found = sampled(tmp_path)
    assert [row.joules_per_step for row in found.devices] == [pytest.approx(30), pytest.approx(60)]
    assert found.joules_per_example == pytest.approx(90 / 64)
    page = command("report", str(tmp_path), "--format", "markdown", "-o", "-").out
    assert "Energy of all GPUs: 1.41 J per example." in page
    assert "| energy per step |" in page
    assert "throttled steps" not in page


def test_throttled_steps(tmp_path: Path, command: Command) -> None:
    """Of twelve samples three lie in each step."""
    found = sampled(tmp_path, throttled=(0, 1, 5))
    assert [(row.throttled_step_count, row.sampled_step_count) for row in found.devices] == [
        (2, 4)
    ] * 2
    assert "2 of 4" in command("report", str(tmp_path), "--format", "markdown", "-o", "-").out


@pytest.mark.parametrize(
    "options",
    [{"period_ms": 249}, {"every_ms": 301}],
    ids=["less than a second", "fewer than five samples"],
)
def test_too_little_says_nothing_of_energy(options: dict[str, Any], tmp_path: Path) -> None:
    found = sampled(tmp_path, **options)
    assert {row.joules_per_step for row in found.devices} == {None}
    assert found.joules_per_example is None


def test_without_a_batch_there_is_no_energy_of_an_example(tmp_path: Path) -> None:
    found = sampled(tmp_path, batch=None)
    assert found.joules_per_example is None
    assert found.devices[0].joules_per_step == pytest.approx(30)
