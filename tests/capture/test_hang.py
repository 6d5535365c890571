"""The watch for hangs, without TensorFlow: each hang has one report, and a script is never disturbed."""

from __future__ import annotations

import faulthandler
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scripts.xspace import XSpace
from tests.capture.conftest import Capture
from tests.capture.fake_tensorflow import SCRIPT_START
from traceview.base.stack_dump import FILE_PREFIX
from traceview.capture.hang import peers as peers_module
from traceview.capture.hang.fallback import Fallback
from traceview.capture.hang.peers import Peers
from traceview.capture.hang.recorded import recorded_collectives, with_recorded
from traceview.capture.hang.threads import described, look, native_groups, python_threads
from traceview.capture.hang.watch import HangSettings, HangWatch, WrittenHang
from traceview.capture.process.python_code import CodePlaces
from traceview.capture.record.settings import Settings
from traceview.capture.record.step_watch import StepWatch
from traceview.capture.window.ranges import StepRange

LOOP = """
import time
for number in range(8):
    train_step(number)
    if number == 3: time.sleep({seconds})
"""


def reports(folder: Path) -> list[dict[str, Any]]:
    paths = sorted(folder.glob("plugins/profile/*/*.hang*.json"))
    return [json.loads(path.read_text("utf-8")) for path in paths]


def test_a_pause_is_reported_once_and_the_report_is_completed(capture: Capture) -> None:
    done = capture(SCRIPT_START + LOOP.format(seconds=3), "--on-hang", "1s", "--steps", "5:7")
    assert done.code == 0
    (report,) = reports(done.logdir)
    assert (report["step_count"], report["state"]) == (4, "went-on")
    assert 2.5 < report["total_ns"] / 1e9 < 6
    assert report["findings"][0]["code"] == "hang-python"
    assert "training went on after 3 s" in done.err
    # The trace follows into the run of the report.
    assert sorted(path.suffix for path in done.run.iterdir()) == [".json", ".json", ".md", ".pb"]
    assert sorted(path.name for path in done.logdir.iterdir()) == ["plugins"]


def test_each_pause_has_its_report_also_after_the_window(capture: Capture) -> None:
    script = LOOP.format(seconds=2.5).replace("number == 3", "number in (4, 6)")
    done = capture(SCRIPT_START + script, "--on-hang", "1s", "--steps", "1:2")
    assert done.code == 0
    assert [(report["step_count"], report["state"]) for report in reports(done.logdir)] == [
        (5, "went-on"),
        (7, "went-on"),
    ]


def test_a_script_that_ends_in_a_pause_completes_its_report(capture: Capture) -> None:
    script = (
        SCRIPT_START
        + "train_step(0)\ntrain_step(1)\nimport time; time.sleep(2.5); raise SystemExit(7)"
    )
    done = capture(script, "--on-hang", "1s", "--steps", "5:7")
    assert done.code == 7
    (report,) = reports(done.logdir)
    assert (report["step_count"], report["state"]) == (2, "ended")


def test_without_a_pause_there_is_no_report(capture: Capture) -> None:
    done = capture(SCRIPT_START + LOOP.format(seconds=0), "--on-hang", "20s", "--steps", "5:7")
    assert done.code == 0
    assert reports(done.logdir) == []
    assert sorted(path.name for path in done.logdir.iterdir()) == ["plugins"]


def test_a_time_that_is_none_is_refused(capture: Capture) -> None:
    done = capture(SCRIPT_START, "--on-hang", "soon")
    assert done.code == 2
    assert "--on-hang soon: not a duration" in done.err


def test_a_report_that_takes_long_does_not_look_as_if_no_python_could_run(tmp_path: Path) -> None:
    def write_up(_facts: object) -> WrittenHang:
        time.sleep(1.2)
        return WrittenHang({".json": b"{}"}, [])

    steps = StepWatch(Settings(tmp_path, StepRange(10, 15)), print)
    watch = HangWatch(HangSettings(0.5, write_up), steps, print)
    watch.start()
    try:
        end_s = time.monotonic() + 20
        while not any(tmp_path.rglob("*.hang.json")) and time.monotonic() < end_s:
            time.sleep(0.05)
        time.sleep(0.2)
        stacks = [path.read_text() for path in tmp_path.glob(f"{FILE_PREFIX}*")]
    finally:
        watch.stop()
    assert any(tmp_path.rglob("*.hang.json"))
    assert stacks == [""]


# Threads


