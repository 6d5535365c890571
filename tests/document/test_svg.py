"""Tests that the timeline as a picture is well-formed, complete, bounded, and safe whatever names are in it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from scripts.scenarios import SCENARIOS
from tests.charts import HOST, MS, WINDOW_PS, lane, lanes_of
from tests.documents import bare_document, full_document
from tests.hostile import HOSTILE
from traceview.document.figures import DeviceLanes, HostLanes, Lanes, merged_sentence
from traceview.document.html import timeline_svg
from traceview.document.model import Document, Section, Timeline
from traceview.document.phrase import plain
from traceview.report.build import analyze

NS = "{http://www.w3.org/2000/svg}"


def with_lanes(lanes: Lanes) -> Document:
    section = Section("timeline", "Timeline", (Timeline(lanes),))
    return structs.replace(full_document(), sections=(section,))


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(picture).iter(f"{NS}text")]


def painted(picture: str, style: str) -> list[tuple[float, float, float]]:
    """Left edge, width and height of each rectangle of a colour."""
    paths = [
        element.get("d", "")
        for element in ET.fromstring(picture).iter(f"{NS}path")
        if element.get("style") == f"fill:var(--tv-{style})"
    ]
    rectangles = []
    for outline in "".join(paths).split("z")[:-1]:
        left, rest = outline[1:].split(" ")
        _, rest = rest.split("h", 1)
        width, rest = rest.split("v")
        rectangles.append((float(left), float(width), float(rest.split("h")[0])))
    return rectangles


def test_whole_output(golden: Callable[[str, str], None]) -> None:
    assert timeline_svg.render(full_document()) == timeline_svg.render(full_document())
    golden("full_document.svg", timeline_svg.render(full_document()))


def test_rectangles_stand_where_the_time_is() -> None:
    picture = timeline_svg.render(full_document())
    # 100 ms are 1020 pixels wide, from 168 on; both devices do the same.
    assert sorted(painted(picture, "compute")) == [(168, 612, 15)] * 2 + [(984, 102, 3.8)] * 2
    assert painted(picture, "communication") == [(780, 102, 10)] * 2
    # Two causes of one gap lie on each other, as high as they are long.
    assert sorted(painted(picture, "input")) == [(1086, 102, 9)] * 2
    assert painted(picture, "launch") == [(1086, 102, 6)] * 2


def test_height_says_how_much_is_filled() -> None:
    # Kernels cover a quarter of the second slice.
    heights = {height for _, _, height in painted(timeline_svg.render(full_document()), "compute")}
    assert heights == {15, 3.8}


def test_it_names_the_run_the_lanes_and_the_steps() -> None:
    document = full_document()
    picture = timeline_svg.render(document)
    root = ET.fromstring(picture)
    assert root.get("width") == "1200"
    assert root.get("role") == "img"
    assert root.findtext(f"{NS}title") == "Timeline of run 2026_01_02"
    written = texts(picture)
    for text in (
        "GPU:0",
        "GPU:1",
        "steps",
        "Python thread",
        "idle",
        "20.0 ms",
        "0",
        "3",
        "I input",
    ):
        assert text in written
    assert written[0] == plain(document.summary.answer)
    assert written[1] == "run 2026_01_02"
    assert any(text.startswith("Slices shorter than 20.0 ms are merged") for text in written)
    assert "are merged" in (root.findtext(f"{NS}desc") or "")


def test_without_lanes_it_says_how_to_get_them() -> None:
    assert texts(timeline_svg.render(bare_document()))[-1] == (
        "No timeline: the report was saved without it; traceview report LOGDIR -o DIR draws it"
    )
    assert texts(timeline_svg.render(structs.replace(bare_document(), sections=())))[-1].startswith(
        "No timeline"
    )


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_text(text: str) -> None:
    picture = timeline_svg.render(full_document(lambda recorded: f"{text}{recorded}"))
    root = ET.fromstring(picture)
    tags = {element.tag.removeprefix(NS) for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "style", "defs", "pattern", "path", "rect", "text"}
    assert len(picture) < 30_000


@pytest.mark.parametrize("count", [8, 9, 64, 128])
def test_many_devices_are_all_there(count: int) -> None:
    devices = [f"GPU:{number}" for number in range(count)]
    picture = timeline_svg.render(with_lanes(lanes_of(*devices)))
    assert set(devices) <= set(texts(picture))
    # Equal treatment: each has both of its slices, equally high.
    assert len(painted(picture, "compute")) == 2 * count
    assert len({height for _, _, height in painted(picture, "compute")}) == 2
    assert len(painted(picture, "communication")) == count


def test_a_picture_is_bounded() -> None:
    many = tuple((start, start + 1, "compute") for start in range(0, 20_000, 2))
    devices = tuple(
        DeviceLanes(f"GPU:{number}", HOST, (lane("compute", *many),)) for number in range(64)
    )
    hosts = (HostLanes(HOST, 0, 20_000 * MS, ()),)
    assert len(timeline_svg.render(with_lanes(Lanes(hosts, devices, 0, ("a", "b"))))) < 400_000


def test_hosts_stand_on_one_clock() -> None:
    compute = lane("compute", (0, 50, "compute"))
    lanes = Lanes(
        (HostLanes("a", 0, 50 * MS, ()), HostLanes("b", 50 * MS, WINDOW_PS, ())),
        (DeviceLanes("a/GPU:0", "a", (compute,)), DeviceLanes("b/GPU:0", "b", (compute,))),
        0,
        ("op",),
    )
    assert painted(timeline_svg.render(with_lanes(lanes)), "compute") == [
        (168, 510, 15),
        (678, 510, 15),
    ]


def test_ticks_are_round_and_few() -> None:
    assert timeline_svg.ticks(0) == [0]
    assert timeline_svg.ticks(100) == list(range(0, 101, 10))
    assert timeline_svg.ticks(668_866_125_000)[1] == 100_000_000_000
    assert len(timeline_svg.ticks((1 << 63) - 1)) <= 11


def test_slices_come_back_from_columns() -> None:
    (device,) = lanes_of("GPU:0").devices
    compute, _, _, idle = device.lanes
    assert [(piece.start_ps, piece.end_ps, piece.class_ps) for piece in compute.slices] == [
        (0, 60 * MS, {"compute": 60 * MS}),
        (80 * MS, 90 * MS, {"compute": 2_500_000_000}),
    ]
    (gap,) = idle.slices
    assert gap.class_ps == {"input": 6 * MS, "launch": 4 * MS}


def test_what_was_merged_is_stated() -> None:
    assert merged_sentence(lanes_of("GPU:0")) == (
        "Slices shorter than 20.0 ms are merged with their neighbours: "
        "13 slices show 24 events; times stay exact."
    )
    assert merged_sentence(Lanes((), (), 3, ())) == "3 more devices are not drawn."


@pytest.mark.parametrize(
    "scenario", ["waits_for_input", "two_hosts", "hostile_names", "no_steps", "zero_length"]
)
def test_scenarios_are_drawn(scenario: str, tmp_path: Path) -> None:
    SCENARIOS[scenario]().write(tmp_path)
    lanes = analyze(tmp_path, lanes=True).results.lanes
    assert lanes is not None
    written = "\n".join(texts(timeline_svg.render(with_lanes(lanes))))
    assert all(device.device[:10] in written for device in lanes.devices)
