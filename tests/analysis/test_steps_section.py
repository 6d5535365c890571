"""The section on steps shows how long each took, where it was cut, and how much the devices computed in it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.analysis.sections import (
    HOST,
    cells_of,
    facts_of,
    headings_of,
    sentences_of,
    tables_of,
    view_of,
)
from traceview.analysis.gpu_time.steps import UNSURE, steps_section
from traceview.analysis.measures.context import FEW_ROWS
from traceview.analysis.measures.step_report import StepDevice, StepRow, Steps
from traceview.document.model import Section

MS = 10**9


def step(number: int, devices: tuple[str, ...] = ("GPU:0",), **changes: Any) -> StepRow:
    """A step of 24 ms, a quarter of it idle."""
    fields: dict[str, Any] = {
        "host": HOST,
        "number": number,
        "recorded_number": number,
        "kind": "train",
        "start_ps": number * 24 * MS,
        "duration_ps": 24 * MS,
        "used": True,
        "excluded": None,
        "devices": tuple(
            StepDevice(device, {"compute": 18 * MS, "input": 6 * MS}) for device in devices
        ),
    }
    return StepRow(**fields | changes)


def steps(*rows: StepRow, **changes: Any) -> Steps:
    fields: dict[str, Any] = {
        "method": "marker",
        "reliability": "high",
        "basis": "marker",
        "loop_iterations": None,
        "steps_per_call": None,
        "count": len(rows),
        "used_count": sum(row.used for row in rows),
        "median_ps": 24 * MS,
        "iqr_ps": MS,
        "cv_ratio": 0.05,
        "steps": rows,
    }
    return Steps(**fields | changes)


def section_of(*rows: StepRow, is_brief: bool = False, **changes: Any) -> Section:
    section = steps_section(view_of(is_brief=is_brief), steps(*rows, **changes))
    assert section is not None
    return section


def test_the_statistics_and_a_row_per_step() -> None:
    section = section_of(
        step(0, used=False, excluded="the first step holds tracing or compilation"),
        *map(step, (1, 2, 3)),
    )
    assert section.lead == "4 steps found by explicit markers, 3 of them in the statistics."
    assert facts_of(section) == (
        "median 24.0 ms",
        "mean 24.0 ms",
        "spread (IQR) 1.00 ms",
        "standard deviation 5.0% of the mean",
    )
    (table,) = tables_of(section)
    assert headings_of(table) == ["step", "", "time", "compute, GPU:0", "remark"]
    assert cells_of(table, "step") == ["0", "1", "2", "3"]
    assert cells_of(table, "compute, GPU:0") == ["75.0%"] * 4
    assert cells_of(table, "remark")[0] == "left out: the first step holds tracing or compilation"


def test_numbers_of_markers_and_kinds_are_shown_where_they_differ() -> None:
    section = section_of(step(1000, recorded_number=7, kind="eval"), step(1001))
    (table,) = tables_of(section)
    assert cells_of(table, "step") == ["1000", "1001"]
    assert cells_of(table, "recorded as") == ["7", "–"]
    assert cells_of(table, "remark") == ["evaluation step", ""]


def test_the_middle_of_many_steps_is_left_out() -> None:
    section = section_of(*map(step, range(100)), is_brief=True)
    (table,) = tables_of(section)
    assert cells_of(table, "step") == [str(n) for n in (*range(3), *range(97, 100))]
    assert (table.shown_count, table.row_count, table.rest) == (
        FEW_ROWS,
        100,
        "traceview show steps logs",
    )
    assert "The first and the last steps are shown." in sentences_of(section)


# Devices


def test_the_same_step_of_two_hosts_stands_together() -> None:
    section = section_of(
        *(step(n, (f"{host}/GPU:0",), host=host) for host in ("a", "b") for n in (0, 1))
    )
    (table,) = tables_of(section)
    assert cells_of(table, "step") == ["0", "0", "1", "1"]
    assert cells_of(table, "host") == ["a", "b", "a", "b"]
    assert cells_of(table, "compute, GPU:0") == ["75.0%"] * 4


@pytest.mark.parametrize("count", [8, 9])
def test_many_devices_have_a_least_and_a_mean(count: int) -> None:
    devices = tuple(f"GPU:{n}" for n in range(count))
    row = step(0, devices)
    idle = replace(row.devices[0], states={"input": 24 * MS})
    section = section_of(replace(row, devices=(idle, *row.devices[1:])))
    (table,) = tables_of(section)
    if count == 8:
        assert [cells_of(table, f"compute, {device}") for device in devices[:2]] == [
            ["0%"],
            ["75.0%"],
        ]
    else:
        assert cells_of(table, "compute, least") == ["0%"]
        assert cells_of(table, "compute, mean") == ["66.7%"]
        assert cells_of(table, "devices") == ["9"]


def test_steps_of_three_hosts_share_a_row() -> None:
    lengths = {"a": 20, "b": 22, "c": 30}
    rows = [
        step(n, (f"{host}/GPU:0",), host=host, duration_ps=length * MS, used=(host, n) != ("a", 1))
        for host, length in lengths.items()
        for n in (0, 1)
    ]
    section = section_of(*rows, step(2, ("a/GPU:0",), host="a"))
    (table,) = tables_of(section)
    assert cells_of(table, "step") == ["0", "1", "2"]
    assert cells_of(table, "hosts") == ["3", "3", "1 of 3"]
    assert cells_of(table, "shortest") == ["20.0 ms", "20.0 ms", "24.0 ms"]
    assert cells_of(table, "longest") == ["30.0 ms", "30.0 ms", "24.0 ms"]
    assert cells_of(table, "slowest host") == ["c", "c", "a"]
    assert cells_of(table, "remark") == ["", "left out on 1 host", ""]


# Bounds


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": "period", "reliability": "low", "basis": "device"}, [UNSURE]),
        (
            {"basis": "device"},
            [
                "Each step starts at its first device event, because the host runs ahead of the devices."
            ],
        ),
        ({}, []),
    ],
)
def test_bounds_that_are_not_markers_are_said(changes: dict[str, Any], said: list[str]) -> None:
    section = section_of(*map(step, range(3)), **changes)
    assert sentences_of(section) == said
