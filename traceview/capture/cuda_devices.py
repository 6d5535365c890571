"""Which GPU is number k of this process? CUDA itself says, by the place of each on the PCI bus.

Its numbers are those of the trace's planes. They follow `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` as these
were when CUDA started, which nobody else knows later.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Final

from traceview.capture.facts import Absent

_DRIVER: Final = "libcuda.so.1"
_BUS_ID_BYTES: Final = 32
"""Room for `domain:bus:device.function`, which takes 13; cuda.h, cuDeviceGetPCIBusId."""


def started_driver() -> Any:
    """The CUDA driver library that this process has loaded; raises `Absent` if it has loaded none."""
    try:
        # Only what is there already: loading it changes the process.
        return ctypes.CDLL(_DRIVER, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError as error:
        raise Absent("this process uses no GPU: CUDA is not loaded") from error


def bus_ids(driver: Any) -> list[str]:
    """The PCI bus id of each CUDA device, in CUDA's order; raises `Absent` where CUDA does not say."""
    count = ctypes.c_int(0)
    _check("cuDeviceGetCount", driver.cuDeviceGetCount(ctypes.byref(count)))
    return [_bus_id(driver, ordinal) for ordinal in range(count.value)]


def _bus_id(driver: Any, ordinal: int) -> str:
    device = ctypes.c_int(0)
    _check("cuDeviceGet", driver.cuDeviceGet(ctypes.byref(device), ctypes.c_int(ordinal)))
    text = ctypes.create_string_buffer(_BUS_ID_BYTES)
    status = driver.cuDeviceGetPCIBusId(text, ctypes.c_int(_BUS_ID_BYTES), device)
    _check("cuDeviceGetPCIBusId", status)
    return text.value.decode("ascii", "replace")


def _check(function: str, status: int) -> None:
    if status != 0:
        raise Absent(f"this process uses no GPU: {function} answers {status}")
