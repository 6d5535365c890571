"""The report holds what the sidecars hold, host by host, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.json import encode

import traceview
from scripts.scenarios import SCENARIOS
from tests.sidecars import mirrored, write_sidecar
from traceview.analysis.machine.environment import job_facts
from traceview.analysis.measures.environment import Environment, HostEnvironment
from traceview.trace.sidecar.fields import read_as


def environment_of(folder: Path) -> Environment:
    found = traceview.analyze(folder).results.environment
    assert found is not None
    return found


def test_every_group_reaches_the_report(tmp_path: Path) -> None:
    (path,) = SCENARIOS["plain"]().write(tmp_path)
    groups: dict[str, dict[str, Any]] = {
        "command": {"script": ["t.py", "--key", "***"]},
        "cluster": {"role": "worker", "index": 1, "sizes": {"worker": 2}},
        "versions": {"tensorflow": "2.21.0", "driver": "550.54"},
        "strategy": mirrored("GPU:0", "GPU:1") | {"packs": 1, "bytes_per_pack": 0},
        "batch": {"global": 64, "per_replica": 32, "found_by": "dataset"},
        "training": {"parameters": 641, "gradient_bytes": 2564},
        "precision": {"policy": {"keras": "mixed_float16"}},
        "xla": {"auto_jit": "off"},
        "devices": {"logical": ["/device:GPU:0"]},
        "cores": {"usable_count": 16},
        "overhead": {"ratio": 0.25},
    }
    write_sidecar(path, {**groups, "variables": {"TF_GPU_THREAD_MODE": "gpu_private"}})
    environment = environment_of(tmp_path)
    (host,) = environment.hosts
    assert (host.host, environment.unknown, host.versions.nccl) == ("host0", (), None)
    assert host.variables == {"TF_GPU_THREAD_MODE": "gpu_private"}
    content = json.loads(encode(host))
    for group, fields in groups.items():
        kept = {key: content[group].get(key) for key in fields}
        assert kept == fields, group


def test_hosts_without_a_sidecar_are_named(tmp_path: Path) -> None:
    first, _ = SCENARIOS["two_hosts"]().write(tmp_path)
    write_sidecar(first, {"state": "saved"})
    environment = environment_of(tmp_path)
    assert [host.host for host in environment.hosts] == ["host0"]
    assert environment.unknown == ("host1",)


def test_what_the_sidecar_does_not_say_is_none(tmp_path: Path) -> None:
    (path,) = SCENARIOS["plain"]().write(tmp_path)
    write_sidecar(path, {})
    (host,) = environment_of(tmp_path).hosts
    assert (host.versions.tensorflow, host.batch.global_) == (None, None)
    assert (host.devices.physical, host.links.gpus, host.variables) == (None, None, None)


def test_without_any_sidecar_there_is_a_reason(tmp_path: Path) -> None:
    SCENARIOS["plain"]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    assert report.results.environment is None
    assert report.skipped["environment"].startswith("no sidecar")


def test_a_script_with_jax_has_its_mesh() -> None:
    arguments = [
        {
            "name": "w",
            "shape": [8, 8],
            "dtype": "float32",
            "sharding": [None, "model"],
            "mesh": {"data": 2, "model": 4},
        },
        {"name": "lr", "shape": [], "dtype": "float32", "sharding": None, "mesh": None},
    ]
    function = {
        "name": "train_step",
        "is_step": True,
        "calls": 14,
        "computes_gradients": True,
        "arguments": arguments,
    }
    content = {
        "host": "gpu1",
        "versions": {"jax": "0.10.2"},
        "jax": {"backend": "cpu", "functions": [function]},
    }
    wrong: list[str] = []
    host = read_as(HostEnvironment, content, wrong)
    assert wrong == []
    assert list(job_facts(Environment((host,), ()))) == ["mesh data 2 × model 4", "JAX 0.10.2"]
