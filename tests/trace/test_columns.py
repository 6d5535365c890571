"""Columns in as few bytes as their values need, ends made on demand, and the events of a thread around a span."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import traceview
from scripts.scenarios.model import Step, new_trace
from traceview.trace.model import NONE, LineInfo, threads
from traceview.trace.reading.load import load
from traceview.trace.reading.merge import _joined as joined_columns
from traceview.xplane.columns import small

LEAST, MOST = -(1 << 31), (1 << 31) - 1


def test_hosts_whose_numbers_need_different_bits() -> None:
    for order in ([0, 1, 2], [1, 0, 2]):
        pieces = {
            host: {"position": small(np.array([value]))}
            for host, value in enumerate((1, MOST + 1, 2))
        }
        whole = joined_columns(order, pieces, "position", lambda _, column: column)
        assert whole.tolist() == [(1, MOST + 1, 2)[host] for host in order]


def test_a_device_whose_events_are_alike_is_analysed(tmp_path: Path) -> None:
    """Times and rows are swept as whole columns, also where all hold the same value."""
    trace = new_trace(length_ms=20)
    step = Step(trace, 0)
    for _ in range(3):
        step.kernel(0, 2, 8)
    trace.write(tmp_path)
    columns = load(tmp_path).device_columns
    assert set(columns.start_ps.tolist()) == {columns.start_ps[0]}
    assert traceview.analyze(tmp_path).results.device_time is not None


def test_a_thread_may_be_named_after_a_number_of_any_length() -> None:
    names = ("a/7", "b", "c/" + "9" * 5000, "d/-7/NVTX", "e")
    ids = (1, 7, 3, 4, -7)
    lines = [
        LineInfo(0, NONE, "/host:CPU", id_, name) for id_, name in zip(ids, names, strict=True)
    ]
    assert threads(lines).tolist() == [0, 0, 2, 3, 3]
