"""The report holds what the sidecars hold, host by host, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

import traceview
from scripts.scenarios import SCENARIOS
from tests.sidecars import mirrored, write_sidecar
from traceview.analysis.machine.environment import job_facts
from traceview.analysis.measures.device_report import Environment, HostEnvironment
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
