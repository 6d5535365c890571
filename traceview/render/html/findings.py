"""What is wrong, how sure is that, what shows it, and where is it to be seen?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from traceview.analysis.base import SEVERITIES, Finding
from traceview.render import numbers
from traceview.render.findings import told_cost, told_evidence
from traceview.render.html.blocks import View
from traceview.render.html.places import Place, gaps_of, place_of
from traceview.render.html.shown import name

_LINKED_DEVICES = 8


@dataclass(frozen=True)
class FindingCard:
    """A finding as the page shows it.

    `untold_cost`: what its title does not say of its cost. `links`: text and target of the devices and gaps that
    it names.
    """

    number: int
    severity: str
    code: str
    title: str
    cost: str
    untold_cost: str
    explanation: str
    evidence: str
    confidence: str
    confidence_reason: str
    advice: str
    links: tuple[tuple[str, str], ...]
    place: Place | None


@dataclass(frozen=True)
class FindingsSection:
    """All cards, how many there are of each severity, and what was left out on request."""

    counts: str
    cards: tuple[FindingCard, ...]
    left_count: int
    left_out: tuple[str, ...]


def findings_section(view: View) -> FindingsSection:
    """Every finding with its explanation, evidence and advice."""
    found = view.report.findings
    counts = [
        f"{count} {severity}"
        for severity in SEVERITIES
        if (count := sum(one.severity == severity for one in found))
    ]
    return FindingsSection(
        counts=", ".join(counts),
        cards=tuple(cards(view, view.most_rows)),
        left_count=max(len(found) - view.most_rows, 0),
        left_out=tuple(dict.fromkeys(view.report.left_out_findings)),
    )


def cards(view: View, most: int) -> Iterator[FindingCard]:
    """The first `most` findings."""
    has_steps = view.report.results.steps is not None
    for number, finding in enumerate(view.report.findings[:most], start=1):
        yield FindingCard(
            number=number,
            severity=finding.severity,
            code=finding.code,
            title=finding.title,
            cost=told_cost(finding, has_steps),
            untold_cost=_untold_cost(finding, has_steps),
            explanation=finding.explanation,
            evidence=told_evidence(finding.evidence),
            confidence=finding.confidence,
            confidence_reason=finding.confidence_reason,
            advice=finding.advice,
            links=tuple(_links(view, finding)),
            place=view.shown_place(place_of(finding, view.report, view.gaps)),
        )


def _untold_cost(finding: Finding, has_steps: bool) -> str:
    if finding.cost_ps_per_step is not None:
        time = numbers.time(finding.cost_ps_per_step)
        if time in finding.title:
            return ""
        if finding.cost_ratio is not None and numbers.share(finding.cost_ratio) in finding.title:
            return f"{time} per step"
    return told_cost(finding, has_steps)


def _links(view: View, finding: Finding) -> Iterator[tuple[str, str]]:
    known = [key for key in finding.devices if key in view.device_ids]
    for key in known[:_LINKED_DEVICES]:
        yield name(key), f"#{view.device_ids[key]}"
    if len(known) > _LINKED_DEVICES:
        yield f"{len(known) - _LINKED_DEVICES} more devices", "#devices"
    for one in gaps_of(finding, view.gaps):
        length = numbers.time(one.gap.duration_ps)
        yield f"gap {one.number} ({length})", f"#gap-{one.number}"
