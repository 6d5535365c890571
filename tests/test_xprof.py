"""Traceview answers right where XProf is known to answer wrong, and docs/viewers.md shows both answers.

Both read the same generated traces, whose truth is known. The answers of XProf are those of one version.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scripts import xprof_answers
from scripts.readme import ROOT, XPROF_PAGE, with_xprof
from scripts.xprof_answers import (
    PINNED,
    Answers,
    XprofError,
    answers,
    severity,
    statuses,
    step_parts,
    table,
)
from traceview.report.model import Report

NOT_INPUT_BOUND = "NOT input-bound"


@pytest.fixture(scope="module")
def found() -> dict[str, Answers]:
    return answers()


SMALL = ("between", "dependency", "launch", "unknown")
"""States around the launches of the generated traces, which no case is about."""


def parts(report: Report, device: str = "GPU:0") -> dict[str, float]:
    """The states of a device in the first step, in milliseconds; those that no case is about as one."""
    states = step_parts(report, device)
    other = sum(states.pop(state, 0) for state in SMALL)
    return {**states, "other": round(other, 6)}


def severities(report: Report) -> dict[str, str]:
    return {one.code: one.severity for one in report.findings if one.severity != "info"}


@pytest.mark.xprof
def test_a_copies_are_not_compute(found: dict[str, Answers]) -> None:
    ours, xprof = found["A"].report, found["A"].xprof
    assert parts(ours) == {"step": 50, "compute": 10, "h2d": 28, "other": 12}
    assert statuses(ours) == ["active", "empty"]
    assert severities(ours) == {"h2d-exposed": "critical", "unused-gpu": "critical"}
    assert (xprof.step_ms, xprof.compute_ms, xprof.input_ms, xprof.other_ms) == (38, 35, 0, 3)
    assert xprof.verdict == "POTENTIALLY input-bound"


@pytest.mark.xprof
def test_b_copies_between_gpus_are_not_compute(found: dict[str, Answers]) -> None:
    ours, xprof = found["B"].report, found["B"].xprof
    computing = {"step": 50, "compute": 10, "communication": 10}
    assert parts(ours, "GPU:0") == {**computing, "d2d": 12, "other": 18}
    assert parts(ours, "GPU:1") == {**computing, "other": 30}
    assert (xprof.compute_ms, xprof.collectives_ms, xprof.device_to_device_ms) == (22, 10, 0)
    assert (xprof.step_ms, xprof.other_ms) == (38, 6)


@pytest.mark.xprof
def test_c_a_gpu_that_hardly_works_is_seen(found: dict[str, Answers]) -> None:
    ours, xprof = found["C"].report, found["C"].xprof
    assert parts(ours, "GPU:0") == {"step": 50, "compute": 40, "other": 10}
    assert parts(ours, "GPU:1") == {"step": 50, "compute": 5, "no_work": 35, "other": 10}
    assert statuses(ours) == ["active", "marginal"]
    assert severity(ours, "marginal-gpu") == "critical"
    assert (xprof.step_ms, xprof.compute_ms, xprof.other_ms) == (40, 40, 0)
    assert xprof.verdict == NOT_INPUT_BOUND


@pytest.mark.xprof
def test_d_unused_gpus_are_seen(found: dict[str, Answers]) -> None:
    ours, xprof = found["D"].report, found["D"].xprof
    assert parts(ours) == {"step": 50, "compute": 40, "other": 10}
    assert statuses(ours) == ["active", *["empty"] * 7]
    assert severity(ours, "unused-gpu") == "critical"
    # XProf's page is that of C: two GPUs of which one works, or eight.
    same = replace(found["C"].xprof, device_count=8, idle_ms=xprof.idle_ms)
    assert xprof == same


@pytest.mark.xprof
def test_e_streams_are_united(found: dict[str, Answers]) -> None:
    ours, xprof = found["E"].report, found["E"].xprof
    assert parts(ours) == {"step": 50, "compute": 45, "other": 5}
    assert ours.results.device_time is not None
    (row,) = ours.results.device_time.devices
    assert (row.exposed_ps("compute"), row.idle_ps) == (180_000_000_000, 19_900_000_000)
    assert (xprof.compute_ms, xprof.idle_ms) == (45, 0)


@pytest.mark.xprof
def test_f_bfloat16_is_16_bit(found: dict[str, Answers]) -> None:
    ours, xprof = found["F"].report, found["F"].xprof
    assert ours.results.precision is not None
    (row,) = ours.results.precision.devices
    assert row.compute_ps == row.precision_ps["bf16"] == 160_000_000_000
    assert row.tensor_core_ratio == 1
    assert severity(ours, "low-precision-unused") is None
    assert (xprof.compute_16_bit, xprof.advises_16_bit) == ("0.0%", True)


@pytest.mark.xprof
def test_g_a_wait_for_input_is_seen(found: dict[str, Answers]) -> None:
    ours, xprof = found["G"].report, found["G"].xprof
    for device in ("GPU:0", "GPU:1"):
        assert parts(ours, device) == {"step": 50, "compute": 10, "input": 30, "other": 10}
    assert severities(ours) == {"input-bound": "critical"}
    assert (xprof.step_ms, xprof.compute_ms, xprof.input_ms, xprof.other_ms) == (10, 10, 0, 0)
    assert xprof.verdict == NOT_INPUT_BOUND


@pytest.mark.xprof
def test_the_page_has_both_answers(found: dict[str, Answers]) -> None:
    text = XPROF_PAGE.read_text(encoding="utf-8")
    assert with_xprof(text, table(found)) == text, "run python -m scripts.readme"


def test_the_version_that_is_known_is_the_one_that_is_installed_for_the_tests() -> None:
    assert f'"xprof=={PINNED}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("2.25.0", f"XProf 2.25.0 is installed; what is known of XProf is of {PINNED}"),
        (None, "pip"),
    ],
)
def test_another_xprof_is_not_asked(
    version: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xprof_answers, "installed", lambda: version)
    with pytest.raises(XprofError, match=message):
        answers()


def test_a_failure_of_xprof_shows_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text("#!/bin/sh\necho no such wheel >&2\nexit 3\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(XprofError, match="XProf ended with 3:\nno such wheel"):
        xprof_answers._of_xprof(tmp_path)


def test_the_readme_has_one_place_for_the_table() -> None:
    with pytest.raises(ValueError, match="0 places"):
        with_xprof("# traceview\n", "| |")
