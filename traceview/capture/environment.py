"""What did the script run in: which command, versions, settings and devices?

Everything is asked of the process as it is when the window opens, so that what the script itself has set
counts. The groups: `command`, `cluster`, `variables`, `versions`, `precision`, `xla`, `devices`, `links`.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

from traceview.capture.facts import Absent, Facts
from traceview.capture.links import describe_drivers, describe_links, opened_nvml
from traceview.capture.secrets import masked_arguments, masked_variable
from traceview.capture.sidecar import Sidecar

VARIABLES: Final = (
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "KERAS_BACKEND",
    "NCCL_*",
    "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "TF_CPP_MIN_LOG_LEVEL",
    "TF_CUDNN_DETERMINISTIC",
    "TF_CUDNN_USE_AUTOTUNE",
    "TF_DETERMINISTIC_OPS",
    "TF_ENABLE_AUTO_MIXED_PRECISION",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_FORCE_UNIFIED_MEMORY",
    "TF_GPU_ALLOCATOR",
    "TF_GPU_CUPTI_*",
    "TF_GPU_THREAD_COUNT",
    "TF_GPU_THREAD_MODE",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_USE_LEGACY_KERAS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)
"""The only variables that are written down; `*` stands for anything."""

_MAPS: Final = Path("/proc/self/maps")
_DRIVER: Final = Path("/proc/driver/nvidia/version")
_NOT_LOADED: Final = "the library is not loaded in this process"


class EnvironmentListener:
    """Writes down what the script runs in."""

    def opening(self, sidecar: Sidecar) -> None:
        """All that is known without asking the driver: it should be there if the run is killed."""
        begun = perf_counter_ns()
        sidecar.add("command", describe_command())
        sidecar.add("cluster", describe_cluster(os.environ))
        sidecar.add("variables", listed_variables(os.environ))
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow is not None:
            sidecar.add("versions", built_versions(tensorflow))
            sidecar.add("precision", describe_precision(tensorflow, sys.modules))
            sidecar.add("xla", describe_xla(tensorflow, os.environ))
            sidecar.add("devices", describe_devices(tensorflow))
        _add_cost(sidecar, "environment", begun)

    def opened(self, sidecar: Sidecar) -> None:
        """Nothing: the profile runs."""

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """What the driver and the loaded libraries say."""
        begun = perf_counter_ns()
        versions = loaded_versions()
        earlier = sidecar.groups.get("versions", {}).get("missing", {})
        try:
            with opened_nvml() as nvml:
                drivers = describe_drivers(nvml)
                sidecar.add("links", describe_links(nvml))
        except Absent as reason:
            sidecar.add("links", {"missing": {"gpus": str(reason)}})
            drivers = _driver_of_proc(str(reason))
        missing = {**earlier, **versions.pop("missing", {}), **drivers.pop("missing", {})}
        sidecar.add(
            "versions", {**versions, **drivers, **({"missing": missing} if missing else {})}
        )
        _add_cost(sidecar, "drivers", begun)


def describe_command() -> dict[str, Any]:
    """How Python was started, and what the script got; values that look like credentials are masked."""
    return {
        "python": masked_arguments(sys.orig_argv),
        "script": masked_arguments(sys.argv),
    }


def describe_cluster(environment: Mapping[str, str]) -> dict[str, Any]:
    """Role, index and size of the cluster from TF_CONFIG; addresses are left out."""
    facts = Facts()
    config = facts.ask("is_configured", lambda: _tf_config(environment))
    if config is None:
        return facts.as_group()
    facts.values["is_configured"] = True
    task, cluster = _mapping(config.get("task")), _mapping(config.get("cluster"))
    facts.ask("role", lambda: _of_task(task, "type"))
    facts.ask("index", lambda: int(_of_task(task, "index")))
    facts.ask("sizes", lambda: _sizes(cluster))
    return facts.as_group()


def listed_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Those of `VARIABLES` that are set."""
    return {
        name: masked_variable(name, environment[name])
        for name in sorted(environment)
        if any(fnmatchcase(name, pattern) for pattern in VARIABLES)
    }


