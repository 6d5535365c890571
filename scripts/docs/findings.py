"""What does each finding mean, and how does it look in a report? From the catalogue, and from traces that have it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import traceview
from scripts.docs.words import words
from scripts.scenarios import SCENARIOS
from traceview.analysis.base import SEVERITIES, Finding
from traceview.analysis.catalogue import FINDINGS, FindingKind
from traceview.errors import TraceviewError
from traceview.render.findings import told_cost, told_evidence
from traceview.render.markdown.blocks import Column, bullets, table
from traceview.render.markdown.inline import plain, prose

FIXTURES = Path(__file__).resolve().parent.parent.parent / "fixtures"

_HEAD = """\
# Findings

A finding is one cause, with what it costs, how sure that is, what shows it and what to change. Costs are what each step
loses; they overlap, so they do not add up. *Confidence* is high where the trace records the cause, medium where it is
concluded, low where there is little to go by. `traceview explain CODE` prints an entry of this page; `--select` and
`--ignore` choose findings by code.

Examples are what traceview says of recorded runs ([fixtures](../fixtures/README.md)) and of traces that are made with a
known fault (`scripts/scenarios`). This page is made from the catalogue; `python -m scripts.docs` renews it.
"""


def page() -> str:
    """The whole page: a list, then an entry for each code."""
    kinds = list(FINDINGS.values())
    seen = examples()
    blocks = [
        _HEAD,
        table(
            [
                Column("finding", [f"[`{one.code}`](#{one.code})" for one in kinds]),
                Column("severity", [plain(one.severity) for one in kinds]),
                Column("reported from", [words(one.starts_at) for one in kinds]),
            ]
        ),
        *(_entry(one, seen.get(one.code)) for one in kinds),
    ]
    return "\n\n".join(block.strip() for block in blocks) + "\n"


def examples() -> dict[str, tuple[str, Finding]]:
    """By code a finding, and which trace it is from: at its gravest, recorded runs before made ones."""
    found: dict[str, tuple[str, Finding]] = {}

    def keep(path: Path, where: str) -> None:
        for one in traceview.analyze(path).findings:
            known = found.get(one.code)
            if known is None or _rank(one) < _rank(known[1]):
                found[one.code] = where, one

    for path in sorted(FIXTURES.iterdir()):
        if path.is_dir():
            keep(path, f"`fixtures/{path.name}`, recorded")
    with tempfile.TemporaryDirectory() as folder:
        for name, build in SCENARIOS.items():
            place = Path(folder) / name
            build().write(place)
            try:
                keep(place, f"the made trace `{name}`")
            except TraceviewError:
                continue  # a trace that is made to be refused
    return found


def _rank(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def _entry(kind: FindingKind, example: tuple[str, Finding] | None) -> str:
    facts = [
        f"**Severity**: {words(kind.severity)}",
        f"**Reported from**: {words(kind.starts_at)}",
        f"**Evidence**: {words(kind.evidence)}",
        f"**Advice**: {words(kind.advice)}",
    ]
    blocks = [f"## {kind.code}", words(kind.meaning), bullets(facts)]
    if example is None:
        blocks.append(f"Example: {words(kind.example)}")
        return "\n\n".join(blocks)
    where, finding = example
    blocks += [
        f"Example, from {where}:",
        "\n".join(f"> {line}".rstrip() for line in _shown(finding)),
    ]
    return "\n\n".join(blocks)


def _shown(finding: Finding) -> list[str]:
    cost = told_cost(finding, has_steps=True)
    lines = [f"**{finding.severity}** {prose(finding.title)}", "", prose(finding.explanation), ""]
    if cost:
        lines.append(f"- costs {plain(cost)}")
    lines += [
        f"- evidence: {prose(told_evidence(finding.evidence))}",
        f"- confidence {finding.confidence}: {prose(finding.confidence_reason)}",
        f"- advice: {prose(finding.advice)}",
    ]
    return lines
