"""Compares findings: those that came, went, or cost another time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from traceview.analysis.base import Finding
from traceview.analysis.explained_findings import EXPLAINS
from traceview.comparison.model import FindingDifference, StateDifference
from traceview.report.model import Report

LEAST_CHANGE_RATIO: Final = 0.02
"""Of the step before: a cost that differs by less has not changed; a choice of ours."""

_ORDER: Final = ("came", "went", "changed")


def finding_differences(
    before: Sequence[Report],
    after: Sequence[Report],
    step_ps: int,
    states: Sequence[StateDifference],
) -> tuple[FindingDifference, ...]:
    """What came first, then what went, then what costs another time; each by its share of the GPU time.

    A side has a finding that most of its captures have. Findings of one code are one: the costliest stands for them. A
    finding whose states hardly changed did not either: the step around it did. Where these changed within noise, warnings
    that only one side has are listed as such. What the other side has inside the finding that explains it, or left out on
    request, is neither new nor gone.
    """
    old, new = _findings(before), _findings(after)
    by_state = {row.state: row for row in states}
    unlisted = _unlisted(before), _unlisted(after)
    rows = []
    for code in {**new, **old}:
        first, second = old.get(code), new.get(code)
        if (first is None and code in unlisted[0]) or (second is None and code in unlisted[1]):
            continue
        if first and second and abs(_cost_ps(second) - _cost_ps(first)) <= _least(step_ps):
            continue
        judgement = _judged([row for row in (first, second) if row], by_state, step_ps)
        is_changed = bool(first and second)
        if judgement == "same" or (judgement == "noise" and is_changed):
            continue
        rows.append(_row(code, first, second, is_within_noise=judgement == "noise"))
    return tuple(
        sorted(
            rows,
            key=lambda row: (
                _ORDER.index(row.status),
                -abs((row.after_ratio or 0.0) - (row.before_ratio or 0.0)),
                row.code,
            ),
        )
    )


def _row(
    code: str, old: Finding | None, new: Finding | None, *, is_within_noise: bool
) -> FindingDifference:
    before, after = (row.loss if row else None for row in (old, new))
    shown = new or old
    assert shown is not None
    return FindingDifference(
        code=code,
        status="changed" if old and new else "came" if new else "went",
        title=shown.title,
        before_ps=before.ps_per_step if before else None,
        after_ps=after.ps_per_step if after else None,
        before_ratio=before.gpu_time_ratio if before else None,
        after_ratio=after.gpu_time_ratio if after else None,
        is_within_noise=is_within_noise,
    )


def _cost_ps(finding: Finding) -> int:
    return finding.loss.ps_per_step if finding.loss else 0


def _least(step_ps: int) -> float:
    return LEAST_CHANGE_RATIO * step_ps


def _judged(
    sides: Sequence[Finding], states: Mapping[str, StateDifference], step_ps: int
) -> Literal["shown", "noise", "same"]:
    """Whether the states of a finding changed; of one that is about no time whether it is more than information."""
    is_serious = any(finding.severity != "info" for finding in sides)
    keys = {key for finding in sides if finding.loss for key in finding.loss.states}
    about = [states[key] for key in keys if key in states]
    if not about:
        return "shown" if is_serious else "same"
    if abs(sum(row.difference_ps for row in about)) < _least(step_ps):
        return "same"
    if any(row.direction != "none" for row in about):
        return "shown"
    return "noise" if is_serious else "same"


def _unlisted(reports: Sequence[Report]) -> set[str]:
    """The codes that some report has without listing a finding of them."""
    return {code for report in reports for code in (*report.left_out_findings, *_inside(report))}


def _inside(report: Report) -> Iterator[str]:
    for finding in report.findings:
        for row in finding.evidence:
            if row.metric == EXPLAINS:
                yield str(row.value)


def _findings(reports: Sequence[Report]) -> dict[str, Finding]:
    """By code the costliest finding, of those that more than half of the captures have."""
    of_code: dict[str, list[Finding]] = {}
    for report in reports:
        of_report: dict[str, Finding] = {}
        for finding in report.findings:
            known = of_report.setdefault(finding.code, finding)
            if _cost_ps(finding) > _cost_ps(known):
                of_report[finding.code] = finding
        for code, finding in of_report.items():
            of_code.setdefault(code, []).append(finding)
    return {
        code: made[len(made) // 2] for code, made in of_code.items() if 2 * len(made) > len(reports)
    }
