"""Compares the report of a real capture with its sidecar and its trace; one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import traceview
from tests.capture.conftest import environment_with
from tests.capture.test_placement_real import DRIVER, KINDS, MORE
from tests.capture.test_with_tensorflow import START
from traceview.document import screen as terminal
from traceview.report.document import document_of

pytestmark = pytest.mark.tensorflow

CHOSEN = ("two replicas", "outside the scope", "all on one device", "no graph")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, traceview.Report]:
    folder = tmp_path_factory.mktemp("analyzed")
    kinds = []
    for number, name in enumerate(CHOSEN):
        path = folder / f"train_{number}.py"
        path.write_text(START + MORE + KINDS[name], encoding="utf-8")
        kinds.append((name, str(path)))
    (folder / "kinds.json").write_text(json.dumps(kinds), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        cwd=folder,
        env=environment_with(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert [name for name, _, _ in runs] == list(CHOSEN), done.stderr
    return {name: traceview.analyze(Path(folder / run)) for name, _, run in runs}


def on_a_terminal(report: traceview.Report) -> str:
    """The text of a report, on one line."""
    document = document_of(report, is_brief=True)
    return " ".join(terminal.render(document, width=120, color=False, most_lines=10**6).split())


@pytest.mark.parametrize("name", CHOSEN)
def test_the_sidecar_is_read_whole(name: str, reports: dict[str, traceview.Report]) -> None:
    """No field is of another type than it is read with."""
    report = reports[name]
    assert [problem.code for problem in report.capture.problems] == ["no-gpu-plane"]
    assert report.results.environment is not None
    (host,) = report.results.environment.hosts
    assert host.command.script[0].endswith(".py")
    assert (host.versions.tensorflow or "").startswith("2.")
    assert host.devices.logical == ("/device:CPU:0", "/device:CPU:1")
    assert "options-ignored" not in [finding.code for finding in report.findings]


def test_a_healthy_run(reports: dict[str, traceview.Report]) -> None:
    report = reports["two replicas"]
    text = on_a_terminal(report)
    batch, policy = "batch 16 (8 per replica)", "Keras policy float32"
    for fact in ("MirroredStrategy on 2 replicas", batch, "4 parameters", policy, "TensorFlow 2."):
        assert fact in text


def test_everything_on_one_device_is_reported(reports: dict[str, traceview.Report]) -> None:
    text = on_a_terminal(reports["all on one device"])
    assert "MirroredStrategy in the script, not used by the step" in text
