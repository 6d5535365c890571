"""Checks what `capture --check` reports on made-up machines."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.capture.test_check_probes import driver_folder
from traceview.capture import check as preflight
from traceview.capture.check import examine
from traceview.capture.check.check import Check
from traceview.capture.check.checks_profiler import cupti_cuda
from traceview.capture.check.gpu_inventory import Gpu, GpuInventory, GpuProcess
from traceview.capture.check.libraries import Library
from traceview.capture.check.machine import Machine
from traceview.capture.check.tensorflow_facts import Imported, Installed
from traceview.cli.app import app
from traceview.cli.commands.capture_check import STATUSES, render

GIB = 1 << 30
H200 = "NVIDIA H200"
NO_CAPABILITY = "CapEff:\t00000000a80425fb\n"
ALL_CAPABILITIES = "CapEff:\t000001ffffffffff\n"


def gpu(index: int, name: str = H200, used: int = 0, *processes: GpuProcess) -> Gpu:
    return Gpu(index, f"GPU-{index}", name, 140 * GIB, used, processes)


GPUS = GpuInventory(tuple(map(gpu, range(4))), source="nvidia-smi", driver="570.1")
INSTALLED = Installed(
    (("tensorflow", "2.21.0"),), {"is_cuda_build": True, "cuda_version": "12.5.1"}
)
IMPORTED = Imported("2.21.0", True, "12.5.1", tuple(f"/physical_device:GPU:{n}" for n in range(4)))


def loaded(names: Sequence[str], function: str, environment: Mapping[str, str]) -> Library:
    return Library(names[-1], 23 if "cupti" in function else 22304)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Four GPUs, and nothing wrong."""
    root = tmp_path / "root"
    driver_folder(root / "proc", *(H200,) * 4)
    (root / "proc" / "self").mkdir()
    (root / "proc" / "self" / "status").write_text(NO_CAPABILITY, encoding="utf-8")
    params = root / "proc" / "driver" / "nvidia" / "params"
    params.write_text("EnableMSI: 1\nRmProfilingAdminOnly: 0\n", encoding="utf-8")
    return Machine(
        environment={},
        root=root,
        installed=lambda: INSTALLED,
        imported=lambda _: IMPORTED,
        inventory=lambda _: GPUS,
        load=loaded,
    )


def laptop(machine: Machine) -> Machine:
    """No GPU, no driver, no TensorFlow."""
    shutil.rmtree(machine.root / "proc" / "driver", ignore_errors=True)
    return replace(
        machine,
        installed=Installed,
        imported=lambda _: pytest.fail("nothing to import"),
        inventory=lambda _: GpuInventory(notes=("nvidia-smi is not installed",)),
        load=lambda *_: pytest.fail("nothing to load"),
    )


def with_gpus(machine: Machine, *gpus: Gpu) -> Machine:
    seen = replace(IMPORTED, gpus=IMPORTED.gpus[: len(gpus)])
    return replace(machine, inventory=lambda _: replace(GPUS, gpus=gpus), imported=lambda _: seen)


def check(machine: Machine, name: str, *scripts: Path) -> Check:
    out = machine.root.parent / "logs"
    (found,) = [one for one in examine(scripts, out=out, machine=machine) if one.name == name]
    return found


def test_nothing_wrong(machine: Machine, tmp_path: Path) -> None:
    checks = examine(out=tmp_path / "logs", machine=machine)
    statuses = {one.name: one.status for one in checks}
    assert set(statuses.values()) == {"ok", "not applicable"}
    assert [name for name, status in statuses.items() if status == "not applicable"] == [
        "tf-config",
    ]
    assert not (tmp_path / "logs").exists()


def test_a_laptop_fails_nothing(machine: Machine) -> None:
    checks = examine(out=machine.root.parent / "logs", machine=laptop(machine))
    statuses = {one.name: one.status for one in checks}
    assert "failed" not in statuses.values()
    assert {name for name, status in statuses.items() if status == "warning"} == {
        "tensorflow",
        "gpus",
    }
    assert statuses["cupti"] == "not applicable"
    gpus = check(laptop(machine), "gpus")
    assert "nvidia-smi is not installed" in gpus.detail
    assert "CPU" in gpus.fix


