"""The clocks of the threads of a process are those that the kernel has, and no descriptor of the script is touched."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from traceview.capture.sampling.processor_times import ProcessorTimesListener
from traceview.capture.sidecar.file import Sidecar
from traceview.trace.sidecar.sidecar import ThreadsRecord, ThreadTimes, thread_times

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this kernel counts no waits"
)


def noted(during: Any) -> ThreadTimes:
    sidecar, listener = Sidecar(state="recording"), ProcessorTimesListener()
    listener.opened(sidecar)
    try:
        during()
    finally:
        listener.closed(sidecar, Path("none"))
    group, wrong = sidecar.groups["threads"], list[str]()
    times = thread_times(ThreadsRecord(**group), wrong, "threads")
    assert times is not None
    assert not wrong
    return times


def ran_ns(times: ThreadTimes, thread: int) -> int:
    ran = times.ran_ns[times.thread == thread]
    return int(ran[-1] - ran[0])


def test_a_thread_that_computes_and_one_that_sleeps() -> None:
    numbers: dict[str, int] = {}
    idents: dict[str, int] = {}
    used: list[int] = []

    def compute() -> None:
        numbers["computes"], idents["computes"] = threading.get_native_id(), threading.get_ident()
        begun, until = time.thread_time_ns(), time.monotonic() + 0.3
        while time.monotonic() < until:
            pass
        used.append(time.thread_time_ns() - begun)
        time.sleep(0.05)

    def sleep() -> None:
        numbers["sleeps"] = threading.get_native_id()
        time.sleep(0.35)

    def both() -> None:
        threads = [threading.Thread(target=target) for target in (compute, sleep)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    times = noted(both)
    # The clock of a running thread is brought up to date every few milliseconds.
    assert ran_ns(times, numbers["computes"]) == pytest.approx(used[0], abs=20e6)
    assert ran_ns(times, numbers["sleeps"]) < 20e6
    of_thread = times.thread == numbers["computes"]
    assert times.ident[of_thread][-1] == idents["computes"]


def test_no_descriptor_stays_open() -> None:
    """A script may close all of them meanwhile, and gets the same numbers for its own files."""

    def open_ones() -> set[str]:
        return {path.name for path in Path("/proc/self/fd").iterdir()}

    before, is_as_before = open_ones(), list[bool]()

    def during() -> None:
        for _ in range(30):
            time.sleep(0.003)
            is_as_before.append(open_ones() == before)

    noted(during)
    assert any(is_as_before)


def test_a_fork_has_no_clocks() -> None:
    """The thread that notes is not in it."""
    listener, sidecar = ProcessorTimesListener(), Sidecar(state="recording")
    listener.opened(sidecar)
    child = os.fork()
    if not child:
        listener.closed(sidecar, Path("none"))
        os._exit(1 if "threads" in sidecar.groups else 0)
    _, status = os.waitpid(child, 0)
    listener.closed(sidecar, Path("none"))
    assert os.waitstatus_to_exitcode(status) == 0
    assert "threads" in sidecar.groups
