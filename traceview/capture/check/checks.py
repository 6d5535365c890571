"""Checks the framework that a script imports, its GPUs, a profile of it, and the folder of the traces."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Final, Literal, NamedTuple

from traceview.base.errors import CaptureError
from traceview.capture.check.trial import Trial, try_profile
from traceview.capture.record.destination import Destination

_NAMES: Final = {"tensorflow": "TensorFlow", "jax": "JAX"}
_TESTED: Final = {"tensorflow": ((2, 15), (2, 21)), "jax": ((0, 4), (0, 11))}
"""Oldest and newest version that traceview is tested with; of JAX from 0.4.30 on."""
_GPU_PACKAGES: Final = {
    "tensorflow": "pip install 'tensorflow[and-cuda]'",
    "jax": "pip install 'jax[cuda12]'",
}
"""What installs each with all that it needs for GPUs."""
_TIMEOUT_SECONDS: Final = 20
"""Without the persistence mode the driver is loaded first, which takes seconds per GPU."""
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
COMFORTABLE_BYTES: Final = 1 << 30
"""Room for several captures: a trace at the tracer's limits has about 100 MB."""
_IMPORTS: Final = {
    "tensorflow": re.compile(r"^\s*(?:import|from)\s+(?:tensorflow|keras|tf_keras)\b", re.M),
    "jax": re.compile(r"^\s*(?:import|from)\s+(?:jax|flax|optax|equinox)\b", re.M),
}


class Check(NamedTuple):
    """The result of one check: what the machine has, and how to fix it.

    `failed`: a capture here would fail, or lack its main content. `warning`: it may, or its numbers would mislead.
    `not applicable`: there is nothing to check here.
    """

    name: str
    status: Literal["ok", "warning", "failed", "not applicable"]
    detail: str
    fix: str = ""


def examine(script: Path | None, out: Path) -> Iterator[Check]:
    """Run every check.

    The framework of the script is imported in another process, which records a profile (4 to 15 s). The script is read and
    never run. A problem is a failed check, never an error.
    """
    text = ""
    if script is not None:
        file = script / "__main__.py" if script.is_dir() else script
        try:
            text = file.read_text("utf-8", "replace")
        except OSError as error:
            yield Check("script", "failed", f"{script}: {error.strerror}", "give a Python file")
    framework, installed = chosen(text)
    trial = try_profile(framework, os.environ) if installed else Trial()
    yield check_framework(framework, installed, trial)
    yield check_gpus(framework, trial, os.environ)
    yield check_profile(framework, trial)
    yield check_output(out)


def chosen(script: str) -> tuple[str, dict[str, str]]:
    """The framework that a script with this text trains with, and the packages that install it with their versions."""
    packages = packages_distributions()
    imports = {name for name, pattern in _IMPORTS.items() if pattern.search(script)}
    has_only_jax = not imports and "jax" in packages and "tensorflow" not in packages
    framework = "jax" if imports == {"jax"} or has_only_jax else "tensorflow"
    return framework, {name: version(name) for name in sorted(set(packages.get(framework, ())))}


def check_framework(framework: str, installed: Mapping[str, str], trial: Trial) -> Check:
    """Whether it is installed, can be imported, and is of a tested version."""
    name = _NAMES[framework]
    if not installed:
        return Check(
            framework,
            "failed",
            f"not installed for {sys.executable}",
            f"install {name} there, or traceview where {name} is; `traceview analyze` needs neither",
        )
    packages = ", ".join(f"{package} {number}" for package, number in installed.items())
    if not trial.version:
        return Check(
            framework,
            "failed",
            f"{packages}: the import fails: {trial.reason}",
            f"{sys.executable} -c 'import {framework}' shows the whole error",
        )
    if framework == "tensorflow" and len(installed) > 1:
        return Check(
            framework,
            "warning",
            f"{packages} overwrite each other: the one installed last is imported",
            "pip uninstall all of them, then install only one (tf_keras depends on tensorflow)",
        )
    release = re.match(r"(\d{1,4})\.(\d{1,4})", trial.version)
    oldest, newest = _TESTED[framework]
    if release is None or not oldest <= (int(release[1]), int(release[2])) <= newest:
        tested = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
        fix = f"use {name} {tested}: in others traceview may not recognize the steps"
        return Check(framework, "warning", packages, fix)
    return Check(framework, "ok", packages)


