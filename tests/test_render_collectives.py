"""Is it told how devices reduce and what it costs, on wide and narrow pages, and nothing where they do not?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import traceview
from scripts.scenarios import SCENARIOS
from tests.reports import collective_result as result
from traceview.analysis.collectives.result import CollectiveResult
from traceview.analysis.collectives.table import CollectiveRow
from traceview.document.page import Page
from traceview.render.collectives import add_collectives, add_rows, add_summary

MS = 10**9


def summary(found: CollectiveResult, width: int = 100, *, has_steps: bool = True) -> str:
    page = Page(width)
    add_summary(page, found, has_steps=has_steps)
    return page.render()


def test_summary() -> None:
    assert summary(result()) == (
        "Collectives  through NCCL, asked for by collective ops\n"
        "8 collectives, 2 per step · transfer 2.00 ms per step · 25.0% hidden by compute\n"
        "1.00 ms expected of the link · 50.0 GB/s over each link, NVLink carries 150.0 GB/s\n"
        "device  exposed/step  in transfer  waited/step  came last\n"
        "GPU:0        3.00 ms      2.00 ms      1.00 ms          0\n"
        "GPU:1        3.00 ms      2.00 ms         0 ps          8\n"
        "Medians over the steps, so they need not add up. Waiting that compute hides is not exposed.\n"
    )


def test_without_steps_times_are_those_of_the_window() -> None:
    shown = summary(result(count_per_step=None, transfer_per_step_ps=None), has_steps=False)
    assert "8 collectives · transfer 8.00 ms · 25.0% hidden by compute" in shown
    assert "GPU:0   12.0 ms      8.00 ms  4.00 ms          0" in shown


def test_what_is_not_known_is_not_told() -> None:
    unknown: dict[str, Any] = dict.fromkeys(
        ("bus_bytes_per_second", "link_bytes_per_second", "link", "expected_ps")
    )
    lines = summary(result(incomplete_count=3, **unknown), width=140).splitlines()
    assert lines[1] == (
        "8 collectives, 2 per step · transfer 2.00 ms per step · 25.0% hidden by compute"
        " · 3 not recorded on all 2 devices"
    )


def test_workers_that_were_not_recorded_are_counted() -> None:
    assert "recorded on 2 of 3 devices: transfer may hold waiting for the others" in summary(
        result(member_count=3), width=200
    )


def test_amd_has_a_library_of_its_own() -> None:
    assert summary(result(library="rccl")).startswith(
        "Collectives  through RCCL, asked for by collective ops"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"path": "none", "count": 0}, "none was recorded, and no copies of gradients"),
        ({"path": None}, "what asks for them does not show"),
    ],
)
def test_the_heading_never_stands_alone(changes: dict[str, Any], words: str) -> None:
    assert summary(result(**changes)).splitlines()[0] == f"Collectives  {words}"


@pytest.mark.parametrize(
    ("path", "reason", "words"),
    [
        (
            "cpu_bounce",
            "variables are on the CPU",
            "through copies to the host, summed on the CPU: variables are on the CPU",
        ),
        ("one_device", None, "through copies to one device, summed there"),
        (None, "hosts reduce in different ways", "hosts reduce in different ways"),
    ],
)
def test_other_ways(path: str | None, reason: str | None, words: str) -> None:
    found = result(path=path, path_reason=reason, count=0)
    assert summary(found) == f"Collectives  {words}\n"


@pytest.mark.parametrize("width", [40, 60, 80])
def test_it_fits_the_page(width: int) -> None:
    assert all(cell_len(line) <= width for line in summary(result(), width).splitlines())
    assert "waited/step" in summary(result(), width)


def test_of_many_devices_the_chosen_ones_are_shown_and_the_range_of_the_others() -> None:
    devices = tuple(f"GPU:{ordinal}" for ordinal in range(40))
    exposed = {key: (2 if key == "GPU:5" else 3) * MS for key in devices}
    page = Page(100)
    add_summary(
        page,
        result(devices, exposed_per_step_ps=exposed),
        has_steps=True,
        chosen=("GPU:0", "GPU:30"),
    )
    lines = page.render().splitlines()
    assert [line.split()[0] for line in lines if line.startswith("GPU:")] == ["GPU:0", "GPU:30"]
    assert " ".join(lines[-2:]) == (
        "38 others: exposed 2.00 ms to 3.00 ms, waited 0 ps. traceview collectives LOGDIR -o FILE.csv has all."
    )


def test_devices_that_took_no_part_are_not_told() -> None:
    devices = ("GPU:0", "GPU:1", "GPU:2")
    nothing = {"GPU:0": 12 * MS, "GPU:1": 12 * MS, "GPU:2": 0}
    last = {"GPU:0": 0, "GPU:1": 8, "GPU:2": 0}
    assert "GPU:2" not in summary(result(devices, exposed_ps=nothing, last_count=last))


def test_in_a_report_only_where_there_is_something(tmp_path: Path) -> None:
    SCENARIOS["plain"]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    for found, is_told in (
        (None, False),
        (result(count=0, path="none"), False),
        (result(count=0, path="one_device"), True),
        (result(), True),
    ):
        page = Page(100)
        add_collectives(page, replace(report, results=replace(report.results, collectives=found)))
        assert ("Collectives" in page.render()) == is_told


def row(collective: int, device: str, **changes: Any) -> CollectiveRow:
    parts: dict[str, Any] = {
        "collective": collective,
        "kind": "all_reduce",
        "op": "adam/CollectiveReduceV2",
        "name": "ncclDevKernel_AllReduce",
        "host": "host0",
        "device": device,
        "step": 3,
        "start_ps": 40 * MS,
        "duration_ps": 2 * MS,
        "transfer_ps": MS,
        "wait_ps": MS,
        "is_last": False,
        "device_count": 2,
        "matched_by": "keys",
        "bytes": 4_000_000,
    }
    return CollectiveRow(**parts | changes)


def rows(width: int, *shown: CollectiveRow) -> list[str]:
    page = Page(width)
    add_rows(page, shown)
    return page.render().splitlines()


def test_rows() -> None:
    lines = rows(
        100,
        row(0, "GPU:0"),
        row(0, "GPU:1", wait_ps=0, is_last=True),
        row(1, "GPU:0", op=None, step=None, wait_ps=None),
    )
    assert lines == [
        "number  step  device    start   lasted   waited           size  op",
        "     0     3  GPU:0   40.0 ms  2.00 ms  1.00 ms        4.00 MB  adam/CollectiveReduceV2",
        "           3  GPU:1   40.0 ms  2.00 ms     0 ps  last  4.00 MB",
        "     1        GPU:0   40.0 ms  2.00 ms        –        4.00 MB  ncclDevKernel_AllReduce",
    ]


def test_names_from_the_trace_are_harmless() -> None:
    (_, line) = rows(100, row(0, "GPU:0", op="[red]\x1b[31mevil\n", bytes=None))
    assert "\x1b" not in line
    assert "[red]" in line


@pytest.mark.parametrize("width", [40, 60, 200])
def test_rows_fit_the_page(width: int) -> None:
    lines = rows(width, row(0, "GPU:0", op="a/" * 300), row(1, "GPU:0", op="a/" * 301))
    assert all(cell_len(line) <= width for line in lines)


def test_no_rows() -> None:
    assert rows(80) == []


def test_a_link_that_is_not_used_expects_nothing() -> None:
    """What is faster than PCIe does not go over it, nor would its time be known from it."""
    shown = summary(result(link="pcie", link_bytes_per_second=10 * 10**9), width=200)
    assert "linked by something else" in shown
    assert "expected of the link" not in shown


def test_collectives_without_a_last_device_are_counted() -> None:
    shown = summary(result(last_count={"GPU:0": 0, "GPU:1": 5}), width=200)
    assert "No device was clearly the last to 3 of 8 collectives." in shown
    assert "clearly the last" not in summary(result(), width=200)
