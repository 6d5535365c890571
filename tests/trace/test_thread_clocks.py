"""The clocks of threads, from the sidecar to the times of the trace; text that is none is named and left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.scenarios.model import marked_steps, new_trace
from tests.python_sidecars import PROFILE_START_NS, clocks_group, compressed
from tests.sidecars import write_sidecar
from traceview.base.units import PS_PER_MS
from traceview.trace.host import thread_clocks as module
from traceview.trace.host.thread_clocks import ThreadClocks, clocks_of_hosts
from traceview.trace.reading.load import load


def clocks_of(folder: Path, group: dict[str, Any]) -> tuple[ThreadClocks | None, tuple[str, ...]]:
    trace = new_trace(length_ms=100)
    executor = trace.thread("tf_Compute", 41)
    for step in marked_steps(trace, count=2, period_ms=50, marker_ms=50):
        step.host("replica_0/x:MatMul", 0, 50, thread=executor)
    write_sidecar(trace.write(folder), {"threads": group})
    loaded = load(folder)
    return clocks_of_hosts(loaded).get(0), tuple(problem.code for problem in loaded.problems)


def group_of(rows: list[tuple[int, int, int, int, int]]) -> dict[str, Any]:
    """Milliseconds from the start of the profile, thread, ident, and nanoseconds that it ran and waited."""
    columns = np.array(rows, dtype="<i8").T
    columns[0] = columns[0] * 1_000_000 + PROFILE_START_NS
    packed = np.diff(columns, axis=1, prepend=0).astype("<i8").tobytes()
    return {"rows": compressed(packed)}


def test_what_is_read_in_one_round_has_one_time(tmp_path: Path) -> None:
    clocks, _ = clocks_of(tmp_path, clocks_group({41: (1, 0), 42: (0.5, 0)}, length_ms=40))
    assert clocks is not None
    assert clocks.ran_ps.shape == (2, 5)


def test_of_many_clocks_some_rounds_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_CLOCKS", 10)
    clocks, _ = clocks_of(tmp_path, clocks_group({41: (1, 0), 42: (0.5, 0)}, length_ms=100))
    assert clocks is not None
    times_ms = (clocks.time_ps - clocks.time_ps[0]) / PS_PER_MS
    assert times_ms.tolist() == [0, 30, 60, 90]
    assert (clocks.ran_ps[1] / PS_PER_MS).tolist() == [0, 15, 30, 45]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(0, 42, 0, 1, 1), (0, 41, 0, 1, 1)], id="threads out of order"),
        pytest.param([(5, 41, 0, 1, 1), (0, 41, 0, 2, 2)], id="times out of order"),
        pytest.param([(0, 41, 0, 5, 1), (9, 41, 0, 4, 1)], id="a clock that goes back"),
        pytest.param([(0, 41, 0, 5, -1)], id="less than nothing"),
        pytest.param([(0, n, 0, 1, 1) for n in range(1 << 15, (1 << 16) + 2)], id="too many"),
        pytest.param([(0, 41, 0, 1 << 53, 1)], id="more picoseconds than there are"),
    ],
)
def test_clocks_that_none_can_be(
    rows: list[tuple[int, int, int, int, int]], tmp_path: Path
) -> None:
    assert clocks_of(tmp_path, group_of(rows)) == (None, ("sidecar-unreadable",))


@pytest.mark.parametrize("text", ["?", "AAAA", compressed(b"x" * 41), "é"], ids=repr)
def test_text_that_holds_no_clocks(text: str, tmp_path: Path) -> None:
    assert clocks_of(tmp_path, {"rows": text}) == (None, ("sidecar-unreadable",))


def test_without_the_group(tmp_path: Path) -> None:
    assert clocks_of(tmp_path, {}) == (None, ())


def test_a_wait_began_before_the_round_that_counted_it() -> None:
    """In rounds of 10 ms it ran for 2, and the third counts a wait of 14: 6 were in the one before, whatever room the last has."""
    recording: Any = None
    time, ran = np.arange(5) * 10, np.arange(5)[None] * 2
    waited = np.array([[0, 0, 0, 14, 14]])
    clocks = ThreadClocks(recording, time, (3,), (0,), ran, waited, frozenset())
    assert np.diff(clocks.ready_ps).tolist() == [[0, 6, 8, 0]]
