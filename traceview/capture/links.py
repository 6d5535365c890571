"""How are the GPUs connected: PCIe generation and width, NVLink, and which driver serves them?

NVML answers, through nvidia-ml-py, the `capture` extra. Where it does not, the reason is the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import combinations
from typing import Any, Final

from traceview.capture.facts import Absent, Facts

_TOPOLOGY: Final = {
    "NVML_TOPOLOGY_INTERNAL": "same board",
    "NVML_TOPOLOGY_SINGLE": "one PCIe switch",
    "NVML_TOPOLOGY_MULTIPLE": "several PCIe switches",
    "NVML_TOPOLOGY_HOSTBRIDGE": "host bridge",
    "NVML_TOPOLOGY_NODE": "one NUMA node",
    "NVML_TOPOLOGY_SYSTEM": "between NUMA nodes",
}
_FALLBACK_MAX_LINKS: Final = 18
"""NVLinks of one GPU; nvml.h, NVML_NVLINK_MAX_LINKS since Hopper."""


@contextmanager
def opened_nvml() -> Iterator[Any]:
    """NVML while it is asked; raises `Absent` where it cannot be."""
    try:
        nvml = import_module("pynvml")
    except ImportError as error:
        raise Absent("nvidia-ml-py is not installed") from error
    try:
        nvml.nvmlInit()
    except Exception as error:
        raise Absent(f"NVML does not start: {error}") from error
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def describe_drivers(nvml: Any) -> dict[str, Any]:
    """The version of the driver, and the newest CUDA that it serves."""
    facts = Facts()
    facts.ask("driver", lambda: _text(nvml.nvmlSystemGetDriverVersion()))
    facts.ask("cuda_of_driver", lambda: _cuda(nvml.nvmlSystemGetCudaDriverVersion_v2()))
    return facts.as_group()


def describe_links(nvml: Any) -> dict[str, Any]:
    """All GPUs of the host, visible to TensorFlow or not; `bus_id` tells which is which."""
    facts = Facts()
    handles: list[Any] = []

    def gpus() -> list[dict[str, Any]]:
        handles.extend(
            nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())
        )
        return [_gpu(nvml, handle) for handle in handles]

    if facts.ask("gpus", gpus) is not None:
        facts.ask("paths", lambda: _paths(nvml, handles))
    return facts.as_group()


def _gpu(nvml: Any, handle: Any) -> dict[str, Any]:
    facts = Facts()
    for field, question in {
        "name": lambda: _text(nvml.nvmlDeviceGetName(handle)),
        "bus_id": lambda: _bus_id(nvml, handle),
        "pcie_generation": lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
        "pcie_width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
        "pcie_generation_max": lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
        "pcie_width_max": lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
        "memory_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        "nvlinks": lambda: _nvlinks(nvml, handle),
    }.items():
        facts.ask(field, question)
    return facts.as_group()


def _nvlinks(nvml: Any, handle: Any) -> dict[str, Any]:
    """Active links by the bus id of what is at their other end: a GPU, or a switch."""
    peers: dict[str, int] = {}
    unknown = 0
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", _FALLBACK_MAX_LINKS)):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
        except nvml.NVMLError as error:
            # Beyond its last link an NVLink GPU says "invalid argument"; one without says "not supported".
            if link == 0:
                raise Absent(f"no NVLink: {error}") from error
            break
        try:
            peer = _text(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
        except nvml.NVMLError:
            unknown += 1
        else:
            peers[peer] = peers.get(peer, 0) + 1
    return {"active": sum(peers.values()) + unknown, "peers": peers}


def _paths(nvml: Any, handles: list[Any]) -> list[dict[str, Any]]:
    names = {
        getattr(nvml, constant): text
        for constant, text in _TOPOLOGY.items()
        if hasattr(nvml, constant)
    }
    found = []
    for (first, one), (second, other) in combinations(enumerate(handles), 2):
        level = nvml.nvmlDeviceGetTopologyCommonAncestor(one, other)
        found.append({"gpus": [first, second], "over": names.get(level, f"level {level}")})
    return found


def _bus_id(nvml: Any, handle: Any) -> str:
    return _text(nvml.nvmlDeviceGetPciInfo(handle).busId)


def _text(value: Any) -> str:
    # Older versions of nvidia-ml-py give bytes.
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _cuda(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
