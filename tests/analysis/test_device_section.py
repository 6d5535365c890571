"""The sections on devices and the timeline hold a row per device that matters, and say what the others have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import traceview
from scripts.scenarios import SCENARIOS
from tests.analysis.sections import (
    headings_of,
    lines_of,
    sentences_of,
    tables_of,
    values_of,
    view_of,
)
from tests.charts import MS, strip
from tests.reports import device, empty_device
from traceview.analysis.gpu_time.device_time import FOLD_FROM, device_list, devices_section
from traceview.analysis.gpu_time.lanes import timeline_section
from traceview.analysis.measures.device_report import DeviceTime, DeviceTimeRow
from traceview.document.figures import UtilizationStrip, UtilizationStrips
from traceview.document.model import Bar, Section, Strips, Table, Timeline, device_anchor
from traceview.document.vocabulary import PARTS, STATUSES
from traceview.report.document import view_of as view_of_report


def section(*rows: DeviceTimeRow, **changes: Any) -> Section:
    made = devices_section(view_of(**changes), DeviceTime(rows))
    assert made is not None
    return made


def table(made: Section) -> Table:
    (rows,) = tables_of(made)
    return rows


# Devices


def test_a_row_holds_the_parts_of_the_window() -> None:
    rows = table(section(device(0, {"memset": MS})))
    values = {heading: values_of(rows, heading)[0] for heading in headings_of(rows)}
    bar = values.pop("window")
    assert values.pop("") is not None
    assert values == {
        "device": "GPU:0",
        "status": STATUSES["active"],
        "busy": 0.75,
        "busy time": 75 * MS,
        "compute": 0.6,
        "communication and waiting": 0.1,
        "HtoD copies": 0.03,
        "DtoH copies": 0.01,
        "DtoD copies": 0.01,
        "fills": 0.01,
        "idle": 0.25,
        "kernels": 1234,
        "peak since start": 6_208_853_760,
    }
    assert isinstance(bar, Bar)
    assert [(part.look, part.ratio) for part in bar.parts] == [
        (PARTS["compute"], 0.6),
        (PARTS["collective"], 0.1),
        (PARTS["copies"], 0.06),
        (PARTS["idle"], 0.25),
    ]
    assert rows.anchors == (device_anchor("GPU:0"),)


def test_one_kind_of_copy_that_shows_has_no_column_beside_their_sum() -> None:
    none = dict.fromkeys(("d2h", "d2d", "memset"), 0)
    headings = headings_of(table(section(device(0, none))))
    assert "exposed copies" in headings
    assert "HtoD copies" not in headings
    headings = headings_of(table(section(device(0, none), device(1))))
    assert "exposed copies" not in headings
    assert {"HtoD copies", "DtoD copies"} <= set(headings)


def test_what_was_not_measured_is_no_zero() -> None:
    unknown = dict.fromkeys(("busy_ps", "busy_ratio", "activity", "idle_ps"))
    rows = table(section(device(0, **unknown), device(1)))
    for heading in ("busy", "busy time", "compute", "HtoD copies", "idle"):
        assert values_of(rows, heading)[0] is None
        assert values_of(rows, heading)[1]


@pytest.mark.parametrize("count", [FOLD_FROM - 1, FOLD_FROM])
def test_many_empty_devices_are_named_in_a_remark(count: int) -> None:
    made = section(device(0), *(empty_device(1 + n) for n in range(count)))
    is_folded = count == FOLD_FROM
    assert table(made).shown_count == (1 if is_folded else 1 + count)
    assert (f"GPU:1–{count} recorded no event." in sentences_of(made)) == is_folded


def test_other_devices_are_a_range() -> None:
    others = [device(n, busy_ratio=0.7 + n / 100) for n in (1, 2)]
    made = section(device(0), *others, others=("GPU:1", "GPU:2"))
    assert values_of(table(made), "device") == ("GPU:0",)
    assert table(made).hidden_count == 0
    assert sentences_of(made)[0] == (
        "2 other devices: busy 71.0–72.0%, compute 60.0%, communication and waiting 10.0%, exposed copies 5.0%. "
        "All devices: traceview show devices logs -o devices.csv"
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"unknown_direction_count": 3},
            "3 of 10 copies: direction not recorded, counted as copies between devices.",
        ),
        (
            {"outside_window_count": 1},
            "Outside the window: 1 event of GPU:0; use --window devices to include them.",
        ),
        (
            {"status": "marginal"},
            "Status marginal: computes less than 20.0% of what the busiest device does.",
        ),
    ],
)
def test_remarks(changes: dict[str, Any], sentence: str) -> None:
    assert sentence in sentences_of(section(device(0, **changes)))
    assert sentence not in sentences_of(section(device(0)))


def test_without_devices_the_section_says_so() -> None:
    made = section()
    assert (made.blocks, made.lead) == ((), "The trace holds no device.")


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([device(0), device(1)], "2 GPUs, Tesla V100"),
        ([device(0), device(1, model="T4")], "2 GPUs, Tesla V100 and T4"),
        ([device(0, kind="replica", device="replica:0", model=None)], "The CPU, as replica:0"),
        (
            [device(n, kind="replica", model=None) for n in range(2)],
            "2 replicas on 1 host",
        ),
        ([device(0), device(1, kind="tpu", model=None)], "1 GPU, Tesla V100; 1 TPU"),
    ],
)
def test_devices_in_a_few_words(rows: list[DeviceTimeRow], text: str) -> None:
    assert device_list(rows) == text


def test_of_128_gpus_the_outliers_have_rows(tmp_path: Path) -> None:
    """GPU 3 of host5 is slower than all others, and GPU 7 of host9 was not used."""
    SCENARIOS["sixteen_hosts_of_eight"]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    view, result = view_of_report(report), report.results.device_time
    assert result is not None
    made = devices_section(view, result)
    assert made is not None
    assert values_of(table(made), "device") == ("host0/GPU:0", "host5/GPU:3", "host9/GPU:7")
    assert sentences_of(made)[0].startswith(
        "125 other devices: busy 91.8%, compute 79.8%, communication and waiting 12.0%, exposed copies 0%."
    )


# Timeline


def timeline(*strips: UtilizationStrip, **changes: Any) -> Section | None:
    return timeline_section(view_of(**changes), UtilizationStrips(240, strips))


def idle_strip(name: str) -> UtilizationStrip:
    none = (0,) * 240
    return replace(strip(name), compute_ps=none, collective_ps=none, copy_ps=none)


def test_devices_that_did_anything_have_a_strip() -> None:
    busy = [strip(f"GPU:{n}") for n in (0, 1, 3)]
    made = timeline(*busy, idle_strip("GPU:2"), others=("GPU:1",))
    assert made is not None
    (_, strips) = made.blocks
    assert isinstance(strips, Strips)
    assert strips.devices == ("GPU:0", "GPU:3")


def test_without_anything_to_draw_a_text_has_no_timeline() -> None:
    """A page keeps its place, and says why it is empty."""
    made = timeline(idle_strip("GPU:0"))
    assert made is not None
    (block,) = made.blocks
    assert isinstance(block, Timeline)
    assert block.lanes is None
    assert block.reason
    assert lines_of(made) == []
