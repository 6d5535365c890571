"""Describes findings in general: the list of all rules, and one rule with its meaning, evidence and advice."""

from __future__ import annotations

from collections.abc import Iterable

from traceview.analysis.base import Rule
from traceview.document import model as doc
from traceview.document import numbers


def explain_list(rules: Iterable[Rule]) -> doc.Section:
    """Every code with its severities and the moment from which it is reported."""
    return doc.Section(
        "findings",
        "Findings",
        (
            *doc.notes(*(f"{rule.code} ({_severities(rule)}): {rule.start}" for rule in rules)),
            *doc.remarks("traceview explain CODE says what one means and what to do."),
        ),
        lead="code, severity, and when it is reported",
    )


def explain_section(rule: Rule) -> doc.Section:
    """What a finding means, when it is made, what shows it and what to change."""
    explained = ", ".join(rule.explains)
    return doc.Section(
        rule.code,
        rule.code,
        doc.notes(
            f"Meaning: {rule.meaning}",
            f"Reported from: {rule.start}{_conditions(rule)}",
            f"Evidence: {rule.evidence}",
            f"Advice: {rule.advice}",
            *(f"Advice {case}: {advice}" for case, advice in rule.advice_where.items()),
            f"Advice for JAX: {rule.jax_advice}" if rule.jax_advice else None,
            f"Example: {rule.example}",
            f"May explain these, which are no findings of their own then: {explained}"
            if explained
            else None,
        ),
        lead=_severities(rule),
    )


def _conditions(rule: Rule) -> str:
    """`; where prefetch was recorded, one of: (1) …; (2) …`."""
    if not rule.conditions:
        return ""
    numbered = (f"({place}) {text}" for place, text in enumerate(rule.start_conditions, 1))
    return f"; {rule.conditions_of}: {'; '.join(numbered)}"


def _severities(rule: Rule) -> str:
    return numbers.listed(rule.severities).replace(" and ", " or ")