def built_versions(tensorflow: Any) -> dict[str, Any]:
    """What this TensorFlow was built with, which need not be what runs."""
    facts = Facts()
    build = facts.ask("build", lambda: dict(tensorflow.sysconfig.get_build_info()))
    facts.values.pop("build", None)
    facts.ask("tensorflow_git", lambda: tensorflow.version.GIT_VERSION)
    if build is not None:
        facts.ask("is_cuda_build", lambda: build.get("is_cuda_build"))
        for field, key in {"cuda_build": "cuda_version", "cudnn_build": "cudnn_version"}.items():
            facts.ask(field, partial(_of_build, build, key))
    return facts.as_group()


def loaded_versions(maps: Path = _MAPS) -> dict[str, Any]:
    """Versions of the CUDA libraries that this process has loaded, asked of them."""
    facts = Facts()
    loaded = facts.ask("loaded", lambda: _loaded_libraries(maps))
    facts.values.pop("loaded", None)
    if loaded is not None:
        facts.ask("cuda", lambda: _cuda(_asked(loaded, "libcudart.so", "cudaRuntimeGetVersion")))
        facts.ask("cudnn", lambda: _cudnn(_returned(loaded, "libcudnn.so", "cudnnGetVersion")))
        facts.ask("nccl", lambda: _nccl(_asked(loaded, "libnccl.so", "ncclGetVersion")))
    return facts.as_group()


def describe_precision(tensorflow: Any, modules: Mapping[str, Any]) -> dict[str, Any]:
    """The mixed-precision policy that layers get which name none, and TensorFlow's own rewriter."""
    facts = Facts()
    facts.ask("policy", lambda: _policy(modules))
    options = tensorflow.config.optimizer.get_experimental_options
    facts.ask("auto_mixed_precision", lambda: bool(options().get("auto_mixed_precision", False)))
    facts.ask("tf32", lambda: tensorflow.config.experimental.tensor_float_32_execution_enabled())
    return facts.as_group()


def describe_xla(tensorflow: Any, environment: Mapping[str, str]) -> dict[str, Any]:
    """Whether XLA compiles by itself. Functions with `jit_compile` say so in the group `placement`."""
    facts = Facts()
    facts.ask("auto_jit", lambda: _auto_jit(tensorflow.config.optimizer.get_jit()))
    facts.ask("tf_xla_flags", lambda: _variable(environment, "TF_XLA_FLAGS"))
    facts.ask("xla_flags", lambda: _variable(environment, "XLA_FLAGS"))
    return facts.as_group()


def describe_devices(tensorflow: Any) -> dict[str, Any]:
    """Physical devices, those TensorFlow was let see, and the logical ones it made of them."""
    config = tensorflow.config
    facts = Facts()
    facts.ask("physical", lambda: [_device(config, d) for d in config.list_physical_devices()])
    facts.ask("visible", lambda: [device.name for device in config.get_visible_devices()])
    facts.ask("logical", lambda: [device.name for device in config.list_logical_devices()])
    facts.ask("soft_placement", config.get_soft_device_placement)
    return facts.as_group()


def _device(config: Any, device: Any) -> dict[str, Any]:
    facts = Facts()
    facts.values.update(name=device.name, type=device.device_type)
    if device.device_type == "GPU":
        details = facts.ask("details", lambda: config.experimental.get_device_details(device))
        if details:
            capability = details.get("compute_capability")
            facts.values["details"] = {
                **details,
                **({"compute_capability": list(capability)} if capability else {}),
            }
        facts.ask("memory_growth", lambda: config.experimental.get_memory_growth(device))
    configured = facts.ask(
        "logical_devices",
        lambda: len(config.get_logical_device_configuration(device) or [device]),
    )
    if configured is not None and device.device_type == "GPU":
        limits = [
            made.memory_limit for made in config.get_logical_device_configuration(device) or []
        ]
        facts.values["memory_limits_mb"] = limits
    return facts.as_group()


