"""Which NVIDIA GPUs does this machine have, and who uses them?

NVML is asked first (nvidia-ml-py, the `capture` extra), then nvidia-smi, then the driver's folder below /proc.
Each knows less than the one before it, and none creates a CUDA context.
"""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_SMI_TIMEOUT_SECONDS: Final = 20
_SMI_GPUS: Final = "index,uuid,name,memory.total,memory.used,driver_version"
_SMI_PROCESSES: Final = "gpu_uuid,pid,used_memory"
_MIB: Final = 1 << 20


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds a GPU; `used_bytes` is None where the driver does not say."""

    pid: int
    used_bytes: int | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU, by its number in the order of the PCI bus. Memory is None where nothing tells it."""

    index: int
    uuid: str
    name: str
    total_bytes: int | None = None
    used_bytes: int | None = None
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True)
class GpuInventory:
    """The GPUs there are. `source`: who told; `notes`: why those who know more did not.

    `problem`: a driver is here and does not answer. `cuda`: the newest CUDA that the driver runs.
    """

    gpus: tuple[Gpu, ...] = ()
    source: str = ""
    driver: str = ""
    cuda: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()
    problem: str = ""


Run = Callable[[Sequence[str]], str]


def read_inventory(proc: Path) -> GpuInventory:
    """Ask NVML, nvidia-smi and `proc` in this order; never raises."""
    notes: list[str] = []
    try:
        import pynvml
    except ImportError:
        notes.append("nvidia-ml-py is not installed (pip install nvidia-ml-py)")
    else:
        inventory = read_nvml(pynvml)
        if inventory.gpus:
            return inventory
        notes += inventory.notes
    inventory = read_smi(_run)
    if inventory.gpus:
        return _with_notes(inventory, notes)
    notes += inventory.notes
    return _with_notes(read_proc(proc), notes)


def read_nvml(nvml: Any) -> GpuInventory:
    """What the module `pynvml`, or one like it, says."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return GpuInventory(notes=(f"NVML: {error}",))
    try:
        gpus = tuple(
            _nvml_gpu(nvml, index, nvml.nvmlDeviceGetHandleByIndex(index))
            for index in range(nvml.nvmlDeviceGetCount())
        )
        version = _told(nvml, lambda: int(nvml.nvmlSystemGetCudaDriverVersion()))
        return GpuInventory(
            gpus,
            source="NVML",
            driver=_told(nvml, lambda: _text(nvml.nvmlSystemGetDriverVersion())) or "",
            cuda=None if version is None else (version // 1000, version % 1000 // 10),
        )
    except nvml.NVMLError as error:
        return GpuInventory(notes=(f"NVML: {error}",))
    finally:
        _told(nvml, nvml.nvmlShutdown)


def _nvml_gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    memory = _told(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    processes = _told(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or ()
    return Gpu(
        index=index,
        uuid=_told(nvml, lambda: _text(nvml.nvmlDeviceGetUUID(handle))) or "",
        name=_told(nvml, lambda: _text(nvml.nvmlDeviceGetName(handle))) or "unknown",
        total_bytes=None if memory is None else int(memory.total),
        used_bytes=None if memory is None else int(memory.used),
        processes=tuple(
            GpuProcess(int(process.pid), getattr(process, "usedGpuMemory", None))
            for process in processes
        ),
    )


def _told(nvml: Any, ask: Callable[[], Any]) -> Any:
    """An answer, or None where this GPU or driver has none."""
    try:
        return ask()
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def read_smi(run: Run) -> GpuInventory:
    """What nvidia-smi prints; `run` gives the standard output of a command or raises `OSError`."""
    try:
        rows = _smi_rows(run, f"--query-gpu={_SMI_GPUS}")
        gpus = [
            Gpu(int(row[0]), row[1], row[2], _mebibytes(row[3]), _mebibytes(row[4])) for row in rows
        ]
        held = _smi_rows(run, f"--query-compute-apps={_SMI_PROCESSES}") if gpus else []
        processes = {
            gpu.uuid: tuple(
                GpuProcess(int(row[1]), _mebibytes(row[2])) for row in held if row[0] == gpu.uuid
            )
            for gpu in gpus
        }
    except FileNotFoundError:
        return GpuInventory(notes=("there is no nvidia-smi",))
    except (OSError, ValueError, IndexError, csv.Error) as error:
        return GpuInventory(notes=(f"nvidia-smi: {error}",))
    return GpuInventory(
        tuple(
            Gpu(g.index, g.uuid, g.name, g.total_bytes, g.used_bytes, processes[g.uuid])
            for g in gpus
        ),
        source="nvidia-smi",
        driver=rows[0][5] if rows else "",
    )


def _smi_rows(run: Run, query: str) -> list[list[str]]:
    text = run(["nvidia-smi", query, "--format=csv,noheader,nounits"])
    return [row for row in csv.reader(text.splitlines(), skipinitialspace=True) if row]


def _mebibytes(text: str) -> int | None:
    return int(text) * _MIB if text.strip().isdecimal() else None


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SMI_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"no answer in {_SMI_TIMEOUT_SECONDS} s") from error
    if done.returncode:
        said = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
        raise OSError(said.splitlines()[0] if said else f"exit code {done.returncode}")
    return done.stdout.decode("utf-8", "replace")


def read_proc(proc: Path) -> GpuInventory:
    """What the driver shows below `proc`/driver/nvidia: names, and no memory."""
    folder = proc / "driver" / "nvidia"
    gpus = []
    try:
        driver = " ".join((folder / "version").read_text("utf-8", "replace").split())
    except OSError:
        return GpuInventory()
    try:
        for index, path in enumerate(sorted((folder / "gpus").iterdir())):
            lines = (path / "information").read_text("utf-8", "replace").splitlines()
            facts = {
                key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)
            }
            gpus.append(Gpu(index, facts.get("GPU UUID", ""), facts.get("Model", "unknown")))
    except OSError as error:
        return GpuInventory(driver=driver, problem=f"{folder}: {error.strerror or error}")
    if not gpus:
        return GpuInventory(driver=driver, problem="the driver is loaded and shows no GPU")
    return GpuInventory(tuple(gpus), source=str(folder), driver=driver)


def _with_notes(inventory: GpuInventory, notes: Sequence[str]) -> GpuInventory:
    return GpuInventory(
        inventory.gpus,
        inventory.source,
        inventory.driver,
        inventory.cuda,
        (*notes, *inventory.notes),
        inventory.problem,
    )
