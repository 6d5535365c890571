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
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_CUPTI_FORCE_CONCURRENT_KERNEL",
)
"""None of them makes our processes load code (LD_PRELOAD, PYTHONPATH) or use the network (TF_CONFIG)."""

__all__ = ["Check", "Machine", "cheap_failures", "examine"]


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
    imported = machine.imported(environment) if asks_tensorflow and installed.packages else None
    version = (imported.version if imported else "") or installed.version
    cuda = checks_tensorflow.cuda_major(installed, imported)

    is_needed = any(reading.imports_tensorflow for reading in readings)
    yield checks_tensorflow.check_tensorflow(installed, imported, is_needed=is_needed)
    yield checks_tensorflow.check_cuda_build(installed, imported, visible, has_gpus)
    yield checks_tensorflow.check_options(version)
    yield checks_gpus.check_gpus(inventory)
    where = "set in the script" if VISIBLE in setting else ""
    yield checks_gpus.check_visible(inventory, visible, environment.get(VISIBLE), where)
    yield checks_gpus.check_models(visible, environment)
    yield checks_gpus.check_memory(visible)
    yield checks_gpus.check_sharing(visible, proc)
    grows = any(reading.named("set_memory_growth") for reading in readings)
    yield checks_gpus.check_growth(visible, environment, grows)
    driver_cuda = inventory.cuda[0] if inventory.cuda else None
    yield checks_profiler.check_cupti(
        machine, has_gpus=has_gpus, cuda=cuda, driver_cuda=driver_cuda
    )
    yield checks_profiler.check_permission(proc, has_gpus=has_gpus)
    yield checks_profiler.check_container(machine.root, environment, has_gpus=has_gpus)
    yield checks_profiler.check_other_profiler(environment, proc)
    yield checks_profiler.check_nccl(machine, gpu_count=visible.count, cuda=cuda)
    yield checks_surroundings.check_output(out)
    config, cluster = checks_surroundings.check_config(environment.get(CONFIG))
    yield config
    yield checks_surroundings.check_ports(cluster, machine.network)
    # Only read: no address is contacted because a script names it.
    cluster_of_script = {
        k: v for reading in readings for k, v in reading.environment.items() if k == CONFIG
    }
    yield checks_surroundings.check_stop({**environment, **cluster_of_script})
    yield from unreadable
    yield from check_scripts(readings, visible_count=visible.count, version=version)


def cheap_failures(scripts: Sequence[Path] = (), *, machine: Machine | None = None) -> list[Check]:
    """The failed checks among those that take no time: nothing is imported, loaded, started or contacted.

    Problems that a capture reports itself are left out: the output folder, a script that cannot be read, and
    TF_DISABLE_PROFILING, unless the script itself sets it, because then the report would come after the run.
    """
    machine = machine or Machine.here()
    readings, _ = read_scripts(scripts)
    setting = _setting(readings)
    machine = machine.with_environment(setting)
    environment = machine.environment
    inventory = machine.gpus_of_driver()
    visible = visible_gpus(inventory.gpus, environment.get(VISIBLE))
    count = visible.count if inventory.gpus else None
    installed = machine.installed()
    where = "set in the script" if VISIBLE in setting else ""
    checks = [
        checks_tensorflow.check_cuda_build(installed, None, visible, bool(inventory.gpus)),
        checks_gpus.check_visible(inventory, visible, environment.get(VISIBLE), where),
        checks_profiler.check_other_profiler(
            {k: v for k, v in environment.items() if k != DISABLED or k in setting},
            machine.root / "proc",
        ),
        checks_surroundings.check_config(environment.get(CONFIG))[0],
        *check_scripts(readings, visible_count=count, version=installed.version),
    ]
    return [check for check in checks if check.status == "failed"]


def _setting(readings: Sequence[ScriptReading]) -> Mapping[str, str]:
    """The variables that checks use and scripts set."""
    return {
        key: value
        for reading in readings
        for key, value in reading.environment.items()
        if key in _SET_BY_SCRIPTS
    }