def check_gpus(
    framework: str,
    trial: Trial,
    environment: Mapping[str, str],
    list_gpus: Callable[[], str] | None = None,
) -> Check:
    """Compare what `list_gpus`, by default `nvidia-smi -L`, prints with what the framework saw in its trial."""
    listed = ""
    try:
        listed = (list_gpus or _list_gpus)()
    except FileNotFoundError:
        if not trial.gpus:
            return Check(
                "gpus",
                "warning",
                "no NVIDIA GPU: nvidia-smi is not installed",
                "none needed to train on the CPU: the trace then has host events but no GPU rows. In a container: "
                "docker run --gpus all",
            )
    except (OSError, subprocess.SubprocessError) as error:
        return Check(
            "gpus",
            "failed",
            f"nvidia-smi: {getattr(error, 'stdout', '') or error}",
            "run nvidia-smi: the driver and its library may not match (restart the machine, or start the container with "
            "GPUs)",
        )
    count = sum(line.startswith("GPU ") for line in listed.splitlines())
    if not trial.version:
        return Check("gpus", "ok", f"{count} by nvidia-smi ({framework} could not be asked)")
    sees = f"{framework} sees {trial.gpus} of {max(count, trial.gpus)} GPUs"
    if trial.gpus >= count:
        return Check("gpus", "ok", sees)
    if _VISIBLE in environment:
        return Check(
            "gpus",
            "warning",
            f"{_VISIBLE}={environment[_VISIBLE]}: {sees}",
            f"unset {_VISIBLE}, unless this is intended",
        )
    return Check(
        "gpus",
        "failed",
        f"{sees}: {trial.reason or 'its log gives no reason'}",
        f"{_GPU_PACKAGES[framework]} installs the CUDA libraries it needs; a driver older than that CUDA must be updated",
    )


def _list_gpus() -> str:
    return subprocess.run(
        ["nvidia-smi", "-L"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_TIMEOUT_SECONDS,
        text=True,
        errors="replace",
        check=True,
    ).stdout


def check_profile(framework: str, trial: Trial) -> Check:
    """Whether a profile of a small computation records it on each GPU."""
    if not trial.version:
        return Check("profile", "not applicable", "not tried")
    if not trial.has_events:
        return Check(
            "profile",
            "failed",
            f"a profile of one multiplication recorded nothing: {trial.reason or 'no reason was logged'}",
            "run without other profilers",
        )
    if not trial.gpus:
        return Check("profile", "ok", "a profile recorded the operations of the CPU")
    recorded = f"a profile recorded {trial.recorded_gpus} of {trial.gpus} GPUs"
    if trial.recorded_gpus == trial.gpus:
        return Check("profile", "ok", recorded)
    return Check(
        "profile",
        "failed",
        f"{recorded}: {trial.reason or 'no reason was logged'}",
        f"if CUPTI is missing: {_GPU_PACKAGES[framework]}. If privileges are: options nvidia "
        "NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, or docker run --cap-add SYS_ADMIN. CUPTI serves one "
        "tool at a time: run without nsys or ncu, and pause DCGM (dcgmi profile --pause)",
    )


def check_output(out: Path) -> Check:
    """Whether a capture could be written to `out`. What the check creates is removed again."""
    destination = Destination(out)
    try:
        destination.prepare()
        free = shutil.disk_usage(destination.out).free
    except CaptureError as error:
        return Check("output", "failed", error.message, error.hint or "choose another --out")
    finally:
        destination.clean()
    detail = f"{out} can be written, {free / 1e9:.1f} GB free"
    if free < COMFORTABLE_BYTES:
        fix = "free some space: a trace may need more than 100 MB"
        return Check("output", "warning", detail, fix)
    return Check("output", "ok", detail)
