"""A process that something stopped: when that is certain, which steps it takes out of the statistics, and what the report says.

Six steps of 500 ms; samples and clocks of threads come every 10 ms, except from 1010 ms on, when the process may be stopped.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.analysis.made import analyzed, finding_of
from tests.python_sidecars import PROFILE_START_NS, compressed, python_group
from tests.sidecars import write_sidecar
from traceview.report.document import screen_of
from traceview.trace.host.thread_clocks import STOPPED
from traceview.trace.model import Trace
from traceview.trace.reading.load import load

LENGTH_MS = 3000
BEGIN_MS = 1010


def groups(
    *,
    late_ms: float = 1000,
    ran_ms: Sequence[float] = (),
    waited_ms: Sequence[float] = (),
    rounds_ms: Sequence[float] = (),
    has_late: bool = True,
) -> dict[str, Any]:
    """The groups of a sidecar. `late_ms`: of the first sample after `BEGIN_MS`. `ran_ms`, `waited_ms`: of each thread until the first
    round of clocks after that; `rounds_ms`: more rounds.
    """
    end_ms = BEGIN_MS + late_ms
    every = [10.0 * place for place in range(LENGTH_MS // 10 + 1)]
    times_ms = sorted({*(each for each in every if not BEGIN_MS < each < end_ms), end_ms})
    samples = [(at_ns(each), 0, (("train.py", "fit", 7, True),)) for each in times_ms]
    late_us = [round(late_ms * 1000) if each == end_ms else 0 for each in times_ms]
    rows = [
        (at_ns(each), 41 + thread, 0, *(clock_ns(of, thread, each) for of in (ran_ms, waited_ms)))
        for thread in range(max(len(ran_ms), len(waited_ms), 1))
        for each in sorted({*times_ms, *rounds_ms})
    ]
    packed = b"".join(
        struct.pack("<q", value - before)
        for column in zip(*rows, strict=True)
        for before, value in zip((0, *column), column, strict=False)
    )
    threads = [{"ident": None, "name": "MainThread", "native_id": 1}]
    python = python_group(samples, threads, late_us=late_us if has_late else None)
    return {"python": python, "threads": {"rows": compressed(packed)}}


def at_ns(time_ms: float) -> int:
    return PROFILE_START_NS + round(time_ms * 1_000_000)


def clock_ns(of_threads: Sequence[float], thread: int, time_ms: float) -> int:
    moved_ms = of_threads[thread] if thread < len(of_threads) else 0.0
    return round(moved_ms * 1_000_000) if time_ms > BEGIN_MS else 0


def traced(folder: Path, sidecars: dict[str, dict[str, Any]]) -> Trace:
    for host, fields in sidecars.items():
        trace = new_trace(host, length_ms=LENGTH_MS)
        for step in marked_steps(trace, count=6, period_ms=500, marker_ms=499.9):
            step.kernel(0, 2, 400)
        write_sidecar(trace.write(folder), fields)
    return load(folder)


def left_out(trace: Trace) -> list[list[int]]:
    return [
        [step.number for step in of_host.steps if step.excluded == STOPPED]
        for of_host in trace.steps_by_host
    ]


# When it is certain


@pytest.mark.parametrize(
    ("changes", "stops_ms"),
    [
        pytest.param({"late_ms": 1000}, [(1010, 2010)], id="a second"),
        pytest.param({"late_ms": 999}, [], id="less than a second"),
        pytest.param({"late_ms": 1200, "ran_ms": (100, 100)}, [(1010, 2210)], id="ran"),
        pytest.param({"late_ms": 1200, "ran_ms": (100, 101)}, [], id="ran for more"),
        pytest.param({"late_ms": 1200, "waited_ms": (200, 200)}, [(1010, 2210)], id="waited"),
        pytest.param({"late_ms": 1200, "waited_ms": (1, 201)}, [], id="waited for more"),
        pytest.param({"late_ms": 1500, "rounds_ms": (1510,)}, [(1510, 2510)], id="a round"),
        pytest.param({"late_ms": 1500, "rounds_ms": (1511,)}, [], id="a later round"),
        pytest.param({"late_ms": 1900, "rounds_ms": range(1005, 2900, 5)}, [], id="a kept lock"),
    ],
)
def test_no_thread_ran_for_a_second(
    changes: dict[str, Any], stops_ms: list[tuple[int, int]], tmp_path: Path
) -> None:
    trace = traced(tmp_path, {"vm": groups(**changes)})
    assert trace.hosts[0].stops == tuple((ms(begin), ms(end)) for begin, end in stops_ms)
    assert bool(left_out(trace)[0]) == bool(stops_ms)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"python": groups()["python"]}, id="no clocks"),
        pytest.param({"threads": groups()["threads"]}, id="no samples"),
        pytest.param(groups(has_late=False), id="how late is not recorded"),
    ],
)
def test_what_was_not_recorded_is_not_known(fields: dict[str, Any], tmp_path: Path) -> None:
    trace = traced(tmp_path, {"vm": fields})
    assert (trace.hosts[0].stops, left_out(trace)) == (None, [[]])


# Which steps


def test_steps_that_hold_a_part_of_it_are_left_out(tmp_path: Path) -> None:
    """It begins and ends 10 ms after the start of one."""
    assert left_out(traced(tmp_path, {"vm": groups()})) == [[2, 3, 4]]


@pytest.mark.parametrize(("other", "of_other"), [("vm_w1", [2, 3, 4]), ("vm_evaluator0", [])])
def test_whoever_makes_steps_with_it_waits_for_it(
    other: str, of_other: list[int], tmp_path: Path
) -> None:
    trace = traced(tmp_path, {other: groups(late_ms=10), "vm_w0": groups()})
    by_host = dict(zip((host.name for host in trace.hosts), left_out(trace), strict=True))
    assert by_host == {"vm_w0": [2, 3, 4], other: of_other}


# What the report says


@pytest.mark.parametrize(
    ("count", "title"),
    [
        (5, "Only 2 steps are in the statistics"),
        (4, "The process was stopped in 3 of 4 steps: too few are left"),
    ],
)
def test_less_than_two_steps_are_left(count: int, title: str, tmp_path: Path) -> None:
    trace = new_trace(length_ms=LENGTH_MS)
    for step in marked_steps(trace, count=count, period_ms=500, marker_ms=499.9, first_ms=500):
        step.kernel(0, 2, 400)
    report = analyzed(tmp_path, trace, sidecar=groups())
    finding = finding_of(report, "few-steps")
    assert finding is not None
    assert finding.title == title
    assert (finding.severity == "critical") == (count == 4)
    assert (report.verdict.finding == "few-steps") == (count == 4)


def test_the_capture_line_says_for_how_long(tmp_path: Path) -> None:
    traced(tmp_path, {"vm": groups()})
    report = analyzed(tmp_path)
    assert screen_of(report).trust[:3] == (
        "Capture: interrupted",
        "the process was stopped for 1.00 s",
        "3 steps used of 6",
    )
    assert report.capture.quality == "ok"
    assert report.capture.hosts[0].stopped_ps == ms(1000)
