"""Checks whether JAX is installed, in a version that is tested, and with support for the GPUs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import distributions
from typing import Final

from traceview.capture.check.check import NO_GPU, Check, Subject
from traceview.capture.record.trace_summary import release

OLDEST: Final = (0, 4)
NEWEST: Final = (0, 10)
"""The versions that traceview is tested with; of the oldest from 0.4.30 on."""
_GPU_PLUGINS: Final = ("jax-cuda", "jax-rocm")


def jax_packages() -> dict[str, str]:
    """The versions of JAX and its parts that are installed, by package."""
    names = {str(found.metadata["Name"]).lower(): found.version for found in distributions()}
    return {name: version for name, version in sorted(names.items()) if name.startswith("jax")}


def check_jax(packages: Mapping[str, str], *, is_needed: bool) -> Check:
    """Whether it is installed. `is_needed`: a given script imports it."""
    subject = Subject("jax")
    version = packages.get("jax")
    if version is None:
        detail = f"not installed for {sys.executable}"
        if not is_needed:
            return subject.not_applicable(detail)
        return subject.failed(detail, "pip install jax there, or run traceview where JAX is")
    detail = ", ".join(f"{name} {version}" for name, version in packages.items())
    number = release(version)
    if number is None or not OLDEST <= number <= NEWEST:
        return subject.warning(
            detail, "use JAX 0.4.30 to 0.10: in others traceview may not recognize the steps"
        )
    return subject.ok(detail)


def check_jax_gpus(packages: Mapping[str, str], *, has_gpus: bool) -> Check:
    """Whether the installed JAX can use the GPUs."""
    subject = Subject("jax-gpu")
    if "jax" not in packages or not has_gpus:
        return subject.not_applicable(NO_GPU if "jax" in packages else "JAX is missing")
    plugins = [name for name in packages if name.startswith(_GPU_PLUGINS)]
    if not plugins:
        return subject.failed(
            "JAX is installed without support for GPUs", "pip install 'jax[cuda12]'"
        )
    return subject.ok(", ".join(plugins))
