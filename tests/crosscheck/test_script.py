"""`python -m scripts.crosscheck` asks XProf about a copy, and says where it cannot."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Protocol

import pytest

from scripts import xprof_answers
from scripts.crosscheck.__main__ import main
from scripts.crosscheck.recount import KNOWN_VERSION
from scripts.readme import XPROF_PAGE, with_xprof
from scripts.scenarios.peers import CASES
from tests.command import Done
from tests.viewers.fake_xprof import VERSION, table, write_fake
from tests.viewers.snapshot import snapshot
from traceview.base.errors import UsageError

PAGES = {
    "overview_page": [table([], [], device_core_count="0", input_conclusion="No step time")],
    "input_pipeline_analyzer": [table(["stepnum", "stepTimeMs"], [["train 3", 4.0]])],
    "kernel_stats": table(["kernel_name"], []),
}


class Crosscheck(Protocol):
    """Runs the script with these arguments."""

    def __call__(self, *arguments: str) -> Done: ...


@pytest.fixture
def crosscheck(capsys: pytest.CaptureFixture[str]) -> Crosscheck:
    def call(*arguments: str) -> Done:
        code = main(arguments)
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def logdir(fixtures: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    shutil.copytree(fixtures / "custom-loop-2", folder)
    return folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_it_asks_about_a_copy(
    crosscheck: Crosscheck,
    logdir: Path,
    temporary: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(write_fake(tmp_path / "fake", PAGES))
    before = snapshot(logdir)
    done = crosscheck(str(logdir))
    assert (done.code, done.err) == (0, "")
    assert f"XProf {VERSION}" in done.out.splitlines()[0]
    assert "devices" in done.out
    assert "flood" not in done.out
    assert snapshot(logdir) == before
    assert list(temporary.iterdir()) == []


def compared(crosscheck: Crosscheck, logdir: Path) -> dict[str, Any]:
    before = snapshot(logdir)
    done = crosscheck(str(logdir), "--json")
    assert (done.code, done.err) == (0, "")
    assert snapshot(logdir) == before
    found: dict[str, Any] = json.loads(done.out)
    assert found["xprof_version"] == KNOWN_VERSION
    return found


@pytest.mark.xprof
@pytest.mark.parametrize("name", CASES)
def test_every_difference_of_the_known_cases_is_explained(
    name: str, crosscheck: Crosscheck, tmp_path: Path
) -> None:
    CASES[name]().write(tmp_path / "logs")
    rows = compared(crosscheck, tmp_path / "logs")["rows"]
    known = [row["metric"] for row in rows if row["status"] == "known"]
    assert known == (["half_ratio"] if name == "F" else [])
    assert {row["status"] for row in rows} <= {"same", "reproduced", "known"}
    reasons = {code for row in rows for code in row["reasons"]}
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
def test_recorded_runs(name: str, crosscheck: Crosscheck, fixtures: Path, tmp_path: Path) -> None:
    shutil.copytree(fixtures / name, tmp_path / "logs")
    rows = compared(crosscheck, tmp_path / "logs")["rows"]
    assert {row["status"] for row in rows} <= {"same", "reproduced", "known"}
    steps = [row for row in rows if row["metric"] in ("step_ps", "step_count")]
    assert {row["status"] for row in steps} <= {"same", "reproduced"}


@pytest.mark.xprof
@pytest.mark.shared
@pytest.mark.parametrize("name", ["bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8"])
def test_real_gpu_traces(name: str, crosscheck: Crosscheck, shared_traces: Path) -> None:
    rows = compared(crosscheck, shared_traces / name)["rows"]
    assert {row["status"] for row in rows} <= {"same", "reproduced", "known"}
    kernels = [row for row in rows if row["metric"].startswith("kernel")]
    assert len(kernels) > 8
    assert {row["status"] for row in kernels} <= {"same", "reproduced"}


@pytest.mark.xprof
def test_the_page_has_both_answers() -> None:
    """Traceview answers right where XProf is known to answer wrong."""
    text = XPROF_PAGE.read_text(encoding="utf-8")
    table = xprof_answers.table(xprof_answers.answers())
    assert with_xprof(text, table) == text, "run python -m scripts.readme"


def test_another_xprof_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xprof_answers, "installed_version", lambda: "2.25.0")
    with pytest.raises(UsageError, match=f"what is known of XProf is of {KNOWN_VERSION}"):
        xprof_answers.answers()
