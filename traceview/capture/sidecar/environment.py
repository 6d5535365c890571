"""Describes what the script runs in: its command, versions, settings and devices.

The process is asked when the window opens, so that what the script itself has set counts. The groups are `command`,
`cluster`, `variables`, `versions`, `precision`, `xla`, `devices` and `links`.

Of command lines, variables and names of threads it has what can be no credential: of a command line names of options, numbers,
booleans and names of scripts; every other value is masked. Messages of exceptions may hold anything, so the sidecar has their
class alone (`file.reason_of`).
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from traceview.capture.sidecar.cluster import own_place
from traceview.capture.sidecar.file import Facts, NoAnswerError, Sidecar, WindowListener, answers
from traceview.capture.sidecar.gpu_libraries import describe_links, loaded_versions, opened_nvml

VARIABLES: Final = (
    "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_VISIBLE_DEVICES", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_DISABLE_JIT",
    "JAX_ENABLE_X64", "JAX_PLATFORMS", "KERAS_BACKEND",
    "NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_COLLNET_ENABLE", "NCCL_CROSS_NIC", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS",
    "NCCL_IB_DISABLE", "NCCL_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_TC",
    "NCCL_IB_TIMEOUT", "NCCL_LAUNCH_MODE", "NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS",
    "NCCL_MIN_NCHANNELS", "NCCL_NET", "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_NSOCKS_PERTHREAD",
    "NCCL_NTHREADS", "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_PROTO", "NCCL_SHM_DISABLE",
    "NCCL_SOCKET_FAMILY", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_NTHREADS", "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TF_CPP_MIN_LOG_LEVEL", "TF_CUDNN_DETERMINISTIC",
    "TF_CUDNN_USE_AUTOTUNE", "TF_DETERMINISTIC_OPS", "TF_ENABLE_AUTO_MIXED_PRECISION", "TF_ENABLE_ONEDNN_OPTS",
    "TF_FORCE_GPU_ALLOW_GROWTH", "TF_FORCE_UNIFIED_MEMORY", "TF_GPU_ALLOCATOR",
    "TF_GPU_CUPTI_ENABLE_ACTIVITY_HW_TRACING", "TF_GPU_CUPTI_FORCE_CONCURRENT_KERNEL", "TF_GPU_THREAD_COUNT",
    "TF_GPU_THREAD_MODE", "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_USE_LEGACY_KERAS",
    "TF_XLA_FLAGS", "XLA_FLAGS", "XLA_PYTHON_CLIENT_ALLOCATOR", "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
)  # fmt: skip
"""The only variables that are noted: settings and flags, of which none holds a credential by its purpose."""


class EnvironmentListener(WindowListener):
    """Describes what the script runs in."""

    def opening(self, sidecar: Sidecar) -> None:
        """Note all that is known without the driver, so that it is there if the run is killed."""
        # Without values that might be credentials.
        sidecar.add("command", {"script": masked_arguments(sys.argv)})
        place = own_place(os.environ)
        if place is not None:
            sidecar.add("cluster", place.as_json())
        sidecar.add("variables", listed_variables(os.environ))
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow is not None:
            config = tensorflow.config
            jit = config.optimizer.get_jit
            sidecar.add("precision", answers({"policy": lambda: _policies(sys.modules)}))
            sidecar.add("xla", answers({"auto_jit": lambda: str(jit() or "off")}))
            # Those of the machine, those visible to TensorFlow, and those made of them.
            devices = answers({
                "physical": lambda: [_device(config, d) for d in config.list_physical_devices()],
                "visible": lambda: [device.name for device in config.get_visible_devices()],
                "logical": lambda: [device.name for device in config.list_logical_devices()],
            })  # fmt: skip
            sidecar.add("devices", devices)

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Ask the driver and the loaded libraries."""
        versions = loaded_versions()
        try:
            with opened_nvml() as nvml:
                driver = answers({"driver": lambda: str(nvml.nvmlSystemGetDriverVersion())})
                sidecar.add("links", describe_links(nvml))
        except NoAnswerError as reason:
            sidecar.add("links", {"missing": {"gpus": str(reason)}})
            driver = {"missing": {"driver": str(reason)}}
        missing = {**versions.get("missing", {}), **driver.get("missing", {})}
        sidecar.add("versions", {**versions, **driver, **({"missing": missing} if missing else {})})


def listed_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables in `VARIABLES` that are set."""
    return {name: masked_variable(environment[name]) for name in VARIABLES if name in environment}


def _device(config: Any, device: Any) -> dict[str, Any]:
    facts = Facts()
    facts.values["type"] = device.device_type
    if device.device_type == "GPU":
        details = config.experimental.get_device_details
        facts.ask("details", lambda: {"device_name": details(device)["device_name"]})
        facts.ask("memory_growth", lambda: config.experimental.get_memory_growth(device))
    configured = config.get_logical_device_configuration
    facts.ask("logical_devices", lambda: len(configured(device) or [device]))
    return facts.as_group()


def _policies(modules: Mapping[str, Any]) -> dict[str, str]:
    """The default mixed-precision policy of each Keras."""
    policies = {}
    for name in ("keras", "tf_keras"):
        module: Any = modules.get(name)
        if hasattr(getattr(module, "config", None), "dtype_policy"):
            policies[name] = str(module.config.dtype_policy().name)
        elif module is not None:
            policies[name] = str(module.mixed_precision.global_policy().name)
    if not policies:
        raise NoAnswerError("Keras is not imported")
    return policies


MASK: Final = "***"

_OPTION: Final = re.compile(
    r"(?P<name>--[A-Za-z][\w.\-]{0,63}|-[A-Za-z])(?:=(?P<value>.*))?", re.DOTALL
)
_GLUED: Final = re.compile(r"(?P<name>-[A-Za-z])(?P<value>.+)", re.DOTALL)
"""A short option and its value in one word, `-j8`; or a long option with one dash, which looks the same."""

_SETTING: Final = re.compile(r"(?P<name>[+~]{0,2}[A-Za-z_][\w.\-]{0,63})=(?P<value>.*)", re.DOTALL)
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
        name, value = option["name"], option["value"]
        if value is None:
            return name
        between = "" if argument[len(name)] != "=" else "="
        return f"{name}{between}{value if _HARMLESS.fullmatch(value) else MASK}"
    setting = _SETTING.fullmatch(argument)
    # The padding of a word in base64 looks like a setting to nothing.
    is_shown = setting is not None and setting["value"] and _HARMLESS.fullmatch(setting["value"])
    return argument if is_shown else MASK
