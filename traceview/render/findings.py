"""What is wrong, what does it cost, and what to do about it?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from traceview.analysis.base import SEVERITIES, Evidence, Finding
from traceview.document import numbers
from traceview.document.page import Page
from traceview.render import numbers
from traceview.report.model import Report

SEVERITY_STYLES: Final = {"critical": "bold red", "warning": "bold yellow", "info": "bold blue"}
_INDENT: Final = 11
_SHOWN_EVIDENCE: Final = 6


def add_findings(page: Page, report: Report) -> None:
    """Every finding of the report, the worst first."""
    left_out = report.left_out_findings
    codes = ", ".join(dict.fromkeys(left_out))
    rest = f"; {len(left_out)} left out on request ({codes})" if left_out else ""
    if not report.findings:
        page.heading(
            "Findings", f"none shown{rest}" if rest else "none: nothing passed its threshold"
        )
        return
    counts = [
        f"{count} {severity}"
        for severity in SEVERITIES
        if (count := sum(one.severity == severity for one in report.findings))
    ]
    page.heading("Findings", ", ".join(counts) + rest)
    for place, finding in enumerate(report.findings):
        if place:
            page.gap()
        _add(page, finding, report.results.steps is not None)


def _add(page: Page, finding: Finding, has_steps: bool) -> None:
    style = SEVERITY_STYLES.get(finding.severity, "")
    page.prose(
        page.styled(finding.title, "bold"),
        indent=_INDENT,
        label=page.styled(finding.severity.upper(), style),
    )
    cost = told_cost(finding, has_steps)
    if cost:
        _labelled(page, "cost", cost)
    page.prose(finding.explanation, indent=_INDENT)
    sure = f"Confidence {finding.confidence}: {finding.confidence_reason}."
    _labelled(page, "evidence", f"{told_evidence(finding.evidence)}. {sure}")
    _labelled(page, "advice", finding.advice)
    _labelled(page, "more", f"traceview explain {finding.code}")


def _labelled(page: Page, label: str, text: str) -> None:
    if text:
        page.prose(text, indent=_INDENT, label=Text(f"  {label}", "dim"))


def told_cost(finding: Finding, has_steps: bool) -> str:
    """`16.0 ms per step, 66.7% of the median step`; empty if the cost is not known."""
    whole = "the median step" if has_steps else "the window"
    ratio = (
        None if finding.cost_ratio is None else f"{numbers.share(finding.cost_ratio)} of {whole}"
    )
    if finding.cost_ps_per_step is None:
        return ratio or ""
    cost = f"{numbers.time(finding.cost_ps_per_step)} per step"
    return f"{cost}, {ratio}" if ratio else cost


def told_evidence(evidence: Sequence[Evidence]) -> str:
    """`GPU:0 and GPU:2: status = empty`: equal values of one metric together, by its key in the JSON."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for one in evidence:
        value = numbers.measured(one.metric, one.value)
        limit = "" if one.threshold is None else numbers.measured(one.metric, one.threshold)
        places.setdefault((one.metric, value, limit), []).append(one.where)
    told = []
    for (metric, value, limit), found in places.items():
        where = [place for place in dict.fromkeys(found) if place]
        told.append(
            (f"{numbers.listed(where)}: " if where else "")
            + f"{metric} = {value}"
            + (f" (threshold {limit})" if limit else "")
        )
    left = len(told) - _SHOWN_EVIDENCE
    return "; ".join(told[:_SHOWN_EVIDENCE]) + (f"; and {left} more" if left > 0 else "")
