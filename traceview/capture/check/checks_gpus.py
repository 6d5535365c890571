"""Checks whether the GPUs are present, visible, of one model, and free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from traceview.capture.check.check import NO_GPU, Check, Subject, listed
from traceview.capture.check.gpu_inventory import Gpu, GpuInventory, VisibleGpus

FULL_FREE_RATIO: Final = 0.1
"""TensorFlow takes nearly all memory at its start, and hardly starts with less than this share of it free."""
UNEXPLAINED_BYTES: Final = 1 << 30
"""An idle GPU holds a few hundred MiB at most (driver, persistence, ECC)."""

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_ORDER: Final = "CUDA_DEVICE_ORDER"
_UNKNOWN: Final = "unknown without nvidia-smi"


def check_gpus(inventory: GpuInventory) -> Check:
    """Whether the machine has GPUs, and which."""
    subject = Subject("gpus")
    notes = "".join(f"; {note}" for note in inventory.notes)
    if inventory.problem:
        return subject.failed(
            f"{inventory.problem}{notes}",
            "run nvidia-smi: if it fails too, the driver and its library do not match (restart the machine, or "
            "start the container with GPUs)",
        )
    if not inventory.gpus:
        return subject.warning(
            f"no NVIDIA GPU and no driver{notes}",
            "none needed to train on the CPU: the trace then has host events but no GPU rows. In a container: "
            "docker run --gpus all",
        )
    models = ", ".join(
        f"{count} × {name}" for name, count in Counter(gpu.name for gpu in inventory.gpus).items()
    )
    versions = f", driver {inventory.driver}" if inventory.driver else ""
    return subject.ok(f"{models}{versions}, by {inventory.source}{notes}")


def check_visible(
    inventory: GpuInventory, visible: VisibleGpus, variable: str | None, where: str = ""
) -> Check:
    """Which GPUs a program sees. `variable`: CUDA_VISIBLE_DEVICES; `where`: what sets it, if not the shell."""
    subject = Subject("visible-gpus")
    total = len(inventory.gpus)
    setting = f"{VISIBLE}={variable}{f' ({where})' if where else ''}"
    if not total:
        return subject.not_applicable(NO_GPU)
    if variable is None:
        return subject.ok(f"all {total}: {VISIBLE} is not set")
    hidden = [gpu.index for gpu in inventory.gpus if gpu not in visible.gpus]
    if visible.unknown is not None:
        return subject.failed(
            f"{setting}: there is no GPU {visible.unknown}; CUDA ignores it and all entries after it, so "
            f"{visible.count} of {total} GPUs are visible",
            f"use numbers from 0 to {total - 1}, or unset {VISIBLE}",
        )
    if visible.repeated is not None:
        return subject.failed(
            f"{setting} names {visible.repeated} twice, which CUDA refuses", "name each GPU once"
        )
    if visible.unchecked:
        return subject.ok(f"{setting}: {len(visible.unchecked)} MIG slices (not checked)")
    if not visible.count:
        return subject.warning(
            f"{setting} hides all {total} GPUs: the training runs on the CPU",
            f"unset {VISIBLE}, unless this is intended",
        )
    if hidden:
        return subject.warning(
            f"{setting}: {visible.count} of {total} GPUs are visible; it hides {listed(hidden)}",
            f"unset {VISIBLE}, unless this is intended",
        )
    return subject.ok(f"{setting}: all {total} GPUs")


def check_models(visible: VisibleGpus, environment: Mapping[str, str]) -> Check:
    """Whether the visible GPUs are of one model."""
    subject = Subject("gpu-models")
    if len(visible.gpus) < 2:
        return subject.not_applicable("fewer than two GPUs are visible")
    kinds = Counter((gpu.name, _gibibytes(gpu.total_bytes)) for gpu in visible.gpus)
    if len(kinds) == 1:
        return subject.ok(f"{len(visible.gpus)} of the same model")
    models = "; ".join(
        f"{model}{f' {size} GiB' if size else ''}: GPU "
        + listed(
            g.index for g in visible.gpus if (g.name, _gibibytes(g.total_bytes)) == (model, size)
        )
        for model, size in kinds
    )
    order = ""
    if environment.get(_ORDER) != "PCI_BUS_ID":
        order = f"; {_ORDER}=PCI_BUS_ID numbers them as nvidia-smi does"
    return subject.warning(
        f"different models: {models}. All get the same share of a batch, so every step waits for the slowest GPU",
        f"make only one model visible with {VISIBLE}{order}",
    )


def check_memory(visible: VisibleGpus) -> Check:
    """Whether the visible GPUs have enough free memory."""
    subject = Subject("gpu-memory")
    if not visible.gpus:
        return subject.not_applicable(
            NO_GPU if not visible.unchecked else "MIG slices are not checked"
        )
    free = [
        (
            (gpu.total_bytes - gpu.used_bytes) / gpu.total_bytes,
            gpu.index,
            gpu.total_bytes - gpu.used_bytes,
        )
        for gpu in visible.gpus
        if gpu.total_bytes and gpu.used_bytes is not None
    ]
    if not free:
        return subject.not_applicable(_UNKNOWN)
    full = [
        f"GPU {index} ({free_bytes >> 20:,} MiB)"
        for ratio, index, free_bytes in free
        if ratio < FULL_FREE_RATIO
    ]
    if full:
        return subject.failed(
            f"less than {FULL_FREE_RATIO:.0%} of the memory is free on {listed(full)}",
            "end the processes that hold it (nvidia-smi lists them), or use other GPUs",
        )
    _, index, free_bytes = min(free)
    return subject.ok(
        f"{free_bytes / 2**30:.1f} GiB free on GPU {index}, the fullest of {len(free)}"
    )


def check_sharing(visible: VisibleGpus, proc: Path) -> Check:
    """Whether other processes use the visible GPUs."""
    subject = Subject("gpu-processes")
    if not visible.gpus:
        return subject.not_applicable(NO_GPU)
    if all(gpu.used_bytes is None and not gpu.processes for gpu in visible.gpus):
        return subject.not_applicable(_UNKNOWN)
    processes = list(_processes(visible.gpus, proc))
    if processes:
        return subject.warning(
            listed(processes),
            "stop them while a trace is recorded: it does not show their kernels, only the time they take",
        )
    return subject.ok("no other process")


def _processes(gpus: tuple[Gpu, ...], proc: Path) -> Iterator[str]:
    for gpu in gpus:
        for process in gpu.processes:
            used = "" if process.used_bytes is None else f", {process.used_bytes >> 20:,} MiB"
            yield f"GPU {gpu.index}: process {process.pid}{_command(proc, process.pid)}{used}"
        if not gpu.processes and (gpu.used_bytes or 0) > UNEXPLAINED_BYTES:
            used_mib = (gpu.used_bytes or 0) >> 20
            yield f"GPU {gpu.index}: {used_mib:,} MiB used by processes that are not visible here"


def _command(proc: Path, pid: int) -> str:
    try:
        return f" {(proc / str(pid) / 'comm').read_text('utf-8', 'replace').strip()}"
    except OSError:
        return ""


def _gibibytes(size: int | None) -> int:
    return round((size or 0) / 2**30)
