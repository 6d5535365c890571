"""Checks whether TensorFlow or JAX sees all GPUs that nvidia-smi lists."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from typing import Final

from traceview.capture.check.check import Check, Subject
from traceview.capture.check.frameworks import GPU_PACKAGES
from traceview.capture.check.trial import Trial

_TIMEOUT_SECONDS: Final = 20
"""Without the persistence mode the driver is loaded first, which takes seconds per GPU."""
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


def check_gpus(
    framework: str,
    trial: Trial | None,
    environment: Mapping[str, str],
    list_gpus: Callable[[], str] | None = None,
) -> Check:
    """Compare what `list_gpus`, by default `nvidia-smi -L`, prints with what the framework saw in its trial."""
    subject = Subject("gpus")
    try:
        lines = (list_gpus or _list_gpus)().splitlines()
    except FileNotFoundError:
        lines = []
        if not (trial and trial.gpus):
            return subject.warning(
                "no NVIDIA GPU: nvidia-smi is not installed",
                "none needed to train on the CPU: the trace then has host events but no GPU rows. In a container: "
                "docker run --gpus all",
            )
    except OSError as error:
        return subject.failed(
            f"nvidia-smi: {error}",
            "run nvidia-smi: the driver and its library may not match (restart the machine, or start the container with "
            "GPUs)",
        )
    count = sum(line.startswith("GPU ") for line in lines)
    if trial is None or not trial.version:
        return subject.ok(f"{count} by nvidia-smi (not asked which ones {framework} sees)")
    sees = f"{framework} sees {trial.gpus} of {max(count, trial.gpus)} GPUs"
    if trial.gpus >= count:
        return subject.ok(sees)
    if _VISIBLE in environment:
        return subject.warning(
            f"{_VISIBLE}={environment[_VISIBLE]}: {sees}",
            f"unset {_VISIBLE}, unless this is intended",
        )
    return subject.failed(
        f"{sees}: {trial.reason or 'its log gives no reason'}",
        f"{GPU_PACKAGES[framework]} installs the CUDA libraries it needs; a driver older than that CUDA must be updated",
    )


def _list_gpus() -> str:
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"no answer in {_TIMEOUT_SECONDS} s") from error
    if done.returncode:
        output = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
        raise OSError(output.splitlines()[0] if output else f"exit code {done.returncode}")
    return done.stdout.decode("utf-8", "replace")
