"""The model of a device is that of its plane, else what the sidecar says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.cuda_trace import V100_STATS, Stats
from scripts.scenarios.model import marked_steps, new_trace
from tests.analysis.made import analyzed

V100, T4 = "Tesla V100-SXM2-16GB", "Tesla T4"


def of_tensorflow(*models: str) -> dict[str, Any]:
    return {
        "devices": {
            "physical": [{"type": "GPU", "details": {"device_name": model}} for model in models]
        }
    }


def of_nvml(*models: str) -> dict[str, Any]:
    devices = [{"ordinal": number, "name": model} for number, model in enumerate(models)]
    return {"outside_view": {"devices": devices}}


@pytest.mark.parametrize(
    ("planes", "sidecar", "expected"),
    [
        ([V100_STATS] * 2, {}, [V100, V100]),
        ([{}] * 2, {}, [None, None]),
        ([{}] * 2, of_tensorflow(V100, T4), [V100, T4]),
        ([{}] * 2, of_nvml(T4, V100), [T4, V100]),
        ([{}] * 2, of_tensorflow(V100) | of_nvml(T4, T4), [V100, T4]),
        ([V100_STATS, {}], of_tensorflow(T4, T4), [V100, T4]),
    ],
)
def test_models(
    planes: list[Stats], sidecar: dict[str, Any], expected: list[str | None], tmp_path: Path
) -> None:
    trace = new_trace()
    for ordinal, stats in enumerate(planes):
        trace.gpu(ordinal, stats=stats)
    for step in marked_steps(trace):
        for ordinal in range(len(planes)):
            step.kernel(ordinal, 2, 42)
    found = analyzed(tmp_path, trace, sidecar=sidecar).results.balance
    assert found is not None
    assert [row.model for row in found.devices] == expected
