"""For any path that the user gives, the right run is read, or an error says what is there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from scripts.cuda_trace import PROFILE_START_NS, CudaTrace
from scripts.scenarios.model import marked_steps, ms
from traceview import TraceFormatError, TraceNotFoundError, load
from traceview.trace.model import Trace
from traceview.trace.reading.load import load as load_trace
from traceview.trace.reading.locate import find_runs

SECOND_NS = 1_000_000_000


def recording(
    host: str = "host0", *, start_ns: int | None = PROFILE_START_NS, gpus: int = 1
) -> CudaTrace:
    """Four steps with one kernel on each GPU; runs are told apart by how many GPUs they have."""
    trace = CudaTrace(host, start_ns=start_ns)
    for step in marked_steps(trace):
        for ordinal in range(gpus):
            step.kernel(ordinal, 2, 42)
    return trace


def problems(trace: Trace) -> list[tuple[str, str | None]]:
    return [(problem.code, problem.host) for problem in trace.problems]


# Where


@pytest.mark.parametrize(
    "given",
    [
        "my logs/fit",
        "my logs/fit/train",
        "my logs/fit/train/plugins",
        "my logs/fit/train/plugins/profile",
        "my logs/fit/train/plugins/profile/run1",
        "my logs/fit/train/plugins/profile/run1/host0.xplane.pb",
        "my logs/../my logs/fit/",
    ],
)
@pytest.mark.parametrize("relative", [True, False])
def test_every_form_of_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, relative: bool
) -> None:
    written = recording().write(tmp_path / "my logs/fit/train")
    monkeypatch.chdir(tmp_path)
    path = Path(given) if relative else tmp_path / given
    for form in (path, str(path)):
        trace = load(form)
        assert [file.name for file in trace.files] == [written.name]
        assert trace.run.rpartition("/")[2] == "run1"
        assert trace.device_columns.count == 4
        assert trace.logdir.resolve() == tmp_path / "my logs/fit/train"


# Which run


def test_log_directories_below_one_path(tmp_path: Path) -> None:
    """Workers that wrote one file name into directories of their own are runs of their own."""
    recording(gpus=1).write(tmp_path / "worker_0")
    recording(start_ns=PROFILE_START_NS + 1, gpus=2).write(tmp_path / "worker_1")
    trace = load(tmp_path)
    assert (trace.run, trace.other_runs) == ("worker_1/run1", ("worker_0/run1",))
    assert len(trace.device_list) == 2
    assert trace.logdir == tmp_path / "worker_1"
    assert len(load(tmp_path, run="worker_0/run1").device_list) == 1
    for name, said in (("run1", "several runs called 'run1'"), ("x", "no run called 'x'")):
        with pytest.raises(TraceNotFoundError, match=said) as caught:
            load(tmp_path, run=name)
        assert caught.value.hint == "available runs: worker_0/run1, worker_1/run1"


# Nothing there


@pytest.mark.parametrize(
    ("file", "hint"),
    [
        (None, "give the log directory"),
        ("x/host0.op_stats_v2.pb", "a viewer made host0.op_stats_v2.pb from a trace"),
        ("x/host0.xplane.riegeli", "continuous-profiling container"),
        ("x/events.out.tfevents.1.host0.profile-empty", "the trace itself is missing"),
        (".traceview-killed/host0.traceview.json", ".traceview-killed belongs to a capture"),
        (".traceview-cluster-1/task.json", "give the log directory"),
        ("x/notes.txt", "give the log directory"),
    ],
)
def test_no_trace_there(tmp_path: Path, file: str | None, hint: str) -> None:
    if file:
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).touch()
    with pytest.raises(TraceNotFoundError) as caught:
        load(tmp_path)
    assert "no *.xplane.pb" in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["nowhere", "nowhere/host0.xplane.pb", "file.txt/deeper"])
def test_a_path_that_does_not_exist(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.txt").touch()
    with pytest.raises(TraceNotFoundError, match="no such file or directory"):
        load(tmp_path / name)


needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are none here")


@needs_pipes
@pytest.mark.parametrize("name", ["host1.xplane.pb", "pipe"])
def test_only_regular_files_count(tmp_path: Path, name: str) -> None:
    """A pipe would be waited for until someone writes into it."""
    folder = recording().write(tmp_path / "logs").parent
    os.mkfifo(folder / name)
    assert [file.name for file in load(tmp_path).files] == ["host0.xplane.pb"]
    with pytest.raises(TraceNotFoundError, match="not a file or directory that can hold a trace"):
        load(folder / name)


# Links, copies, damage


@pytest.mark.parametrize("beside", [True, False])
def test_a_link_to_nothing(tmp_path: Path, beside: bool) -> None:
    path = recording().write(tmp_path)
    path.with_name("gone.xplane.pb").symlink_to(tmp_path / "gone")
    if beside:
        trace = load(tmp_path)
        assert problems(trace) == [("damaged-file", "gone")]
        assert "no such file" in trace.problems[0].recorded
        assert [host.name for host in trace.hosts] == ["host0"]
    else:
        path.unlink()
        with pytest.raises(TraceNotFoundError, match=r"gone\.xplane\.pb: no such file"):
            load(tmp_path)


def three_runs(folder: Path) -> list[Path]:
    return [
        recording(start_ns=PROFILE_START_NS + n * SECOND_NS).write(folder, f"run{n}")
        for n in range(3)
    ]


def test_the_newest_run_that_can_be_read_is_taken(tmp_path: Path) -> None:
    paths = three_runs(tmp_path)
    assert load(tmp_path).run == "run2"
    damaged(paths[2])
    assert load(tmp_path).run == "run1"
    paths[1].write_bytes(b"<html>")
    assert load(tmp_path).run == "run0"
    damaged(paths[0])
    assert load(tmp_path, salvage=True).run == "run2"
    with pytest.raises(TraceFormatError, match="run1"):
        load(tmp_path, run="run1")


def test_runs_are_as_old_as_their_numbers_say(tmp_path: Path) -> None:
    three_runs(tmp_path)
    recording(start_ns=PROFILE_START_NS).write(tmp_path, "run10")
    assert load(tmp_path).run == "run10"
    assert [run.name for run in find_runs(tmp_path)] == ["run0", "run1", "run2", "run10"]


def damaged(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-1])
    return path


def test_a_host_of_which_nothing_is_readable_is_named(tmp_path: Path) -> None:
    path = recording("host0").write(tmp_path)
    path.with_name("host1.xplane.pb").write_bytes(b"\x1f\x8b gzip")
    trace = load(tmp_path)
    assert problems(trace) == [("damaged-file", "host1")]
    assert trace.problems[0].sentence == "not readable: not a trace: gzip data"
    assert [(file.name, file.sha256 is None) for file in trace.files] == [
        ("host0.xplane.pb", False),
        ("host1.xplane.pb", True),
    ]


def test_all_damaged_is_an_error_unless_salvage_is_asked_for(tmp_path: Path) -> None:
    for number in (0, 1):
        damaged(recording(f"host{number}", gpus=1 + number).write(tmp_path))
    with pytest.raises(TraceFormatError, match=r"host0\.xplane\.pb: byte \d+: ") as caught:
        load(tmp_path)
    assert "--salvage" in (caught.value.hint or "")
    trace = load(tmp_path, salvage=True)
    assert problems(trace) == [("damaged-file", "host0"), ("damaged-file", "host1")]
    assert trace.device_columns.count == 12


@pytest.mark.parametrize("content", [b"", b"A" * 2])
def test_nothing_is_readable_even_with_salvage(content: bytes, tmp_path: Path) -> None:
    recording().write(tmp_path).write_bytes(content)
    for salvage in (True, False):
        with pytest.raises(TraceFormatError) as caught:
            load(tmp_path, salvage=salvage)
        assert "--salvage" not in (caught.value.hint or "")


# Clocks


@pytest.mark.parametrize("start_ns", [None, PROFILE_START_NS + 60 * 86_400 * SECOND_NS])
def test_a_host_without_a_start_that_can_be_keeps_its_own_clock_and_is_named(
    start_ns: int | None, tmp_path: Path
) -> None:
    """Nobody recorded months apart."""
    recording("host0", start_ns=PROFILE_START_NS).write(tmp_path)
    recording("host1", start_ns=start_ns).write(tmp_path)
    recording("host2", start_ns=PROFILE_START_NS + 5).write(tmp_path)
    trace = load(tmp_path)
    assert problems(trace) == [("unaligned-clock", "host1")]
    columns = trace.device_columns
    first = [int(columns.start_ps[columns.rows_of(device)][0]) for device in range(3)]
    assert first == [1_000_000 + ms(2), 1_000_000 + ms(2), 1_005_000 + ms(2)]


def test_digests_of_files_are_made_where_they_are_needed(tmp_path: Path) -> None:
    path = recording().write(tmp_path)
    assert [file.sha256 for file in load_trace(tmp_path, with_digests=False).files] == [""]
    shutil.copyfile(path, path.with_name("host1.xplane.pb"))
    files = load_trace(tmp_path, with_digests=False).files
    assert [(file.duplicate_of, len(file.sha256 or "")) for file in files] == [
        (None, 64),
        ("host0.xplane.pb", 64),
    ]
