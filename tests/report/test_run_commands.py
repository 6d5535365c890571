"""What a report says to type names its run and its steps, and no placeholder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.scenarios import SCENARIOS
from traceview.analysis.registry import RULES
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.sentences import RunCommands
from traceview.document.markdown import render
from traceview.document.phrase import Token, phrase, plain
from traceview.report.build import analyze
from traceview.report.document import document_of, screen_of

PLACEHOLDER = re.compile(r"\bLOGDIR\b|\b[A-Z]:[A-Z]\b|\bFILE\.csv")


@pytest.mark.parametrize("name", ["slower_gpu", "late_shard", "plain", "sixteen_hosts_of_eight"])
def test_no_report_has_a_placeholder(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = analyze(tmp_path)
    assert PLACEHOLDER.search(render(document_of(report))) is None
    for finding in screen_of(report).findings:
        assert PLACEHOLDER.search(plain(finding.action)) is None


def test_a_recorded_name_is_no_command() -> None:
    sentence = (Token("traceview show gaps LOGDIR", "name"),)
    assert RunCommands("logs", "run1", is_only=True).filled(sentence) == sentence


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_advice_has_no_placeholder_but_the_log_directory(rule: Rule) -> None:
    texts = map(rule.advised, (*rule.actions, ""))
    filled = RunCommands("/logs", "run", is_only=True)
    for text in (text for pair in texts for text in pair):
        assert not PLACEHOLDER.search(plain(filled.filled(phrase(text))))
