"""The load of the machine is the difference of two readings of its counters, and absent where there are none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from traceview.capture.sampling import processor_times
from traceview.capture.sampling.processor_times import ProcessorTimesListener
from traceview.capture.sidecar.file import Sidecar

TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")


def group(
    folder: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> Mapping[str, Any] | None:
    """The group of a window that opens and closes at counters of these texts."""
    stat = folder / "stat"
    monkeypatch.setattr(processor_times, "_STAT", stat)
    sidecar, listener = Sidecar(), ProcessorTimesListener()
    stat.write_text(before, encoding="ascii")
    listener.opened(sidecar)
    stat.write_text(after, encoding="ascii")
    listener.closed(sidecar, folder)
    return sidecar.groups.get("load")


def test_what_is_no_idle_time_and_no_wait_for_a_disk_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = "cpu  100 10 50 9000 500 1 2 3 70 0\ncpu0 1\n"
    after = "cpu  200 11 60 9900 600 2 4 6 99 0\ncpu0 1\n"
    load = group(tmp_path, monkeypatch, before, after)
    assert load is not None
    assert load["busy_ns"] == (100 + 1 + 10 + 1 + 2 + 3) * TICK_NS
    assert load["cores"] == os.cpu_count()
    assert load["own_ns"] >= 0
    assert load["elapsed_ns"] > 0


@pytest.mark.parametrize("text", ["", "cpu  many\n", "\n"])
def test_without_counters_nothing_is_added(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert group(tmp_path, monkeypatch, text, text) is None
