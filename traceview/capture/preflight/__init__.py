"""What would go wrong in a capture here? It is asked before the run, and nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from traceview.capture.preflight.check import Check
from traceview.capture.preflight.checks_gpus import (
    VISIBLE,
    check_gpus,
    check_growth,
    check_memory,
    check_models,
    check_sharing,
    check_visible,
)
from traceview.capture.preflight.checks_profiler import (
    DISABLED,
    check_container,
    check_cupti,
    check_nccl,
    check_other_profiler,
    check_permission,
)
from traceview.capture.preflight.checks_script import check_scripts, read_scripts
from traceview.capture.preflight.checks_surroundings import (
    CONFIG,
    check_config,
    check_output,
    check_ports,
    check_stop,
)
from traceview.capture.preflight.checks_tensorflow import (
    check_cuda_build,
    check_options,
    check_tensorflow,
    cuda_major,
)
from traceview.capture.preflight.machine import Machine
from traceview.capture.preflight.script_reading import ScriptReading
from traceview.capture.preflight.visible_gpus import visible_gpus

_SET_BY_SCRIPTS: Final = (
    VISIBLE,
    "CUDA_DEVICE_ORDER",
    DISABLED,
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_CUPTI_FORCE_CONCURRENT_KERNEL",
)
"""Nothing that makes our processes load code (LD_PRELOAD, PYTHONPATH) or ask the network (TF_CONFIG)."""

__all__ = ["Check", "Machine", "cheap_failures", "examine"]


def examine(
    scripts: Sequence[Path] = (),
    *,
    out: Path = Path("logs"),
    asks_tensorflow: bool = True,
    machine: Machine | None = None,
) -> list[Check]:
    """Every check, in the order in which one would look.

    `asks_tensorflow`: import it in another process (4 to 10 s). Scripts are read and never run; variables that
    they set literally count as set. Raises nothing for what it finds.
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
    cuda = cuda_major(installed, imported)

    is_needed = any(reading.imports_tensorflow for reading in readings)
    yield check_tensorflow(installed, imported, is_needed=is_needed)
    yield check_cuda_build(installed, imported, visible, has_gpus)
    yield check_options(version)
    yield check_gpus(inventory)
    where = "set in the script" if VISIBLE in setting else ""
    yield check_visible(inventory, visible, environment.get(VISIBLE), where)
    yield check_models(visible, environment)
    yield check_memory(visible)
    yield check_sharing(visible, proc)
    grows = any(reading.named("set_memory_growth") for reading in readings)
    yield check_growth(visible, environment, grows)
    driver_cuda = inventory.cuda[0] if inventory.cuda else None
    yield check_cupti(machine, has_gpus=has_gpus, cuda=cuda, driver_cuda=driver_cuda)
    yield check_permission(proc, has_gpus=has_gpus)
    yield check_container(machine.root, environment, has_gpus=has_gpus)
    yield check_other_profiler(environment, proc)
    yield check_nccl(machine, gpu_count=visible.count, cuda=cuda)
    yield check_output(out)
    config, cluster = check_config(environment.get(CONFIG))
    yield config
    yield check_ports(cluster, machine.network)
    # Understood and no more: nobody is asked for what a script says.
    cluster_of_script = {
        k: v for one in readings for k, v in one.environment.items() if k == CONFIG
    }
    yield check_stop({**environment, **cluster_of_script})
    yield from unreadable
    yield from check_scripts(readings, visible_count=visible.count, version=version)


def cheap_failures(scripts: Sequence[Path] = (), *, machine: Machine | None = None) -> list[Check]:
    """The failed ones among those checks that take no time: nothing is imported, loaded, started or asked.

    What a capture says itself is not among them: the output folder, which it makes; a script that cannot be
    read; and TF_DISABLE_PROFILING, unless the script is what sets it, for then it would be said after the run.
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
        check_cuda_build(installed, None, visible, bool(inventory.gpus)),
        check_visible(inventory, visible, environment.get(VISIBLE), where),
        check_other_profiler(
            {k: v for k, v in environment.items() if k != DISABLED or k in setting},
            machine.root / "proc",
        ),
        check_config(environment.get(CONFIG))[0],
        *check_scripts(readings, visible_count=count, version=installed.version),
    ]
    return [check for check in checks if check.status == "failed"]


def _setting(readings: Sequence[ScriptReading]) -> Mapping[str, str]:
    """Variables that the scripts set, of those that checks look at."""
    return {
        key: value
        for reading in readings
        for key, value in reading.environment.items()
        if key in _SET_BY_SCRIPTS
    }