def test_two_looks_show_who_computes(tmp_path: Path) -> None:
    places = CodePlaces([tmp_path])
    first = look(places)
    end_s = time.monotonic() + 0.3
    while time.monotonic() < end_s:
        pass
    facts = described(first, look(places))
    main = facts["threads"][0]
    assert main["is_main"]
    assert main["wait"] == "computing"
    assert main["computing_ratio"] > 0
    assert main["is_moving"]
    assert sum(group["count"] for group in facts["native"]) >= 1


def test_a_stack_has_no_frames_of_the_capture(tmp_path: Path) -> None:
    main = next(python_threads(CodePlaces([tmp_path])))
    assert main.frames[0].startswith("test_hang.py:")
    assert not [line for line in main.frames if "traceview/capture" in line]


def test_groups_of_threads_have_those_first_that_compute() -> None:
    from traceview.capture.hang.threads import KernelThread

    kernel = {
        1: KernelThread("a", "lock", 0),
        2: KernelThread("b", "computing", 10),
        3: KernelThread("a", "poll", 0),
    }
    groups = native_groups(kernel, {1: 0, 2: 5, 3: 0}, 10)
    assert [(g["name"], g["count"], g["computing_ratio"]) for g in groups] == [
        ("b", 1, 0.5),
        ("a", 2, 0.0),
    ]
    assert groups[1]["waits"] == {"lock": 1, "poll": 1}


# Where no Python can run


def test_the_timer_fires_only_where_it_is_not_armed_again(tmp_path: Path) -> None:
    fallback = Fallback(tmp_path, 0.5)
    fallback.open()
    try:
        for _ in range(4):
            fallback.arm()
            time.sleep(0.2)
        assert fallback.text() == ""
        fallback.arm()
        time.sleep(0.8)
        assert "test_the_timer_fires_only" in fallback.text()
        fallback.clear()
        assert fallback.text() == ""
    finally:
        fallback.close()
    assert list(tmp_path.iterdir()) == []


def test_a_script_keeps_the_timer_that_it_uses(tmp_path: Path) -> None:
    original = faulthandler.dump_traceback_later
    fallback = Fallback(tmp_path, 0.2)
    fallback.open()
    fallback.arm()
    with (tmp_path / "own.txt").open("w") as file:
        faulthandler.dump_traceback_later(0.3, file=file)
        fallback.arm()
        time.sleep(0.7)
        fallback.close()
    assert "Timeout" in (tmp_path / "own.txt").read_text()
    assert faulthandler.dump_traceback_later is original


def test_empty_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    import socket

    host = socket.gethostname()
    names = [f"{host}-999999999-a", f"{host}-{os.getpid()}-a", "elsewhere-999999999-a"]
    names.append(f"{host}-²-a")
    for name in names:
        (tmp_path / f"{FILE_PREFIX}{name}.txt").touch()
    kept = tmp_path / f"{FILE_PREFIX}{host}-999999998-a.txt"
    kept.write_text("stacks")
    fallback = Fallback(tmp_path, 9)
    fallback.open()
    fallback.close()
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([kept.name, *(f"{FILE_PREFIX}{name}.txt" for name in names[1:])])


# Workers


CLUSTER = {"cluster": {"worker": ["a:1", "b:1", "c:1"]}}


def peers(folder: Path, index: int) -> Peers:
    found = Peers(folder, StepRange(10, 15), 5.0, print)
    config = json.dumps({**CLUSTER, "task": {"type": "worker", "index": index}})
    assert found.find({"TF_CONFIG": config})
    return found


def beat(**changes: Any) -> dict[str, Any]:
    plain = {
        "is_ended": False,
        "is_in_step": False,
        "step_count": 42,
        "waited_ns": 9,
        "line": "train.py:50 in save",
    }
    return {**plain, **changes}


def test_workers_read_what_the_others_write(tmp_path: Path) -> None:
    peers(tmp_path, 1).write(beat())
    peers(tmp_path, 2).write(beat(is_in_step=True, line=None))
    first = peers(tmp_path, 0)
    first.write(beat())
    one, two = first.read()
    assert (one["task"], one["state"], one["step_count"]) == ("worker 1", "elsewhere", 42)
    assert one["line"] == "train.py:50 in save"
    assert (two["task"], two["state"], two["line"]) == ("worker 2", "in-step", None)
    peers(tmp_path, 1).write(beat(is_ended=True))
    assert first.read()[0]["state"] == "ended"


