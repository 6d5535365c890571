"""Describes what the script runs in: its command, place in a cluster, versions, settings and devices.

The process is asked when the window opens, so that what the script itself has set counts. Nothing is loaded that is not loaded
already, except NVML, because loading a library changes the process.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from traceview.base.errors import NoAnswerError
from traceview.capture.sidecar.file import Sidecar, WindowListener, answers, reason_of

_BY_PREFIX: Final = {
    "CUDA": "DEVICE_ORDER LAUNCH_BLOCKING MODULE_LOADING VISIBLE_DEVICES",
    "JAX": "DEFAULT_MATMUL_PRECISION DISABLE_JIT ENABLE_X64 PLATFORMS",
    "KERAS": "BACKEND",
    "NCCL": "ALGO BUFFSIZE COLLNET_ENABLE CROSS_NIC DEBUG DEBUG_SUBSYS LAUNCH_MODE MAX_CTAS MAX_NCHANNELS MIN_CTAS "
    "MIN_NCHANNELS NET NET_GDR_LEVEL NET_GDR_READ NSOCKS_PERTHREAD NTHREADS NVLS_ENABLE P2P_DISABLE P2P_LEVEL PROTO SHM_DISABLE",
    "NCCL_IB": "DISABLE GID_INDEX HCA QPS_PER_CONNECTION TC TIMEOUT",
    "NCCL_SOCKET": "FAMILY IFNAME NTHREADS",
    "NVIDIA": "TF32_OVERRIDE VISIBLE_DEVICES",
    "OMP": "NUM_THREADS",
    "TF": "CPP_MIN_LOG_LEVEL CUDNN_DETERMINISTIC CUDNN_USE_AUTOTUNE DETERMINISTIC_OPS ENABLE_AUTO_MIXED_PRECISION ENABLE_ONEDNN_OPTS "
    "FORCE_GPU_ALLOW_GROWTH FORCE_UNIFIED_MEMORY GPU_ALLOCATOR GPU_CUPTI_ENABLE_ACTIVITY_HW_TRACING GPU_CUPTI_FORCE_CONCURRENT_KERNEL "
    "GPU_THREAD_COUNT GPU_THREAD_MODE NUM_INTEROP_THREADS NUM_INTRAOP_THREADS USE_LEGACY_KERAS XLA_FLAGS",
    "XLA": "FLAGS PYTHON_CLIENT_ALLOCATOR PYTHON_CLIENT_MEM_FRACTION PYTHON_CLIENT_PREALLOCATE",
}
VARIABLES: Final = tuple(
    f"{start}_{end}" for start, ends in _BY_PREFIX.items() for end in ends.split()
)
"""The only variables that are noted: settings and flags, of which none holds a credential by its purpose."""
_TENSORFLOW: Final = "tensorflow.python"
_DEBUGGING: Final = (
    ("tf.config.run_functions_eagerly", f"{_TENSORFLOW}.eager.polymorphic_function.eager_function_run", "RUN_FUNCTIONS_EAGERLY"),
    ("tf.data.experimental.enable_debug_mode", f"{_TENSORFLOW}.data.ops.debug_mode", "DEBUG_MODE"),
    ("tf.config.experimental.enable_op_determinism", f"{_TENSORFLOW}.util._pywrap_determinism", "is_enabled"),
    ("tf.debugging.set_log_device_placement", f"{_TENSORFLOW}.eager.context", "_context.log_device_placement"),
    *((f"jax_{mode}", "jax", f"config.jax_{mode}") for mode in ("check_tracer_leaks", "debug_infs", "debug_nans", "disable_jit")),
)  # fmt: skip
"""What slows down steps, most of it to find mistakes: the module that knows whether it is on, and where in it, perhaps a function."""


class EnvironmentListener(WindowListener):
    """Describes what the script runs in."""

    def opening(self, sidecar: Sidecar) -> None:
        """Note all that is known without the driver, so that it is there if the run is killed."""
        # Without values that might be credentials.
        sidecar.add("command", {"script": masked_arguments(sys.argv)})
        own = own_place(os.environ)
        if own is not None:
            sidecar.add("cluster", own.as_json())
        sidecar.add("variables", listed_variables(os.environ))
        memory, tool = sys.modules.get("tracemalloc"), getattr(sys, "monitoring", None)
        hooks: dict[str, Any] = {
            "tracemalloc": memory and memory.is_tracing(),
            "sys.settrace": sys.gettrace(),
            "sys.setprofile": sys.getprofile(),
            "sys.monitoring": tool and any(map(tool.get_events, filter(tool.get_tool, range(6)))),
        }
        for name, module, place in _DEBUGGING:
            hooks |= answers({name: partial(_setting, sys.modules.get(module), place)})
        sidecar.add("tracing", {"hooks": [name for name, is_on in hooks.items() if is_on]})
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow is not None:
            config = tensorflow.config
            jit = config.optimizer.get_jit
            sidecar.add("precision", answers({"policy": lambda: _policies(sys.modules)}))
            sidecar.add("xla", answers({"auto_jit": lambda: str(jit() or "off")}))
            # Those of the machine, and those that TensorFlow makes of them.
            sidecar.add("devices", answers({
                "physical": lambda: [_device(config, d) for d in config.list_physical_devices()],
                "logical": lambda: [device.name for device in config.list_logical_devices()],
            }))  # fmt: skip

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Ask the driver and the loaded libraries."""
        sidecar.add("versions", loaded_versions())
        with suppress(NoAnswerError), opened_nvml() as nvml:
            driver = answers({"driver": lambda: str(nvml.nvmlSystemGetDriverVersion())})
            sidecar.add("versions", driver)


