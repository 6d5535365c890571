"""Devices are grouped by the hardware that is known of all of them, from planes and from the sidecar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.cuda_trace import V100_STATS, Stats
from scripts.scenarios.model import marked_steps, new_trace
from tests.sidecars import write_sidecar
from traceview.analysis.exchange.balance import Balance

V100, T4 = "Tesla V100-SXM2-16GB", "Tesla T4"
Group = tuple[str | None, int | None, int | None]


def compared(folder: Path, planes: list[Stats], sidecar: dict[str, Any] | None) -> Balance:
    """Two GPUs that compute alike."""
    trace = new_trace()
    for ordinal, stats in enumerate(planes):
        trace.gpu(ordinal, stats=stats)
    for step in marked_steps(trace):
        for ordinal in range(len(planes)):
            step.kernel(ordinal, 2, 42)
    path = trace.write(folder)
    if sidecar is not None:
        write_sidecar(path, sidecar)
    found = traceview.analyze(folder).results.balance
    assert found is not None
    return found


def groups(found: Balance) -> list[Group]:
    return [(one.model, one.core_count, one.clock_max_hz) for one in found.hardware]


def of_tensorflow(*models: str) -> dict[str, Any]:
    return {
        "devices": {
            "physical": [{"type": "GPU", "details": {"device_name": model}} for model in models]
        }
    }


def of_nvml(*gpus: tuple[str, int]) -> dict[str, Any]:
    devices = [
        {"ordinal": number, "name": model, "sm_clock_max_hz": clock}
        for number, (model, clock) in enumerate(gpus)
    ]
    return {"outside_view": {"devices": devices}}


@pytest.mark.parametrize(
    ("planes", "sidecar", "expected"),
    [
        ([V100_STATS] * 2, None, [(V100, 80, 1_530_000_000)]),
        ([{}] * 2, None, [(None, None, None)]),
        ([{}] * 2, of_tensorflow(V100, T4), [(V100, None, None), (T4, None, None)]),
        (
            [{}] * 2,
            of_nvml((V100, 1_530_000_000), (V100, 1_290_000_000)),
            [(V100, None, 1_530_000_000), (V100, None, 1_290_000_000)],
        ),
        # What is known of one only is no difference.
        ([V100_STATS, {}], of_tensorflow(V100, V100), [(V100, None, None)]),
        ([V100_STATS, {}], None, [(None, None, None)]),
        # NVML's clock of one device is not set beside CUDA's of the other.
        (
            [V100_STATS, {"gpu_device_name": V100}],
            of_nvml((V100, 1_380_000_000), (V100, 1_380_000_000)),
            [(V100, None, 1_380_000_000)],
        ),
    ],
)
def test_kinds_of_devices(
    planes: list[Stats], sidecar: dict[str, Any] | None, expected: list[Group], tmp_path: Path
) -> None:
    assert groups(compared(tmp_path, planes, sidecar)) == expected


def test_each_device_keeps_what_is_known_of_it(tmp_path: Path) -> None:
    sidecar = of_tensorflow(V100, T4) | of_nvml((V100, 1), (T4, 1_590_000_000))
    found = compared(tmp_path, [V100_STATS, {}], sidecar)
    assert [row.model for row in found.devices] == [V100, T4]
