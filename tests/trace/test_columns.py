"""Columns in as few bytes as their values need, ends made on demand, and the events of a thread around a span."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import traceview
from scripts.scenarios.model import Step, marked_steps, new_trace
from traceview.trace.model import NONE, LineInfo, Trace, threads
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


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """A host with a thread of 500 events that overlap at random, and one whose events are on two lines in turns."""
    logdir = tmp_path_factory.mktemp("busy")
    trace = new_trace()
    for step in marked_steps(trace, count=2):
        step.kernel(0, 1, 20)
    chance = random.Random(7)
    for id_, name, line_count in ((70, "one line", 1), (71, "two lines", 2)):
        lines = [trace.host_plane.line(id_, name, key=f"{name} {n}") for n in range(line_count)]
        for number, start in enumerate(range(0, 5000, 10)):
            lines[number % line_count].add("work", start, start + chance.randrange(1, 400))
    trace.write(logdir)
    return load(logdir)


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
