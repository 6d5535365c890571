"""What a report says to type names its run and its steps, and no placeholder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.scenarios import SCENARIOS
from tests.test_shell_quote import NAMES, read_back
from traceview.analysis.base import Rule
from traceview.analysis.registry import RULES
from traceview.analysis.run_commands import RunCommands
from traceview.document.code_in_prose import commands_in
from traceview.document.markdown import render
from traceview.report.build import analyze
from traceview.report.document import document_of
from traceview.report.screen import screen_of

PLACEHOLDER = re.compile(r"\bLOGDIR\b|\b[A-Z]:[A-Z]\b|\bFILE\.csv")


@pytest.mark.parametrize("name", ["slower_gpu", "late_shard", "plain", "sixteen_hosts_of_eight"])
def test_no_report_has_a_placeholder(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = analyze(tmp_path)
    assert PLACEHOLDER.search(render(document_of(report))) is None
    for finding in screen_of(report).findings:
        assert not any(map(PLACEHOLDER.search, finding.actions))


@pytest.mark.parametrize("name", NAMES)
def test_commands_in_advice_name_the_run_in_any_words(name: str, tmp_path: Path) -> None:
    advice = "Look at it: traceview gaps LOGDIR --steps 3:4 shows why, and traceview input LOGDIR."
    for is_only in (True, False):
        filled = RunCommands(name, f"train/{name}", is_only).filled(advice)
        assert filled.isprintable()
        gaps, of_input = (filled[begin:end] for begin, end in commands_in(filled))
        run = [] if is_only else ["--run", name]
        assert read_back(gaps, tmp_path) == ["gaps", f"./{name}", *run, "--steps", "3:4"]
        assert read_back(of_input, tmp_path) == ["input", f"./{name}", *run]


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_advice_has_no_placeholder_but_the_log_directory(rule: Rule) -> None:
    advice = (rule.advice, *rule.advice_where.values(), rule.jax_advice)
    filled = RunCommands("/logs", "run", is_only=True)
    assert not [text for text in map(filled.filled, advice) if PLACEHOLDER.search(text)]
