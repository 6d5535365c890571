"""Lists the NVIDIA GPUs of this machine, the processes that use them, and which of them CUDA shows to a program.

The sources are nvidia-smi and the driver's folder below /proc, which knows less. Neither creates a CUDA context.
"""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

_SMI_TIMEOUT_SECONDS: Final = 20
"""Without the persistence mode the driver is loaded first, which takes seconds per GPU."""
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
    """One GPU, by its number in the order of the PCI bus. Memory is None where it is unknown."""

    index: int
    uuid: str
    name: str
    total_bytes: int | None = None
    used_bytes: int | None = None
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True)
class GpuInventory:
    """The GPUs of a machine, by the best `source` that answers; `notes` says why a better one does not.

    `problem`: a driver is installed but does not answer.
    """

    gpus: tuple[Gpu, ...] = ()
    source: str = ""
    driver: str = ""
    notes: tuple[str, ...] = ()
    problem: str = ""


Run = Callable[[Sequence[str]], str]


def read_inventory(proc: Path) -> GpuInventory:
    """Ask nvidia-smi and `proc` in this order; never raises."""
    inventory = read_smi(_run)
    return inventory if inventory.gpus else replace(read_proc(proc), notes=inventory.notes)


def read_smi(run: Run) -> GpuInventory:
    """What nvidia-smi prints; `run` returns the standard output of a command or raises `OSError`."""
    try:
        rows = _smi_rows(run, f"--query-gpu={_SMI_GPUS}")
        gpus = [
            Gpu(int(row[0]), row[1], row[2], _mebibytes(row[3]), _mebibytes(row[4])) for row in rows
        ]
        process_rows = _smi_rows(run, f"--query-compute-apps={_SMI_PROCESSES}") if gpus else []
        processes = [(row[0], GpuProcess(int(row[1]), _mebibytes(row[2]))) for row in process_rows]
    except FileNotFoundError:
        return GpuInventory(notes=("nvidia-smi is not installed",))
    except (OSError, ValueError, IndexError, csv.Error) as error:
        return GpuInventory(notes=(f"nvidia-smi: {error}",))
    return GpuInventory(
        tuple(
            replace(
                gpu, processes=tuple(process for uuid, process in processes if uuid == gpu.uuid)
            )
            for gpu in gpus
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
        output = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
        raise OSError(output.splitlines()[0] if output else f"exit code {done.returncode}")
    return done.stdout.decode("utf-8", "replace")


def read_proc(proc: Path) -> GpuInventory:
    """What the driver shows below `proc`/driver/nvidia: names without memory."""
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
        return GpuInventory(driver=driver, problem="the driver is loaded but shows no GPU")
    return GpuInventory(tuple(gpus), source=str(folder), driver=driver)


@dataclass(frozen=True)
class VisibleGpus:
    """The visible GPUs in their order, and which entries of `CUDA_VISIBLE_DEVICES` are wrong or unknown.

    `unknown`: the first entry that names no GPU; CUDA ignores it and everything after it. `repeated`: an entry that
    names a GPU for the second time. `unchecked`: entries that cannot be looked up (MIG slices).
    """

    gpus: tuple[Gpu, ...]
    unknown: str | None = None
    repeated: str | None = None
    unchecked: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many devices a program sees."""
        return len(self.gpus) + len(self.unchecked)


def visible_gpus(gpus: Sequence[Gpu], variable: str | None) -> VisibleGpus:
    """Read `CUDA_VISIBLE_DEVICES` as CUDA does (CUDA C++ Programming Guide, environment variables)."""
    if variable is None:
        return VisibleGpus(tuple(gpus))
    visible: list[Gpu] = []
    unchecked: list[str] = []
    for entry in (part.strip() for part in variable.split(",")):
        if entry.startswith("MIG-"):
            unchecked.append(entry)
            continue
        gpu = _gpu_of(gpus, entry)
        if gpu is None:
            is_end = entry in ("", "-1", "NoDevFiles")
            unknown = None if is_end else entry
            return VisibleGpus(tuple(visible), unknown, unchecked=tuple(unchecked))
        if gpu in visible:
            return VisibleGpus(tuple(visible), repeated=entry, unchecked=tuple(unchecked))
        visible.append(gpu)
    return VisibleGpus(tuple(visible), unchecked=tuple(unchecked))


def _gpu_of(gpus: Sequence[Gpu], entry: str) -> Gpu | None:
    if entry.isascii() and entry.isdecimal():
        index = entry.lstrip("0").rjust(1, "0")
        return next((gpu for gpu in gpus if str(gpu.index) == index), None)
    if entry.startswith("GPU-"):
        matches = [gpu for gpu in gpus if gpu.uuid.lower().startswith(entry.lower())]
        return matches[0] if len(matches) == 1 else None
    return None
