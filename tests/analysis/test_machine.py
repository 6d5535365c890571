"""What the sidecars of hosts hold reaches the report: the environment, models of devices, what NVML saw."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import convert, to_builtins
from msgspec.structs import asdict, replace

import traceview
from scripts.cuda_trace import PROFILE_START_NS, V100_STATS, CudaTrace, Stats
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import Step, marked_steps, new_trace
from tests.analysis.made import analyzed, check_finding
from tests.ledger.ledgers import Row, ledger_of
from tests.sidecars import mirrored, write_sidecar
from traceview.analysis.facts.selection import select
from traceview.analysis.machine import load
from traceview.analysis.machine.environment import job_facts
from traceview.analysis.machine.load import ANALYSIS as NVML
from traceview.analysis.machine.load import (
    NOT_SAMPLED,
    SHARED_RATIO,
    THROTTLED_RATIO,
    Nvml,
    NvmlRow,
    throttle_names,
)
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.device_report import Environment, HostEnvironment
from traceview.analysis.rules.finding import Finding
from traceview.analysis.rules.words import Number, Quantity
from traceview.document import screen as terminal
from traceview.ledger.states import State
from traceview.report.document import document_of
from traceview.report.saved import to_json
from traceview.trace.sidecar.sidecar import RecordedLoad

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
    environment = traceview.analyze(tmp_path).results.environment
    assert environment is not None
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
    host = convert(content, HostEnvironment)
    assert list(job_facts(Environment((host,), ()))) == ["mesh data 2 × model 8", framework]
    # A recording of a version that did not note the kind.
    other = convert({**content, "jax": {"device_count": 16}}, HostEnvironment)
    assert list(job_facts(Environment((other,), ()))) == ["JAX 0.10.2"]


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


# NVML's samples are summed up for each GPU


LENGTH_MS = 3000
OTHER = 4242
TOTAL_BYTES = 100 * 10**9


def busy_trace(*kernel_shares: float, host: str = "host0", length_ms: int = LENGTH_MS) -> CudaTrace:
    """GPUs that run kernels in a part of every 10 ms, short beside NVML's periods."""
    trace = new_trace(host, length_ms=length_ms)
    for ordinal in range(len(kernel_shares)):
        trace.gpu(ordinal)
    for start_ms in range(0, length_ms, 10):
        step = Step(trace, start_ms)
        for ordinal, share in enumerate(kernel_shares):
            if share:
                step.kernel(ordinal, 1, 1 + 10 * share)
    return trace


def gpu(ordinal: int = 0, utilization: float | None = 0.5, **changes: Any) -> dict[str, Any]:
    """A GPU in the group `outside_view`, sampled every 100 ms. None leaves a field out."""
    count = LENGTH_MS // 100
    samples: dict[str, Any] = {
        "t_ns": [PROFILE_START_NS + 100_000_000 * i for i in range(count)],
        "gpu_utilization_ratio": None if utilization is None else [utilization] * count,
        **changes.pop("samples", {}),
    }
    device = {
        "ordinal": ordinal,
        "name": "H200",
        "memory_total_bytes": TOTAL_BYTES,
        "other_processes": [],
        "samples": {key: value for key, value in samples.items() if value is not None},
        **changes,
    }
    return {key: value for key, value in device.items() if value is not None}


def written(logdir: Path, *devices: Any, trace: CudaTrace | None = None, **group: Any) -> Path:
    view = {"reason": None, "devices": list(devices), **group}
    write_sidecar((trace or busy_trace(0.5)).write(logdir), {"outside_view": view})
    return logdir


def sampled(
    logdir: Path, *devices: Any, trace: CudaTrace | None = None
) -> tuple[NvmlRow, dict[str, Finding]]:
    """The row of the first GPU, and the findings by code."""
    loaded = traceview.load(written(logdir, *devices, trace=trace))
    context = Context(loaded, select(loaded))
    result = context.result(NVML)
    assert isinstance(result, Nvml)
    findings = context.findings(NVML)
    for finding in findings:
        check_finding(finding)
        assert finding.severity == "warning"
    assert len({finding.code for finding in findings}) == len(findings)
    return result.devices[0], {finding.code: finding for finding in findings}


def test_hosts_keep_their_own_view(tmp_path: Path) -> None:
    busy_trace(0.5, host="host1").write(tmp_path)
    result = traceview.analyze(written(tmp_path, gpu(0, 0.5))).results.outside_view
    assert result is not None
    assert [row.device for row in result.devices] == ["host0/GPU:0"]
    assert result.absent == {"host1": NOT_SAMPLED}


# Other processes


def process(**fields: Any) -> dict[str, Any]:
    return {"pid": OTHER, "memory_bytes": None, "utilization_ratio": None, **fields}


