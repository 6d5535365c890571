"""Compares the report of a real capture with its sidecar and its trace; one process."""

from __future__ import annotations

import json
import re
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
    assert host.overhead.ratio is not None
    assert host.devices.logical == ("/device:CPU:0", "/device:CPU:1")
    assert "options-ignored" not in [finding.code for finding in report.findings]


def test_a_healthy_run(reports: dict[str, traceview.Report]) -> None:
    report = reports["two replicas"]
    text = on_a_terminal(report)
    batch, policy = "batch 16 (8 per replica)", "Keras policy float32"
    for fact in ("MirroredStrategy on 2 replicas", batch, "4 parameters", policy, "TensorFlow 2."):
        assert fact in text
    assert report.results.placement is not None
    (host,) = report.results.placement.hosts
    assert host.statements == ("replica:0 and replica:1 ran work in all 2 steps",)
    (function,) = host.functions
    assert [
        (row.device, row.variable_count, row.mirrored_count, row.recorded, row.step_count)
        for row in function.devices
    ] == [("CPU:0", 1, 1, "replica:0", 2), ("CPU:1", 1, 1, "replica:1", 2)]


def test_variables_outside_the_scope_are_reported(reports: dict[str, traceview.Report]) -> None:
    placement = reports["outside the scope"].results.placement
    assert placement is not None
    statements = "\n".join(placement.hosts[0].statements)
    assert "1 trainable variable of careless on CPU:0 is not mirrored (loose:0)" in statements


def test_everything_on_one_device_is_reported(reports: dict[str, traceview.Report]) -> None:
    placement = reports["all on one device"].results.placement
    assert placement is not None
    statements = "\n".join(placement.hosts[0].statements)
    assert re.search(r"single places \d+ ops on CPU:1 and none on another device", statements)
    assert "nothing in single shows that it is used" in statements
    text = on_a_terminal(reports["all on one device"])
    assert "MirroredStrategy in the script, not used by the step" in text


def test_without_a_graph_the_reason_is_given(reports: dict[str, traceview.Report]) -> None:
    placement = reports["no graph"].results.placement
    assert placement is not None
    assert placement.hosts[0].functions == ()
    assert "eagerly" in placement.hosts[0].missing["bare"]
    assert "bare: no graph of it was recorded" in on_a_terminal(reports["no graph"])
