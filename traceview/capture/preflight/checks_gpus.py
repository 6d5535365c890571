"""Are the GPUs there, visible, alike, and free?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from traceview.capture.preflight.check import Check, failed, listed, not_applicable, ok, warning
from traceview.capture.preflight.gpu_inventory import Gpu, GpuInventory
from traceview.capture.preflight.visible_gpus import VisibleGpus

FULL_FREE_RATIO: Final = 0.1
"""With less than this of a GPU's memory free, TensorFlow, which takes nearly all at its start, hardly starts."""
UNEXPLAINED_BYTES: Final = 1 << 30
"""A GPU that nobody uses holds a few hundred MiB at most (driver, persistence, ECC)."""

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_ORDER: Final = "CUDA_DEVICE_ORDER"
_GROWTH: Final = "TF_FORCE_GPU_ALLOW_GROWTH"
_NO_GPU: Final = "there is no GPU"


def check_gpus(inventory: GpuInventory) -> Check:
    """Which GPUs there are."""
    if inventory.problem:
        return failed(
            "gpus",
            f"{inventory.problem}{_noted(inventory)}",
            "start nvidia-smi: if it fails too, the driver and its library do not match (restart the machine, "
            "or give the container the GPUs)",
        )
    if not inventory.gpus:
        return warning(
            "gpus",
            f"no NVIDIA GPU and no driver{_noted(inventory)}",
            "nothing, if training on the CPU is meant: its trace holds host events and no GPU rows. In a container: "
            "docker run --gpus all",
        )
    models = ", ".join(
        f"{count} × {name}" for name, count in Counter(gpu.name for gpu in inventory.gpus).items()
    )
    versions = f", driver {inventory.driver}" if inventory.driver else ""
    if inventory.cuda:
        versions += f" (CUDA {inventory.cuda[0]}.{inventory.cuda[1]})"
    return ok("gpus", f"{models}{versions}, by {inventory.source}{_noted(inventory)}")


def _noted(inventory: GpuInventory) -> str:
    return "".join(f"; {note}" for note in inventory.notes)


def check_visible(
    inventory: GpuInventory, visible: VisibleGpus, variable: str | None, where: str = ""
) -> Check:
    """Which of them a program sees. `variable`: CUDA_VISIBLE_DEVICES; `where`: what sets it, if not the shell."""
    name = "visible-gpus"
    total = len(inventory.gpus)
    setting = f"{VISIBLE}={variable}{f' ({where})' if where else ''}"
    if not total:
        return not_applicable(name, _NO_GPU)
    if variable is None:
        return ok(name, f"all {total}: {VISIBLE} is not set")
    hidden = [gpu.index for gpu in inventory.gpus if gpu not in visible.gpus]
    if visible.unknown is not None:
        return failed(
            name,
            f"{setting}: there is no GPU {visible.unknown}; CUDA ignores it and all after it, so that "
            f"{visible.count} of {total} are visible",
            f"name GPUs from 0 to {total - 1}, or unset {VISIBLE}",
        )
    if visible.repeated is not None:
        return failed(
            name,
            f"{setting} names {visible.repeated} twice: CUDA refuses that",
            "name each GPU once",
        )
    if visible.unchecked:
        return ok(name, f"{setting}: {len(visible.unchecked)} MIG slices, which were not looked up")
    if not visible.count:
        return warning(
            name,
            f"{setting} hides all {total} GPUs: the training runs on the CPU",
            f"unset {VISIBLE}, unless that is meant",
        )
    if hidden:
        return warning(
            name,
            f"{setting}: {visible.count} of {total} are visible, hidden are {listed(hidden)}",
            f"unset {VISIBLE}, unless the others are meant for someone else",
        )
    return ok(name, f"{setting}: all {total}")


def check_models(visible: VisibleGpus, environment: Mapping[str, str]) -> Check:
    """Whether the visible GPUs are of one kind."""
    name = "gpu-models"
    if len(visible.gpus) < 2:
        return not_applicable(name, "fewer than two GPUs are visible")
    kinds = Counter((gpu.name, _gibibytes(gpu.total_bytes)) for gpu in visible.gpus)
    if len(kinds) == 1:
        return ok(name, f"{len(visible.gpus)} alike")
    models = "; ".join(
        f"{model}{f' {size} GiB' if size else ''}: GPU "
        + listed(
            g.index for g in visible.gpus if (g.name, _gibibytes(g.total_bytes)) == (model, size)
        )
        for model, size in kinds
    )
    order = ""
    if environment.get(_ORDER) != "PCI_BUS_ID":
        order = f"; {_ORDER}=PCI_BUS_ID makes numbers mean what nvidia-smi shows"
    return warning(
        name,
        f"mixed: {models}. Every step waits for the slowest, and each gets the same share of a batch",
        f"make one model visible with {VISIBLE}{order}",
    )