def _setting(module: Any, place: str) -> Any:
    """What a module holds at a place, or what the function there answers."""
    value = attrgetter(place)(module)
    return value() if callable(value) else value


def listed_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables in `VARIABLES` that are set."""
    return {name: masked_variable(environment[name]) for name in VARIABLES if name in environment}


def _device(config: Any, device: Any) -> dict[str, Any]:
    details = config.experimental.get_device_details
    configured = config.get_logical_device_configuration
    return {"type": device.device_type, **answers({
        "logical_devices": lambda: len(configured(device) or [device]),
        # Only a GPU has a name.
        "details": lambda: {"device_name": details(device)["device_name"]},
    })}  # fmt: skip


def _policies(modules: Mapping[str, Any]) -> dict[str, str] | None:
    policies = {}
    for name in ("keras", "tf_keras"):
        module: Any = modules.get(name)
        if hasattr(getattr(module, "config", None), "dtype_policy"):
            policies[name] = str(module.config.dtype_policy().name)
        elif module is not None:
            policies[name] = str(module.mixed_precision.global_policy().name)
    return policies or None


MASK: Final = "***"
_OPTION: Final = re.compile(r"(?:--[A-Za-z][\w.\-]{0,63}|-[A-Za-z])(?:=(?P<value>.*))?", re.DOTALL)
_GLUED: Final = re.compile(r"-[A-Za-z](?P<value>.+)", re.DOTALL)
"""A short option and its value in one word, `-j8`; or a long option with one dash, which looks the same."""
_SETTING: Final = re.compile(r"[+~]{0,2}[A-Za-z_][\w.\-]{0,63}=(?P<value>.*)", re.DOTALL)
_HARMLESS: Final = re.compile(
    r"|--?|[-+]?[\d.,:_]{1,20}(?:[eE][-+]?\d{1,3})?%?|true|false|yes|no|on|off|none|null"
    r"|[\w./\\\-]+\.(?:pyz?|pyw|sh|bash|ipynb)",
    re.IGNORECASE,
)
"""A number, several, or a range; a boolean; a script; nothing, or what ends the options."""
_WORDS: Final = re.compile(r"[\w.:^\-]{1,20}(?:[,;][\w.:^\-]{1,20})*")
_DEVICE_IDS: Final = re.compile(r"(?:GPU|MIG)-[\da-f\-]+(?:,(?:GPU|MIG)-[\da-f\-]+)*")
_THREAD: Final = re.compile(r"[\w .:()<>\-]{1,60}")


def masked_arguments(arguments: Sequence[str]) -> list[str]:
    """Mask all of a command line but the program, names of options, numbers, booleans, and names of scripts."""
    return [*arguments[:1], *map(_masked_argument, arguments[1:])]


def masked_variable(value: str) -> str:
    """Mask the value of a variable that is known to hold a setting or flags, where it is neither."""
    if _WORDS.fullmatch(value) or _DEVICE_IDS.fullmatch(value):
        return value
    try:
        return " ".join(map(_masked_argument, shlex.split(value)))
    except ValueError:
        return MASK


def masked_thread(name: str) -> str:
    """Mask the name of a thread that is more than words."""
    return name if _THREAD.fullmatch(name) else MASK


def _masked_argument(argument: str) -> str:
    option = _OPTION.fullmatch(argument) or _GLUED.fullmatch(argument)
    if _HARMLESS.fullmatch(argument):
        return argument
    if option is not None:
        value = option["value"] or ""
        return argument if _HARMLESS.fullmatch(value) else f"{argument.removesuffix(value)}{MASK}"
    setting = _SETTING.fullmatch(argument)
    # The padding of a word in base64 looks like a setting to nothing.
    is_shown = setting is not None and setting["value"] and _HARMLESS.fullmatch(setting["value"])
    return argument if is_shown else MASK


_LOADED_ONLY: Final = getattr(os, "RTLD_NOLOAD", 0) | getattr(os, "RTLD_LAZY", 0)


def handles(nvml: Any) -> list[Any]:
    """What NVML knows each GPU of the host by, in its order."""
    return [nvml.nvmlDeviceGetHandleByIndex(each) for each in range(nvml.nvmlDeviceGetCount())]


@contextmanager
def opened_nvml() -> Iterator[Any]:
    """NVML, through nvidia-ml-py (the `capture` extra); raises `NoAnswerError` where it is missing or does not start."""
    try:
        nvml = import_module("pynvml")
        nvml.nvmlInit()
    except ImportError as error:
        raise NoAnswerError("nvidia-ml-py is not installed") from error
    except Exception as error:
        raise NoAnswerError(f"NVML does not start: {reason_of(error)}") from error
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def bus_ids() -> list[str]:
    """The PCI bus id of each CUDA device, in the order of CUDA and of the trace; raises `NoAnswerError` where no GPU is used."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=_LOADED_ONLY)
    except OSError as error:
        raise NoAnswerError("this process uses no GPU: CUDA is not loaded") from error

    def call(function: str, *arguments: Any) -> None:
        status = getattr(driver, function)(*arguments)
        if status != 0:
            raise NoAnswerError(f"this process uses no GPU: {function} returns {status}")

    count = ctypes.c_int(0)
    call("cuDeviceGetCount", ctypes.byref(count))
    found = []
    for ordinal in range(count.value):
        # Room for `domain:bus:device.function`, which takes 13; cuda.h, cuDeviceGetPCIBusId.
        device, text = ctypes.c_int(0), ctypes.create_string_buffer(32)
        call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
        call("cuDeviceGetPCIBusId", text, ctypes.c_int(len(text)), device)
        found.append(text.value.decode("ascii", "replace"))
    return found


