"""Describes how the GPUs of the host are connected, by PCIe and NVLink, and which driver serves them, as NVML says."""

from __future__ import annotations

from itertools import combinations
from typing import Any, Final

from traceview.capture.gpu_libraries import cuda_version, decoded
from traceview.capture.sidecar import Facts, NoAnswerError

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


def describe_drivers(nvml: Any) -> dict[str, Any]:
    """The version of the driver, and the newest CUDA that it supports."""
    facts = Facts()
    facts.ask("driver", lambda: decoded(nvml.nvmlSystemGetDriverVersion()))
    facts.ask("cuda_of_driver", lambda: cuda_version(nvml.nvmlSystemGetCudaDriverVersion_v2()))
    return facts.as_group()


def describe_links(nvml: Any) -> dict[str, Any]:
    """All GPUs of the host, visible to TensorFlow or not; `bus_id` identifies them."""
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
    facts.ask_each(
        {
            "name": lambda: decoded(nvml.nvmlDeviceGetName(handle)),
            "bus_id": lambda: decoded(nvml.nvmlDeviceGetPciInfo(handle).busId),
            "pcie_generation": lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
            "pcie_width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
            "pcie_generation_max": lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
            "pcie_width_max": lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
            "memory_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            "nvlinks": lambda: _nvlinks(nvml, handle),
        }
    )
    return facts.as_group()


def _nvlinks(nvml: Any, handle: Any) -> dict[str, Any]:
    """Active links by the bus id of the other end, a GPU or a switch."""
    peers: dict[str, int] = {}
    unknown = 0
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", _FALLBACK_MAX_LINKS)):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
        except nvml.NVMLError as error:
            # Beyond its last link an NVLink GPU returns "invalid argument"; one without returns "not supported".
            if link == 0:
                raise NoAnswerError(f"no NVLink: {error}") from error
            break
        try:
            peer = decoded(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
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
    paths = []
    for first, second in combinations(range(len(handles)), 2):
        level = nvml.nvmlDeviceGetTopologyCommonAncestor(handles[first], handles[second])
        paths.append({"gpus": [first, second], "over": names.get(level, f"level {level}")})
    return paths
