from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.capture.fake_nvml import Nvml
from traceview.capture.sidecar.environment import (
    EnvironmentListener,
    describe_links,
    loaded_versions,
)
from traceview.capture.sidecar.file import Facts, NoAnswerError, Sidecar


def test_what_cannot_be_had_is_absent_with_its_reason() -> None:
    def broken() -> None:
        raise RuntimeError("no such thing")

    def absent() -> None:
        raise NoAnswerError("nobody asked for it")

    facts = Facts()
    for name, question in {"here": lambda: 0, "a": broken, "b": absent, "c": lambda: None}.items():
        facts.ask(name, question)
    assert facts.as_group() == {
        "here": 0,
        "missing": {
            "a": "RuntimeError",
            "b": "nobody asked for it",
            "c": "not known to this TensorFlow",
        },
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
    assert loaded_versions(maps) == {"cudnn": "9.5.1", "nccl": "2.23.4"}
    assert opened == ["/opt/libcudnn.so.9", "/opt/a b/libnccl.so.2"]
    assert loaded_versions(tmp_path / "none") == {}


def test_links_between_gpus() -> None:
    nvml = Nvml()
    found = describe_links(nvml)
    first = found["gpus"][0]
    assert (first["pcie_generation"], first["pcie_width"]) == (3, 8)
    assert "pcie_width_max" not in first


@pytest.mark.parametrize("has_nvml", [True, False])
def test_nvml_is_asked_where_it_is_and_let_go(
    monkeypatch: pytest.MonkeyPatch, *, has_nvml: bool
) -> None:
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml if has_nvml else None)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    sidecar, listener = Sidecar(), EnvironmentListener()
    listener.opening(sidecar)
    listener.closed(sidecar, Path("trace"))
    assert ("driver" in sidecar.groups["versions"]) is ("links" in sidecar.groups) is has_nvml
    assert not nvml.is_open
