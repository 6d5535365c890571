"""Checks before a run what would go wrong in a capture, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from traceview.capture.check import (
    checks_gpus,
    checks_profiler,
    checks_surroundings,
    checks_tensorflow,
)
from traceview.capture.check.check import Check
from traceview.capture.check.checks_gpus import VISIBLE
from traceview.capture.check.checks_jax import check_jax, check_jax_gpus, jax_packages
from traceview.capture.check.checks_profiler import DISABLED
from traceview.capture.check.checks_script import check_scripts, read_scripts
from traceview.capture.check.checks_surroundings import CONFIG
from traceview.capture.check.gpu_inventory import visible_gpus
from traceview.capture.check.machine import Machine
from traceview.capture.check.script_reading import ScriptReading

_SET_BY_SCRIPTS: Final = (
    VISIBLE,
    "CUDA_DEVICE_ORDER",
    DISABLED,
    "TF_GPU_CUPTI_FORCE_CONCURRENT_KERNEL",
)
"""None of them makes our processes load code (LD_PRELOAD, PYTHONPATH) or use the network (TF_CONFIG)."""

__all__ = ["Check", "Machine", "examine"]


def examine(
    scripts: Sequence[Path] = (),
    *,
    out: Path = Path("logs"),
    asks_tensorflow: bool = True,
    machine: Machine | None = None,
) -> list[Check]:
    """Run every check.

    `asks_tensorflow`: import it in another process (4 to 10 s). Scripts are read and never run; environment variables
    that they set literally count as set. A problem is a failed check, never an error.
    """
    return list(_examine(scripts, out, asks_tensorflow, machine or Machine.here()))


def _examine(
    scripts: Sequence[Path], out: Path, asks_tensorflow: bool, machine: Machine
) -> Iterator[Check]:
    readings, unreadable = read_scripts(scripts)
    setting = _setting(readings)
    machine = machine.with_environment(setting)
    environment, proc = machine.environment, machine.root / "proc"

    installed = machine.installed()
    inventory = machine.inventory(proc)
    has_gpus = bool(inventory.gpus)
    visible = visible_gpus(inventory.gpus, environment.get(VISIBLE))
    is_needed = any(reading.imports_tensorflow for reading in readings)
    needs_jax = any(reading.imports_jax for reading in readings)
    # A script that trains with one of them is not asked for the other.
    asks_tensorflow &= bool(installed.packages) and (is_needed or not needs_jax)
    imported = machine.imported(environment) if asks_tensorflow else None
    cuda = checks_tensorflow.cuda_major(installed, imported)

    if is_needed or not needs_jax:
        yield checks_tensorflow.check_tensorflow(installed, imported, is_needed=is_needed)
        yield checks_tensorflow.check_cuda_build(installed, imported, visible, has_gpus)
    packages = jax_packages()
    if needs_jax or (packages and not is_needed):
        yield check_jax(packages, is_needed=needs_jax)
        yield check_jax_gpus(packages, has_gpus=has_gpus)
    yield checks_gpus.check_gpus(inventory)
    where = "set in the script" if VISIBLE in setting else ""
    yield checks_gpus.check_visible(inventory, visible, environment.get(VISIBLE), where)
    yield checks_gpus.check_models(visible, environment)
    yield checks_gpus.check_memory(visible)
    yield checks_gpus.check_sharing(visible, proc)
    yield checks_profiler.check_cupti(machine, has_gpus=has_gpus, cuda=cuda)
    yield checks_profiler.check_permission(proc, has_gpus=has_gpus)
    yield checks_profiler.check_other_profiler(environment, proc)
    yield checks_surroundings.check_output(out)
    yield checks_surroundings.check_config(environment.get(CONFIG))
    yield from unreadable
    yield from check_scripts(readings, visible_count=visible.count)


def _setting(readings: Sequence[ScriptReading]) -> Mapping[str, str]:
    """The variables that checks use and scripts set."""
    return {
        key: value
        for reading in readings
        for key, value in reading.environment.items()
        if key in _SET_BY_SCRIPTS
    }
