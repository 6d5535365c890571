"""`analyze` and `show hang` show hangs with and without a trace beside them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.command import Command
from tests.hangs import STEP, hang, worker
from traceview.analysis.machine.hang import content_of, write_up

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "fixtures" / "custom-loop-2"


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
    assert data["hangs"][0]["findings"][0]["code"] == "hang"
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
    assert "hang" in [finding["code"] for finding in report["findings"]]
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
