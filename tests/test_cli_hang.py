"""`analyze` shows hangs with and without a trace beside them, and `show hang PID` shows a running process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import Command
from tests.hangs import STEP, hang, worker
from traceview.analysis.machine.hang.section import content_of, write_up

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "fixtures" / "custom-loop-2"

PY_SPY = """#!{python}
import json, sys
pid = int(sys.argv[sys.argv.index("--pid") + 1])
frames = [
    {{"name": "Reader.read", "filename": "{folder}/train.py", "line": 3}},
    {{"name": "<module>", "filename": "{folder}/train.py", "line": 5}},
]
main = {{"thread_name": "MainThread", "os_thread_id": pid, "frames": frames}}
print(json.dumps([{{"thread_name": "traceview-hang", "os_thread_id": 1, "frames": []}}, main]))
"""


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    case = hang(STEP, task="worker 0", workers=(worker(),))
    (folder / "gpu1.hang.json").write_bytes(write_up(content_of(case))[0][".json"])


def test_a_hang_without_a_trace_is_shown(tmp_path: Path, command: Command) -> None:
    write(tmp_path / "logs" / "plugins" / "profile" / "run")
    shown = command("analyze", str(tmp_path / "logs"), "--width", "160")
    assert "No step has ended for 60 s since step 41 ended at 08:00:00 UTC." in shown.out
    assert "worker 1 did not reach a collective" in shown.out
    data = json.loads(command("analyze", str(tmp_path / "logs"), "--format", "json").out)
    assert data["hangs"][0]["findings"][0]["code"] == "hang-step"
    redacted = command("analyze", str(tmp_path / "logs"), "--redact").out
    assert "worker 1 did not reach a collective" in redacted
    assert "write_summary" not in redacted
    assert "gpu1" not in redacted


def test_a_hang_beside_a_trace_is_a_finding_of_its_report(tmp_path: Path, command: Command) -> None:
    run = tmp_path / "run"
    shutil.copytree(RUN, run)
    (trace,) = run.rglob("*.xplane.pb")
    write(trace.parent)
    report = json.loads(command("analyze", str(run), "--format", "json").out)
    assert "hang-step" in [finding["code"] for finding in report["findings"]]
    assert report["results"]["hangs"]["hangs"][0]["step_function"] == "train_step"
    full = command("analyze", str(run), "--full", "--width", "160").out
    assert "No step has ended for 60 s since step 41 ended" in full
    (trace.parent / "gpu1.hang.json").write_text("{}", encoding="utf-8")
    damaged = json.loads(command("analyze", str(run), "--format", "json").out)
    assert "hang-unreadable" in [problem["code"] for problem in damaged["capture"]["problems"]]


def test_without_trace_and_hang_the_error_is_that_of_the_trace(
    tmp_path: Path, command: Command
) -> None:
    shown = command("analyze", str(tmp_path))
    assert shown.code == 3
    assert "no *.xplane.pb below it" in shown.err


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits."""
    config = json.dumps(
        {
            "cluster": {"worker": ["a:1", "127.0.0.1:1", "b:²"]},
            "task": {"type": "worker", "index": 0},
        }
    )
    started = subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"],
        stdout=subprocess.PIPE,
        env={**os.environ, "TF_CONFIG": config},
    )
    assert started.stdout is not None
    started.stdout.readline()
    yield started
    started.kill()
    started.wait()
    started.stdout.close()


def test_a_process_is_seen_from_outside(
    process: subprocess.Popen[bytes],
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    shown = command("show", "hang", str(process.pid), "--width", "160").out
    assert f"Process {process.pid}" in shown
    assert "whether steps end is not known" in shown
    assert "1 × sleeps" in shown
    assert "pip install py-spy" in shown
    assert "worker 1  it does not answer" in shown
    assert "worker 2  where it is, is not known" in shown


def test_with_py_spy_it_has_stacks(
    process: subprocess.Popen[bytes],
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    tool = tmp_path / "py-spy"
    tool.write_text(PY_SPY.format(python=sys.executable, folder=Path.cwd()), encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    data = json.loads(command("show", "hang", str(process.pid), "--format", "json").out)
    (seen,) = data["hangs"]
    (main,) = seen["threads"]
    assert main["frames"] == ["train.py:3 in read", "train.py:5 in <module>"]
    assert (main["user_line"], main["wait"]) == ("train.py:3 in read", "sleep")
    assert seen["findings"] == []


def test_no_such_process_is_a_usage_error(command: Command) -> None:
    shown = command("show", "hang", "999999999")
    assert shown.code == 2
    assert "no such process" in shown.err
