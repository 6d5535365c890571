from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import traceview
from scripts.scenarios import SCENARIOS
from tests.export.trace_events import Event, checked, nanoseconds, picoseconds, slices
from traceview.analysis.selection import select
from traceview.document.vocabulary import CAUSES, CLASSES
from traceview.export import chrome
from traceview.export.conclusions import BUSY_POINTS
from traceview.export.draw import drawn
from traceview.intervals import union

BUSY = ("compute", "collective", "h2d", "d2h", "d2d", "memset")


def exported(logs: Path) -> tuple[list[Event], traceview.Report]:
    trace = traceview.load(logs)
    report = traceview.analyze(trace)
    return checked(b"".join(chrome.written(drawn(trace, select(trace), report)))), report


def names(events: list[Event], what: str) -> dict[Any, str]:
    """The names of the processes, or of the threads by process and thread."""
    return {
        (e["pid"], e["tid"]) if what == "thread" else e["pid"]: e["args"]["name"]
        for e in events
        if e["name"] == f"{what}_name"
    }


Tracks = dict[tuple[str, str], list[Event]]


def tracks_of(events: list[Event]) -> Tracks:
    """The slices of every track, together with those of the tracks it was split into, by process and name."""
    processes, threads = names(events, "process"), names(events, "thread")
    found: Tracks = defaultdict(list)
    for key, mine in slices(events).items():
        place = processes[key[0]].partition(" (")[0], threads[key].partition(" (")[0]
        found[place] += mine
    return found


def window_of(report: traceview.Report, host: str) -> tuple[int, int]:
    (window,) = (window for window in report.windows if window.host == host)
    return window.start_ps, window.end_ps


def covered(events: list[Event], first: int, last: int) -> int:
    spans = [picoseconds(event) for event in events]
    start = np.array([start for start, _ in spans], dtype=np.int64)
    length = np.array([length for _, length in spans], dtype=np.int64)
    return int(union(start, start + length).within(first, last))


def check_device_times(tracks: Tracks, report: traceview.Report) -> None:
    """What each device did, by class, summed from the slices of its streams alone."""
    assert report.results.device_time
    for row in report.results.device_time.devices:
        if row.total_ps is None:
            continue
        by_class: dict[str, list[Event]] = defaultdict(list)
        for (process, track), mine in tracks.items():
            if process == row.device and track not in ("idle", "collectives"):
                for event in mine:
                    by_class[event["cat"]].append(event)
        window = window_of(report, row.host)
        total_ps = {class_: covered(by_class[CLASSES[class_].words], *window) for class_ in BUSY}
        assert total_ps == row.total_ps, row.device
        assert sum(picoseconds(event)[1] for event in tracks[row.device, "idle"]) == row.idle_ps


LARGEST = "sixteen_hosts_of_eight"


