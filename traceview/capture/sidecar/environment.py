"""Describes what the script runs in: its command, versions, settings and devices.

The process is asked when the window opens, so that what the script itself has set counts. The groups are `command`,
`cluster`, `variables`, `versions`, `precision`, `xla`, `devices` and `links`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from traceview.capture.sidecar.cluster import ROLE, rank_of
from traceview.capture.sidecar.file import Facts, NoAnswerError, Sidecar, WindowListener
from traceview.capture.sidecar.gpu_libraries import (
    describe_drivers,
    describe_links,
    loaded_versions,
    opened_nvml,
)
from traceview.capture.sidecar.secrets import masked_arguments, masked_variable

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
        with sidecar.timed("environment"):
            sidecar.add("command", describe_command())
            sidecar.add("cluster", describe_cluster(os.environ))
            sidecar.add("variables", listed_variables(os.environ))
            tensorflow = sys.modules.get("tensorflow")
            if tensorflow is not None:
                sidecar.add("versions", built_versions(tensorflow))
                sidecar.add("precision", describe_precision(tensorflow, sys.modules))
                sidecar.add("xla", describe_xla(tensorflow, os.environ))
                sidecar.add("devices", describe_devices(tensorflow))

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Ask the driver and the loaded libraries."""
        with sidecar.timed("drivers"):
            versions = loaded_versions()
            try:
                with opened_nvml() as nvml:
                    drivers = describe_drivers(nvml)
                    sidecar.add("links", describe_links(nvml))
            except NoAnswerError as reason:
                sidecar.add("links", {"missing": {"gpus": str(reason)}})
                drivers = {"missing": {"driver": str(reason)}}
            groups = (sidecar.groups.get("versions", {}), versions, drivers)
            missing = {k: v for group in groups for k, v in group.get("missing", {}).items()}
            sidecar.add(
                "versions", {**versions, **drivers, **({"missing": missing} if missing else {})}
            )


def describe_command() -> dict[str, Any]:
    """The command lines of Python and of the script, without values that might be credentials."""
    return {"python": masked_arguments(sys.orig_argv), "script": masked_arguments(sys.argv)}


def describe_cluster(environment: Mapping[str, str]) -> dict[str, Any]:
    """Role, index and size of the cluster from TF_CONFIG, or the rank of a launcher; addresses are left out."""
    facts = Facts()
    config = facts.find("is_configured", lambda: _tf_config(environment))
    if config is None:
        rank = rank_of(environment)
        if rank is not None:
            facts.values.update(role=ROLE, index=rank.number)
            if rank.are_together:
                facts.values["sizes"] = {ROLE: rank.size}
        return facts.as_group()
    facts.values["is_configured"] = True
    task, cluster = _mapping(config.get("task")), _mapping(config.get("cluster"))
    facts.ask("role", lambda: _of_task(task, "type"))
    facts.ask("index", lambda: int(_of_task(task, "index")))
    facts.ask("sizes", lambda: _sizes(cluster))
    return facts.as_group()


def listed_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables in `VARIABLES` that are set."""
    return {name: masked_variable(environment[name]) for name in VARIABLES if name in environment}


def built_versions(tensorflow: Any) -> dict[str, Any]:
    """What this TensorFlow was built with; the libraries that run may differ."""
    facts = Facts()
    build = facts.find("build", lambda: dict(tensorflow.sysconfig.get_build_info()))
    facts.ask("tensorflow_git", lambda: tensorflow.version.GIT_VERSION)
    if build is not None:
        facts.ask("is_cuda_build", lambda: build.get("is_cuda_build"))
        for field, key in {"cuda_build": "cuda_version", "cudnn_build": "cudnn_version"}.items():
            facts.ask(field, partial(_of_build, build, key))
    return facts.as_group()


def describe_precision(tensorflow: Any, modules: Mapping[str, Any]) -> dict[str, Any]:
    """Keras' default mixed-precision policy, TensorFlow's automatic mixed precision, and TF32."""
    facts = Facts()
    facts.ask("policy", lambda: _policy(modules))
    options = tensorflow.config.optimizer.get_experimental_options
    facts.ask("auto_mixed_precision", lambda: bool(options().get("auto_mixed_precision", False)))
    facts.ask("tf32", lambda: tensorflow.config.experimental.tensor_float_32_execution_enabled())
    return facts.as_group()


def describe_xla(tensorflow: Any, environment: Mapping[str, str]) -> dict[str, Any]:
    """Whether XLA compiles automatically. Functions with `jit_compile` are in the group `placement`."""
    facts = Facts()
    facts.ask("auto_jit", lambda: str(tensorflow.config.optimizer.get_jit() or "off"))
    facts.ask("tf_xla_flags", lambda: _variable(environment, "TF_XLA_FLAGS"))
    facts.ask("xla_flags", lambda: _variable(environment, "XLA_FLAGS"))
    return facts.as_group()


def describe_devices(tensorflow: Any) -> dict[str, Any]:
    """Physical devices, those visible to TensorFlow, and the logical devices made of them."""
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
        raise NoAnswerError("TF_CONFIG is not set")
    try:
        config = json.loads(text)
    except ValueError as error:
        # The text itself may hold anything, so it is not quoted.
        raise NoAnswerError("TF_CONFIG is not JSON") from error
    if not isinstance(config, dict):
        raise NoAnswerError("TF_CONFIG is not a JSON object")
    return config


def _of_task(task: Mapping[str, Any], key: str) -> Any:
    if key not in task:
        raise NoAnswerError(f"TF_CONFIG has no task.{key}")
    return task[key]


def _sizes(cluster: Mapping[str, Any]) -> dict[str, int]:
    if not cluster:
        raise NoAnswerError("TF_CONFIG has no cluster")
    return {
        str(role): len(tasks) if isinstance(tasks, list | dict) else 1
        for role, tasks in cluster.items()
    }


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _of_build(build: Mapping[str, Any], key: str) -> str:
    if key not in build:
        raise NoAnswerError("the build info of this TensorFlow has no such field")
    return str(build[key])


def _variable(environment: Mapping[str, str], name: str) -> str:
    if name not in environment:
        raise NoAnswerError(f"{name} is not set")
    return masked_variable(environment[name])


def _policy(modules: Mapping[str, Any]) -> dict[str, str]:
    policies = {}
    for name in ("keras", "tf_keras"):
        module = modules.get(name)
        if module is None:
            continue
        if hasattr(getattr(module, "config", None), "dtype_policy"):
            policy = module.config.dtype_policy()
        else:
            policy = module.mixed_precision.global_policy()
        policies[name] = str(policy.name)
    if not policies:
        raise NoAnswerError("Keras is not imported")
    return policies