def test_a_worker_that_writes_no_more_is_silent(tmp_path: Path) -> None:
    peers(tmp_path, 1).write(beat())
    (path,) = tmp_path.rglob("beat-w1.json")
    first = peers(tmp_path, 0)
    first.write(beat())
    for seconds, state in ((10, "elsewhere"), (20, "silent")):
        moment = time.time() - seconds
        os.utime(path, (moment, moment))
        worker, never = first.read()
        assert worker["state"] == state
        assert worker["silent_ns"] == pytest.approx(seconds * 1e9, rel=0.1)
        assert never["state"] == "unknown"


def test_many_workers_that_are_gone_do_not_hold_the_report_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s = 0.0

    def ask(_task: object) -> bool:
        nonlocal clock_s
        clock_s += 2
        return False

    addresses = [f"host{number}:1" for number in range(31)]
    task = {"type": "worker", "index": 0}
    found = Peers(tmp_path, StepRange(10, 15), 5.0, print)
    assert found.find({
        "TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})
    })  # fmt: skip
    monkeypatch.setattr(peers_module, "time", SimpleNamespace(monotonic=lambda: clock_s))
    monkeypatch.setattr(peers_module, "_is_answering", ask)
    answers = [worker["is_answering"] for worker in found.read()]
    assert answers == [False] * 5 + [None] * 25


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"host": 1}', "x" * 100])
def test_a_damaged_file_of_a_worker_is_as_none(text: str, tmp_path: Path) -> None:
    peers(tmp_path, 1).write(beat())
    (path,) = tmp_path.rglob("beat-w1.json")
    path.write_text(text, encoding="utf-8")
    assert peers(tmp_path, 0).read()[0]["state"] == "unknown"


def test_a_process_alone_has_no_peers(tmp_path: Path) -> None:
    found = Peers(tmp_path, StepRange(10, 15), 5.0, print)
    assert not found.find({})
    found.write(beat())
    assert found.read() == []
    assert list(tmp_path.iterdir()) == []


# Collectives in a profile


def recorded(folder: Path) -> Path:
    """Two steps of an all-reduce of two devices; in the third step the second device does not come."""
    space = XSpace()
    plane = space.planes.add(name=b"/host:CPU")
    names = {
        1: b"CollectiveOpV2Kernel::Run",
        2: b"CollectiveExecutor::ExecuteAsync::Done",
        3: b"Reduce:CollectiveReduceV2",
        4: b"Reduce_1:CollectiveReduceV2",
        5: b"train",
    }
    stats = {
        1: b"name",
        2: b"_p",
        3: b"_c",
        4: b"group_key",
        5: b"instance_key",
        6: b"Reduce",
        7: b"Reduce_1",
    }
    for number, name in names.items():
        plane.event_metadata[number].id = number
        plane.event_metadata[number].name = name
    for number, name in stats.items():
        plane.stat_metadata[number].id = number
        plane.stat_metadata[number].name = name
    line = plane.lines.add(id=1)
    for step in range(3):
        for device in range(1 if step == 2 else 2):
            begun = line.events.add(metadata_id=1)
            begun.stats.add(metadata_id=1, ref_value=6 + device)
            begun.stats.add(metadata_id=2, int64_value=10 * step + device)
            if step < 2:
                ended = line.events.add(metadata_id=2)
                ended.stats.add(metadata_id=3, int64_value=10 * step + device)
                op = line.events.add(metadata_id=3 + device)
                op.stats.add(metadata_id=4, int64_value=7)
                op.stats.add(metadata_id=5, int64_value=100 + step)
    path = folder / "node.xplane.pb"
    path.write_bytes(space.SerializeToString())
    return path


def test_the_device_that_did_not_come_is_in_the_profile(tmp_path: Path) -> None:
    found = recorded_collectives(recorded(tmp_path))
    assert found.begun == ("Reduce",)
    assert found.together == ((7, frozenset({"Reduce", "Reduce_1"})),)
    graph = [
        {
            "op": name,
            "type": "CollectiveReduceV2",
            "device": device,
            "group_key": None,
            "instance_key": None,
        }
        for name, device in (("Reduce", "GPU:0"), ("call/Reduce_1", "GPU:1"), ("Other", "GPU:0"))
    ]
    rows = with_recorded(graph, found)
    assert [(row["op"], row["has_come"]) for row in rows] == [
        ("Reduce", True),
        ("call/Reduce_1", False),
        ("Other", None),
    ]
    assert rows[1]["group_key"] == 7


def test_collectives_that_ended_are_not_open(fixtures: Path) -> None:
    (path,) = (fixtures / "custom-loop-2").rglob("*.xplane.pb")
    assert recorded_collectives(path).begun == ()
