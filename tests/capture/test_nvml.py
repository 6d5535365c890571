"""Checks that NVML is sampled in the window, by CUDA's numbers, without harm to the script."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from threading import enumerate as threads
from types import SimpleNamespace
from typing import Any

import pytest

from tests.capture.conftest import environment_with, run_python
from tests.capture.fake_nvml import BUS_IDS, Nvml
from traceview.base.errors import NoAnswerError
from traceview.capture.sampling import nvml as nvml_sampling
from traceview.capture.sampling.nvml import NOT_ASKED, NvmlListener, is_own
from traceview.capture.sidecar.environment import bus_ids
from traceview.capture.sidecar.file import Sidecar

TRACE = Path("trace")
ELSEWHERE = 4_194_400
"""No process has this id: it is over Linux' highest."""


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nvml]:
    fake = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(nvml_sampling, "INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(nvml_sampling, "bus_ids", lambda: fake.bus_ids)
    yield fake
    assert not fake.is_open
    assert not [one for one in threads() if one.name == "traceview-nvml"]


def begun(*, is_wanted: bool = True) -> tuple[Sidecar, NvmlListener]:
    """A window that is open."""
    sidecar, listener = Sidecar(), NvmlListener(is_wanted=is_wanted)
    listener.opening(sidecar)
    sidecar.state = "recording"
    sidecar.add("clock", {"started": {"wall_ns": time.time_ns()}})
    listener.opened(sidecar)
    return sidecar, listener


def sampled(nvml: Nvml, *, samples: int = 3) -> tuple[dict[str, Any], Sidecar]:
    """The group after a window in which every GPU was asked at least so often."""
    sidecar, listener = begun()
    while nvml.asked.get("utilization", 0) < samples * len(nvml.bus_ids):
        time.sleep(0.002)
    sidecar.add("clock", {"stopped": {"wall_ns": time.time_ns()}})
    time.sleep(0.03)
    listener.closed(sidecar, TRACE)
    return dict(sidecar.groups["outside_view"]), sidecar


def test_each_gpu_has_its_samples_in_the_window_and_what_it_does_not_answer_is_missing(
    nvml: Nvml,
) -> None:
    group, sidecar = sampled(nvml)
    assert group["reason"] is None
    first, second = group["devices"]
    assert (first["ordinal"], first["bus_id"], second["bus_id"]) == (0, *BUS_IDS)
    assert (first["name"], first["memory_total_bytes"]) == ("H200", 140 * 10**9)
    assert (first["sm_clock_max_hz"], first["power_limit_watts"]) == (1_980_000_000, 700.0)
    values = {field: column[0] for field, column in first["samples"].items() if field != "t_ns"}
    assert values == {
        "gpu_utilization_ratio": 0.93,
        "memory_used_bytes": 30 * 10**9,
        "sm_clock_hz": 1_755_000_000,
        "throttle_reasons": 4,
        "power_watts": 651.25,
    }
    assert "missing" not in first
    clock, times = sidecar.groups["clock"], first["samples"]["t_ns"]
    assert len(times) >= 3
    assert clock["started"]["wall_ns"] <= min(times)
    assert max(times) <= clock["stopped"]["wall_ns"]
    assert "power_watts" not in second["samples"]
    assert second["missing"] == {"power_watts": "NvmlError"}
    assert len(second["samples"]["t_ns"]) >= 3
    # Asking again would take the time of the driver for nothing.
    assert nvml.asked["power of the second"] == 1


def test_gpus_that_nvml_does_not_have_are_absent_alone(nvml: Nvml) -> None:
    nvml.divided, nvml.bus_ids = {BUS_IDS[0]}, [*BUS_IDS, "0000:99:00.0"]
    group, _ = sampled(nvml, samples=1)
    divided, seen, unknown = group["devices"]
    assert divided["missing"]["samples"].startswith("the GPU is divided by MIG")
    assert seen["samples"]["t_ns"]
    assert unknown == {
        "ordinal": 2,
        "bus_id": "0000:99:00.0",
        "missing": {"samples": "NvmlError"},
    }


# Other processes


def test_other_processes_and_how_much_they_use(nvml: Nvml) -> None:
    nvml.processes += [(ELSEWHERE, 20 * 10**9), (ELSEWHERE + 1, None)]
    nvml.uses = [(ELSEWHERE, 1, 30), (ELSEWHERE, 2, 50), (os.getpid(), 1, 99)]
    # Before the window, after it, and a number that means nothing.
    nvml.uses += [(ELSEWHERE, -1, 7), (ELSEWHERE, 10**9, 7), (ELSEWHERE, 1, 4_000_000)]
    group, _ = sampled(nvml)
    assert group["devices"][0]["other_processes"] == [
        {"pid": ELSEWHERE, "memory_bytes": 20 * 10**9, "utilization_ratio": 0.4},
        {"pid": ELSEWHERE + 1, "memory_bytes": None, "utilization_ratio": None},
    ]


def test_children_are_ours_and_parents_are_not() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    try:
        assert [is_own(pid) for pid in (os.getpid(), child.pid)] == [True, True]
        assert [is_own(pid) for pid in (os.getppid(), 1)] == [False, False]
    finally:
        child.communicate()


def test_others_are_known_only_where_nvml_lists_us(nvml: Nvml) -> None:
    nvml.processes = [(ELSEWHERE, 1)]
    group, _ = sampled(nvml, samples=1)
    assert "container" in group["devices"][0]["missing"]["other_processes"]


# No harm


def test_signals_are_the_scripts(nvml: Nvml) -> None:
    masks: list[set[Any]] = []
    nvml.on_question = lambda: masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))
    sampled(nvml)
    assert any({signal.SIGINT, signal.SIGTERM, signal.SIGALRM} <= mask for mask in masks)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_recording_that_fails_ends_the_sampling(nvml: Nvml) -> None:
    sidecar, listener = begun()
    (thread,) = [one for one in threads() if one.name == "traceview-nvml"]
    sidecar.state = "failed"
    thread.join(5)
    assert not thread.is_alive()
    listener.closed(sidecar, TRACE)


