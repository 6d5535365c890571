"""The recipes for continuous integration are run with TensorFlow: a healthy training passes, a slow one fails."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.capture.conftest import QUIET, Captured, run_process
from tests.ci.action import ROOT, Runner

pytestmark = pytest.mark.tensorflow
PAGE = ROOT / "docs" / "runs.md"


def block_below(file: Path, heading: str) -> str:
    """The first shell block below a heading."""
    text = file.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    match = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert match is not None, heading
    return match[1]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `traceview` is the one of this checkout."""
    folder = tmp_path_factory.mktemp("ci")
    Runner(folder)
    return folder


def run(folder: Path, script: str) -> Captured:
    environment = QUIET(PATH=f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    script = f"exec 2>&1\n{script}"
    return run_process(
        folder, "bash", "-eo", "pipefail", "-c", script, environment=environment, timeout_s=500
    )


_MEETS = (0, 9)
"""Three captures on a busy machine may differ too much for a verdict on 5 %."""


@pytest.fixture(scope="module")
def recipe() -> list[str]:
    """The lines of the recipe: capture, save the baseline, judge."""
    lines = block_below(PAGE, "In CI").splitlines()
    words = [line.partition("traceview ")[2].split()[0] for line in lines]
    assert words == ["capture", "gate", "gate"]
    return lines


@pytest.fixture(scope="module")
def healthy(workspace: Path, recipe: list[str]) -> Captured:
    done = run(workspace, "\n".join(recipe))
    assert done.code in _MEETS, done.out
    return done


@pytest.fixture(scope="module")
def ill(workspace: Path, recipe: list[str], healthy: Captured) -> Captured:
    """The same with a slow input pipeline; the baseline stays."""
    capture, _, gate = recipe
    slow = capture.replace("--demo", "--demo --slowdown input").replace(
        "--output logs", "--output slow"
    )
    return run(workspace, f"{slow}\n{gate.replace('logs-', 'slow-')}")


def test_the_recipe_passes(healthy: Captured) -> None:
    assert re.search(r"ok +finding:input-bound <= 10%", healthy.out)


def test_and_fails_where_the_input_is_slow(ill: Captured, workspace: Path) -> None:
    assert ill.code == 10, ill.out
    assert re.search(r"FAIL +finding:input-bound <= 10%", ill.out)
    # Where other work made the captures of a side differ, there is no verdict on the time.
    failed = re.findall(r"FAIL +(?:finding|step_time):", ill.out)
    assert len(failed) == 2 or "step_time:+5%: These runs differ too much" in ill.out
    assert f"Gate failed: {len(failed)} of 2 conditions" in ill.out
    suite = ET.parse(workspace / "gate.xml").getroot()[0]
    assert suite.attrib["failures"] == str(len(failed))


def test_the_action_captures_judges_and_comments(tmp_path: Path, workspace: Path) -> None:
    runner = Runner(tmp_path)
    runner.environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    outcome = runner.run(
        capture="--demo --slowdown input --steps 10:16",
        require="finding:input-bound absent\nstate.input_ratio <= 5%",
    )
    assert outcome.code == 10, outcome.printed
    assert "Gate failed: 2 of 2 conditions." in runner.comment_bodies()[0]
    assert (tmp_path / "traceview-report" / "report.html").stat().st_size > 10_000
