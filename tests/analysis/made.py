"""Analyzes traces of tests, and checks what holds for every finding on them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import traceview
from scripts.cuda_trace import U64, CudaTrace, Ref, Stats
from scripts.scenarios.model import marked_steps, new_trace
from tests.sidecars import write_sidecar
from tests.xplane.hlo_messages import ModuleWriter, add_programs
from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import Finding, FindingLoss
from traceview.report.model import Report


def analyzed(
    folder: Path, *traces: CudaTrace, sidecar: dict[str, Any] | None = None, **options: Any
) -> traceview.Report:
    """The report on traces in a folder, each with this sidecar, whose findings are checked."""
    for trace in traces:
        path = trace.write(folder)
        if sidecar is not None:
            write_sidecar(path, sidecar)
    report = traceview.analyze(folder, **options)
    for finding in report.findings:
        check_finding(finding)
    return report


def in_program(instruction: str, module: str = "jit_step", program: int = 5) -> Stats:
    """The stats of an event that runs an instruction of a program."""
    return {"hlo_op": Ref(instruction), "hlo_module": Ref(module), "program_id": U64(program)}


def write_program(
    folder: Path, module: ModuleWriter, kernels: Sequence[tuple[str, str, float]]
) -> Path:
    """Four steps of 50 ms with kernels of a program one after the other: instruction, name and milliseconds."""
    trace = new_trace()
    for step in marked_steps(trace):
        at = 2.0
        for instruction, name, length in kernels:
            stats = in_program(instruction)
            step.kernel(0, at, at + length, name=name, op="XlaModule:", stats=stats)
            at += length
    path = trace.write(folder)
    add_programs(path, {"jit_step(5)": module})
    return path


def ran(
    folder: Path,
    ops: Iterable[tuple[str | None, float]],
    *,
    lines: Mapping[str, str] | None = None,
    **graphs: Any,
) -> Report:
    """The report on steps of 50 ms on one GPU, with these ops one after the other: name and milliseconds.

    `lines`: those of some ops; `graphs`: what else is known of them.
    """
    trace = new_trace()
    for step in marked_steps(trace):
        at = 1.0
        for op, length in ops:
            step.kernel(0, at, at + length, op=op)
            at += length
    known = list(dict.fromkeys((lines or {}).values()))
    line_of = {op: known.index(line) for op, line in (lines or {}).items()}
    graphs |= {"lines": known, "line_of": line_of}
    return analyzed(folder, trace, sidecar={"graphs": graphs})


def finding_of(report: Report, code: str) -> Finding | None:
    """The finding of this code; None where it is not made."""
    return next((row for row in report.findings if row.code == code), None)


def the(report: Report, code: str) -> Finding:
    """The finding of this code, which has to be made."""
    (finding,) = (row for row in report.findings if row.code == code)
    return finding


def title_of(report: Report, code: str) -> str:
    """What the finding of this code says first; empty where it is not made."""
    finding = finding_of(report, code)
    return finding.title if finding else ""


def loss_of(finding: Finding | None) -> FindingLoss:
    """What a finding costs, which has to be known."""
    assert finding is not None
    assert finding.loss is not None
    return finding.loss


def check_finding(finding: Finding) -> None:
    """What holds for every finding: evidence past its threshold, and plain whole sentences."""
    # A trace of few steps makes every finding information.
    rule = RULES[finding.code]
    assert finding.severity in (*rule.severities, "info")
    assert finding.evidence or finding.loss
    for evidence in finding.evidence:
        if evidence.threshold is not None:
            assert isinstance(evidence.value, int | float)
            low = evidence.metric in (
                "used_count",
                "compute_ratio_to_busiest",
                "low_precision_ratio",
                "concurrency_ratio",
                "spread_ps",
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
        assert not re.search(r"(?<![:.=])\b1 [a-z]+s\b", text), text
        assert "  " not in text
    for sentence in (finding.explanation, advice):
        assert sentence.endswith((".", ")"))
    assert not finding.title.endswith(".")


def lost_ps(finding: Finding | None) -> int | None:
    """What a finding costs in a step; None where it costs no time."""
    return finding.loss.ps_per_step if finding and finding.loss else None