def loaded_versions(maps: Path = Path("/proc/self/maps")) -> dict[str, Any]:
    """Versions of the CUDA libraries that this process has loaded, as they report them."""

    def reported(stem: str, name: str) -> int:
        """What a function of a library answers: by a pointer, or as its result, where no pointer is asked for."""
        text = maps.read_text(encoding="utf-8", errors="surrogateescape")
        paths = {line.split(maxsplit=5)[-1] for line in text.splitlines() if ".so" in line}
        loaded = (path for path in sorted(paths) if Path(path).name.startswith(stem))
        path = next(path for path in loaded if path.startswith("/"))
        function = ctypes.CDLL(path, mode=_LOADED_ONLY)[name]
        if name == "cudnnGetVersion":
            return int(function())
        version = ctypes.c_int(0)
        if function(ctypes.byref(version)) != 0:
            raise NoAnswerError
        return version.value

    return answers({
        # 12040 for 12.4.
        "cuda": lambda: "{}.{}".format(*divmod(reported("libcudart.so", "cudaRuntimeGetVersion") // 10, 100)),
        # cudnn_version.h: major × 1000 + minor × 100 + patch up to 8, × 10000 since 9.
        "cudnn": lambda: _dotted(reported("libcudnn.so", "cudnnGetVersion"), 90_000),
        # nccl.h: the same up to 2.8, and since 2.9.
        "nccl": lambda: _dotted(reported("libnccl.so", "ncclGetVersion"), 10_000),
    })  # fmt: skip


def _dotted(number: int, least: int) -> str:
    """`2.21.5` from 22105, and `2.8.4` from 2804, which is below the `least` number of the newer form."""
    major = 10_000 if number >= least else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


_SHORT: Final = {"worker": "w", "rank": "r", "process": "p"}
STOP_RISK: Final = (
    "TensorFlow can crash a worker when its profile ends (seen with 2.19 to 2.21, see docs/capture.md): save a "
    "checkpoint before the window, or preload jemalloc"
)
"""`TraceMeRecorder::Consume` reads what an activity that changed threads left in a `std::vector` that has grown since; jemalloc keeps it."""


@dataclass(frozen=True)
class Task:
    """One process of a cluster."""

    role: str
    index: int

    def __str__(self) -> str:
        return f"{self.role} {self.index}"

    @property
    def label(self) -> str:
        """Distinguishes its files from those of the other tasks: `w1` for worker 1, `r1` for rank 1, `chief0`."""
        role = _SHORT.get(self.role) or re.sub(r"[^A-Za-z0-9]", "-", self.role[:40])
        return f"{role}{self.index}"


@dataclass(frozen=True)
class Place:
    """The place of this process in a `cluster`, a text that is equal in all, with the `partners` at the same steps, and its `sizes`."""

    task: Task
    cluster: str
    partners: tuple[Task, ...]
    sizes: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        """The group `cluster` of the sidecar, without addresses."""
        sizes = {"sizes": self.sizes} if self.sizes else {}
        return {"role": self.task.role, "index": self.task.index, **sizes}


def place_of(environment: Mapping[str, str]) -> Place | None:
    """The place that TF_CONFIG gives; None where it is not set, names one process alone, or is invalid."""
    try:
        config = json.loads(environment.get("TF_CONFIG", ""))
        cluster, task = config["cluster"], config["task"]
        own = Task(str(task["type"]), int(task["index"]))
        # A cluster that leaves tasks out is an object, with the index as key.
        indices = {
            str(role): [*map(int, each if isinstance(each, dict) else range(len(each)))]
            for role, each in sorted(cluster.items())
        }
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None
    tasks = [Task(role, index) for role, numbers in indices.items() for index in numbers]
    if own.index < 0 or not {own, *tasks} - {own}:
        return None
    # An evaluator is at steps of its own. With parameter servers workers do what the chief sends them, which runs the steps.
    partners = tuple(task for task in tasks if task.role != "evaluator")
    is_alone = own not in partners or len(partners) < 2 or "ps" in cluster
    sizes = {role: len(numbers) for role, numbers in indices.items()}
    return Place(own, json.dumps(cluster, sort_keys=True), () if is_alone else partners, sizes)


def may_crash(environment: Mapping[str, str]) -> bool:
    """Whether TF_CONFIG names several workers, and jemalloc is not preloaded: see `STOP_RISK`."""
    place = place_of(environment)
    return bool(place and place.partners) and "jemalloc" not in environment.get("LD_PRELOAD", "")


ROLE: Final = "rank"
PROCESS: Final = "process"
_VARIABLES: Final = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    # Not SLURM_NTASKS, which sbatch sets in its own script too.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("RANK", "WORLD_SIZE"),
)
"""Rank and number of ranks by launcher: the closest to the script first, because srun may start mpirun."""
_RANK: Final = re.compile(r"\d{1,6}", re.ASCII)
"""No cluster has a million ranks."""


def rank_of(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """The rank of this process, counted from 0, and the number of ranks; None if it is alone."""
    for names in _VARIABLES:
        texts = [environment.get(name, "") for name in names]
        if all(map(_RANK.fullmatch, texts)):
            number, count = map(int, texts)
            if max(number, 1) < count:
                return number, count
    return None


def own_place(environment: Mapping[str, str]) -> Place | None:
    """The place of this process in the cluster of JAX or TF_CONFIG, else among the ranks of its launcher."""
    # The processes of `jax.distributed` run the same programs at the same time.
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    count = getattr(state, "num_processes", None) or 1
    if state is not None and state.client is not None and count > 1:
        partners = tuple(Task(PROCESS, number) for number in range(count))
        job = f"{count} processes of {state.coordinator_address}"
        return Place(partners[state.process_id], job, partners, {PROCESS: count})
    rank = rank_of(environment)
    alone = None if rank is None else Place(Task(ROLE, rank[0]), "", (), {})
    return place_of(environment) or alone