@pytest.mark.parametrize(
    ("fields", "shared"),
    [
        ({}, False),
        ({"memory_bytes": TOTAL_BYTES // 20 - 1}, False),
        ({"memory_bytes": TOTAL_BYTES // 20}, True),
        ({"utilization_ratio": 0.0499}, False),
        ({"utilization_ratio": 0.05}, True),
    ],
)
def test_gpu_shared(tmp_path: Path, fields: dict[str, Any], shared: bool) -> None:
    _, findings = sampled(tmp_path, gpu(other_processes=[process(**fields)]))
    assert list(findings) == (["gpu-shared"] if shared else [])
    if shared:
        (evidence,) = findings["gpu-shared"].evidence
        assert (evidence.threshold, evidence.where) == (SHARED_RATIO, "GPU:0")
        assert evidence.detail == "process 4242"
        used = "utilization_ratio" in fields
        assert findings["gpu-shared"].confidence == ("high" if used else "medium")


def test_one_process_on_two_gpus_is_one(tmp_path: Path) -> None:
    other = process(memory_bytes=20 * 10**9)
    devices = [gpu(n, other_processes=[other]) for n in (0, 1)]
    _, findings = sampled(tmp_path, *devices, trace=busy_trace(0.5, 0.5))
    finding = findings["gpu-shared"]
    assert finding.arguments["others"] == Number(1, "other process")
    assert finding.arguments["memory"] == Quantity(40 * 10**9, "bytes")


def test_unknown_processes_are_not_none(tmp_path: Path) -> None:
    assert sampled(tmp_path, gpu(other_processes=None))[0].other_processes is None
    assert sampled(tmp_path, gpu())[0].other_processes == ()


# Throttling


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0x1 | 0x2 | 0x100, ()),
        (0x4 | 0x1, ("software power cap",)),
        (0x8, ("hardware slowdown",)),
        (0x8 | 0x40, ("hardware thermal slowdown",)),
        (0x8 | 0x80, ("power brake from outside",)),
        (0x20 | 0x10, ("sync boost with a slower GPU", "software thermal slowdown")),
        (0x200 | 0x400, ("board limit", "reliability limit")),
        (0x1000, ("reason 0x1000",)),
    ],
)
def test_reasons_in_words(bits: int, names: tuple[str, ...]) -> None:
    assert throttle_names(bits) == names


@pytest.mark.parametrize(
    ("bits", "count", "kind"),
    [
        (0x4, 2, None),
        (0x4, 3, "power"),
        (0x1 | 0x2, 30, None),
        (0x40 | 0x8, 30, "heat"),
        (0x200, 30, ""),
    ],
)
def test_gpu_throttled(tmp_path: Path, bits: int, count: int, kind: str | None) -> None:
    reasons = [bits] * count + [0] * (30 - count)
    row, findings = sampled(tmp_path, gpu(samples={"throttle_reasons": reasons}))
    assert list(findings) == ([] if kind is None else ["gpu-throttled"])
    if kind is not None:
        finding = findings["gpu-throttled"]
        (name,) = throttle_names(bits)
        assert finding.evidence[0].threshold == THROTTLED_RATIO
        assert finding.arguments["ratio"] == Quantity(count / 30, "ratio")
        assert finding.sentences[:2] == (kind, kind)
        assert row.throttle_reasons == {name: count / 30}
        assert finding.confidence == "high"
        of = f" ({kind})" if kind else ""
        assert finding.title == f"GPU:0 is throttled {count * 100 // 30}% of the time{of}"


def test_few_samples_are_little_to_go_by(tmp_path: Path) -> None:
    samples = {"t_ns": [PROFILE_START_NS], "throttle_reasons": [0x20], "sm_clock_hz": [990_000_000]}
    device = gpu(utilization=None, samples=samples, sm_clock_max_hz=1_980_000_000)
    finding = sampled(tmp_path, device)[1]["gpu-throttled"]
    assert (finding.confidence, finding.confidence_reason) == ("low", "only 1 sample of NVML")
    assert finding.arguments["clock"] == Quantity(0.5, "ratio")


# What is not there, and what should not be


def test_numbers_of_the_row(tmp_path: Path) -> None:
    samples = {
        "memory_used_bytes": [*range(29), None],
        "sm_clock_hz": [3, 1, 2] * 10,
        "power_watts": [100.0, 200.0] * 15,
    }
    row, _ = sampled(tmp_path, gpu(samples=samples, power_limit_watts=700))
    assert (row.device, row.sample_count, row.nvml_busy_ratio) == ("GPU:0", 30, 0.5)
    assert (row.memory_used_bytes, row.memory_total_bytes) == (28, TOTAL_BYTES)
    assert (row.sm_clock_hz, row.sm_clock_max_hz) == (2, None)
    assert (row.power_watts, row.power_limit_watts) == (150.0, 700.0)


CODES = {rule.code for rule in NVML.rules}
HOSTILE = [
    [],
    "devices",
    [gpu(0), 3],
    [gpu(2**70)],
    [gpu(n) for n in range(500)],
    [gpu(samples={"t_ns": [0] * 30})],
    [gpu(samples={"t_ns": [2**62, -(2**62)] * 15})],
    [gpu(samples={"gpu_utilization_ratio": [1e300, -1, None] * 10})],
    [gpu(samples={"gpu_utilization_ratio": [float("nan"), float("inf")] * 15})],
    [gpu(samples={"throttle_reasons": [-1, True, 2**62] * 10, "power_watts": [-5] * 30})],
    [gpu(memory_total_bytes=0, other_processes=[process(memory_bytes=5)])],
    [gpu(memory_total_bytes=-1, power_limit_watts=-1, sm_clock_max_hz=-1)],
    [gpu(other_processes=[process(memory_bytes=2**63, utilization_ratio=17.0)])],
    [gpu(other_processes=[process(pid=None, memory_bytes=-1), 3])],
    [gpu(missing={"other_processes": "\x1b[31m\u202e" * 2000})],
    [{"ordinal": 0, "samples": [], "missing": 7}],
]


@pytest.mark.parametrize("devices", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_values_end_nothing_and_make_no_finding(devices: Any, tmp_path: Path) -> None:
    report = traceview.analyze(written(tmp_path, devices=devices))
    text = terminal.render(document_of(report), width=80, color=False, most_lines=10**6)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert max(map(len, text.splitlines())) <= 110
    json.loads(to_json(report))
    assert not {finding.code for finding in report.findings} & CODES
    result = report.results.outside_view
    for row in result.devices if result else ():
        for key, value in asdict(row).items():
            if key.endswith("_ratio"):
                assert value is None or 0 <= value <= 1, key


def lacks_cores(
    monkeypatch: pytest.MonkeyPatch,
    *limited: int,
    name: str = "host{}",
    own_ns: int = 2,
    missing: tuple[str, ...] = (),
) -> list[Finding]:
    """Two of three devices on hosts of their own lose 30 % without a core, on `limited` hosts because they may use 1, 2 or 3 of 4 cores."""
    ready, at_work = Row(State.NO_CORE, 30), Row(State.COMPUTE, 70)
    ledger = ledger_of([ready, at_work], [ready, at_work], [at_work], hosts=[0, 1, 2])
    loads = [RecordedLoad(10, busy_ns, own_ns, None, None, 4) for busy_ns in (22, 32, 42)]
    hosts = [
        SimpleNamespace(name=name.format(n), clock=None, captured=SimpleNamespace(load=each))
        for n, each in enumerate(loads)
    ]
    trace: Any = SimpleNamespace(**vars(ledger.trace) | {"hosts": hosts})
    ledger = replace(ledger, trace=trace)
    context: Any = SimpleNamespace(
        trace=trace, ledger=ledger, selection=SimpleNamespace(has_few_steps=False)
    )
    waits = {n: SimpleNamespace(is_limited=True, cores=1 + n, machine_cores=4) for n in limited}
    monkeypatch.setattr(load, "missing_tasks", lambda _: missing)
    monkeypatch.setattr(load, "core_waits", lambda _, host: waits.get(host))
    return [finding for finding in load.without_core(context) if finding is not None]


@pytest.mark.parametrize(
    ("name", "own_ns", "who"),
    [
        pytest.param("vm_w{}", 8, "other processes of this run on the machine", id="16 of 24 ns"),
        pytest.param("vm_w{}", 5, "other processes", id="10 of 27"),
        pytest.param("host{}", 8, "other processes", id="on other machines"),
    ],
)
def test_processes_of_the_run_on_one_machine_take_cores_from_each_other(
    name: str, own_ns: int, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (finding,) = lacks_cores(monkeypatch, name=name, own_ns=own_ns)
    assert f" to {who}, which take " in finding.title


def test_processes_that_the_run_lacks_may_have_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = lacks_cores(monkeypatch, missing=("worker 1",))
    said = " to other processes, perhaps worker 1, which the run lacks: they take "
    assert said in finding.title
    assert finding.action.startswith("Capture on all of them")
    (finding,) = lacks_cores(monkeypatch, missing=("worker 1",), name="vm_w{}", own_ns=8)
    assert "of this run on the machine" in finding.title


def test_each_host_whose_devices_lack_cores_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third has a load, and loses nothing."""
    (finding,) = lacks_cores(monkeypatch)
    assert [(row.where, row.value) for row in finding.evidence] == [("host1", 0.75), ("host0", 0.5)]
    assert "which take 75% of the 4 cores" in finding.title


def test_a_limit_of_one_host_explains_nothing_on_another(monkeypatch: pytest.MonkeyPatch) -> None:
    by_limit, to_others = lacks_cores(monkeypatch, 0)
    assert (by_limit.code, by_limit.devices) == ("few-cores", ("GPU:0",))
    assert "may use 1 of 4 cores" in by_limit.title
    assert (to_others.code, to_others.devices) == ("other-processes", ("GPU:1",))
    assert [row.where for row in to_others.evidence] == ["host1"]
    (of_both,) = lacks_cores(monkeypatch, 0, 1)
    assert (of_both.code, of_both.devices) == ("few-cores", ("GPU:0", "GPU:1"))
    assert "may use 1 of 4 cores" in of_both.title
