"""What a report says to type names its run and its steps, and no placeholder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.scenarios import SCENARIOS
from tests.test_shell_quote import NAMES, read_back
from traceview.analysis.registry import RULES
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.sentences import RunCommands
from traceview.document.markdown import render
from traceview.document.phrase import Phrase, Token, phrase, plain
from traceview.report.build import analyze
from traceview.report.document import document_of, screen_of

PLACEHOLDER = re.compile(r"\bLOGDIR\b|\b[A-Z]:[A-Z]\b|\bFILE\.csv")


def commands_of(sentence: Phrase) -> list[str]:
    return [token.text for token in sentence if token.kind == "code"]


@pytest.mark.parametrize("name", ["slower_gpu", "late_shard", "plain", "sixteen_hosts_of_eight"])
def test_no_report_has_a_placeholder(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = analyze(tmp_path)
    assert PLACEHOLDER.search(render(document_of(report))) is None
    for finding in screen_of(report).findings:
        assert PLACEHOLDER.search(plain(finding.action)) is None


@pytest.mark.parametrize("name", NAMES)
def test_commands_in_advice_name_the_run_in_any_words(name: str, tmp_path: Path) -> None:
    advice = phrase(
        "Look: `traceview show gaps LOGDIR --steps 3:4` and `traceview analyze LOGDIR`."
    )
    for is_only in (True, False):
        commands = RunCommands(name, f"train/{name}", is_only)
        gaps, whole = commands_of(commands.filled(advice))
        run = [] if is_only else ["--run", name]
        (logdir,) = read_back(gaps, tmp_path)[2:3]
        assert read_back(gaps, tmp_path) == ["show", "gaps", logdir, *run, "--steps", "3:4"]
        assert logdir.removeprefix("./") == name
        assert read_back(whole, tmp_path) == ["analyze", logdir, *run]


def test_a_recorded_name_is_no_command() -> None:
    sentence = (Token("traceview show gaps LOGDIR", "name"),)
    assert RunCommands("logs", "run1", is_only=True).filled(sentence) == sentence


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_advice_has_no_placeholder_but_the_log_directory(rule: Rule) -> None:
    texts = [*rule.actions.values(), (rule.action, rule.advice)]
    filled = RunCommands("/logs", "run", is_only=True)
    for text in (text for pair in texts for text in pair):
        assert not PLACEHOLDER.search(plain(filled.filled(phrase(text))))
