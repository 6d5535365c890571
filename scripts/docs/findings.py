"""Writes docs/findings.md: the meaning of each finding, from when on it is made, and what to do, from its rule."""

from __future__ import annotations

from traceview.analysis.registry import RULES
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import outline
from traceview.document.markdown import prose
from traceview.report.document import entry, severities

_HEAD = """\
# Findings

A finding names one cause: what it costs, the evidence, and what to change. [How it is ranked](method.md#findings-and-their-loss).
Each entry says what it means, when it is reported, what to do first. `traceview explain CODE` prints an example and
all advice, by case. A finding that another one explains is not reported on its own.
"""
_END = "This page is made from the rules in the code by `python -m scripts.docs`."


def page() -> str:
    """The whole page: the codes, then an entry for each."""
    blocks = [_HEAD, *map(_entry, RULES.values()), _END]
    return "\n\n".join(block.strip() for block in blocks) + "\n"


def _entry(rule: Rule) -> str:
    said = {label: prose(text) for label, text in entry(rule)}
    fixed = f" ({severities(rule)})" if rule.severity else ""
    action = prose(outline(rule.action))
    facts = [f"- **From**{fixed}: {said['Reported from']}", f"- **Do**: {action}"]
    if rule.explains:
        links = ", ".join(
            f"[{code}](#{code})" for code, _, _ in (each.partition("/") for each in rule.explains)
        )
        facts.append(f"- **Explains**: {links}")
    return "\n\n".join([f"## {rule.code}", said["Meaning"], "\n".join(facts)])
