from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.capture.fake_nvml import NvmlModule
from traceview.capture.sidecar.cluster import own_place
from traceview.capture.sidecar.environment import EnvironmentListener, listed_variables
from traceview.capture.sidecar.file import Facts, NoAnswerError, Sidecar
from traceview.capture.sidecar.gpu_libraries import (
    describe_links,
    loaded_versions,
    opened_nvml,
)


def test_what_cannot_be_had_is_absent_with_its_reason() -> None:
    def broken() -> None:
        raise RuntimeError("no such thing")

    def absent() -> None:
        raise NoAnswerError("nobody asked for it")

    facts = Facts()
    facts.ask_each({"here": lambda: 0, "a": broken, "b": absent, "c": lambda: None})
    assert facts.as_group() == {
        "here": 0,
        "missing": {
            "a": "RuntimeError",
            "b": "nobody asked for it",
            "c": "not known to this TensorFlow",
        },
    }


def test_only_listed_variables_are_written_down() -> None:
    found = listed_variables(
        {
            "CUDA_VISIBLE_DEVICES": "0,1",
            "NCCL_DEBUG": "INFO",
            "NCCL_PROXY_PASSWORD": "hunter2",
            "TF_GPU_THREAD_COUNT": "1",
            "XLA_FLAGS": "--xla_dump_to=s3://me:hunter2@host/dump",
            "AWS_SECRET_ACCESS_KEY": "hunter2",
            "HOME": "/home/me",
            "WANDB_API_KEY": "hunter2",
        }
    )
    assert found == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NCCL_DEBUG": "INFO",
        "TF_GPU_THREAD_COUNT": "1",
        "XLA_FLAGS": "--xla_dump_to=***",
    }


def test_a_cluster_has_a_role_and_sizes_and_no_addresses() -> None:
    text = (
        '{"cluster": {"worker": ["me:hunter2@a:1", "b:1"], "ps": {"0": "c:1"}, "chief": ["d:1"]},'
        ' "task": {"type": "worker", "index": "1"}}'
    )
    place = own_place({"TF_CONFIG": text})
    assert place is not None
    assert place.as_json() == {
        "role": "worker",
        "index": 1,
        "sizes": {"worker": 2, "ps": 1, "chief": 1},
    }


def test_libraries_are_asked_only_if_they_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 08:01 42   /opt/a b/libnccl.so.2\n"
        "7f00-7f01 r-xp 00000000 08:01 42   /opt/libcudnn.so.9\n7f02-7f03 rw-p 0 00:00 0 [heap]\n"
    )
    opened = []

    def nccl(version: Any) -> int:
        version._obj.value = 22304
        return 0

    def load(path: str, mode: int) -> dict[str, Callable[..., int]]:
        opened.append(path)
        return {"ncclGetVersion": nccl, "cudnnGetVersion": lambda: 90501}

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert loaded_versions(maps) == {
        "cudnn": "9.5.1",
        "nccl": "2.23.4",
        "missing": {"cuda": "the library is not loaded in this process"},
    }
    assert opened == ["/opt/libcudnn.so.9", "/opt/a b/libnccl.so.2"]


def test_libraries_where_nobody_knows_which_are_loaded(tmp_path: Path) -> None:
    assert "cannot be read" in loaded_versions(tmp_path / "none")["missing"]["loaded"]


class NvmlError(Exception):
    pass


class Nvml(NvmlModule):
    """Two GPUs with two links between them, and a third without."""

    NVMLError = NvmlError
    NVML_TOPOLOGY_SYSTEM = 50
    NVML_NVLINK_MAX_LINKS = 18

    def __init__(self) -> None:
        super().__init__()
        self.is_open = False

    def init(self) -> None:
        self.is_open = True

    def shutdown(self) -> None:
        self.is_open = False

    def system_get_driver_version(self) -> bytes:
        return b"550.54"

    def device_get_count(self) -> int:
        return 3

    def device_get_handle_by_index(self, index: int) -> int:
        return index

    def device_get_curr_pcie_link_generation(self, handle: int) -> int:
        return 3

    def device_get_curr_pcie_link_width(self, handle: int) -> int:
        return 8

    def device_get_max_pcie_link_generation(self, handle: int) -> int:
        return 5

    def device_get_max_pcie_link_width(self, handle: int) -> int:
        raise NvmlError("Not Supported")

    def device_get_nv_link_state(self, handle: int, link: int) -> int:
        if handle == 2 or link > 2:
            raise NvmlError("Invalid Argument")
        return int(link < 2)


def test_links_between_gpus() -> None:
    nvml = Nvml()
    found = describe_links(nvml)
    first, _, third = found["gpus"]
    assert (first["pcie_generation"], first["pcie_width"]) == (3, 8)
    assert first["missing"] == {"pcie_width_max": "NvmlError"}
    assert first["nvlinks"] == {"active": 2}
    assert third["missing"]["nvlinks"] == "no NVLink: NvmlError"


def test_nvml_is_let_go_again(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with opened_nvml() as opened:
        assert (opened is nvml, nvml.is_open) == (True, True)
    assert not nvml.is_open


def test_without_nvml_the_reason_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setattr(sys, "argv", ["train.py", "--api-key", "hunter2"])
    sidecar, listener = Sidecar(), EnvironmentListener()
    listener.opening(sidecar)
    listener.opened(sidecar)
    listener.closed(sidecar, Path("trace"))
    assert sidecar.groups["links"] == {"missing": {"gpus": "nvidia-ml-py is not installed"}}
    assert (
        "nvidia-ml-py" in sidecar.groups["versions"]["missing"]["driver"]
        or (sidecar.groups["versions"]["driver"])
    )
    assert sidecar.groups["command"]["script"] == ["train.py", "--api-key", "***"]
    assert "hunter2" not in str(sidecar.as_json()["command"]["script"])
