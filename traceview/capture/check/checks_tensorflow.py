"""Checks whether TensorFlow can be imported and use the GPUs, and which profiler options it ignores."""

from __future__ import annotations

import re
import sys
from typing import Final

from traceview.capture.check.check import NO_GPU, Check, Subject, listed
from traceview.capture.check.gpu_inventory import VisibleGpus
from traceview.capture.check.tensorflow_facts import Imported, Installed
from traceview.capture.record.trace_summary import release

OLDEST: Final = (2, 15)
NEWEST: Final = (2, 21)
"""The versions that traceview is tested with."""

_GPU_PACKAGE: Final = "pip install 'tensorflow[and-cuda]'"


def check_tensorflow(
    installed: Installed, imported: Imported | None, *, is_needed: bool = False
) -> Check:
    """Whether it is installed and can be imported. `is_needed`: a given script imports it."""
    subject = Subject("tensorflow")
    if not installed.packages and not (imported and imported.version):
        detail = f"not installed for {sys.executable}"
        fix = "install TensorFlow there, or traceview where TensorFlow is; `traceview analyze` does not need TensorFlow"
        return subject.failed(detail, fix) if is_needed else subject.warning(detail, fix)
    packages = ", ".join(f"{package} {version}" for package, version in installed.packages)
    if imported is not None and not imported.version:
        return subject.failed(
            f"{packages}: the import fails: {imported.error}",
            f"{sys.executable} -c 'import tensorflow' shows the whole error",
        )
    if len(installed.packages) > 1:
        return subject.warning(
            f"{packages} overwrite each other: the one installed last is imported",
            "pip uninstall all of them, then install only one (tf_keras depends on tensorflow)",
        )
    version = imported.version if imported else installed.version
    number = release(version)
    detail = packages or f"tensorflow {version}"
    if imported is None:
        detail += " (import not tried)"
    if number is None or not OLDEST <= number <= NEWEST:
        tested = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
        return subject.warning(
            detail, f"use TensorFlow {tested}: in others traceview may not recognize the steps"
        )
    return subject.ok(detail)


def check_cuda_build(
    installed: Installed, imported: Imported | None, visible: VisibleGpus, has_gpus: bool
) -> Check:
    """Whether TensorFlow can use the GPUs."""
    subject = Subject("tensorflow-gpu")
    is_there = bool(installed.packages or (imported and imported.version))
    if not is_there or (imported is not None and not imported.version):
        return subject.not_applicable("TensorFlow is missing, or cannot be imported")
    cuda = (imported.cuda if imported else "") or str(installed.build.get("cuda_version", ""))
    is_cuda = imported.is_cuda_build if imported else bool(installed.build.get("is_cuda_build"))
    build = f"built for CUDA {cuda}" if cuda and is_cuda else "built without CUDA"
    if installed.is_cpu_package:
        build = "a package without GPU support"
    if imported is not None and imported.gpus:
        count = len(imported.gpus)
        if count < visible.count:
            return subject.failed(
                f"{build}; sees {count} of {visible.count} visible GPUs",
                "import it with TF_CPP_MIN_LOG_LEVEL=0: the log names the GPUs that it refuses",
            )
        return subject.ok(f"{build}; sees {count} GPU{'s' if count > 1 else ''}")
    if not has_gpus:
        return subject.not_applicable(f"{build}; {NO_GPU}")
    if installed.is_cpu_package or not is_cuda:
        return subject.failed(f"{build}, so it cannot use the GPUs", _GPU_PACKAGE)
    if imported is None:
        return subject.ok(f"{build}; import not tried, so it is unknown which GPUs it sees")
    if not visible.count:
        return subject.not_applicable(f"{build}; all GPUs are hidden")
    reason = imported.error or listed(imported.log) or "its log gives no reason"
    return subject.failed(
        f"{build}, but sees none of {visible.count} visible GPUs: {reason}",
        f"{_GPU_PACKAGE} installs the CUDA libraries it needs; a driver older than that CUDA must be updated",
    )


def cuda_major(installed: Installed, imported: Imported | None) -> int:
    """The major version of CUDA that TensorFlow was compiled for; 12 if unknown."""
    version = (imported.cuda if imported else "") or str(installed.build.get("cuda_version", ""))
    match = re.match(r"\d{1,3}", version)
    return int(match[0]) if match else 12
