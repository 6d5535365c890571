"""Describes findings in general: the list of all rules, and one rule with its meaning, evidence and advice."""

from __future__ import annotations

from collections.abc import Iterable

from traceview.analysis.base import Rule
from traceview.document.model import Section, notes, remarks


def explain_list(rules: Iterable[Rule]) -> Section:
    """Every code with its severities and the moment from which it is reported."""
    return Section(
        "findings",
        "Findings",
        (
            *notes(*(f"{rule.code} ({_severities(rule)}): {rule.start}" for rule in rules)),
            *remarks("traceview explain CODE says what one means and what to do."),
        ),
        lead="code, severity, and from when on it is reported",
    )


def explain_section(rule: Rule) -> Section:
    """What a finding means, from when on it is made, what shows it and what to change."""
    explained = ", ".join(rule.explains)
    return Section(
        rule.code,
        rule.code,
        notes(
            f"Meaning: {rule.meaning}",
            f"Reported from: {rule.start}",
            f"Evidence: {rule.evidence}",
            f"Advice: {rule.advice}",
            f"Example: {rule.example}",
            f"Explains, so these are no findings of their own: {explained}" if explained else None,
        ),
        lead=_severities(rule),
    )


def _severities(rule: Rule) -> str:
    return " or ".join(rule.severities)