def test_a_script_that_needs_tensorflow(machine: Machine, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import tensorflow as tf", encoding="utf-8")
    assert check(laptop(machine), "tensorflow", script).status == "failed"


@pytest.mark.parametrize(
    ("installed", "imported", "name", "status", "part"),
    [
        (INSTALLED, Imported(error="libfoo.so"), "tensorflow", "failed", "libfoo.so"),
        (
            INSTALLED,
            Imported(error="libfoo.so"),
            "tensorflow-gpu",
            "not applicable",
            "cannot be imported",
        ),
        (
            Installed((("tensorflow", "2.20.0"), ("tensorflow-cpu", "2.20.0"))),
            IMPORTED,
            "tensorflow",
            "warning",
            "overwrite each other",
        ),
        (
            INSTALLED,
            replace(IMPORTED, version="2.14.1"),
            "tensorflow",
            "warning",
            "tensorflow 2.21.0",
        ),
        (
            INSTALLED,
            replace(IMPORTED, gpus=IMPORTED.gpus[:3]),
            "tensorflow-gpu",
            "failed",
            "sees 3 of 4",
        ),
        (
            INSTALLED,
            replace(IMPORTED, gpus=(), log=("Cannot dlopen some GPU libraries",)),
            "tensorflow-gpu",
            "failed",
            "Cannot dlopen",
        ),
        (
            Installed((("tensorflow-cpu", "2.21.0"),)),
            Imported("2.21.0"),
            "tensorflow-gpu",
            "failed",
            "without GPU support",
        ),
        (
            Installed((("tensorflow", "2.21.0"),)),
            Imported("2.21.0"),
            "tensorflow-gpu",
            "failed",
            "built without CUDA",
        ),
    ],
)
def test_tensorflow(
    machine: Machine, installed: Installed, imported: Imported, name: str, status: str, part: str
) -> None:
    machine = replace(machine, installed=lambda: installed, imported=lambda _: imported)
    found = check(machine, name)
    assert (found.status, part in found.detail) == (status, True), found


def test_tensorflow_is_left_alone_if_asked(machine: Machine, tmp_path: Path) -> None:
    machine = replace(machine, imported=lambda _: pytest.fail("was imported"))
    checks = examine(out=tmp_path / "logs", asks_tensorflow=False, machine=machine)
    found = {one.name: one for one in checks}
    assert found["tensorflow"].detail == "tensorflow 2.21.0 (import not tried)"
    assert found["tensorflow-gpu"].status == "ok"


@pytest.mark.parametrize(
    ("variable", "status", "part"),
    [
        ("0,1,2,3", "ok", "all 4"),
        ("0,2", "warning", "it hides 1, 3"),
        ("-1", "warning", "hides all 4"),
        ("0,7", "failed", "there is no GPU 7"),
        ("1,1", "failed", "twice"),
    ],
)
def test_visible_gpus(machine: Machine, variable: str, status: str, part: str) -> None:
    machine = machine.with_environment({"CUDA_VISIBLE_DEVICES": variable})
    found = check(machine, "visible-gpus")
    assert (found.status, part in found.detail) == (status, True), found


def test_a_driver_without_answer(machine: Machine) -> None:
    broken = GpuInventory(
        problem="the driver is loaded but shows no GPU", notes=("NVML: mismatch",)
    )
    found = check(replace(machine, inventory=lambda _: broken), "gpus")
    assert found.status == "failed"
    assert "mismatch" in found.detail


def test_what_a_script_sets_counts_and_loads_nothing(machine: Machine, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\nos.environ['LD_PRELOAD'] = 'x.so'\n"
        "os.environ['TF_CONFIG'] = '{\"cluster\": 1}'\n",
        encoding="utf-8",
    )
    seen: list[Mapping[str, str]] = []

    def imported(environment: Mapping[str, str]) -> Imported:
        seen.append(environment)
        return IMPORTED

    machine = replace(machine, imported=imported)
    found = check(machine, "visible-gpus", script)
    assert "CUDA_VISIBLE_DEVICES=1 (set in the script): 1 of 4" in found.detail
    assert seen == [{"CUDA_VISIBLE_DEVICES": "1"}]
    assert check(machine, "tf-config", script).status == "not applicable"


def test_mixed_models(machine: Machine) -> None:
    found = check(with_gpus(machine, gpu(0), gpu(1, "NVIDIA L4")), "gpu-models")
    assert found.status == "warning"
    assert "NVIDIA L4 140 GiB: GPU 1" in found.detail
    assert "CUDA_DEVICE_ORDER" in found.fix
    assert check(with_gpus(machine, gpu(0)), "gpu-models").status == "not applicable"


@pytest.mark.parametrize(("used_gib", "status"), [(125, "ok"), (127, "failed")])
def test_memory(machine: Machine, used_gib: int, status: str) -> None:
    found = check(with_gpus(machine, gpu(0), gpu(1, H200, used_gib * GIB)), "gpu-memory")
    assert found.status == status
    assert "GPU 1" in found.detail


def test_other_processes(machine: Machine) -> None:
    (machine.root / "proc" / "77").mkdir()
    (machine.root / "proc" / "77" / "comm").write_text("python3\n", encoding="utf-8")
    shared = with_gpus(machine, gpu(0), gpu(1, H200, 8 * GIB, GpuProcess(77, 8 * GIB)))
    found = check(shared, "gpu-processes")
    assert (found.status, found.detail) == ("warning", "GPU 1: process 77 python3, 8,192 MiB")
    hidden = with_gpus(machine, gpu(0, H200, 8 * GIB))
    assert "are not visible here" in check(hidden, "gpu-processes").detail


@pytest.mark.parametrize(
    ("library", "status", "part"),
    [
        (Library("libcupti.so.12", 23), "ok", "of CUDA 12.5"),
        (Library("libcupti.so.12", 999), "ok", "libcupti.so.12"),
        (Library("libcupti.so.12", 18), "failed", "of CUDA 11.8, but TensorFlow was built for"),
        (Library(error="no such file"), "failed", "no GPU events"),
    ],
)
def test_cupti(machine: Machine, library: Library, status: str, part: str) -> None:
    found = check(replace(machine, load=lambda *_: library), "cupti")
    assert (found.status, part in found.detail) == (status, True), found


def test_cupti_that_no_loader_finds(machine: Machine) -> None:
    folder = machine.root / "usr" / "local" / "cuda" / "extras" / "CUPTI" / "lib64"
    folder.mkdir(parents=True)
    (folder / "libcupti.so.12").touch()
    found = check(replace(machine, load=lambda *_: Library(error="no such file")), "cupti")
    assert found.status == "failed"
    assert f"LD_LIBRARY_PATH={folder}" in found.fix


@pytest.mark.parametrize(("number", "cuda"), [(22, "12.4"), (130_200, "13.2"), (0, "")])
def test_cupti_versions(number: int, cuda: str) -> None:
    assert cupti_cuda(number) == cuda


def test_permission(machine: Machine) -> None:
    proc = machine.root / "proc"
    params = proc / "driver" / "nvidia" / "params"
    assert check(machine, "profiling-permission").status == "ok"
    params.write_text("RmProfilingAdminOnly: 1\n", encoding="utf-8")
    found = check(machine, "profiling-permission")
    assert found.status == "warning"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in found.fix
    (proc / "self" / "status").write_text(ALL_CAPABILITIES, encoding="utf-8")
    assert check(machine, "profiling-permission").status == "ok"
    params.unlink()
    assert check(machine, "profiling-permission").status == "not applicable"


@pytest.mark.parametrize(
    ("environment", "status", "part"),
    [
        ({}, "ok", "none"),
        ({"TF_DISABLE_PROFILING": "0"}, "ok", "none"),
        ({"TF_DISABLE_PROFILING": "1"}, "failed", "refuses every profile"),
        ({"NSYS_PROFILING_SESSION_ID": "1"}, "failed", "Nsight Systems"),
        ({"CUDA_INJECTION64_PATH": "/x.so"}, "failed", "injected"),
        ({"LD_PRELOAD": "/a.so:/opt/libToolsInjectionProxy64.so"}, "failed", "/opt/lib"),
        ({"LD_PRELOAD": "/usr/lib/libtcmalloc.so.4"}, "ok", "tcmalloc"),
        ({"TF_GPU_CUPTI_FORCE_CONCURRENT_KERNEL": "0"}, "warning", "serializes"),
    ],
)
def test_other_profiler(
    machine: Machine, environment: dict[str, str], status: str, part: str
) -> None:
    found = check(machine.with_environment(environment), "other-profiler")
    assert (found.status, part in found.detail) == (status, True), found


def test_another_profiler_that_runs(machine: Machine) -> None:
    (machine.root / "proc" / "9").mkdir()
    (machine.root / "proc" / "9" / "comm").write_text("nv-hostengine\n", encoding="utf-8")
    found = check(machine, "other-profiler")
    assert (found.status, "process 9 is nv-hostengine" in found.detail) == ("warning", True)


def test_output(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logs" / ".traceview-incomplete-old").mkdir(parents=True)
    assert "it holds 1 running or killed captures" in check(machine, "output").detail
    assert [path.name for path in (tmp_path / "logs").iterdir()] == [".traceview-incomplete-old"]
    (found,) = [
        one
        for one in examine(out=tmp_path / "no" / "such", machine=machine)
        if one.name == "output"
    ]
    assert (found.status, "does not exist" in found.detail) == ("failed", True)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: SimpleNamespace(total=2 * GIB, free=GIB - 1)
    )
    assert check(machine, "output").status == "warning"


def config(**changes: Any) -> str:
    whole = {
        "cluster": {"worker": ["a:2222", "b:2222"]},
        "task": {"type": "worker", "index": 0},
    }
    return json.dumps({**whole, **changes})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "TF_CONFIG: "),
        ("[" * 100_000, "TF_CONFIG: "),
        ("[]", "not a JSON object"),
        (config(cluster=[]), "cluster is not an object"),
        (config(cluster={"worker": "a:1"}), "cluster.worker is not a list"),
        (config(cluster={"worker": ["a"]}), "a is not a host:port"),
        (config(cluster={"worker": ["a:99999"]}), "port must be between"),
        (config(cluster={"worker": [7]}), "7 is not a host:port"),
        (config(cluster={"worker": ["a:1", "a:1"]}), "a:1 is named twice"),
        (config(task={}), "task has no type or no index"),
        (config(task={"type": "worker", "index": "x"}), "is not a number"),
        (config(task={"type": "worker", "index": 2}), "no worker 2"),
    ],
)
def test_a_config_that_is_wrong(machine: Machine, text: str, part: str) -> None:
    machine = machine.with_environment({"TF_CONFIG": text})
    found = check(machine, "tf-config")
    assert (found.status, part in found.detail) == ("failed", True), found


