"""Analyzes traces of tests, and checks what holds for every finding on them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import traceview
from scripts.cuda_trace import CudaTrace
from tests.sidecars import write_sidecar
from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import Finding
from traceview.report.model import Report


def analyzed(
    folder: Path, *traces: CudaTrace, sidecar: dict[str, Any] | None = None, **options: Any
) -> Report:
    """The report on traces in a folder, each with this sidecar, whose findings are checked."""
    for trace in traces:
        path = trace.write(folder)
        if sidecar is not None:
            write_sidecar(path, sidecar)
    report = traceview.analyze(folder, **options)
    for finding in report.findings:
        check_finding(finding)
    return report


def check_finding(finding: Finding) -> None:
    """What holds for every finding: evidence past its threshold, and plain whole sentences."""
    # A trace of few steps makes every finding information.
    rule = RULES[finding.code]
    assert finding.severity in (*rule.severities, "info")
    assert finding.evidence
    for evidence in finding.evidence:
        if evidence.threshold is not None:
            assert isinstance(evidence.value, int | float)
            low = evidence.metric in (
                "used_count",
                "compute_ratio_to_busiest",
                "link_use_ratio",
                "low_precision_ratio",
                "concurrency_ratio",
                "spread_ps",
                "in_use_efficiency_ratio",
            )
            assert (
                evidence.value < evidence.threshold if low else evidence.value >= evidence.threshold
            )
    advice = f"{finding.action} {finding.advice}".strip()
    assert len(finding.action) <= 140
    for text in (finding.title, finding.explanation, advice, finding.confidence_reason):
        assert text == text.strip()
        assert text
        assert "(s)" not in text
        assert not re.search(r"(?<![:.])\b1 [a-z]+s\b", text), text
        assert "  " not in text
    for sentence in (finding.explanation, advice):
        assert sentence.endswith((".", ")"))
    assert not finding.title.endswith(".")


def lost_ps(finding: Finding | None) -> int | None:
    """What a finding costs in a step; None where it costs no time."""
    return finding.loss.ps_per_step if finding and finding.loss else None
