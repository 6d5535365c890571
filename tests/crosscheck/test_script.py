"""`python -m scripts.crosscheck` asks XProf about a copy, and says where it cannot."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scripts.crosscheck.__main__ import compared, main
from scripts.crosscheck.comparison import Compared
from scripts.crosscheck.recount import KNOWN_VERSION
from scripts.scenarios.peers import CASES
from tests.viewers.fake_xprof import VERSION, table, write_fake
from tests.viewers.snapshot import snapshot

PAGES = {
    "overview_page": [table([], [], device_core_count="0", input_conclusion="No step time")],
    "input_pipeline_analyzer": [table(["stepnum", "stepTimeMs"], [["train 3", 4.0]])],
    "kernel_stats": table(["kernel_name"], []),
}


def test_it_asks_about_a_copy(
    fixtures: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    logdir, temporary = tmp_path / "logs", tmp_path / "temporary"
    shutil.copytree(fixtures / "custom-loop-2", logdir)
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.syspath_prepend(write_fake(tmp_path / "fake", PAGES))
    before = snapshot(logdir)
    assert main([str(logdir)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert f"XProf {VERSION}" in out.splitlines()[0]
    assert "devices" in out
    assert "flood" not in out
    assert snapshot(logdir) == before
    assert list(temporary.iterdir()) == []


def checked(logdir: Path) -> list[Compared]:
    """The rows of a comparison, each of which is explained."""
    before = snapshot(logdir)
    _, version, rows = compared(str(logdir), None, 10)
    assert version == KNOWN_VERSION
    assert snapshot(logdir) == before
    assert {row.status for row in rows} <= {"same", "reproduced", "known"}
    return rows


@pytest.mark.xprof
@pytest.mark.parametrize("name", CASES)
def test_every_difference_of_the_known_cases_is_explained(name: str, tmp_path: Path) -> None:
    CASES[name]().write(tmp_path / "logs")
    rows = checked(tmp_path / "logs")
    known = [row.metric for row in rows if row.status == "known"]
    assert known == (["half_ratio"] if name == "F" else [])
    reasons = {code for row in rows for code in row.reasons}
    telling = {
        "A": "copies-by-name",
        "B": "copies-by-name",
        "C": "merges-devices",
        "D": "merges-devices",
        "E": "sums-streams",
        "F": "names-of-shapes",
        "G": "no-host-waits",
    }
    assert {"device-span", telling[name]} <= reasons


@pytest.mark.xprof
@pytest.mark.parametrize("name", ["slow-input-2", "plain-1", "keras-fit-2", "no-markers-2"])
def test_recorded_runs(name: str, fixtures: Path, tmp_path: Path) -> None:
    shutil.copytree(fixtures / name, tmp_path / "logs")
    rows = checked(tmp_path / "logs")
    steps = [row for row in rows if row.metric in ("step_ps", "step_count")]
    assert {row.status for row in steps} <= {"same", "reproduced"}


@pytest.mark.xprof
@pytest.mark.shared
@pytest.mark.parametrize("name", ["bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8"])
def test_real_gpu_traces(name: str, shared_traces: Path) -> None:
    rows = checked(shared_traces / name)
    kernels = [row for row in rows if row.metric.startswith("kernel")]
    assert len(kernels) > 8
    assert {row.status for row in kernels} <= {"same", "reproduced"}
