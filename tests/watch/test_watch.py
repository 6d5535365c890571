"""Each run that lands gets one line, when it is whole; alarms, metrics and the state say the same."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.capture.conftest import ROOT, started
from tests.command import Command, Done
from tests.reports import finding, full_report
from traceview.base.errors import UsageError
from traceview.cli.commands import watch as watch_module
from traceview.cli.output import write_file
from traceview.comparison.noise import DEVICE_SPREAD, Difference, step_change, step_levels
from traceview.report.model import Report
from traceview.watch import follow
from traceview.watch.follow import (
    LEAST_RATIO,
    Follower,
    OnFinding,
    Unreadable,
    change_words,
    metrics_text,
    noise_of,
    run_commands,
)

pytestmark = pytest.mark.usefixtures("no_terminal")
HOSTILE = 'GPU:0 waits "$(touch hit)"; `touch hit`\n\x1b[2J\\ \udc80'


def land(logs: Path, fixture: str, run: str, host: str = "host-a") -> Path:
    """Put the trace of a fixture into a run of a log directory."""
    folder = logs / "plugins" / "profile" / run
    folder.mkdir(parents=True, exist_ok=True)
    (source,) = (ROOT / "fixtures" / fixture).rglob("*.xplane.pb")
    return Path(shutil.copy(source, folder / f"{host}.xplane.pb"))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory with one run, of a slow input pipeline."""
    land(tmp_path / "logs", "slow-input-2", "2026_01_01_00_00_00")
    return tmp_path / "logs"


def once(command: Command, logs: Path, *options: str) -> Done:
    return command("watch", str(logs), "--once", "--every", "10ms", *options)


def begun(logs: Path) -> Follower:
    follower = Follower("logs", logs, None, 5)
    follower.begin()
    return follower


def news(follower: Follower) -> list[str]:
    """The runs of one look: those read, with what is said of them, and those that cannot be."""
    return [
        f"{item.run} unreadable"
        if isinstance(item, Unreadable)
        else item.report.source.run + (" history" * item.is_history)
        for item in follower.look()
    ]


# One line for a run


def test_a_line(command: Command, logs: Path) -> None:
    done = once(command, logs)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "2026_01_01_00_00_00 · mean step 58.2 ms · 28% computing · Both replicas wait 35.3 of 58.2 ms (61%) "
        "for input: Map is too slow, most of it PyFunc.\n"
    )
    land(logs, "slow-input-2", "2026_01_02_00_00_00")
    land(logs, "custom-loop-2", "2026_01_03_00_00_00")
    lines = once(command, logs).out.splitlines()
    names = [line.split(" · ")[0] for line in lines]
    assert names == [f"2026_01_0{day}_00_00_00" for day in (1, 2, 3)]
    assert " · no verdict: the run before cannot prove a change · " in lines[1]
    assert re.search(r" · takes 9\d% less time than the last 2 runs · ", lines[2])


def test_only_runs_of_one_program_on_alike_devices_are_compared(
    command: Command, logs: Path
) -> None:
    """Runs on four replicas are no history of one on two."""
    for day in (2, 3, 4, 5):
        land(logs, "keras-fit-4", f"2026_01_0{day}_00_00_00")
    land(logs, "keras-fit-2", "2026_01_06_00_00_00")
    *_, of_four, of_two = once(command, logs).out.splitlines()
    assert " the last 3 runs" in of_four
    assert "the last" not in of_two


def test_each_run_is_reported_once(logs: Path) -> None:
    follower = begun(logs)
    assert news(follower) == ["2026_01_01_00_00_00 history"]
    assert news(follower) == []
    land(logs, "keras-fit-2", "2026_01_02_00_00_00")
    assert news(follower) == []
    assert news(follower) == ["2026_01_02_00_00_00"]
    land(logs, "keras-fit-4", "2026_01_02_00_00_00", "host-b")
    assert [news(follower), news(follower)] == [[], ["2026_01_02_00_00_00"]]
    shutil.rmtree(logs / "plugins" / "profile" / "2026_01_02_00_00_00")
    assert news(follower) == []
    assert list(follower.memory.seen) == ["2026_01_01_00_00_00"]


