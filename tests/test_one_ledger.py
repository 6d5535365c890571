"""Every amount that a report states is a sum over the ledger, and nothing is named twice with different amounts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.scenarios import SCENARIOS
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Context
from traceview.analysis.rules.finding import Finding
from traceview.analysis.rules.words import Lost, Part, Time
from traceview.document import numbers
from traceview.ledger.states import BY_KEY
from traceview.ledger.table import Ledger
from traceview.report.build import analyze
from traceview.report.model import Report
from traceview.report.saved import load_report, to_json
from traceview.report.screen import screen_of
from traceview.trace.model import Trace
from traceview.trace.reading.load import load

FIXTURES = sorted(path.parent.name for path in Path("fixtures").glob("*/plugins"))
SHARED = Path("..") / "shared" / "traces"


def trace_of(name: str, folder: Path) -> Trace:
    if name in FIXTURES:
        return load(f"fixtures/{name}")
    if name in SCENARIOS:
        SCENARIOS[name]().write(folder)
        return load(folder)
    return load(SHARED / name)


@pytest.fixture(
    params=[
        *FIXTURES,
        *sorted(SCENARIOS),
        *(
            pytest.param(name, marks=pytest.mark.shared)
            for name in ("bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8")
        ),
    ]
)
def trace(request: pytest.FixtureRequest, tmp_path: Path) -> Trace:
    return trace_of(request.param, tmp_path)


def stated(finding: Finding) -> Iterator[tuple[str, str]]:
    """The amounts in the arguments of a title, as it prints them."""
    for name, argument in finding.arguments.items():
        if isinstance(argument, Lost | Time | Part):
            yield name, "".join(token.text for token in argument.tokens())


def check_loss(ledger: Ledger, finding: Finding) -> None:
    loss = finding.loss
    assert loss is not None
    whole = sum(ledger.gpu_ps_by_device.values())
    if whole:
        assert loss.gpu_time_ratio == loss.gpu_time_ps / whole
    else:
        # Of a run without devices the host's steps are the measure.
        assert (loss.gpu_time_ratio, finding.devices) == (loss.ratio, ())
    if loss.states and whole:
        rows = ledger.rows(states=[BY_KEY[key] for key in loss.states])
        assert loss.gpu_time_ps <= ledger.loss(rows, keeps_waiting=True).ps
        if loss.bound_ps_per_step is not None:
            assert loss.bound_ps_per_step <= ledger.bound_ps(rows)
    # The share is exact; the times are rounded down.
    assert abs(loss.ps_per_step - loss.ratio * loss.step_ps) <= 2
    main = finding.arguments.get("loss")
    if isinstance(main, Lost):
        assert (main.ps, main.of_ps, main.ratio) == (loss.ps_per_step, loss.step_ps, loss.ratio)
        words = f"{numbers.part_of(main.ps, main.of_ps)} ({numbers.percent(main.ratio)})"
        assert dict(stated(finding))["loss"] == words


def check_bars(ledger: Ledger, report: Report) -> None:
    sums = report.results.ledger
    if sums is None:
        return
    assert sums.gpu_time_ps == sum(ledger.gpu_ps_by_device.values())
    assert sum(sums.by_state.values()) == sums.gpu_time_ps
    for row in sums.devices:
        assert sum(row.states.values()) == row.step_ps
        device = [ledger.trace.device_key(d) for d in range(len(ledger.trace.device_list))].index(
            row.device
        )
        exact = ledger.by_state(device)
        for state, ps in exact.items():
            mean = ps // (row.step_count or 1)
            assert abs(row.states.get(state.key, 0) - mean) <= 1


def test_amounts_are_sums_of_the_ledger(trace: Trace) -> None:
    ledger = Context(trace, select(trace)).ledger
    report = analyze(trace)
    check_bars(ledger, report)
    for finding in report.findings:
        if finding.loss is not None:
            check_loss(ledger, finding)


def test_the_headline_is_the_largest_loss(trace: Trace) -> None:
    """Of those that are sure enough to be more than information, unless few steps make all unsure."""
    report = analyze(trace)
    verdict, steps = report.verdict, report.results.steps
    has_few_steps = steps is None or steps.used_count < 2
    losses = [
        row.loss.gpu_time_ratio
        for row in report.findings
        if row.loss is not None and (has_few_steps or row.severity != "info")
    ]
    leading = next((row for row in report.findings if row.code == verdict.finding), None)
    assert verdict.loss == (leading.loss if leading else None)
    if leading is not None and leading.loss is not None:
        assert leading.loss.gpu_time_ratio == max(losses)
    if verdict.status == "healthy":
        assert not losses


def test_nothing_is_named_twice(trace: Trace) -> None:
    codes = [(row.code, row.devices, row.steps) for row in analyze(trace).findings]
    assert len(set(codes)) == len(codes)


def test_a_saved_report_says_the_same(trace: Trace, tmp_path: Path) -> None:
    report = analyze(trace)
    path = tmp_path / "report.json"
    path.write_text(to_json(report), encoding="utf-8")
    assert load_report(path) == report
    assert screen_of(load_report(path)) == screen_of(report)
