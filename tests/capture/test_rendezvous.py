from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.capture.conftest import Capture
from tests.capture.fake_tensorflow import SCRIPT_START
from traceview.base.errors import UsageError
from traceview.capture.record import destination as module
from traceview.capture.record.capture import Capture as OfProcess
from traceview.capture.record.destination import Destination, Rendezvous, RunChoice, run_name
from traceview.capture.record.settings import Settings
from traceview.capture.sidecar.environment import Place, Task, place_of
from traceview.capture.window.step_window import StepRange
from traceview.trace.reading.locate import find_runs

WINDOW = StepRange(10, 15)
ADDRESSES = ["a:1", "b:1", "c:1"]
LONG_S = 60.0
"""How long the processes of most tests run when they capture."""


def config(index: int, addresses: Sequence[str] = ADDRESSES) -> str:
    task = {"type": "worker", "index": index}
    return json.dumps({"cluster": {"worker": list(addresses)}, "task": task})


def place(index: int, addresses: Sequence[str] = ADDRESSES) -> Place:
    found = place_of({"TF_CONFIG": config(index, addresses)})
    assert found is not None
    return found


def meet(
    out: Path, index: int, *, addresses: Sequence[str] = ADDRESSES, age_s: float = LONG_S
) -> Rendezvous:
    rendezvous = Rendezvous(out, place(index, addresses), WINDOW)
    return rendezvous.join(Destination(out).new_run, age_s)


def runs(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "plugins" / "profile").iterdir())


def made(out: Path) -> Path:
    (path,) = (path for path in out.glob(".traceview-cluster-*/*") if path.name.isdecimal())
    return path


def aged(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_workers_meet_in_one_run(tmp_path: Path) -> None:
    first = meet(tmp_path, 1)
    assert first.absent() == (Task("worker", 0), Task("worker", 2))
    meetings = [first, meet(tmp_path, 2)]
    assert [str(task) for task in first.absent()] == ["worker 0"]
    meetings.append(meet(tmp_path, 0))
    assert first.absent() == ()
    assert {meeting.run for meeting in meetings} == {*runs(tmp_path)}
    assert len(runs(tmp_path)) == 1


def test_a_killed_job_is_not_joined_by_the_next(tmp_path: Path) -> None:
    """Worker 0 was killed before it came to its window, so that its place is free."""
    killed = meet(tmp_path, 1).run
    aged(made(tmp_path), 10)
    restarted = [meet(tmp_path, index, age_s=5).run for index in (0, 1)]
    assert restarted[0] == restarted[1] != killed
    (tmp_path / "other").mkdir()
    begun = meet(tmp_path / "other", 1).run
    aged(made(tmp_path / "other"), 10)
    assert meet(tmp_path / "other", 0, age_s=11).run == begun


def test_an_old_capture_is_not_joined(tmp_path: Path) -> None:
    old = meet(tmp_path, 1).run
    aged(made(tmp_path), module._LONGEST_APART_S + 5)
    assert meet(tmp_path, 0, age_s=1e6).run != old


def test_one_that_starts_all_at_once(tmp_path: Path) -> None:
    """Twelve workers, five captures, each as soon as the one before is done in all: no run too many."""
    addresses = [f"host:{port}" for port in range(12)]
    together = threading.Barrier(len(addresses))

    def worker(index: int) -> list[str]:
        found = []
        for _ in range(5):
            together.wait()
            found.append(meet(tmp_path, index, addresses=addresses).run)
        return found

    with ThreadPoolExecutor(len(addresses)) as pool:
        found = list(pool.map(worker, range(len(addresses))))
    assert all(row == found[0] for row in found)
    assert sorted(found[0]) == runs(tmp_path)
    assert len(runs(tmp_path)) == 5


# Who takes part


@pytest.mark.parametrize(
    ("cluster", "role", "index", "label", "partners"),
    [
        ({"worker": ["a", "b"]}, "worker", 1, "w1", ["worker 0", "worker 1"]),
        ({"worker": {"3": "a", "5": "b"}}, "worker", 5, "w5", ["worker 3", "worker 5"]),
        ({"chief": ["a"], "worker": ["b"]}, "chief", 0, "chief0", ["chief 0", "worker 0"]),
        ({"chief": ["a"], "worker": ["b"]}, "evaluator", 0, "evaluator0", []),
        ({"chief": ["a"], "ps": ["c"], "worker": ["b"]}, "chief", 0, "chief0", []),
        ({"a/../b": ["a", "b"]}, "a/../b", 0, "a----b0", ["a/../b 0", "a/../b 1"]),
        ({"worker": ["a", "b"]}, "worker", 2, "w2", []),
    ],
)
def test_who_makes_the_same_steps(
    cluster: object, role: str, index: object, label: str, partners: list[str]
) -> None:
    text = json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})
    found = place_of({"TF_CONFIG": text})
    assert found is not None
    assert found.task.label == label
    assert [str(task) for task in found.partners] == partners


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"cluster": {}}',
        '{"cluster": {"worker": 3}, "task": {"type": "worker", "index": 0}}',
        '{"cluster": {"worker": ["a", "b"]}, "task": {"type": "worker", "index": "x"}}',
        '{"cluster": {"worker": ["a", "b"]}, "task": {"type": "worker", "index": -1}}',
        config(0, ["alone:1"]),
    ],
)
def test_one_process_alone(text: str) -> None:
    assert place_of({"TF_CONFIG": text}) is None


