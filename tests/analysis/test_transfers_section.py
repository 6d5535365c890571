"""Tests that the section on transfers shows copies that cost time, what waits for them, and what issues them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.sections import (
    headings_of,
    lines_of,
    markdown_of,
    sentences_of,
    tables_of,
    values_of,
    view_of,
)
from traceview.analysis.exchange.transfers import BRIEF_ROUND_TRIPS
from traceview.analysis.exchange.transfers import transfers_section as section
from traceview.analysis.measures.transfers import (
    CopySource,
    DeviceTransfers,
    Direction,
    Directions,
    RoundTrip,
    Transfers,
)
from traceview.document.vocabulary import CLASSES

MS = 10**9
BRIEF = view_of(is_brief=True)


def direction(count: int, **changes: Any) -> Direction:
    parts: dict[str, Any] = {
        "bytes": count * 1_000_000,
        "count": count,
        "busy_ps": count * MS,
        "exposed_ps": 0,
        "exposed_ps_per_step": 0,
        "exposed_ratio": 0.0,
        "bytes_per_second": 1_000_000_000 if count else None,
        "pageable_bytes": 0,
        "small_count": 0,
        "small_count_per_step": 0,
    }
    return Direction(**parts | changes)


EXPOSED = direction(4, exposed_ps=4 * MS, exposed_ps_per_step=MS, exposed_ratio=0.0625)


def trip(op: str = "model/where") -> RoundTrip:
    return RoundTrip(op, "Where", "tf_Compute/9", None, "model/where/_7:_Recv", 4, 150, 16 * MS)


def device(h2d: Direction, **changes: Any) -> DeviceTransfers:
    parts: dict[str, Any] = {
        "host": "worker0",
        "device": "GPU:0",
        "ordinal": 0,
        "directions": Directions(h2d, direction(0), direction(2, pageable_bytes=None)),
        "link_bytes_per_second": None,
        "top_sources": (),
        "source_count": 0,
        "round_trips": (),
    }
    return DeviceTransfers(**parts | changes)


def source(op: str | None, **changes: Any) -> CopySource:
    parts: dict[str, Any] = {
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
    return CopySource(**parts | changes)


def transfers(*devices: DeviceTransfers) -> Transfers:
    return Transfers(devices)


def test_a_row_for_each_device_and_direction() -> None:
    shown = section(BRIEF, transfers(device(EXPOSED, link_bytes_per_second=15_753_846_144)))
    assert shown is not None
    assert shown.lead == "HtoD copies are exposed for 6.2% of the step on GPU:0."
    (table,) = tables_of(shown)
    assert values_of(table, "device") == ("GPU:0", "GPU:0")
    assert values_of(table, "direction") == (CLASSES["h2d"], CLASSES["d2d"])
    assert values_of(table, "exposed") == (0.0625, 0.0)
    assert values_of(table, "per step") == (MS, 0)
    assert values_of(table, "busy") == (4 * MS, 2 * MS)
    assert values_of(table, "count") == (4, 2)
    assert values_of(table, "below 64 KiB") == (0, 0)
    assert values_of(table, "size") == (4_000_000, 2_000_000)
    assert values_of(table, "pageable") == (0, None)
    assert values_of(table, "rate") == (10**9, 10**9)
    assert values_of(table, "rate of the link") == (15_753_846_144, 15_753_846_144)


def test_a_narrow_terminal_leaves_out_what_matters_least() -> None:
    shown = section(BRIEF, transfers(device(EXPOSED)))
    assert shown is not None
    lines = lines_of(shown, 60)
    assert [line.split() for line in lines[2:5]] == [
        ["per"],
        ["device", "direction", "exposed", "step", "size", "rate"],
        ["GPU:0", "HtoD", "copies", "6.2%", "1.00", "ms", "4.00", "MB", "1.00", "GB/s"],
    ]
    assert lines[6].startswith("Not shown at 60 columns: busy, count")


def test_without_steps_shares_are_of_the_window() -> None:
    shown = section(
        view_of(), transfers(device(direction(4, exposed_ps_per_step=None, exposed_ratio=0.5)))
    )
    assert shown is not None
    assert "50.0% of the window" in shown.lead


def test_hidden_copies_are_left_out_of_a_brief_document() -> None:
    hidden = transfers(device(direction(4)))
    assert section(BRIEF, hidden) is None
    assert section(BRIEF, transfers(device(direction(4), round_trips=(trip(),)))) is not None
    shown = section(view_of(), hidden)
    assert shown is not None
    assert shown.lead == "Other work hides all copies."


def test_no_copies() -> None:
    nothing = device(direction(0), directions=Directions(*[direction(0)] * 3))
    shown = section(view_of(), transfers(nothing))
    assert shown is not None
    assert (shown.lead, shown.blocks) == ("No copies in the window.", ())
    assert section(BRIEF, transfers(nothing)) is None
    assert section(view_of(), transfers()) is None


def test_round_trips() -> None:
    trips = tuple(trip(f"model/op_{n}") for n in range(5))
    shown = section(BRIEF, transfers(device(EXPOSED, round_trips=trips)))
    assert shown is not None
    _, table = tables_of(shown)
    assert (table.shown_count, table.hidden_count) == (BRIEF_ROUND_TRIPS, 5 - BRIEF_ROUND_TRIPS)
    assert values_of(table, "CPU op") == ("model/op_0", "model/op_1", "model/op_2")
    assert values_of(table, "total") == (16 * MS,) * 3
    assert values_of(table, "copy back") == ("model/where/_7:_Recv",) * 3
    # Not recorded for any of them.
    assert "copy to the host" not in headings_of(table)


def test_sources_of_all_devices_the_longest_exposed_first() -> None:
    rows = (
        device(EXPOSED, top_sources=(source("model/x"),), source_count=3),
        device(
            EXPOSED,
            device="GPU:1",
            top_sources=(
                source(
                    None,
                    device="GPU:1",
                    op_type=None,
                    thread=None,
                    bytes=None,
                    direction="d2h",
                    exposed_ps=2 * MS,
                ),
            ),
            source_count=1,
        ),
    )
    shown = section(view_of(), transfers(*rows))
    assert shown is not None
    _, table = tables_of(shown)
    assert values_of(table, "device") == ("GPU:1", "GPU:0")
    assert values_of(table, "direction") == (CLASSES["d2h"], CLASSES["h2d"])
    assert values_of(table, "op") == (None, "model/x")
    assert values_of(table, "thread") == (None, "tf_Compute/9")
    assert values_of(table, "size") == (None, 4000)
    assert values_of(table, "exposed") == (2 * MS, MS)
    assert (table.hidden_count, table.rest) == (2, "traceview show copies logs")
    brief = section(BRIEF, transfers(*rows))
    assert brief is not None
    assert len(tables_of(brief)) == 1


def test_of_many_devices_those_that_are_alike_are_a_range() -> None:
    ratios = {"GPU:0": 0.5, "GPU:1": 0.1, "GPU:2": 0.2}
    rows = [device(direction(4, exposed_ratio=ratio), device=key) for key, ratio in ratios.items()]
    shown = section(view_of(outliers=("GPU:0",), others=("GPU:1", "GPU:2")), transfers(*rows))
    assert shown is not None
    (table,) = tables_of(shown)
    assert set(values_of(table, "device")) == {"GPU:0"}
    assert sentences_of(shown) == [
        "2 other GPUs: exposed HtoD copies 10.0–20.0% and DtoD copies 0%."
    ]


def test_it_prints_as_markdown() -> None:
    row = device(EXPOSED, round_trips=(trip(),), top_sources=(source("model/x"),), source_count=1)
    shown = section(view_of(), transfers(row))
    assert shown is not None
    text = markdown_of(shown)
    assert "| `GPU:0` | HtoD copies | 6.2% | 1.00 ms |" in text
    assert "| `GPU:0` | `model/where` | `Where` | 16.0 ms |" in text
    assert "| `GPU:0` | HtoD copies | `model/x` |" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_recorded_names_are_sanitized_and_fit(width: int) -> None:
    name = "model/\x1b[31m" + "layer/" * 40 + "x\n[bold]"
    row = device(
        EXPOSED, round_trips=(trip(name),), top_sources=(source(name, thread=name),), source_count=1
    )
    shown = section(view_of(), transfers(row))
    assert shown is not None
    text = "\n".join(lines_of(shown, width))
    assert "\x1b" not in text
    assert "model" in text
