"""What there is to read of each rule leaves nothing out, and what a report says to type names its run and its steps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.scenarios import SCENARIOS
from traceview.analysis.registry import RULES
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.sentences import RunCommands
from traceview.document.markdown import render
from traceview.document.phrase import phrase, plain
from traceview.document.terminal import render_section
from traceview.document.vocabulary import STATES
from traceview.report.build import analyze
from traceview.report.document import document_of, entry, explain_list, screen_of


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_list_has_every_code_with_an_example(width: int) -> None:
    section = explain_list(RULES.values(), STATES.values())
    text = render_section(section, width=width, color=False)
    words = " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width
    assert all(f"{code}: {rule.example}.".replace("`", "") in words for code, rule in RULES.items())
    assert "input: The next batch was not ready" in words
    assert "between (between steps): The host was" in words


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_what_there_is_to_say_of_a_rule_has_no_placeholder(rule: Rule) -> None:
    said = dict(entry(rule))
    for text in map(plain, said.values()):
        assert text.strip()
        assert not re.search(r"[{}]|\[[ ,]", text), text
    assert {"Meaning", "Reported from", "Advice", "Example"} <= said.keys()


def test_advice_stands_by_what_a_finding_says() -> None:
    """What excludes each other has conditions: those of titles, notes, or names of what is meant."""
    said = {label: plain(text) for label, text in entry(RULES["host-op-in-step"])}
    printing = said["Where it says “spend … in tf.print inside the step”"]
    assert printing.startswith("Take tf.print out of the step function")
    assert " With JAX: Return the values" in printing
    labels = {label for rule in RULES.values() for label, _ in entry(rule)}
    assert "In case of tf.data.experimental.enable_debug_mode" in labels
    launches = [label for label, _ in entry(RULES["launch-bound"])]
    first = launches.index("Advice")
    assert launches[first + 1] == "Advice with JAX"


# Commands


PLACEHOLDER = re.compile(r"\bLOGDIR\b|\b[A-Z]:[A-Z]\b|\bFILE\.csv")


@pytest.mark.parametrize("name", ["late_shard", "sixteen_hosts_of_eight"])
def test_no_report_has_a_placeholder(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = analyze(tmp_path)
    assert PLACEHOLDER.search(render(document_of(report))) is None
    for finding in screen_of(report).findings:
        assert PLACEHOLDER.search(plain(finding.action)) is None


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_advice_has_no_placeholder_but_the_log_directory(rule: Rule) -> None:
    texts = map(rule.advised, (*rule.actions, ""))
    filled = RunCommands("/logs", "run", is_only=True)
    for text in (text for pair in texts for text in pair):
        assert not PLACEHOLDER.search(plain(filled.filled(phrase(text))))