def test_a_file_that_grows_is_waited_for(logs: Path) -> None:
    follower = begun(logs)
    assert len(news(follower)) == 1
    file = land(logs, "keras-fit-2", "2026_01_02_00_00_00")
    whole = file.read_bytes()
    for size in (0, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        # It has stopped growing for a while, but is not whole.
        assert [news(follower), news(follower)] == [[], []]
        assert follower.incomplete == ["2026_01_02_00_00_00"]
    file.write_bytes(whole)
    assert [news(follower), news(follower)] == [[], ["2026_01_02_00_00_00"]]
    assert follower.incomplete == []


def pass_time(path: Path, seconds: float) -> None:
    """Let a file be as old."""
    written_s = time.time() - seconds
    os.utime(path, (written_s, written_s))


def test_a_file_that_stays_incomplete_beside_another_is_reported_once(logs: Path) -> None:
    follower = begun(logs)
    name = "2026_01_02_00_00_00"
    file, other = (land(logs, "keras-fit-2", name, host) for host in ("host-a", "host-b"))
    whole = file.read_bytes()
    file.write_bytes(whole[:1000])
    assert [news(follower), news(follower)] == [["2026_01_01_00_00_00 history"], []]
    pass_time(file, 1000)
    assert news(follower) == []
    pass_time(other, 121)
    assert [news(follower), news(follower)] == [[name], []]
    # It grows after all.
    file.write_bytes(whole)
    assert [news(follower), news(follower)] == [[], [name]]


def test_what_stays_incomplete_is_said_with_what_reads_it(
    command: Command, logs: Path, tmp_path: Path
) -> None:
    """Also by calls from cron, which know of each other by the state only."""
    cut = land(logs, "keras-fit-2", "it's cut")
    cut.write_bytes(cut.read_bytes()[:-1000])
    options = ("--state", str(tmp_path / "state.json"))
    for seconds in (0, 110):
        pass_time(cut, seconds)
        done = once(command, logs, *options)
        assert done.err == "traceview: it's cut is not complete yet\n"
    pass_time(cut, 121)
    said = once(command, logs, *options).err
    why = "its files have not grown for two minutes"
    assert said.startswith(f"traceview: it's cut stays unreadable: {why}; {cut}: byte ")
    _, _, salvage = said.partition("What is readable of it: ")
    assert once(command, logs, *options).err == ""
    done = command(*shlex.split(salvage)[1:])
    assert (done.code, "damaged" in done.out) == (0, True)


def test_a_full_disk_does_not_end_the_watch(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its files are written again when there is room; each trouble is said once."""
    is_full = False

    def written(path: Path, parts: list[bytes]) -> None:
        if is_full:
            raise UsageError(f"cannot write {path}: No space left on device")
        write_file(path, parts)

    monkeypatch.setattr(watch_module, "write_file", written)
    prometheus, state = tmp_path / "x.prom", tmp_path / "state.json"
    outputs = watch_module._Watch([begun(logs)], (), prometheus, state, {}, None, is_once=False)

    def look() -> tuple[int, list[str]]:
        outputs.look()
        done = capsys.readouterr()
        return len(done.out.splitlines()), done.err.splitlines()

    assert look() == (1, [])
    before = prometheus.read_bytes(), state.read_bytes()
    is_full = True
    land(logs, "custom-loop-2", "2026_01_02_00_00_00")
    assert look() == (0, [])
    said = [
        f"traceview: cannot write {path}: No space left on device; trying again"
        for path in (prometheus, state)
    ]
    assert look() == (1, said)
    assert look() == (0, [])
    assert (prometheus.read_bytes(), state.read_bytes()) == before
    is_full = False
    assert look() == (0, [])
    assert b"2026_01_02_00_00_00" in prometheus.read_bytes()
    assert b"2026_01_02_00_00_00" in state.read_bytes()
    assert look() == (0, [])


def test_a_state_goes_on_where_the_last_call_ended(
    command: Command, logs: Path, tmp_path: Path
) -> None:
    state = ("--state", str(tmp_path / "state.json"))
    assert [len(once(command, logs, *state).out.splitlines()) for _ in range(2)] == [1, 0]
    land(logs, "slow-input-2", "2026_01_02_00_00_00")
    (line,) = once(command, logs, *state).out.splitlines()
    assert "no verdict: the run before cannot prove a change · " in line
    (tmp_path / "state.json").write_text("{}[]")
    done = once(command, logs, *state)
    assert (done.code, "not a state of traceview watch" in done.err) == (4, True)


# Alarms


def job_of(report: Report, name: str = "job", logdir: str = "logs") -> Follower:
    """A job whose newest run has this report."""
    job = Follower(name, Path(logdir), None, 5)
    job.report = report
    return job


def report_of(title: str = "GPU:0 waits", run: str = "run") -> Report:
    """A report of this run, with one finding, `input-bound`, of this title."""
    made = full_report()
    bound = finding(code="input-bound", severity="critical", title=title)
    source = replace(made.source, run=run)
    return replace(made, source=source, findings=(bound,))


def test_a_command_runs_on_its_finding_only(command: Command, logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "alarms"
    say = f'echo "$TRACEVIEW_RUN $TRACEVIEW_FINDING $TRACEVIEW_SEVERITY $TRACEVIEW_STEP_SECONDS" >> {out}'
    pairs = ("--on-finding", "INPUT-BOUND", say, "--on-finding", "d2h-sync", say)
    assert once(command, logs, *pairs).code == 0
    assert out.read_text() == "2026_01_01_00_00_00 input-bound critical 0.066959623\n"


def test_no_text_of_a_trace_becomes_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    say = OnFinding(
        "input-bound", 'printf %s "$TRACEVIEW_TITLE|$TRACEVIEW_RUN|$TRACEVIEW_LOGDIR" > out'
    )
    report = report_of(HOSTILE, HOSTILE + "\0")
    assert list(run_commands((say,), job_of(report, "job", HOSTILE), report)) == []
    said = (tmp_path / "out").read_text()
    assert said.count("touch hit") == 6
    assert "\n" not in said
    assert "\x1b" not in said
    assert not (tmp_path / "hit").exists()


def test_a_command_that_hangs_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "PATIENCE_S", 0.3)
    alarm = OnFinding("input-bound", f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    (wrong,) = run_commands((alarm,), job_of(report_of()), report_of())
    assert "took longer than 0.3 s and was ended" in wrong
    status = Path(f"/proc/{int((tmp_path / 'pid').read_text())}/stat")
    deadline = time.monotonic() + 60
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Metrics


def test_metrics_of_the_newest_run(command: Command, logs: Path, tmp_path: Path) -> None:
    file = tmp_path / "traceview.prom"
    assert once(command, logs, "--prometheus", str(file)).code == 0
    lines = file.read_text(encoding="utf-8").splitlines()
    place = f'job="logs",logdir="{logs}"'
    assert f"traceview_step_time_seconds{{{place}}} 0.066959623" in lines
    assert f'traceview_run_info{{{place},run="2026_01_01_00_00_00"}} 1.0' in lines
    assert f'traceview_finding{{{place},code="input-bound",severity="critical"}} 1.0' in lines
    assert f'traceview_verdict{{{place},status="problem"}} 1.0' in lines
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    states = [float(values[key]) for key in values if key.startswith("traceview_state_ratio")]
    assert sum(states) == pytest.approx(1)
    key = f'traceview_state_ratio{{{place},state="compute"}}'
    assert values[key] == values[f"traceview_compute_ratio{{{place}}}"]
    assert not any("step_time_change" in line for line in lines)
    # The same again, over the own file.
    assert once(command, logs, "--prometheus", str(file)).code == 0
    assert sorted(tmp_path.iterdir()) == [logs, file]


def test_no_other_file_is_replaced_by_metrics(command: Command, logs: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.prom").write_text("# HELP mine")
    done = once(command, logs, "--prometheus", str(tmp_path / "mine.prom"))
    assert (done.code, "no file of metrics by traceview" in done.err) == (6, True)
    assert (tmp_path / "mine.prom").read_text() == "# HELP mine"


def test_labels_are_escaped() -> None:
    text = metrics_text([job_of(report_of(run='a"b'), HOSTILE)])
    label = r'job="GPU:0 waits \"$(touch hit)\"; `touch hit`\\n\\x1b[2J\\ \\udc80"'
    assert "\x1b" not in text
    assert f'traceview_run_info{{{label},logdir="logs",run="a\\"b"}} 1.0\n' in text
    sample = re.compile(r'traceview_\w+\{(?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)+\} [-+.e\d]+')
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert samples
    assert all(sample.fullmatch(line) for line in samples)
    assert len({line.rpartition(" ")[0] for line in samples}) == len(samples)


def test_several_log_directories_are_jobs(command: Command, logs: Path, tmp_path: Path) -> None:
    """Each has its own runs before; lines, variables, metrics and the state tell them apart."""
    other, out, file = tmp_path / "b" / "logs", tmp_path / "alarms", tmp_path / "x.prom"
    land(other, "keras-fit-2", "2026_01_02_00_00_00")
    watch = ("watch", str(logs), f"eval={other}", "--once", "--every", "10ms")
    options = ("--prometheus", str(file), "--state", str(tmp_path / "state.json"))
    say = ("--on-finding", "input-bound", f'echo "$TRACEVIEW_JOB $TRACEVIEW_RUN" >> {out}')
    first, second = command(*watch, *options, *say).out.splitlines()
    assert first.startswith("logs: 2026_01_01_00_00_00 · mean step 58.2 ms")
    assert second.startswith("eval: 2026_01_02_00_00_00 · ")
    assert "the run before" not in second
    assert out.read_text() == "logs 2026_01_01_00_00_00\n"
    lines = file.read_text().splitlines()
    assert sum(line.startswith("# TYPE traceview_step_time_seconds ") for line in lines) == 1
    of_steps = [line for line in lines if line.startswith("traceview_step_time_seconds{")]
    assert [re.findall(r'job="(\w+)"', line) for line in of_steps] == [["logs"], ["eval"]]
    # What one call does not watch stays in the state.
    assert command("watch", str(logs), "--once", "--every", "10ms", *options[2:]).out == ""
    assert command(*watch, *options[2:]).out == ""
    done = command("watch", str(logs), str(other), "--once")
    assert (done.code, "two log directories are called logs" in done.err) == (2, True)


def test_once_reports_the_jobs_beside_one_that_is_not_there(
    command: Command, logs: Path, tmp_path: Path
) -> None:
    """For cron no other call comes that would."""
    state = tmp_path / "state.json"
    options = ("--once", "--every", "10ms", "--state", str(state))
    gone = [f"{name}={tmp_path / name}" for name in ("gone", "lost")]
    done = command("watch", *gone, str(logs), *options)
    assert done.code == 3
    assert done.out.startswith("logs: 2026_01_01_00_00_00 · mean step 58.2 ms")
    assert [name in done.err for name in ("gone: no such", "lost: no such")] == [True, True]
    # One that is away for a call is known to the next.
    moved = logs.rename(tmp_path / "moved")
    assert command("watch", *gone, str(logs), *options).out == ""
    moved.rename(logs)
    done = command("watch", gone[0], str(logs), *options)
    assert (done.code, done.out) == (3, "")


# As a process


@pytest.fixture
def watching(logs: Path) -> Iterator[subprocess.Popen[str]]:
    command = (sys.executable, "-m", "traceview", "watch", logs, "--every", "50ms")
    with started(ROOT, *command) as process:
        yield process


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGINT, 130, "traceview: interrupted\n"), (signal.SIGTERM, 143, "")],
)
def test_lines_come_until_a_signal_ends_it(
    watching: subprocess.Popen[str], logs: Path, number: signal.Signals, code: int, said: str
) -> None:
    assert watching.stdout is not None
    assert watching.stdout.readline().startswith("2026_01_01_00_00_00 · ")
    land(logs, "keras-fit-2", "2026_01_02_00_00_00")
    assert watching.stdout.readline().startswith("2026_01_02_00_00_00 · ")
    watching.send_signal(number)
    out, err = watching.communicate(timeout=60)
    assert (watching.returncode, out, err) == (code, "", said)


# The change against the runs before


def since(*captures: np.ndarray[Any, Any]) -> Difference:
    """How the step of the last of these runs differs from that of the others."""
    *before, run = map(step_levels, captures)
    change = step_change(before, [run], DEVICE_SPREAD)
    assert change is not None
    return change


def test_a_few_long_steps_leave_the_typical_step_as_it_was() -> None:
    steps = np.arange(100.0, 112.0)
    longer = np.where(np.arange(12) == 5, 900.0, steps)
    words = change_words(since(steps, steps, steps, longer), 3)
    assert words.startswith("typical step as the last 3 runs (within ")
    every_third = np.where(np.arange(12) % 3, steps, 4 * steps)
    words = change_words(since(steps, steps, steps, every_third), 3)
    assert words == "takes 99% more time than the last 3 runs"


@pytest.mark.parametrize("slow", [1.0, 2.0, 2.5, 4.0])
@pytest.mark.parametrize("step", [0.9, 1.0, 1.1])
def test_a_change_is_longer_than_its_noise_if_it_is_shown(slow: float, step: float) -> None:
    """A slow step moves the mean, and thus the change, out of the middle of the interval of the typical one."""
    steps = np.arange(100.0, 112.0)
    after = np.where(np.arange(12) == 5, slow, step) * steps
    change = since(steps, steps, after)
    is_shown = change.direction != "none" and abs(change.value) > LEAST_RATIO
    assert is_shown == (abs(change.value) > noise_of(change)), change


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        ((10, 10, 10, 12), "takes 20% more time than the last 3 runs"),
        ((10, 10, 10, 10.1), "as the last 3 runs (within 2.0%)"),
        ((10, 40), "takes 4 times as long as the run before"),
        ((10, 10, 10, 9), "takes 10% less time than the last 3 runs"),
        ((9, 10, 11, 12), "no verdict: the last 3 runs cannot prove a change below "),
        ((10, 10.1, 10.2), "no verdict: the last 2 runs cannot prove a change below "),
    ],
)
def test_a_change_in_words(lengths: tuple[float, ...], text: str) -> None:
    random = np.random.default_rng(4)
    # Ten steps that hardly vary.
    change = since(*(length * (1 + 1e-5 * random.normal(size=10)) for length in lengths))
    assert change_words(change, len(lengths) - 1).startswith(text)
