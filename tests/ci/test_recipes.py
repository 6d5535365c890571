"""The recipes for continuous integration are run with TensorFlow: a healthy training passes, a slow one fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.capture.conftest import environment_with
from tests.ci.action import ROOT, Runner

pytestmark = pytest.mark.tensorflow
LONGEST_S = 500
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
    program = folder / "bin" / "traceview"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m traceview "$@"\n')
    program.chmod(0o755)
    return folder


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={
            **environment_with(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1"),
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )


_MEETS = (0, 9)
"""Three captures on a busy machine may differ too much for a verdict on 5 %."""


@pytest.fixture(scope="module")
def recipe() -> list[str]:
    """The lines of the recipe: capture, save the baseline, judge."""
    lines = block_below(PAGE, "In CI").splitlines()
    assert [line.partition("traceview ")[2].split()[0] for line in lines] == [
        "capture",
        "gate",
        "gate",
    ]
    return lines


@pytest.fixture(scope="module")
def healthy(workspace: Path, recipe: list[str]) -> subprocess.CompletedProcess[str]:
    return run(workspace, "\n".join(recipe))


@pytest.fixture(scope="module")
def ill(
    workspace: Path, recipe: list[str], healthy: subprocess.CompletedProcess[str]
) -> subprocess.CompletedProcess[str]:
    """The same with a slow input pipeline; the baseline stays."""
    capture, _, gate = recipe
    slow = capture.replace("--demo", "--demo --slowdown input").replace(
        "--output logs", "--output slow"
    )
    assert healthy.returncode in _MEETS, healthy.stdout
    return run(workspace, f"{slow}\n{gate.replace('logs-', 'slow-')}")


def test_the_recipe_passes(healthy: subprocess.CompletedProcess[str]) -> None:
    assert healthy.returncode in _MEETS, healthy.stdout
    assert re.search(r"ok +finding:input-bound <= 10%", healthy.stdout)


def test_and_fails_where_the_input_is_slow(
    ill: subprocess.CompletedProcess[str], workspace: Path
) -> None:
    assert ill.returncode == 10, ill.stdout
    assert re.search(r"FAIL +finding:input-bound <= 10%", ill.stdout)
    # Where other work made the captures of a side differ, there is no verdict on the time.
    failed = re.findall(r"FAIL +(?:finding|step_time):", ill.stdout)
    assert len(failed) == 2 or "step_time:+5%: These runs differ too much" in ill.stdout
    assert f"Gate failed: {len(failed)} of 2 conditions" in ill.stdout
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
