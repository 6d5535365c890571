"""A Perfetto trace has every slice of a run, in rows that nest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traceview
from scripts.scenarios import SCENARIOS
from tests.export.perfetto_reading import Read, Slice, read
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Context
from traceview.base.intervals import Int64Array, union
from traceview.document.sanitize import sanitize
from traceview.document.vocabulary import CLASSES, STATES
from traceview.export import perfetto
from traceview.export.draw import MOST_ROWS, Scene, drawn, in_drawing_order, rows_nested
from traceview.export.perfetto import begins_and_ends


def scene_of(logs: Path) -> Scene:
    trace = traceview.load(logs)
    return drawn(Context(trace, select(trace)), traceview.analyze(trace))


def exported(logs: Path) -> tuple[Read, traceview.Report]:
    return read(b"".join(perfetto.written(scene_of(logs)))), traceview.analyze(logs)


def told_by_scene(scene: Scene) -> list[tuple[Any, ...]]:
    """Every slice of the scene, with its process, its track, its times and what it says."""
    rows = []
    for process in scene.processes:
        for track in process.tracks:
            slices = track.slices
            columns = {item.name: item.cells() for item in (*slices.arguments, *slices.exact)}
            names, categories = slices.name.cells(), slices.category.cells()
            for place in range(slices.count):
                start = int(slices.start_ps[place])
                arguments = {
                    name: sanitize(cells[place]) if isinstance(cells[place], str) else cells[place]
                    for name, cells in columns.items()
                    if cells[place] is not None
                }
                rows.append(
                    (
                        sanitize(process.name),
                        sanitize(track.name),
                        sanitize(names[place]),
                        sanitize(categories[place]),
                        start,
                        int(slices.end_ps[place]) - start,
                        arguments,
                    )
                )
    return rows


def told(found: Read) -> list[tuple[Any, ...]]:
    return [
        (
            found.process_of(one.track),
            found.track_name(one.track),
            one.name,
            one.category,
            *one.picoseconds,
            one.arguments,
        )
        for one in found.slices
    ]


@pytest.mark.parametrize("name", ["A", "B", "C", "F", "two_hosts", "no_gpu_plane"])
def test_every_slice_is_written(tmp_path: Path, name: str) -> None:
    SCENARIOS[name]().write(tmp_path / "logs")
    scene = scene_of(tmp_path / "logs")
    found = read(b"".join(perfetto.written(scene)))
    assert found.slices
    assert told(found) == told_by_scene(scene)


Tracks = dict[tuple[str, str], list[Slice]]


def tracks_of(found: Read) -> Tracks:
    """The slices of every track, together with those of the tracks it was split into, by process and name."""
    tracks: Tracks = defaultdict(list)
    for row in found.slices:
        process, track = found.process_of(row.track), found.track_name(row.track)
        tracks[process.partition(" (")[0], track.partition(" (")[0]].append(row)
    return tracks


def covered(rows: Sequence[Slice], first: int, last: int) -> int:
    start, length = np.array([row.picoseconds for row in rows], dtype=np.int64).reshape(-1, 2).T
    return int(union(start, start + length).within(first, last))


def check_devices(found: Read, report: traceview.Report) -> None:
    """What each device did, by class, from the slices of its streams; and its states, which are those of the ledger."""
    tracks = tracks_of(found)
    assert report.results.device_time
    for row in report.results.device_time.devices:
        if row.activity is None:
            continue
        by_class: dict[str, list[Slice]] = defaultdict(list)
        for (process, track), slices in tracks.items():
            if process == row.device and track not in ("state", "collectives"):
                for slice_ in slices:
                    by_class[slice_.category].append(slice_)
        (window,) = (window for window in report.windows if window.host == row.host)
        bounds = window.start_ps, window.end_ps
        for class_, of_class in row.activity.items():
            assert covered(by_class[CLASSES[class_].words], *bounds) == of_class.busy_ps, row.device
    steps = report.results.steps.steps if report.results.steps else ()
    used = {row.number for row in steps if row.used}
    for device in report.results.ledger.devices if report.results.ledger else ():
        by_state: dict[str, int] = {}
        for slice_ in tracks[device.device, "state"]:
            if not used or slice_.arguments.get("step") in used:
                key = slice_.arguments["state"]
                assert slice_.name == STATES[key].words
                by_state[key] = by_state.get(key, 0) + slice_.picoseconds[1]
        count = device.step_count or 1
        assert sum(by_state.values()) // count == device.step_ps
        for key, ps in by_state.items():
            assert device.states.get(key, 0) == pytest.approx(ps / count, abs=1)


@pytest.mark.parametrize("name", sorted(SCENARIOS.keys() - {"sixteen_hosts_of_eight"}))
def test_every_scenario_has_its_times(tmp_path: Path, name: str) -> None:
    SCENARIOS[name]().write(tmp_path / "logs")
    found, report = exported(tmp_path / "logs")
    check_devices(found, report)
    titles = {row.name for row in tracks_of(found)["traceview", "findings"]}
    assert len(titles) == len({finding.title for finding in report.findings})


@pytest.mark.parametrize("name", ["keras-fit-4", "slow-input-2"])
def test_recorded_runs_have_their_times(fixtures: Path, name: str) -> None:
    found, report = exported(fixtures / name)
    check_devices(found, report)
    assert not any(row.flows for row in found.slices), "a replica's events are host events"


@pytest.mark.shared
@pytest.mark.parametrize("name", ["bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8"])
def test_real_gpu_traces(shared_traces: Path, name: str) -> None:
    check_devices(*exported(shared_traces / name))


def test_no_device_is_last_where_one_was_not_recorded(tmp_path: Path) -> None:
    SCENARIOS["missing_worker"]().write(tmp_path / "logs")
    found, _ = exported(tmp_path / "logs")
    rows = [
        row.arguments
        for (_, track), slices in tracks_of(found).items()
        if track == "collectives"
        for row in slices
        if "collective" in row.arguments
    ]
    assert {"wait_ps" in arguments for arguments in rows} == {True, False}
    assert all("wait_ps" in row for row in rows if row["is_last"])


def test_steps_are_those_of_the_report(fixtures: Path) -> None:
    found, report = exported(fixtures / "custom-loop-2")
    steps = report.results.steps
    assert steps
    assert [
        (row.arguments["number"], *row.picoseconds, row.arguments.get("left out of statistics"))
        for row in tracks_of(found)["traceview", "steps"]
    ] == [(step.number, step.start_ps, step.duration_ps, step.excluded) for step in steps.steps]


def test_a_trace_that_begins_before_its_origin(tmp_path: Path) -> None:
    """No viewer shows a negative time."""
    SCENARIOS["B"]().write(tmp_path / "logs")
    scene = scene_of(tmp_path / "logs")
    scene.processes[1].tracks[0].slices.start_ps[0] = -1_500
    assert scene.shift_ps == 2_000
    found = read(b"".join(perfetto.written(scene)))
    assert min(row.start_ns for row in found.slices) == 0


def test_arrows_lead_from_a_launch_to_what_it_started(tmp_path: Path) -> None:
    SCENARIOS["B"]().write(tmp_path / "logs")
    found = read(b"".join(perfetto.written(scene_of(tmp_path / "logs"))))
    flows: dict[int, list[Slice]] = defaultdict(list)
    for one in found.slices:
        for flow in one.flows:
            flows[flow].append(one)
    assert flows
    assert 0 not in flows
    for slices in flows.values():
        (launch,) = (one for one in slices if one.category == "host")
        assert len(slices) > 1
        assert {one.arguments["correlation_id"] for one in slices} == {
            launch.arguments["correlation_id"]
        }
        assert launch.start_ns == min(one.start_ns for one in slices)


# Rows of slices


SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=14)
Pair = tuple[Int64Array, Int64Array]


def spans(found: list[tuple[int, int]]) -> Pair:
    start = np.array([start for start, _ in found], dtype=np.int64)
    end = start + np.array([length for _, length in found], dtype=np.int64)
    order = in_drawing_order(start, end)
    return start[order], end[order]


def overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether both run at once; those of no length do so strictly inside of another."""
    return max(one[0], other[0]) < min(one[1], other[1]) or any(
        a[0] == a[1] and b[0] < a[0] < b[1] for a, b in ((one, other), (other, one))
    )