@pytest.fixture(params=sorted(SCENARIOS.keys() - {LARGEST}))
def scenario(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    SCENARIOS[request.param]().write(tmp_path / "logs")
    return tmp_path / "logs"


def test_every_scenario_is_a_valid_trace_of_its_device_times(scenario: Path) -> None:
    events, report = exported(scenario)
    tracks = tracks_of(events)
    check_device_times(tracks, report)
    causes: dict[str, int] = {}
    rows = report.results.idle.devices if report.results.idle else ()
    for row in rows:
        for event in tracks[row.device, "idle"]:
            cause = event["args"]["cause"]
            causes[cause] = causes.get(cause, 0) + picoseconds(event)[1]
    expected: dict[str, int] = {}
    for row in rows:
        for cause, length in row.causes.items():
            words = CAUSES[cause].words
            expected[words] = expected.get(words, 0) + length
    assert causes == expected
    titles = {event["name"] for event in tracks["traceview", "findings"]}
    assert len(titles) == len({finding.title for finding in report.findings})


@pytest.mark.parametrize("name", ["custom-loop-2", "keras-fit-4", "plain-1", "slow-input-2"])
def test_recorded_runs(fixtures: Path, name: str) -> None:
    events, report = exported(fixtures / name)
    check_device_times(tracks_of(events), report)
    assert not any("bind_id" in event for event in events), "a replica's events are host events"


@pytest.mark.shared
@pytest.mark.parametrize("name", ["bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8"])
def test_real_gpu_traces(shared_traces: Path, name: str) -> None:
    events, report = exported(shared_traces / name)
    check_device_times(tracks_of(events), report)


def test_collectives_wait_and_transfer(tmp_path: Path) -> None:
    SCENARIOS["B"]().write(tmp_path / "logs")
    events, report = exported(tmp_path / "logs")
    found = report.results.collectives
    assert found
    tracks = tracks_of(events)
    for device, wait_ps in found.wait_ps.items():
        mine = tracks[device, "collectives"]
        whole = [event for event in mine if "args" in event]
        waits = [event for event in mine if event["name"] == CAUSES["peer"].words]
        assert sum(picoseconds(event)[1] for event in waits) == wait_ps
        assert sum(event["args"]["wait_ps"] for event in whole) == wait_ps
        last = sum(event["args"]["started last"] for event in whole)
        assert last == (found.last_count or {})[device]
        assert len([e for e in mine if e["name"] == "transfer"]) == len(whole) == found.count


def test_arrows_go_from_launches_to_what_they_started(tmp_path: Path) -> None:
    SCENARIOS["B"]().write(tmp_path / "logs")
    trace = traceview.load(tmp_path / "logs")
    events, _ = exported(tmp_path / "logs")
    launched = [event for event in events if event.get("flow_in")]
    launches = {event["bind_id"]: event for event in events if event.get("flow_out")}
    assert launched
    columns = trace.device_columns
    assert len(launched) <= np.count_nonzero(columns.launch >= 0)
    for event in launched:
        assert (
            launches[event["bind_id"]]["args"]["correlation_id"] == event["args"]["correlation_id"]
        )


def test_steps_are_those_of_the_report(fixtures: Path) -> None:
    events, report = exported(fixtures / "custom-loop-2")
    found = report.results.steps
    assert found
    told = [(step.number, step.start_ps, step.duration_ps, step.excluded) for step in found.steps]
    assert told == [
        (e["args"]["number"], *picoseconds(e), e["args"].get("left out of statistics"))
        for e in tracks_of(events)["traceview", "steps"]
    ]


def test_steps_of_several_hosts_have_their_names(tmp_path: Path) -> None:
    SCENARIOS["two_hosts"]().write(tmp_path / "logs")
    events, report = exported(tmp_path / "logs")
    hosts = {window.host for window in report.windows}
    assert len(hosts) == 2
    found = {track for process, track in tracks_of(events) if process == "traceview"}
    assert {f"steps of {host}" for host in hosts} <= found


def test_evidence_stands_at_the_cause_that_it_shows(fixtures: Path) -> None:
    """The first gap of replica:0 is mostly CPU ops, and waits for input too."""
    events, report = exported(fixtures / "custom-loop-2")
    assert report.results.idle
    rows = {gap.start_ps: gap for gap in report.results.idle.devices[0].gaps}
    pieces = tracks_of(events)[report.results.idle.devices[0].device, "idle"]
    shown = [event["args"] for event in pieces if "host event" in event["args"]]
    begin = {event["args"]["gap"]: picoseconds(event)[0] for event in reversed(pieces)}
    known = [(rows[begin[args["gap"]]], args) for args in shown if begin[args["gap"]] in rows]
    assert any(len(gap.causes) > 1 for gap, _ in known)
    for gap, args in known:
        assert args["cause"] == CAUSES[gap.cause].words
        assert args["host event"] == gap.host_event


def test_the_same_run_gives_the_same_bytes(fixtures: Path) -> None:
    def content() -> bytes:
        trace = traceview.load(fixtures / "keras-fit-2")
        scene = drawn(trace, select(trace), traceview.analyze(trace))
        return b"".join(chrome.written(scene))

    assert content() == content()


def test_a_trace_that_begins_before_its_origin(tmp_path: Path) -> None:
    """No viewer shows a negative time."""
    SCENARIOS["B"]().write(tmp_path / "logs")
    trace = traceview.load(tmp_path / "logs")
    scene = drawn(trace, select(trace), traceview.analyze(trace))
    slices_of = scene.processes[1].tracks[0].slices
    slices_of.start_ps[0] = -1_500
    assert scene.shift_ps == 2_000
    first = min(
        nanoseconds(event["ts"])
        for event in json.loads(b"".join(chrome.written(scene)))["traceEvents"]
        if event["ph"] == "X"
    )
    assert first == 0


def test_no_device_is_last_where_one_was_not_recorded(tmp_path: Path) -> None:
    SCENARIOS["missing_worker"]().write(tmp_path / "logs")
    events, _ = exported(tmp_path / "logs")
    every = [
        e for (_, track), mine in tracks_of(events).items() if track == "collectives" for e in mine
    ]
    whole = [event["args"] for event in every if "args" in event]
    assert {"wait_ps" in args for args in whole} == {True, False}
    assert all(("started last" in args) == ("wait_ps" in args) for args in whole)


def test_the_busy_counter_shows_the_busy_share(tmp_path: Path) -> None:
    SCENARIOS["data_parallel"]().write(tmp_path / "logs")
    events, report = exported(tmp_path / "logs")
    processes = names(events, "process")
    assert report.results.device_time
    for row in report.results.device_time.devices:
        percent = [
            event["args"]["busy %"]
            for event in events
            if event["ph"] == "C" and processes[event["pid"]].startswith(row.device)
        ]
        assert len(percent) == BUSY_POINTS + 1
        assert row.busy_ratio
        # Whole percents of spans of equal length, and 0 after the last.
        assert sum(percent) / BUSY_POINTS == pytest.approx(100 * row.busy_ratio, abs=0.2)


def test_a_gap_ends_with_what_was_queued(tmp_path: Path) -> None:
    SCENARIOS["data_parallel"]().write(tmp_path / "logs")
    events, _ = exported(tmp_path / "logs")
    causes: dict[tuple[str, int], list[str]] = defaultdict(list)
    for (process, track), mine in tracks_of(events).items():
        if track == "idle":
            for event in sorted(mine, key=picoseconds):
                causes[process, event["args"]["gap"]].append(event["args"]["cause"])
    queued = {CAUSES[key].words for key in ("peer", "dependency", "latency")}
    first = CAUSES["unattributed"].words
    mixed = [of_gap for of_gap in causes.values() if first in of_gap and queued & set(of_gap)]
    assert mixed
    for of_gap in mixed:
        assert of_gap.index(first) < min(map(of_gap.index, queued & set(of_gap)))