# The run and the name of one capture


def choice(out: Path) -> tuple[RunChoice, list[str]]:
    said: list[str] = []
    return RunChoice(Destination(out), None, said.append), said


def test_a_report_before_the_window_is_in_the_run_of_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(tmp_path, WINDOW)
    monkeypatch.setenv("TF_CONFIG", config(0))
    said: list[str] = []
    reported = OfProcess(settings, said.append).report_place()[0]
    monkeypatch.setenv("TF_CONFIG", config(1))
    other, said_by_other = choice(tmp_path)
    other.settle(settings.steps)
    assert (other.run, said, said_by_other) == (reported.name, [], [])


def test_a_folder_in_which_nobody_can_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", config(1))
    in_the_way = Rendezvous(tmp_path, place(1), WINDOW).folder
    in_the_way.touch()
    lonely, said = choice(tmp_path)
    lonely.settle(WINDOW)
    assert (lonely.run, lonely.suffix) == (None, "_w1")
    assert len(said) == 1
    assert said[0].startswith(f"note: {in_the_way}: File exists; this capture gets its own run")


def test_a_capture_that_failed_leaves_no_empty_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", config(1))
    failed, _ = choice(tmp_path)
    failed.settle(WINDOW)
    (tmp_path / "plugins" / "profile" / str(failed.run) / "trace").touch()
    failed.abandon()
    assert len(runs(tmp_path)) == 1
    (tmp_path / "plugins" / "profile" / str(failed.run) / "trace").unlink()
    failed.abandon()
    assert runs(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    ["", " ", " a", "a/b", "/a", "..", "../a", ".hidden", "a\\b", "a\nb", "\udcff", "é" * 101],
)
def test_names_that_are_no_folder(name: str) -> None:
    assert run_name("größer-2 a.b") == "größer-2 a.b"
    with pytest.raises(UsageError, match=r"^run "):
        run_name(name)


# What others make of the files


def test_the_rendezvous_is_no_capture_and_no_run(tmp_path: Path) -> None:
    run = meet(tmp_path, 0).run
    trace = tmp_path / "plugins" / "profile" / run / "node_w0.xplane.pb"
    trace.write_bytes(b"")
    made(tmp_path).with_name("odd.xplane.pb").write_bytes(b"")
    assert [found.paths for found in find_runs(tmp_path)] == [(trace,)]
    assert list(tmp_path.glob(".traceview-incomplete-*")) == []


# The whole of it, with a TensorFlow that trains nothing

LOOP = SCRIPT_START + "for number in batches(30): train_step(number)\n"


def test_a_run_that_is_named(capture: Capture, tmp_path: Path) -> None:
    first = capture(LOOP, "--run", "mine")
    second = capture(LOOP, "--run", "mine", environment={"TF_CONFIG": config(1)})
    assert (first.code, second.code) == (0, 0)
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["plugins"]
    assert first.run == second.run == tmp_path / "logs" / "plugins" / "profile" / "mine"
    names = sorted(path.name for path in first.run.glob("*.pb"))
    assert names == ["fake-host.xplane.pb", "fake-host_w1.xplane.pb"]


def test_a_worker_whose_partner_is_not_captured(capture: Capture) -> None:
    set_in_script = f"import os\nos.environ['TF_CONFIG'] = {config(0, ADDRESSES[:2])!r}\n"
    done = capture(set_in_script + LOOP)
    assert done.code == 0
    assert "note: worker 1 did not join this run" in done.err
    assert [path.name for path in done.run.glob("*.pb")] == ["fake-host_w0.xplane.pb"]
    again = capture(set_in_script + LOOP)
    assert again.run != done.run
