"""Describes findings in general: the list of all rules, and one rule with its meaning, evidence and advice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import outline
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.phrase import Phrase, phrase, pieces
from traceview.document.vocabulary import Look
from traceview.ledger.states import BY_KEY, State


def explain_list(rules: Iterable[Rule], states: Iterable[Look]) -> doc.Section:
    """Every code with its severities and the moment from which it is reported, and every state."""
    return doc.Section(
        "findings",
        "Findings",
        (
            *doc.notes(*(f"{rule.code} ({severities(rule)}): {rule.start}" for rule in rules)),
            doc.Subheading("States", "what a device does, or what it is idle for"),
            *doc.notes(*(f"{look.key} ({look.words}): {look.meaning}" for look in states)),
            *doc.remarks("`traceview explain CODE` says what one means and what to do."),
        ),
        lead="code, severity, and when it is reported",
    )


def explain_section(rule: Rule) -> doc.Section:
    """A finding: its meaning, limits, evidence and advice."""
    facts = (phrase(f"{label}: ", text) for label, text in entry(rule))
    return doc.Section(rule.code, rule.code, doc.notes(*facts), lead=severities(rule))


def explain_state(state: Look) -> doc.Section:
    """A state of a device: its meaning, and the table that shows it."""
    table, option = table_of(BY_KEY[state.key])
    return doc.Section(
        state.key,
        state.key,
        doc.notes(
            f"Meaning: {state.meaning}",
            f"Letter in charts of a terminal: {state.letter}",
            f"Rows: `traceview show {table} LOGDIR{option}`",
        ),
        lead=state.words,
    )


def entry(rule: Rule) -> Iterator[tuple[str, Phrase]]:
    """The facts of a rule, each with its label; `…` stands for what a finding fills in."""
    yield "Meaning", _joined([rule.meaning])
    if rule.notes:
        yield "May add", _joined(rule.notes.values())
    yield "Reported from", pieces(rule.start)
    if rule.metrics:
        yield "Evidence", pieces(numbers.listed(tuple(rule.metrics.values()), len(rule.metrics)))
    yield "Advice", _joined((rule.action, rule.advice))
    for key, advice in rule.actions.items():
        yield "Advice for JAX" if key == "jax" else "Other advice", _joined(advice)
    yield "Example", pieces(rule.example)
    if rule.explains:
        yield EXPLAINED, pieces(", ".join(code.partition("/")[0] for code in rule.explains))


EXPLAINED = "May explain these, which are no findings of their own then"


def _joined(templates: Iterable[str]) -> Phrase:
    """Sentences as one paragraph, each once."""
    shown = [outline(template) for template in dict.fromkeys(templates) if template]
    return phrase(
        *(part for place, text in enumerate(shown) for part in ((" " if place else ""), text))
    )


def severities(rule: Rule) -> str:
    """`warning or critical`."""
    return numbers.listed(rule.severities).replace(" and ", " or ")


_TABLES: Final[Mapping[State, str]] = {
    State.COMPUTE: "ops",
    State.COMMUNICATION: "collectives",
    State.DEVICE_WAIT: "collectives",
    State.H2D: "copies",
    State.D2H: "copies",
    State.D2D: "copies",
    State.INPUT: "input",
    State.TURN: "balance",
    State.NO_WORK: "devices",
}
"""By state the table of `traceview show` that has the evidence; all other states are of gaps."""


def table_of(state: State) -> tuple[str, str]:
    """The table that shows a state, and the option that chooses it there."""
    table = _TABLES.get(state)
    return (table, "") if table else ("gaps", f" --state {state.key}")