def test_a_forked_child_leaves_it_alone(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    sidecar, listener = begun()
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: ELSEWHERE)
        listener.closed(sidecar, TRACE)
    assert nvml.is_open
    assert "outside_view" not in sidecar.groups
    listener.closed(sidecar, TRACE)
    assert sidecar.groups["outside_view"]["reason"] is None


def test_a_driver_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, hanging, release = Nvml(), Event(), Event()

    def hang() -> None:
        hanging.set()
        release.wait(10)

    nvml.on_question = hang
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(nvml_sampling, "_STOP_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(nvml_sampling, "bus_ids", lambda: BUS_IDS)
    sidecar, listener = begun()
    assert hanging.wait(5)
    listener.closed(sidecar, TRACE)
    assert nvml.is_open
    assert sidecar.groups["outside_view"]["devices"] == []
    assert "stopped answering" in sidecar.groups["outside_view"]["reason"]
    (thread,) = [one for one in threads() if one.name == "traceview-nvml"]
    release.set()
    thread.join(5)
    assert not thread.is_alive()


def test_an_error_in_the_thread_is_a_problem_and_no_more(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = nvml_sampling._Gpu.take

    def take(samples: Any) -> None:
        original(samples)
        raise RuntimeError("no such thing")

    monkeypatch.setattr(nvml_sampling._Gpu, "take", take)
    nvml.bus_ids = BUS_IDS[:1]
    group, sidecar = sampled(nvml, samples=1)
    assert sidecar.groups["notes"] == {"listeners": ["nvml: RuntimeError"]}
    assert len(group["devices"]) == 1


def test_a_process_ends_while_it_is_sampled(tmp_path: Path) -> None:
    """Nobody stops the thread: not the end of the main thread, not a fork."""
    script = """
import os, sys, time
from tests.capture.test_nvml import *
sys.modules["pynvml"] = nvml = Nvml()
nvml_sampling.bus_ids = lambda: BUS_IDS
begun()
while not nvml.asked.get("utilization"):
    time.sleep(0.01)
if os.fork() == 0:
    sys.exit(0)
os.wait()
print("done")
"""
    done = run_python(tmp_path, "-W", "ignore", "-c", script, environment=environment_with())
    assert (done.code, done.out, done.err) == (0, "done\n", "")


# Without NVML


def reason(*, is_wanted: bool = True) -> str:
    sidecar, listener = begun(is_wanted=is_wanted)
    listener.closed(sidecar, TRACE)
    group = sidecar.groups["outside_view"]
    assert group["devices"] == []
    return str(group["reason"])


def test_why_nobody_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(nvml_sampling, "bus_ids", lambda: BUS_IDS)
    assert reason() == "nvidia-ml-py is not installed"
    nvml = Nvml()
    monkeypatch.setattr(nvml, "nvmlInit", nvml.nvmlDeviceGetGraphicsRunningProcesses)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert "NVML does not start" in reason()
    monkeypatch.setattr(nvml_sampling, "bus_ids", list)
    assert reason() == "no GPU is visible to this process"
    assert reason(is_wanted=False) == NOT_ASKED


def test_the_order_is_that_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(found: Any) -> int:
        found._obj.value = 2
        return 0

    def get(device: Any, ordinal: ctypes.c_int) -> int:
        device._obj.value = 40 + ordinal.value
        return 0

    def bus_id(text: Any, size: ctypes.c_int, device: ctypes.c_int) -> int:
        text.value = BUS_IDS[device.value - 40].encode()[: size.value]
        return 0

    driver = SimpleNamespace(cuDeviceGetCount=count, cuDeviceGet=get, cuDeviceGetPCIBusId=bus_id)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: driver)
    assert bus_ids() == BUS_IDS
    driver.cuDeviceGetCount = lambda _: 3
    with pytest.raises(NoAnswerError, match="cuDeviceGetCount returns 3"):
        bus_ids()