def check_memory(visible: VisibleGpus) -> Check:
    """Whether there is memory free on the visible GPUs."""
    name = "gpu-memory"
    if not visible.gpus:
        return not_applicable(name, _NO_GPU if not visible.unchecked else "not asked of MIG slices")
    known = [(gpu, gpu.total_bytes, gpu.used_bytes) for gpu in visible.gpus]
    free = [
        (gpu, (total - used) / total, total - used)
        for gpu, total, used in known
        if total and used is not None
    ]
    if not free:
        return not_applicable(name, "not known without NVML or nvidia-smi")
    full = [
        f"GPU {gpu.index} ({size >> 20:,} MiB)"
        for gpu, ratio, size in free
        if ratio < FULL_FREE_RATIO
    ]
    if full:
        return failed(
            name,
            f"less than {FULL_FREE_RATIO:.0%} is free on {listed(full)}",
            "end what holds it (nvidia-smi shows who), or use other GPUs",
        )
    least, _, size = min(free, key=lambda one: one[1])
    return ok(name, f"{size / 2**30:.1f} GiB free on GPU {least.index}, the fullest of {len(free)}")


def check_sharing(visible: VisibleGpus, proc: Path) -> Check:
    """Whether others use the visible GPUs."""
    name = "gpu-processes"
    if not visible.gpus:
        return not_applicable(name, _NO_GPU)
    if all(gpu.used_bytes is None and not gpu.processes for gpu in visible.gpus):
        return not_applicable(name, "not known without NVML or nvidia-smi")
    held = list(_held(visible.gpus, proc))
    if held:
        return warning(
            name,
            listed(held),
            "let the GPUs do nothing else while a trace is recorded: kernels of others are not in it, and "
            "the time they take is",
        )
    return ok(name, "no other process")


def _held(gpus: tuple[Gpu, ...], proc: Path) -> Iterator[str]:
    for gpu in gpus:
        for process in gpu.processes:
            used = "" if process.used_bytes is None else f", {process.used_bytes >> 20:,} MiB"
            yield f"GPU {gpu.index}: process {process.pid}{_command(proc, process.pid)}{used}"
        if not gpu.processes and (gpu.used_bytes or 0) > UNEXPLAINED_BYTES:
            used_mib = (gpu.used_bytes or 0) >> 20
            yield f"GPU {gpu.index}: {used_mib:,} MiB held by processes that cannot be seen from here"


def _command(proc: Path, pid: int) -> str:
    try:
        return f" {(proc / str(pid) / 'comm').read_text('utf-8', 'replace').strip()}"
    except OSError:
        return ""


def check_growth(
    visible: VisibleGpus, environment: Mapping[str, str], is_set_by_script: bool
) -> Check:
    """Whether TensorFlow takes all memory at its start."""
    name = "memory-growth"
    value = environment.get(_GROWTH)
    if value is not None and value not in ("true", "false"):
        return warning(
            name, f"{_GROWTH}={value} is ignored", f"{_GROWTH}=true or =false, in lower case"
        )
    if not visible.count:
        return not_applicable(name, _NO_GPU)
    if value == "true" or (is_set_by_script and value is None):
        by = f"{_GROWTH}=true" if value else "set_memory_growth in the script"
        return ok(
            name, f"on ({by}): memory in use, as the trace and NVML show it, is what was needed"
        )
    others = [gpu for gpu in visible.gpus if gpu.processes]
    if others:
        return warning(
            name,
            f"off: TensorFlow takes nearly all memory at its start, and others hold "
            f"{listed(f'GPU {gpu.index}' for gpu in others)}",
            f"{_GROWTH}=true",
        )
    return ok(name, "off, as by default: TensorFlow takes nearly all memory at its start")


def _gibibytes(size: int | None) -> int:
    return round((size or 0) / 2**30)
