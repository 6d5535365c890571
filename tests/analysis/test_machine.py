"""What the sidecars of hosts hold reaches the report: the environment, the load of the cores, the models of devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

import traceview
from scripts.cuda_trace import V100_STATS, Stats
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import marked_steps, new_trace
from tests.analysis.made import analyzed
from tests.sidecars import mirrored, write_sidecar
from traceview.analysis.machine.environment import job_facts
from traceview.analysis.measures.device_report import Environment, HostEnvironment
from traceview.report.model import Report
from traceview.trace.sidecar.environment import read_as


def environment_of(folder: Path) -> Environment:
    found = traceview.analyze(folder).results.environment
    assert found is not None
    return found


GROUPS: dict[str, Any] = {
    "command": {"script": ["t.py", "--key", "***"]},
    "cluster": {"role": "worker", "index": 1, "sizes": {"worker": 2}},
    "versions": {"tensorflow": "2.21.0", "driver": "550.54"},
    "strategy": mirrored("GPU:0", "GPU:1") | {"packs": 1, "bytes_per_pack": 0},
    "batch": {"global": 64, "per_replica": 32, "found_by": "dataset"},
    "training": {"parameters": 641, "gradient_bytes": 2564},
    "precision": {"policy": {"keras": "mixed_float16"}},
    "xla": {"auto_jit": "off"},
    "variables": {"TF_GPU_THREAD_MODE": "gpu_private"},
    "devices": {"logical": ["/device:GPU:0"]},
    "links": {"gpus": [{"pcie_generation_max": 4}]},
    "cores": {"usable_count": 16},
    "overhead": {"ratio": 0.25},
}


def holds(value: Any, expected: Any) -> bool:
    """Whether a value is what was recorded, beside what is not known."""
    if isinstance(expected, dict):
        return all(key in value and holds(value[key], of) for key, of in expected.items())
    if isinstance(expected, list):
        return len(value) == len(expected) and all(map(holds, value, expected))
    return bool(value == expected)


def test_every_group_reaches_the_report(tmp_path: Path) -> None:
    (path,) = SCENARIOS["plain"]().write(tmp_path)
    write_sidecar(path, GROUPS)
    environment = environment_of(tmp_path)
    (host,) = environment.hosts
    assert environment.unknown == ()
    assert holds(to_builtins(host), {"host": "host0", **GROUPS})
    assert host.versions.nccl is None


@pytest.mark.parametrize(
    ("process_count", "framework"),
    [
        (1, "JAX 0.10.2 on 16 NVIDIA H100"),
        (2, "JAX 0.10.2 on 16 NVIDIA H100 in 2 processes"),
        (None, "JAX 0.10.2 on 16 NVIDIA H100"),
    ],
)
def test_a_script_with_jax_has_its_mesh_and_devices(
    process_count: int | None, framework: str
) -> None:
    placed = {"devices": 16, "shard": "8,2", "sharding": "NamedSharding"}
    arguments = [
        {"name": "w", "type": "float32[8,8]", **placed, "mesh": {"data": 2, "model": 8}},
        {"name": "lr", "type": "~float32[]"},
    ]
    function = {"name": "train_step", "is_step": True, "arguments": arguments, "compilations": []}
    setup = {"device_kind": "NVIDIA H100", "device_count": 16, "process_count": process_count}
    content = {
        "host": "gpu1",
        "versions": {"jax": "0.10.2"},
        "jax": {**setup, "functions": [function]},
    }
    wrong: list[str] = []
    host = read_as(HostEnvironment, content, wrong)
    assert wrong == []
    assert list(job_facts(Environment((host,), ()))) == ["mesh data 2 × model 8", framework]
    # A recording of a version that did not note the kind.
    other = read_as(HostEnvironment, {**content, "jax": {"device_count": 16}}, wrong)
    assert list(job_facts(Environment((other,), ()))) == ["JAX 0.10.2"]


# Load; what it costs is in `test_core_waits`


def report_of(folder: Path, load: dict[str, Any]) -> Report:
    (file,) = SCENARIOS["four_healthy"]().write(folder)
    write_sidecar(file, {"load": load})
    return traceview.analyze(folder)


def load(busy: float, own: float, cores: int = 4) -> dict[str, Any]:
    """Cores that were busy, and those of this process, for two seconds."""
    second = 10**9
    return {
        "elapsed_ns": 2 * second,
        "busy_ns": round(2 * second * busy),
        "own_ns": round(2 * second * own),
        "cores": cores,
    }


def test_the_shares_of_the_cores(tmp_path: Path) -> None:
    report = report_of(tmp_path, load(4, 1))
    assert report.results.machine_load is not None
    (row,) = report.results.machine_load.hosts
    assert (row.core_count, row.other_ratio, row.started_ratio) == (4, 0.75, None)
    # No clock shows that a thread waited for a core.
    assert "other-processes" not in [finding.code for finding in report.findings]


@pytest.mark.parametrize(
    "recorded", [{}, {"elapsed_ns": 0, "busy_ns": 5, "cores": 2}, {"busy_ns": "much"}]
)
def test_what_was_not_recorded_is_not_known(recorded: dict[str, Any], tmp_path: Path) -> None:
    report = report_of(tmp_path, recorded)
    assert report.results.machine_load is None
    assert report.skipped["machine_load"] == "the capture recorded no load"


def test_coarse_ticks_make_no_share_above_all(tmp_path: Path) -> None:
    result = report_of(tmp_path, load(4.2, 4.1)).results.machine_load
    assert result is not None
    assert result.hosts[0].other_ratio == 0


# Models: of the plane of a device, else of the sidecar


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
