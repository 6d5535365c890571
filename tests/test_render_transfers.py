"""Are copies told where they cost time, on wide and on narrow pages, whatever their names are?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

import traceview
from scripts.scenarios import SCENARIOS
from traceview.analysis.transfers.blocking_reads import BlockingReads
from traceview.analysis.transfers.result import (
    SIZE_BOUNDS_BYTES,
    CopySource,
    DeviceTransfers,
    Direction,
    Directions,
    Transfers,
)
from traceview.analysis.transfers.round_trips import RoundTrip
from traceview.document.page import Page
from traceview.render.transfers import add_device_transfers, add_sources, add_transfers

MS = 10**9
Shown = Callable[..., str]


def direction(count: int, **changes: Any) -> Direction:
    row: dict[str, Any] = {
        "bytes": count * 1_000_000,
        "count": count,
        "busy_ps": count * MS,
        "exposed_ps": 0,
        "exposed_ps_per_step": 0,
        "exposed_ratio": 0.0,
        "verdict": "none",
        "bytes_per_second": 1_000_000_000 if count else None,
        "pageable_bytes": 0,
        "small_count": 0,
        "small_count_per_step": 0,
        "size_counts": None,
        "blocking_kernel_count": 0,
    }
    return Direction(**row | changes)


EXPOSED = direction(
    4, exposed_ps=4 * MS, exposed_ps_per_step=MS, exposed_ratio=0.0625, verdict="moderate"
)


def trip(op: str = "model/where") -> RoundTrip:
    return RoundTrip(op, "Where", "tf_Compute/9", None, "model/where/_7:_Recv", 4, 150, 16 * MS)


def device(h2d: Direction, **changes: Any) -> DeviceTransfers:
    row: dict[str, Any] = {
        "host": "worker0",
        "device": "GPU:0",
        "ordinal": 0,
        "directions": Directions(h2d, direction(0), direction(2, pageable_bytes=None)),
        "link_bytes_per_second": None,
        "blocking_reads": BlockingReads(0, 0),
        "top_sources": (),
        "source_count": 0,
        "round_trips": (),
    }
    return DeviceTransfers(**row | changes)


@pytest.fixture(scope="module")
def in_report(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """What of a report with these transfers is shown about them."""
    folder = tmp_path_factory.mktemp("plain")
    SCENARIOS["plain"]().write(folder)
    report = traceview.analyze(folder)

    def shown(row: DeviceTransfers, width: int = 100) -> str:
        page = Page(width)
        results = replace(report.results, transfers=Transfers(SIZE_BOUNDS_BYTES, (row,)))
        add_transfers(page, replace(report, results=results))
        return page.render()

    return shown


def test_copies_that_cost_something(in_report: Shown) -> None:
    row = device(
        EXPOSED,
        blocking_reads=BlockingReads(1, 3 * MS),
        round_trips=(trip(),),
        link_bytes_per_second=15_753_846_144,
    )
    assert in_report(row, width=120) == (
        "Transfers  exposed: nothing else runs meanwhile, as a share of the step\n"
        "device  copies  exposed  per step     busy  count  < 64 KiB     size  pageable  per second"
        "  link carries\n"
        "GPU:0   h2d        6.2%   1.00 ms  4.00 ms      4         0  4.00 MB       0 B     1.00 GB"
        "       15.8 GB\n"
        "GPU:0   d2d          0%      0 ps  2.00 ms      2         0  2.00 MB         –     1.00 GB"
        "       15.8 GB\n"
        "GPU:0: the host waited 3.00 ms for 1 copy from it\n"
        "GPU:0: model/where (Where) runs on the CPU between copies – and model/where/_7:_Recv: "
        "4 times, 16.0 ms\n"
    )


def test_a_narrow_page_leaves_out_what_matters_least(in_report: Shown) -> None:
    lines = in_report(device(EXPOSED), width=60).splitlines()
    assert lines[3].split() == ["GPU:0", "h2d", "6.2%", "1.00", "ms", "4.00", "MB", "1.00", "GB"]
    assert all(cell_len(line) <= 60 for line in lines)


def test_hidden_copies_are_not_told(in_report: Shown) -> None:
    assert in_report(device(direction(4))) == ""
    assert "GPU:0" in in_report(device(direction(4), round_trips=(trip(),)))


def test_only_some_round_trips_are_named(in_report: Shown) -> None:
    row = device(EXPOSED, round_trips=tuple(trip(f"model/op_{n}") for n in range(5)))
    shown = in_report(row)
    assert "model/op_2" in shown
    assert "model/op_3" not in shown
    assert "GPU:0: 2 more ops like that\n" in shown


def test_no_copies() -> None:
    page = Page(80)
    row = device(direction(0))
    nothing = replace(row, directions=Directions(*[direction(0)] * 3))
    add_device_transfers(page, [nothing], has_steps=False)
    assert page.render() == (
        "Transfers  exposed: nothing else runs meanwhile, as a share of the window\n"
        "no copies in the window\n"
    )


def source(op: str | None, **changes: Any) -> CopySource:
    row: dict[str, Any] = {
        "device": "GPU:0",
        "direction": "h2d",
        "op": op,
        "op_type": "_Recv",
        "thread": "tf_Compute/9",
        "count": 4,
        "bytes": 4000,
        "total_ps": 4 * MS,
        "exposed_ps": MS,
    }
    return CopySource(**row | changes)


def test_sources() -> None:
    page = Page(80)
    add_sources(page, [source("model/x"), source(None, thread=None, bytes=None, direction="d2h")])
    assert page.render() == (
        "GPU:0  copies by the op and thread that issued them\n"
        "exposed    total  count     size  copies  thread        op\n"
        "1.00 ms  4.00 ms      4  4.00 kB  h2d     tf_Compute/9  model/x\n"
        "1.00 ms  4.00 ms      4        –  d2h     –             –\n"
    )


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_names_are_harmless_and_fit(width: int) -> None:
    name = "model/\x1b[31m" + "layer/" * 40 + "x\n[bold]"
    page = Page(width)
    add_sources(page, [source(name, thread=name), source(name + "y", device=name)])
    add_device_transfers(page, [device(EXPOSED, round_trips=(trip(name),))], has_steps=True)
    shown = page.render()
    assert "\x1b" not in shown
    assert "model/" in shown
    table = [line for line in shown.splitlines() if line.startswith(("1.00 ms", "exposed "))]
    assert len(table) == 4
    assert all(cell_len(line) <= max(width, 40) for line in table)
