"""What is wrong, how sure is that, and what shows it?"""

from __future__ import annotations

from typing import Final

from traceview.analysis.base import Finding
from traceview.render import numbers
from traceview.render.findings import told_cost, told_evidence
from traceview.render.markdown.blocks import Section, bullets
from traceview.render.markdown.inline import code, plain, prose
from traceview.report.model import Report

SHOWN: Final = 30


def findings_section(report: Report) -> Section | None:
    """Every finding with its explanation, evidence and advice."""
    has_steps = report.results.steps is not None
    blocks = [_told(finding, has_steps) for finding in report.findings[:SHOWN]]
    left = len(report.findings) - SHOWN
    if left > 0:
        blocks.append(f"{numbers.plural(left, 'more finding')}: in the JSON.")
    if report.left_out_findings:
        codes = ", ".join(map(code, dict.fromkeys(report.left_out_findings)))
        blocks.append(f"Left out on request: {codes}.")
    return Section("Findings and their evidence", tuple(blocks)) if blocks else None


def _told(finding: Finding, has_steps: bool) -> str:
    cost = told_cost(finding, has_steps)
    facts = [f"Cost: {plain(cost)}."] if cost else []
    facts += [
        f"Evidence: {prose(told_evidence(finding.evidence))}.",
        f"Confidence {finding.confidence}: {prose(finding.confidence_reason)}.",
        f"Advice: {prose(finding.advice)}",
        f"More: `traceview explain {finding.code}`",
    ]
    title = f"**{finding.severity}** `{finding.code}`: {prose(finding.title)}"
    return f"{title}\n\n{prose(finding.explanation)}\n\n{bullets(facts)}"
