"""Is there a TensorFlow that can use these GPUs, and what does its profiler ignore?"""

from __future__ import annotations

import re
import sys
from typing import Final

from traceview.capture.preflight.check import Check, failed, listed, not_applicable, ok, warning
from traceview.capture.preflight.tensorflow_facts import Imported, Installed
from traceview.capture.preflight.visible_gpus import VisibleGpus
from traceview.capture.tracer_options import OPTIONS_IGNORED, release

OLDEST: Final = (2, 15)
NEWEST: Final = (2, 21)
"""The versions that traceview is tested with."""

_GPU_PACKAGE: Final = "pip install 'tensorflow[and-cuda]'"


def check_tensorflow(
    installed: Installed, imported: Imported | None, *, is_needed: bool = False
) -> Check:
    """Whether it is there and can be imported. `is_needed`: a script is given that imports it."""
    name = "tensorflow"
    if not installed.packages and not (imported and imported.version):
        found = f"not installed for {sys.executable}"
        fix = (
            "install it there, or install traceview beside it; reports of recorded traces need none"
        )
        return failed(name, found, fix) if is_needed else warning(name, found, fix)
    packages = ", ".join(f"{package} {version}" for package, version in installed.packages)
    if imported is not None and not imported.version:
        return failed(
            name,
            f"{packages}: the import fails: {imported.error}",
            f"{sys.executable} -c 'import tensorflow' shows all of it",
        )
    if len(installed.packages) > 1:
        return warning(
            name,
            f"{packages}: they write the same files, and the last one installed is what runs",
            "pip uninstall all of them, then install one (tf_keras brings tensorflow along)",
        )
    version = imported.version if imported else installed.version
    number = release(version)
    found = packages or f"tensorflow {version}"
    if imported is None:
        found += " (not imported)"
    if number is None or not OLDEST <= number <= NEWEST:
        tested = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
        return warning(name, found, f"traceview is tested with {tested}; others may lack a hook")
    return ok(name, found)


def check_cuda_build(
    installed: Installed, imported: Imported | None, visible: VisibleGpus, has_gpus: bool
) -> Check:
    """Whether TensorFlow can use the GPUs there are."""
    name = "tensorflow-gpu"
    is_there = bool(installed.packages or (imported and imported.version))
    if not is_there or (imported is not None and not imported.version):
        return not_applicable(name, "there is no TensorFlow to ask")
    cuda = (imported.cuda if imported else "") or str(installed.build.get("cuda_version", ""))
    is_cuda = imported.is_cuda_build if imported else bool(installed.build.get("is_cuda_build"))
    build = f"built for CUDA {cuda}" if cuda and is_cuda else "built without CUDA"
    if installed.is_cpu_package:
        build = "the package without GPU support"
    if imported is not None and imported.gpus:
        count = len(imported.gpus)
        if count < visible.count:
            return failed(
                name,
                f"{build}, sees {count} of {visible.count} visible GPUs",
                "a GPU that it refuses is named in its log: TF_CPP_MIN_LOG_LEVEL=0",
            )
        return ok(name, f"{build}, sees {count} GPU{'s' if count > 1 else ''}")
    if not has_gpus:
        return not_applicable(name, f"{build}; there is no GPU")
    if installed.is_cpu_package or not is_cuda:
        return failed(name, f"{build}, and there are GPUs", _GPU_PACKAGE)
    if imported is None:
        return ok(name, f"{build}; what it sees was not asked")
    if not visible.count:
        return not_applicable(name, f"{build}; all GPUs are hidden")
    why = imported.error or listed(imported.log) or "its log does not say why"
    return failed(
        name,
        f"{build}, and sees none of {visible.count} visible GPUs: {why}",
        f"{_GPU_PACKAGE} brings the libraries it was built with; a driver older than its CUDA has to be replaced",
    )


def check_options(version: str) -> Check:
    """What the profiler of this version does not do."""
    name = "profiler-options"
    number = release(version)
    if number is None:
        return not_applicable(name, "there is no TensorFlow")
    if number in OPTIONS_IGNORED:
        return ok(
            name,
            f"TensorFlow {number[0]}.{number[1]} ignores every ProfilerOptions: host level 2, devices on, "
            "Python calls off, which is what traceview needs",
        )
    return ok(name, f"TensorFlow {number[0]}.{number[1]} takes tracer levels")


def cuda_major(installed: Installed, imported: Imported | None) -> int:
    """The major version of CUDA that TensorFlow was compiled for; 12 where it is not known."""
    told = (imported.cuda if imported else "") or str(installed.build.get("cuda_version", ""))
    match = re.match(r"\d{1,3}", told)
    return int(match[0]) if match else 12
