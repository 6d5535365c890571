"""Compares findings: those that came, went, or cost another time."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from traceview.analysis.base import Finding
from traceview.analysis.explained_findings import EXPLAINS, EXPLAINS_PART
from traceview.analysis.idle.profiler_time import PROFILER_PS
from traceview.comparison.model import FindingDifference, PartDifference
from traceview.report.model import Report

LEAST_CHANGE_RATIO: Final = 0.02
"""Of the step before: a cost that differs by less has not changed; a choice of ours."""


def finding_differences(
    before: Sequence[Report],
    after: Sequence[Report],
    step_ps: int,
    parts: Sequence[PartDifference],
) -> tuple[FindingDifference, ...]:
    """What came first, then what went, then what costs another time; each by its cost.

    A side has a finding that most of its captures have. Findings of one code are one: the costliest stands for them. A
    finding whose part of the critical path hardly changed did not either: the step around it did. Where this part changed
    within noise, warnings that only one side has are listed as such. What the other side has inside the finding that
    explains it, or left out on request, is neither new nor gone.
    """
    old, new = _findings(before), _findings(after)
    by_cause = {part.cause: part for part in parts}
    not_new, not_gone = _unlisted(before), _unlisted(after)
    rows = (
        *sorted(_came(old, new, not_new), key=lambda row: -(row.after_ps or 0)),
        *sorted(_went(old, new, not_gone), key=lambda row: -(row.before_ps or 0)),
        *sorted(
            _changed(old, new, step_ps),
            key=lambda row: -abs((row.after_ps or 0) - (row.before_ps or 0)),
        ),
    )
    judged = []
    for row in rows:
        sides = [side[row.code] for side in (old, new) if row.code in side]
        if any(_is_shown(finding, by_cause, step_ps) for finding in sides):
            judged.append(row)
        elif row.status != "changed" and _may_be_shown(sides[0], by_cause, step_ps):
            judged.append(replace(row, is_within_noise=True))
    return tuple(judged)


def _is_shown(finding: Finding, parts: Mapping[str, PartDifference], step_ps: int) -> bool:
    """Whether what it is about on the critical path changed; of what is not on it whether it is more than information."""
    about = _about(finding, parts)
    if not about:
        return finding.severity != "info"
    return _is_large(about, step_ps) and any(part.direction != "none" for part in about)


def _may_be_shown(finding: Finding, parts: Mapping[str, PartDifference], step_ps: int) -> bool:
    return finding.severity != "info" and _is_large(_about(finding, parts), step_ps)


def _about(finding: Finding, parts: Mapping[str, PartDifference]) -> list[PartDifference]:
    return [parts[cause] for cause in finding.path_causes if cause in parts]


def _is_large(about: Sequence[PartDifference], step_ps: int) -> bool:
    return abs(sum(part.difference_ps for part in about)) >= LEAST_CHANGE_RATIO * step_ps


def _unlisted(reports: Sequence[Report]) -> set[str]:
    """The codes that some report has without listing a finding of them."""
    codes = {code for report in reports for code in report.left_out_findings}
    return codes | {
        row.where
        for report in reports
        for finding in report.findings
        for row in finding.evidence
        if row.metric in (EXPLAINS, EXPLAINS_PART) and row.where is not None
    }


def _came(
    old: dict[str, Finding], new: dict[str, Finding], not_new: Container[str]
) -> Iterator[FindingDifference]:
    for code, finding in new.items():
        if code not in old and code not in not_new:
            yield FindingDifference(code, "came", finding.title, None, finding.cost_ps_per_step)


def _went(
    old: dict[str, Finding], new: dict[str, Finding], not_gone: Container[str]
) -> Iterator[FindingDifference]:
    for code, finding in old.items():
        if code not in new and code not in not_gone:
            yield FindingDifference(code, "went", finding.title, finding.cost_ps_per_step, None)


def _changed(
    old: dict[str, Finding], new: dict[str, Finding], step_ps: int
) -> Iterator[FindingDifference]:
    for code, finding in new.items():
        if code not in old:
            continue
        first, second = old[code].cost_ps_per_step, finding.cost_ps_per_step
        if first is None or second is None:
            continue
        if _is_without_profiler(old[code]) != _is_without_profiler(finding):
            continue
        if abs(second - first) > LEAST_CHANGE_RATIO * step_ps:
            yield FindingDifference(code, "changed", finding.title, first, second)


def _is_without_profiler(finding: Finding) -> bool:
    """Whether the cost leaves out the time of the profiler, so that it says nothing beside one that holds it."""
    return any(row.metric == PROFILER_PS for row in finding.evidence)


def _findings(reports: Sequence[Report]) -> dict[str, Finding]:
    """By code the costliest finding, of those that more than half of the captures have."""
    found: dict[str, list[Finding]] = {}
    for report in reports:
        of_report: dict[str, Finding] = {}
        for finding in report.findings:
            known = of_report.get(finding.code)
            if known is None or (finding.cost_ps_per_step or 0) > (known.cost_ps_per_step or 0):
                of_report[finding.code] = finding
        for code, finding in of_report.items():
            found.setdefault(code, []).append(finding)
    return {
        code: of_code[len(of_code) // 2]
        for code, of_code in found.items()
        if 2 * len(of_code) > len(reports)
    }
