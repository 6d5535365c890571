"""Writes docs/findings.md: the meaning of each finding from its rule, and an example from a trace."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from scripts.docs.words import table, words
from scripts.scenarios import SCENARIOS
from traceview.analysis.base import Rule
from traceview.analysis.registry import RULES
from traceview.document import numbers
from traceview.document.markdown import plain, prose
from traceview.document.model import Finding, Findings
from traceview.document.vocabulary import SEVERITIES
from traceview.errors import TraceviewError
from traceview.report.build import analyze
from traceview.report.document import document_of

FIXTURES = Path(__file__).resolve().parent.parent.parent / "fixtures"

_HEAD = """\
# Findings

A finding names one cause: what it costs, how certain that is, the evidence, and what to change. The cost is the time that
each step loses. Costs overlap, so they do not add up. *Confidence* is high if the trace records the cause, medium if the
cause is inferred, low if there is little evidence. Findings about idle time and collectives
with low confidence are info, whatever severity is listed; so are those about collectives between replicas on one CPU, which
share its cores. `traceview explain CODE` prints an entry of this page; `--select` and
`--ignore` choose findings by code.

Examples come from recorded runs ([fixtures](../fixtures/README.md)) and from traces generated with a known fault
(`scripts/scenarios`). This page is made from the rules in the code; `python -m scripts.docs` renews it.
"""


def page() -> str:
    """The whole page: a list, then an entry for each code."""
    shown = examples()
    blocks = [
        _HEAD,
        table(
            ("finding", "severity", "reported from"),
            (
                (f"[`{rule.code}`](#{rule.code})", _severities(rule), words(rule.start))
                for rule in RULES.values()
            ),
        ),
        *(_entry(rule, shown.get(rule.code)) for rule in RULES.values()),
    ]
    return "\n\n".join(block.strip() for block in blocks) + "\n"


def examples() -> dict[str, tuple[str, Finding]]:
    """The most severe finding of each code, and the trace it is from; recorded runs before generated ones."""
    chosen: dict[str, tuple[str, Finding]] = {}

    def keep(findings: Iterable[Finding], where: str) -> None:
        for finding in findings:
            known = chosen.get(finding.code)
            if known is None or _rank(finding) < _rank(known[1]):
                chosen[finding.code] = where, finding

    for path in sorted(FIXTURES.iterdir()):
        if path.is_dir():
            keep(_findings(path), f"`fixtures/{path.name}`, recorded")
    with tempfile.TemporaryDirectory() as folder:
        for name, build in SCENARIOS.items():
            place = Path(folder) / name
            build().write(place)
            try:
                keep(_findings(place), f"the generated trace `{name}`")
            except TraceviewError:
                continue  # generated to be refused
    return chosen


def _findings(path: Path) -> Iterable[Finding]:
    """The findings on a trace, as documents show them, wherever the trace is while the page is made."""
    report = analyze(path)
    report = replace(report, source=replace(report.source, logdir="logs"))
    for section in document_of(report).sections:
        for block in section.blocks:
            if isinstance(block, Findings):
                yield from block.findings


def _rank(finding: Finding) -> int:
    return list(SEVERITIES).index(finding.severity.key)


def _entry(rule: Rule, example: tuple[str, Finding] | None) -> str:
    facts = [
        f"**Severity**: {_severities(rule)}",
        f"**Reported from**: {words(rule.start)}{_conditions(rule)}",
        f"**Evidence**: {words(rule.evidence)}",
        f"**Advice**: {words(rule.advice)}",
    ]
    facts += [f"**Advice {case}**: {words(text)}" for case, text in rule.advice_where.items()]
    if rule.jax_advice:
        facts.append(f"**Advice for JAX**: {words(rule.jax_advice)}")
    if rule.explains:
        links = ", ".join(f"[`{code}`](#{code})" for code in rule.explains)
        facts.append(f"**May explain** these, which are no findings of their own then: {links}")
    blocks = [f"## {rule.code}", words(rule.meaning), "\n".join(f"- {fact}" for fact in facts)]
    if example is None:
        return "\n\n".join([*blocks, f"Example: {words(rule.example)}"])
    where, finding = example
    quoted = "\n".join(f"> {line}".rstrip() for line in _lines(finding))
    return "\n\n".join([*blocks, f"Example, from {where}:", quoted])


def _conditions(rule: Rule) -> str:
    """A list below the first sentence."""
    if not rule.conditions:
        return ""
    numbered = enumerate(rule.start_conditions, 1)
    listed = "".join(f"\n  {place}. {words(text)}" for place, text in numbered)
    return f"; {words(rule.conditions_of)}:{listed}"


def _severities(rule: Rule) -> str:
    return numbers.listed(rule.severities).replace(" and ", " or ")


def _lines(finding: Finding) -> list[str]:
    severity = finding.severity.words
    lines = [f"**{severity}** {prose(finding.title)}", "", prose(finding.explanation), ""]
    if finding.cost:
        lines.append(f"- costs {plain(finding.cost)}")
    return [
        *lines,
        f"- evidence: {prose(finding.evidence)}",
        f"- confidence {finding.confidence}: {prose(finding.confidence_reason)}",
        f"- advice: {prose(finding.advice)}",
    ]
