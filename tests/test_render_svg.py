"""Is the timeline as a picture well-formed, complete, the same every time, and sanitize whatever names are in it?"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

import traceview
from scripts.scenarios import SCENARIOS
from tests.hostile import HOSTILE
from tests.reports import HOST, MS, bare_report, full_report, lane, lanes_of
from traceview.analysis.lanes.result import DeviceLanes, HostLanes, Lanes
from traceview.render import svg
from traceview.render.lane_view import cut_words, slices
from traceview.report.model import Report

NS = "{http://www.w3.org/2000/svg}"


def with_lanes(lanes: Lanes | None) -> Report:
    report = full_report()
    return replace(report, results=replace(report.results, lanes=lanes))


def texts(picture: str) -> list[str]:
    return [one.text or "" for one in ET.fromstring(picture).iter(f"{NS}text")]


def painted(picture: str, style: str) -> list[tuple[float, float, float]]:
    """Left edge, width and height of each rectangle of a colour."""
    paths = [
        one.get("d", "")
        for one in ET.fromstring(picture).iter(f"{NS}path")
        if one.get("style") == f"fill:var(--tv-{style})"
    ]
    found = []
    for outline in "".join(paths).split("z")[:-1]:
        left, rest = outline[1:].split(" ")
        _, rest = rest.split("h", 1)
        width, rest = rest.split("v")
        found.append((float(left), float(width), float(rest.split("h")[0])))
    return found


def test_rectangles_stand_where_the_time_is() -> None:
    picture = svg.render(full_report())
    # 100 ms are 1020 pixels wide, from 168 on; both devices do the same.
    assert sorted(painted(picture, "compute")) == [(168, 612, 15)] * 2 + [(984, 102, 15)] * 2
    assert painted(picture, "communication") == [(780, 102, 10)] * 2
    # Two causes of one gap lie on each other, as high as they are long.
    assert sorted(painted(picture, "idle-input")) == [(1086, 102, 9)] * 2 + [(1086, 102, 11)]
    assert painted(picture, "idle-launch")[1:] == [(1086, 102, 6)] * 2


def test_what_is_covered_in_part_is_pale() -> None:
    paths = ET.fromstring(svg.render(full_report())).iter(f"{NS}path")
    compute = [one for one in paths if one.get("style") == "fill:var(--tv-compute)"]
    assert [one.get("fill-opacity") for one in compute] == ["1", "0.4"]


def test_it_names_the_run_the_lanes_the_steps_and_the_cut() -> None:
    picture = svg.render(full_report())
    root = ET.fromstring(picture)
    assert root.get("width") == "1200"
    assert root.get("role") == "img"
    assert root.findtext(f"{NS}title") == "Timeline of run 2026_01_02"
    told = texts(picture)
    for text in ("GPU:0", "GPU:1", "steps", "python3", "idle", "20.0 ms", "0", "3", "I input"):
        assert text in told
    assert any(one.startswith("Slices shorter than 20.0 ms are merged") for one in told)
    assert "are merged" in (root.findtext(f"{NS}desc") or "")


def test_the_same_report_gives_the_same_bytes() -> None:
    assert svg.render(full_report()) == svg.render(full_report())


def test_without_lanes_it_says_how_to_get_them() -> None:
    assert "No timeline in this report: traceview report LOGDIR -o DIR" in texts(
        svg.render(bare_report())
    )


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_stay_text(text: str) -> None:
    own = lane("compute", (0, 50, "compute"))
    thread = lane("thread", (0, 50, "launch"), thread=text)
    lanes = Lanes(
        (HostLanes(text, 0, 100 * MS, (thread,)), HostLanes("other", 0, 100 * MS, ())),
        (DeviceLanes(f"{text}/GPU:0", text, (own,)),),
        0,
        160,
        (text, text),
    )
    report = with_lanes(lanes)
    report = replace(report, source=replace(report.source, run=text))
    picture = svg.render(replace(report, verdict=replace(report.verdict, headline=text)))
    root = ET.fromstring(picture)
    tags = {one.tag.removeprefix(NS) for one in root.iter()}
    assert tags <= {"svg", "title", "desc", "style", "defs", "pattern", "path", "rect", "text"}
    assert len(picture) < 20_000


@pytest.mark.parametrize("count", [8, 9, 64, 128])
def test_many_devices_are_all_there(count: int) -> None:
    names = [f"GPU:{number}" for number in range(count)]
    picture = svg.render(with_lanes(lanes_of(*names)))
    assert set(names) <= set(texts(picture))
    # Equal treatment: each has both of its slices, equally high.
    assert len(painted(picture, "compute")) == 2 * count
    assert len({height for _, _, height in painted(picture, "compute")}) == 1
    assert len(painted(picture, "communication")) == count


def test_a_picture_is_bounded() -> None:
    many = tuple((start, start + 1, "compute") for start in range(0, 20_000, 2))
    devices = tuple(
        DeviceLanes(f"GPU:{number}", HOST, (lane("compute", *many),)) for number in range(64)
    )
    hosts = (HostLanes(HOST, 0, 20_000 * MS, ()),)
    assert len(svg.render(with_lanes(Lanes(hosts, devices, 0, 160, ("a", "b"))))) < 400_000


def test_hosts_stand_on_one_clock() -> None:
    own = lane("compute", (0, 50, "compute"))
    lanes = Lanes(
        (HostLanes("a", 0, 50 * MS, ()), HostLanes("b", 50 * MS, 100 * MS, ())),
        (DeviceLanes("a/GPU:0", "a", (own,)), DeviceLanes("b/GPU:0", "b", (own,))),
        0,
        160,
        ("op",),
    )
    assert painted(svg.render(with_lanes(lanes)), "compute") == [(168, 510, 15), (678, 510, 15)]


def test_ticks_are_round_and_few() -> None:
    assert svg.ticks(0) == [0]
    assert svg.ticks(100) == list(range(0, 101, 10))
    assert svg.ticks(668_866_125_000)[1] == 100_000_000_000
    assert len(svg.ticks((1 << 63) - 1)) <= 11


def test_slices_come_back_from_columns() -> None:
    (device, _) = lanes_of("GPU:0", "GPU:1").devices
    compute, _, _, idle = device.lanes
    assert [(one.start_ps, one.end_ps, one.class_ps) for one in slices(compute)] == [
        (0, 60 * MS, {"compute": 60 * MS}),
        (80 * MS, 90 * MS, {"compute": 2_500_000_000}),
    ]
    (gap,) = slices(idle)
    assert gap.class_ps == {"input": 6 * MS, "launch": 4 * MS}


def test_the_cut_is_stated() -> None:
    assert cut_words(lanes_of("GPU:0")) == (
        "Slices shorter than 20.0 ms are merged with their neighbours: 24 events in 13 slices; times stay exact."
    )
    bare = Lanes((), (), 3, 160, ())
    assert cut_words(bare) == "3 more devices not drawn."


@pytest.mark.parametrize(
    "name", ["waits_for_input", "two_hosts", "hostile_names", "no_steps", "zero_length"]
)
def test_scenarios_are_drawn(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = traceview.analyze(tmp_path, lanes=True)
    assert report.results.lanes is not None
    told = texts(svg.render(report))
    for device in report.results.lanes.devices:
        assert device.device[:10] in "\n".join(told)