def nest(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether one of them lies inside the other."""
    return any(a[0] <= b[0] and b[1] <= a[1] for a, b in ((one, other), (other, one)))


def in_rows(pair: Pair, row: Int64Array) -> list[list[tuple[int, int]]]:
    spans = list(zip(*(side.tolist() for side in pair), strict=True))
    return [
        [span for span, mine in zip(spans, row.tolist(), strict=True) if mine == one]
        for one in range(int(row.max(initial=-1)) + 1)
    ]


@given(SPANS)
def test_nested_of_two_that_overlap_one_lies_inside_the_other(found: list[tuple[int, int]]) -> None:
    pair = spans(found)
    for row in in_rows(pair, rows_nested(*pair)):
        assert row
        assert all(nest(a, b) or not overlap(a, b) for i, a in enumerate(row) for b in row[:i])


@given(SPANS)
def test_what_nests_takes_one_row(found: list[tuple[int, int]]) -> None:
    pair = spans(found)
    every = list(zip(*(side.tolist() for side in pair), strict=True))
    fits = all(nest(a, b) or not overlap(a, b) for i, a in enumerate(every) for b in every[:i])
    assert fits == (rows_nested(*pair).max(initial=0) == 0)


def test_what_begins_where_another_ends_takes_its_row() -> None:
    start, end = np.array([0, 5, 10, 15, 20]), np.array([10, 15, 20, 25, 30])
    assert rows_nested(start, end).tolist() == [0, 1, 0, 1, 0]


def test_what_needs_more_rows_is_left_out() -> None:
    start = np.arange(3 * MOST_ROWS, dtype=np.int64)
    row = rows_nested(start, start + start.size)
    assert row.tolist() == [*range(MOST_ROWS), *[MOST_ROWS] * (2 * MOST_ROWS)]


@given(SPANS)
def test_slices_begin_and_end_as_a_stack(found: list[tuple[int, int]]) -> None:
    start, end = spans(found)
    first = np.flatnonzero(rows_nested(start, end) == 0)
    start, end = start[first], end[first]
    index, is_begin = begins_and_ends(start, end)
    time = np.where(is_begin, start[index], end[index])
    assert (np.diff(time) >= 0).all()
    open_slices = []
    for one, begins in zip(index.tolist(), is_begin.tolist(), strict=True):
        if begins:
            open_slices.append(one)
        else:
            assert open_slices.pop() == one
    assert open_slices == []
    assert index[is_begin].tolist() == list(range(start.size))
