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



@pytest.fixture(scope="module")
def found() -> dict[str, Answers]:
    return answers()






















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