# What is shown

HOSTILE = Check("script", "failed", "a\x1b[31m\u202e[bold]b[/bold]\ud800", "c\x07\nd")


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_the_table(width: int, unicode: bool) -> None:
    checks = [HOSTILE, Check("profiling-permission", "not applicable", "there is no GPU " * 9)]
    text = render(checks, width=width, color=False, unicode=unicode)
    assert max(map(len, text.splitlines())) <= width
    assert not {"\x1b", "\u202e", "\x07"} & set(text)
    assert "[bold]b[/bold]" in text
    assert text.endswith("2 checks: 1 failed, 1 not applicable\n")
    assert text.splitlines()[0].startswith("failed ")
    assert "fix: c" in text
    text.encode("utf-8" if unicode else "ascii")


def test_the_statuses_are_those_of_the_checks(machine: Machine) -> None:
    from traceview.capture.check.check import STATUSES as KNOWN

    assert tuple(STATUSES) == KNOWN


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        app(["capture", "--check", *arguments], prog_name="traceview")
    assert isinstance(end.value.code, int)
    return end.value.code, capfd.readouterr().out


def test_the_command(
    capfd: pytest.CaptureFixture[str],
    machine: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(preflight.Machine, "here", classmethod(lambda _: machine))
    code, out = run(capfd)
    assert (code, out.splitlines()[-1]) == (
        0,
        "No problem found. 12 checks: 11 ok, 1 not applicable",
    )
    code, out = run(capfd, "--without", "tensorflow", "absent.py")
    assert (code, "script not found: absent.py" in " ".join(out.split())) == (8, True)
    code, out = run(capfd, "--out", str(tmp_path / "no" / "such"))
    assert (code, "does not exist" in " ".join(out.split())) == (8, True)


def test_here(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """On the machine that tests: whatever it is, there is an answer."""
    code, out = run(capfd, "--without", "tensorflow", "--out", str(tmp_path / "logs"))
    assert code in (0, 8)
    assert "12 checks: " in out.splitlines()[-1]