def _tf_config(environment: Mapping[str, str]) -> dict[str, Any]:
    text = environment.get("TF_CONFIG")
    if not text:
        raise Absent("TF_CONFIG is not set")
    try:
        config = json.loads(text)
    except ValueError as error:
        # The text itself may hold anything, so it is not quoted.
        raise Absent("TF_CONFIG is not JSON") from error
    if not isinstance(config, dict):
        raise Absent("TF_CONFIG is not a JSON object")
    return config


def _of_task(task: Mapping[str, Any], key: str) -> Any:
    if key not in task:
        raise Absent(f"TF_CONFIG has no task.{key}")
    return task[key]


def _sizes(cluster: Mapping[str, Any]) -> dict[str, int]:
    if not cluster:
        raise Absent("TF_CONFIG has no cluster")
    return {
        str(role): len(tasks) if isinstance(tasks, list | dict) else 1
        for role, tasks in cluster.items()
    }


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _of_build(build: Mapping[str, Any], key: str) -> str:
    if key not in build:
        raise Absent("the build info of this TensorFlow does not say")
    return str(build[key])


def _variable(environment: Mapping[str, str], name: str) -> str:
    if name not in environment:
        raise Absent(f"{name} is not set")
    return masked_variable(name, environment[name])


def _auto_jit(value: Any) -> str:
    return str(value) if value else "off"


def _policy(modules: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name in ("keras", "tf_keras"):
        module = modules.get(name)
        if module is None:
            continue
        if hasattr(getattr(module, "config", None), "dtype_policy"):
            policy = module.config.dtype_policy()
        else:
            policy = module.mixed_precision.global_policy()
        found[name] = str(policy.name)
    if not found:
        raise Absent("Keras is not imported")
    return found


def _loaded_libraries(maps: Path) -> list[str]:
    try:
        text = maps.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise Absent(f"{maps} cannot be read") from error
    paths = {line.split(maxsplit=5)[-1] for line in text.splitlines() if ".so" in line}
    return sorted(path for path in paths if path.startswith("/"))


def _loaded(paths: list[str], stem: str, function: str) -> Callable[..., int]:
    path = next((path for path in paths if Path(path).name.startswith(stem)), None)
    if path is None:
        raise Absent(_NOT_LOADED)
    # Only what is there already: loading a library changes the process.
    library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    found: Callable[..., int] = library[function]
    return found


def _asked(paths: list[str], stem: str, function: str) -> int:
    version = ctypes.c_int(0)
    status = _loaded(paths, stem, function)(ctypes.byref(version))
    if status != 0:
        raise Absent(f"{function} answers {status}")
    return version.value


def _returned(paths: list[str], stem: str, function: str) -> int:
    return _loaded(paths, stem, function)()


def _cuda(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _cudnn(number: int) -> str:
    # cudnn_version.h: major × 1000 + minor × 100 + patch up to 8, × 10000 since 9.
    major = 10_000 if number >= 90_000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def _nccl(number: int) -> str:
    # nccl.h: major × 1000 + minor × 100 + patch up to 2.8, × 10000 since 2.9.
    major = 10_000 if number >= 10_000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def _driver_of_proc(reason: str) -> dict[str, Any]:
    facts = Facts()

    def driver() -> str:
        try:
            lines = _DRIVER.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise Absent(f"{reason}, and there is no {_DRIVER}") from error
        return lines[0].removeprefix("NVRM version:").strip()

    facts.ask("driver", driver)
    return facts.as_group()


def _add_cost(sidecar: Sidecar, part: str, begun_ns: int) -> None:
    sidecar.add("listener_cost_ns", {part: perf_counter_ns() - begun_ns})
