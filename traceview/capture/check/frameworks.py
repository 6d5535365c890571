"""Checks whether TensorFlow or JAX can be imported, and whether a profile of it records what the GPUs do."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from importlib.metadata import distributions
from typing import Final

from traceview.capture.check.check import Check, Subject
from traceview.capture.check.trial import Trial

_NAMES: Final = {"tensorflow": "TensorFlow", "jax": "JAX"}
_TESTED: Final = {"tensorflow": ((2, 15), (2, 21)), "jax": ((0, 4), (0, 10))}
"""Oldest and newest version that traceview is tested with; of JAX from 0.4.30 on."""
GPU_PACKAGES: Final = {
    "tensorflow": "pip install 'tensorflow[and-cuda]'",
    "jax": "pip install 'jax[cuda12]'",
}
"""What installs each with all that it needs for GPUs."""
_PACKAGES: Final = {
    "tensorflow": ("tensorflow", "tensorflow-", "tf-nightly", "intel-tensorflow"),
    "jax": ("jax", "jax-", "jaxlib"),
}
_PARTS: Final = ("tensorflow-io", "tensorflow-estimator", "tensorflow-text", "tensorflow-hub")


def chosen(imports: Collection[str]) -> tuple[str, dict[str, str]]:
    """The framework that scripts with these imports train with, and its installed packages with their versions."""
    installed = {name: _installed(name) for name in _NAMES}
    if "jax" in imports and "tensorflow" not in imports:
        return "jax", installed["jax"]
    if not imports and installed["jax"] and not installed["tensorflow"]:
        return "jax", installed["jax"]
    return "tensorflow", installed["tensorflow"]


def _installed(framework: str) -> dict[str, str]:
    whole, *beginnings = _PACKAGES[framework]
    found = {
        # As PEP 503 compares them: the wheel of TensorFlow 2.21 for CPUs calls itself tensorflow_cpu.
        re.sub(r"[-_.]+", "-", str(package.metadata["Name"])).lower(): package.version
        for package in distributions()
    }
    return {
        name: version
        for name, version in sorted(found.items())
        if name == whole or (name.startswith(tuple(beginnings)) and not name.startswith(_PARTS))
    }


def check_framework(
    framework: str, installed: Mapping[str, str], trial: Trial | None, *, is_needed: bool
) -> Check:
    """Whether it is installed, can be imported, and is of a tested version. `is_needed`: a given script imports it."""
    subject = Subject(framework)
    name = _NAMES[framework]
    if not installed:
        detail = f"not installed for {sys.executable}"
        fix = (
            f"install {name} there, or traceview where {name} is; `traceview analyze` needs neither"
        )
        return subject.failed(detail, fix) if is_needed else subject.warning(detail, fix)
    packages = ", ".join(f"{package} {version}" for package, version in installed.items())
    if trial is not None and not trial.version:
        return subject.failed(
            f"{packages}: the import fails: {trial.reason}",
            f"{sys.executable} -c 'import {framework}' shows the whole error",
        )
    if framework == "tensorflow" and len(installed) > 1:
        return subject.warning(
            f"{packages} overwrite each other: the one installed last is imported",
            "pip uninstall all of them, then install only one (tf_keras depends on tensorflow)",
        )
    number = _release(trial.version if trial else next(iter(installed.values())))
    oldest, newest = _TESTED[framework]
    if number is None or not oldest <= number <= newest:
        tested = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
        return subject.warning(
            packages, f"use {name} {tested}: in others traceview may not recognize the steps"
        )
    return subject.ok(packages if trial else f"{packages} (import not tried)")


def _release(version: str) -> tuple[int, int] | None:
    """`2.21.0rc1` as (2, 21)."""
    match = re.match(r"(\d{1,4})\.(\d{1,4})", version)
    return (int(match[1]), int(match[2])) if match else None


def check_profile(framework: str, trial: Trial | None) -> Check:
    """Whether a profile of a small computation records it on each GPU."""
    subject = Subject("profile")
    if trial is None or not trial.version:
        return subject.not_applicable("not tried")
    if not trial.has_events:
        return subject.failed(
            f"a profile of one multiplication recorded nothing: {trial.reason or 'no reason was logged'}",
            "unset TF_DISABLE_PROFILING, and run without other profilers",
        )
    if not trial.gpus:
        return subject.ok("a profile recorded the operations of the CPU")
    if trial.recorded_gpus == trial.gpus:
        return subject.ok(f"a profile recorded {trial.recorded_gpus} of {trial.gpus} GPUs")
    return subject.failed(
        f"a profile recorded {trial.recorded_gpus} of {trial.gpus} GPUs: {trial.reason or 'no reason was logged'}",
        f"if CUPTI is missing: {GPU_PACKAGES[framework]}. If privileges are: options nvidia "
        "NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, or docker run --cap-add SYS_ADMIN. CUPTI serves one "
        "tool at a time: run without nsys or ncu, and pause DCGM (dcgmi profile --pause)",
    )
