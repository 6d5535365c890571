"""Asks the GPU libraries: NVML, and CUDA, cuDNN and NCCL where this process has loaded them.

Nothing is loaded that is not loaded already, except NVML, because loading a library changes the process.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from traceview.capture.sidecar.file import NoAnswerError, answers, reason_of

_MAPS: Final = Path("/proc/self/maps")
_LOADED_ONLY: Final = getattr(os, "RTLD_NOLOAD", 0) | getattr(os, "RTLD_LAZY", 0)
_CUDA_DRIVER: Final = "libcuda.so.1"
_BUS_ID_BYTES: Final = 32
"""Room for `domain:bus:device.function`, which takes 13; cuda.h, cuDeviceGetPCIBusId."""


@contextmanager
def opened_nvml() -> Iterator[Any]:
    """NVML, through nvidia-ml-py (the `capture` extra); raises `NoAnswerError` where it is missing or does not start."""
    try:
        nvml = import_module("pynvml")
    except ImportError as error:
        raise NoAnswerError("nvidia-ml-py is not installed") from error
    try:
        nvml.nvmlInit()
    except Exception as error:
        raise NoAnswerError(f"NVML does not start: {reason_of(error)}") from error
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def started_driver() -> Any:
    """The CUDA driver library that this process has loaded; raises `NoAnswerError` if it has loaded none."""
    try:
        return ctypes.CDLL(_CUDA_DRIVER, mode=_LOADED_ONLY)
    except OSError as error:
        raise NoAnswerError("this process uses no GPU: CUDA is not loaded") from error


def bus_ids(driver: Any) -> list[str]:
    """The PCI bus id of each CUDA device, in CUDA's order; raises `NoAnswerError` if CUDA gives an error.

    That order is also the trace's. It follows `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` as they were when CUDA
    started, which only CUDA itself knows later.
    """
    count = ctypes.c_int(0)
    _call(driver, "cuDeviceGetCount", ctypes.byref(count))
    found = []
    for ordinal in range(count.value):
        device, text = ctypes.c_int(0), ctypes.create_string_buffer(_BUS_ID_BYTES)
        _call(driver, "cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
        _call(driver, "cuDeviceGetPCIBusId", text, ctypes.c_int(_BUS_ID_BYTES), device)
        found.append(text.value.decode("ascii", "replace"))
    return found


def _call(driver: Any, function: str, *arguments: Any) -> None:
    status = getattr(driver, function)(*arguments)
    if status != 0:
        raise NoAnswerError(f"this process uses no GPU: {function} returns {status}")


def loaded_versions(maps: Path = _MAPS) -> dict[str, Any]:
    """Versions of the CUDA libraries that this process has loaded, as they report them."""
    try:
        text = maps.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return {"missing": {"loaded": f"{maps} cannot be read"}}
    paths = {line.split(maxsplit=5)[-1] for line in text.splitlines() if ".so" in line}

    def reported(stem: str, name: str) -> int:
        """What a function of a library answers: by a pointer, or as its result, where no pointer is asked for."""
        found = (path for path in sorted(paths) if Path(path).name.startswith(stem))
        path = next((path for path in found if path.startswith("/")), None)
        if path is None:
            raise NoAnswerError("the library is not loaded in this process")
        function = ctypes.CDLL(path, mode=_LOADED_ONLY)[name]
        if name == "cudnnGetVersion":
            return int(function())
        version = ctypes.c_int(0)
        status = function(ctypes.byref(version))
        if status != 0:
            raise NoAnswerError(f"{name} returns {status}")
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


def describe_links(nvml: Any) -> dict[str, Any]:
    """All GPUs of the host, visible to TensorFlow or not."""
    count, handle = nvml.nvmlDeviceGetCount, nvml.nvmlDeviceGetHandleByIndex
    return answers({"gpus": lambda: [_gpu(nvml, handle(index)) for index in range(count())]})


def _gpu(nvml: Any, handle: Any) -> dict[str, Any]:
    return answers({
        "pcie_generation": lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
        "pcie_width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
        "pcie_generation_max": lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
        "pcie_width_max": lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
        "nvlinks": lambda: {"active": _active_nvlinks(nvml, handle)},
    })  # fmt: skip


def _active_nvlinks(nvml: Any, handle: Any) -> int:
    active = 0
    # nvml.h, since Hopper.
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            active += bool(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except nvml.NVMLError as error:
            # Beyond its last link an NVLink GPU returns "invalid argument"; one without returns "not supported".
            if link == 0:
                raise NoAnswerError(f"no NVLink: {reason_of(error)}") from error
            break
    return active
