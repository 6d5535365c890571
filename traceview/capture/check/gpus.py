"""Checks whether the GPUs are there, visible, of one model, and free, by nvidia-smi."""

from __future__ import annotations

import csv
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from traceview.capture.check.check import NO_GPU, Check, Subject, listed
from traceview.capture.check.frameworks import GPU_PACKAGES
from traceview.capture.check.trial import Trial

FULL_FREE_RATIO: Final = 0.1
"""TensorFlow takes nearly all memory at its start, and hardly starts with less than this share of it free."""
_TIMEOUT_SECONDS: Final = 20
"""Without the persistence mode the driver is loaded first, which takes seconds per GPU."""
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Gpu:
    """One GPU, by its number in the order of the PCI bus. Memory in MiB is None where it is unknown.

    `processes`: those that hold it, each in words.
    """

    index: int
    name: str
    total_mib: int | None = None
    used_mib: int | None = None
    processes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gpus:
    """The GPUs of this machine. `problem`: why nvidia-smi names none, and whether it is there at all."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    problem: str = ""
    has_smi: bool = True


def read_gpus(run: Callable[[str], str] | None = None) -> Gpus:
    """Ask nvidia-smi; never raises. `run` returns what it prints for a query, or raises `OSError`."""
    run = run or _run_smi
    try:
        rows = _rows(run("--query-gpu=index,uuid,name,memory.total,memory.used,driver_version"))
        held = _rows(run("--query-compute-apps=gpu_uuid,pid,process_name")) if rows else []
        gpus = [
            Gpu(
                int(index),
                name,
                _number(total),
                _number(used),
                tuple(f"process {pid} {program}" for of, pid, program in held if of == uuid),
            )
            for index, uuid, name, total, used, _ in rows
        ]
    except FileNotFoundError:
        return Gpus(problem="nvidia-smi is not installed", has_smi=False)
    except (OSError, ValueError, csv.Error) as error:
        return Gpus(problem=f"nvidia-smi: {error}")
    return Gpus(tuple(gpus), rows[0][5] if rows else "", "" if gpus else "nvidia-smi lists no GPU")


def _rows(text: str) -> list[list[str]]:
    return [row for row in csv.reader(text.splitlines(), skipinitialspace=True) if row]


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None


def _run_smi(query: str) -> str:
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"no answer in {_TIMEOUT_SECONDS} s") from error
    if done.returncode:
        output = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
        raise OSError(output.splitlines()[0] if output else f"exit code {done.returncode}")
    return done.stdout.decode("utf-8", "replace")


def check_gpus(found: Gpus) -> Iterator[Check]:
    """Whether there are GPUs, of one model, with free memory, and without other processes."""
    subject = Subject("gpus")
    if found.problem:
        if found.has_smi:
            yield subject.failed(
                found.problem,
                "run nvidia-smi: the driver and its library may not match (restart the machine, or start the container "
                "with GPUs)",
            )
        else:
            yield subject.warning(
                f"no NVIDIA GPU: {found.problem}",
                "none needed to train on the CPU: the trace then has host events but no GPU rows. In a container: "
                "docker run --gpus all",
            )
        return
    models = Counter(gpu.name for gpu in found.gpus)
    names = ", ".join(f"{count} × {name}" for name, count in models.items())
    if len(models) > 1:
        yield subject.warning(
            f"different models: {names}. All get the same share of a batch, so every step waits for the slowest GPU",
            f"make only one model visible with {_VISIBLE} and CUDA_DEVICE_ORDER=PCI_BUS_ID",
        )
    else:
        yield subject.ok(f"{names}, driver {found.driver}")
    yield _check_memory(found.gpus)
    yield _check_processes(found.gpus)


def _check_memory(gpus: Sequence[Gpu]) -> Check:
    subject = Subject("gpu-memory")
    free_mib = {
        gpu.index: (gpu.total_mib - gpu.used_mib, gpu.total_mib)
        for gpu in gpus
        if gpu.total_mib and gpu.used_mib is not None
    }
    if not free_mib:
        return subject.not_applicable("nvidia-smi does not say")
    full = [
        f"GPU {index} ({free:,} MiB)"
        for index, (free, total) in free_mib.items()
        if free < FULL_FREE_RATIO * total
    ]
    if full:
        return subject.failed(
            f"less than {FULL_FREE_RATIO:.0%} of the memory is free on {listed(full)}",
            "end the processes that hold it (nvidia-smi lists them), or use other GPUs",
        )
    index, (free, _) = min(free_mib.items(), key=lambda item: item[1])
    return subject.ok(f"{free / 1024:.1f} GiB free on GPU {index}, the fullest of {len(free_mib)}")


def _check_processes(gpus: Sequence[Gpu]) -> Check:
    subject = Subject("gpu-processes")
    processes = [f"GPU {gpu.index}: {process}" for gpu in gpus for process in gpu.processes]
    if processes:
        return subject.warning(
            listed(processes),
            "stop them while a trace is recorded: it does not show their kernels, only the time they take",
        )
    return subject.ok("no other process")


def check_visible(
    found: Gpus, framework: str, trial: Trial | None, environment: Mapping[str, str]
) -> Check:
    """Whether the framework sees all GPUs of the machine."""
    subject = Subject("visible-gpus")
    count = len(found.gpus)
    if trial is None or not trial.version:
        return subject.not_applicable("not tried")
    if not count:
        return subject.ok(f"{trial.gpus} GPUs") if trial.gpus else subject.not_applicable(NO_GPU)
    sees = f"{framework} sees {trial.gpus} of {count} GPUs"
    if trial.gpus >= count:
        return subject.ok(sees)
    if _VISIBLE in environment:
        return subject.warning(
            f"{_VISIBLE}={environment[_VISIBLE]}: {sees}",
            f"unset {_VISIBLE}, unless this is intended",
        )
    return subject.failed(
        f"{sees}: {trial.reason or 'its log gives no reason'}",
        f"{GPU_PACKAGES[framework]} installs the CUDA libraries it needs; a driver older than that CUDA must be updated",
    )
