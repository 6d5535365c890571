"""Of random runs with one to four slowdowns at once, the report names each one with its size.

The sizes are known from how the runs were made (`scripts/scenarios/mixtures.py`), not from traceview.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from scripts.scenarios.mixtures import CAUSES, Mixture, mixture
from traceview.report.build import analyze
from traceview.report.consistency import first_disagreement
from traceview.report.model import Report
from traceview.report.recoverable import recoverable

SEEDS = (*range(80), 95, 127, 184, 705, 774)
"""The last ones were wrong once: slow devices below the limits of a finding, and hosts that are late in the last step."""
TOLERANCE = 0.08
"""Relative; what is smaller than `SMALL` of the step may be wrong by that."""
SMALL = 0.005
LEAST_NAMED = 0.03

FINDINGS = {
    "input": {"input-bound"},
    "checkpoint": {"checkpoint-stall"},
    "sync": {"d2h-sync"},
    "python": {"python-stall"},
    "retracing": {"retracing"},
    "cpu_op": {"cpu-heavy-op", "host-bound"},
    "unrecorded": {"unexplained-idle"},
    "copy": {"h2d-exposed"},
    "launches": {"launch-bound"},
    # In some steps only, a device is no straggler, and what is left is that the others wait.
    "straggler": {"straggler-gpu", "collective-wait"},
    "collective": {"collective-exposed"},
    "callback": {"callback-stall"},
}
ALWAYS_NAMED_FROM = {"sync", "checkpoint", "callback", "retracing"}
"""Their findings begin at 5 % of the mean step or below, in whichever steps they occur."""


class Run:
    """One mixture and the report on it."""

    def __init__(self, made: Mixture, report: Report) -> None:
        self.made, self.report = made, report
        self.count = len(made.step_ps)
        self.mean_step_ps = sum(made.step_ps) / self.count

    def is_near(self, measured_ps: float, true_ps: float) -> bool:
        return abs(measured_ps - true_ps) <= max(TOLERANCE * true_ps, SMALL * self.mean_step_ps)

    def mean_ps(self, name: str) -> float:
        return sum(self.made.added_ps[name]) / self.count

    def cost_ps(self, name: str, statistic: str | None) -> float:
        """What a slowdown costs by the statistic of its finding."""
        return median(self.made.added_ps[name]) if statistic == "median" else self.mean_ps(name)

    def share(self, name: str) -> tuple[float, float]:
        """Of the step, by mean and by median: what is in some steps only differs."""
        return (
            self.mean_ps(name) / self.mean_step_ps,
            median(self.made.added_ps[name]) / median(self.made.step_ps),
        )

    def on_path(self) -> dict[str, float]:
        """The true mean of each part of the path."""
        parts = {"compute": sum(self.made.compute_ps) / self.count}
        for name in self.made.added_ps:
            parts[CAUSES[name]] = parts.get(CAUSES[name], 0.0) + self.mean_ps(name)
        return parts


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Run]:
    runs: dict[int, Run] = {}

    def run(seed: int) -> Run:
        if seed not in runs:
            folder: Path = tmp_path_factory.mktemp(f"mixture{seed}")
            made = mixture(seed)
            made.scenario.write(folder)
            runs[seed] = Run(made, analyze(folder))
        return runs[seed]

    return run


@pytest.mark.parametrize("seed", SEEDS)
def test_every_part_of_the_path_is_as_long_as_it_was_made(
    seed: int, run_of: Callable[[int], Run]
) -> None:
    run = run_of(seed)
    path, steps, true = run.report.results.path, run.report.results.steps, run.on_path()
    assert path is not None
    assert steps is not None
    assert [step.duration_ps for step in steps.steps if step.used] == list(run.made.step_ps)
    for cause in true.keys() | path.mean_by_cause.keys():
        measured_ps, true_ps = path.mean_by_cause.get(cause, 0), true.get(cause, 0.0)
        assert run.is_near(measured_ps, true_ps), (cause, measured_ps, true_ps)
        share_ps = path.share_by_cause.get(cause, 0.0) * run.mean_step_ps
        assert run.is_near(share_ps, true_ps), (cause, share_ps, true_ps)
    for number, step in enumerate(path.steps):
        for name, added_ps in run.made.added_ps.items():
            if name != "straggler":
                measured_ps = step.by_cause.get(CAUSES[name], 0)
                assert run.is_near(measured_ps, added_ps[number]), (number, name)


@pytest.mark.parametrize("seed", SEEDS)
def test_findings_are_of_what_is_there_and_cost_what_it_costs(
    seed: int, run_of: Callable[[int], Run]
) -> None:
    run = run_of(seed)
    slowdown_of = {code: name for name, codes in FINDINGS.items() for code in codes}
    for finding in run.report.findings:
        name = slowdown_of.get(finding.code)
        if name is None:
            assert finding.severity == "info" or finding.code == "unsteady-steps"
            continue
        assert name in run.made.added_ps, finding.title
        assert finding.cost_ps_per_step is not None
        true_ps = run.cost_ps(name, finding.cost_statistic)
        assert run.is_near(finding.cost_ps_per_step, true_ps), (finding.title, true_ps)
        if finding.code == "straggler-gpu":
            assert finding.devices == (f"GPU:{run.made.slow_gpu}",)
    codes = {finding.code for finding in run.report.findings}
    for name in run.made.added_ps.keys() & ALWAYS_NAMED_FROM:
        assert run.share(name)[0] < 0.05 or codes & FINDINGS[name], name


@pytest.mark.parametrize("seed", SEEDS)
def test_the_verdict_is_what_costs_most(seed: int, run_of: Callable[[int], Run]) -> None:
    run = run_of(seed)
    verdict = run.report.verdict
    codes = {finding.code for finding in run.report.findings}
    # Longer compute is a loss only where a finding says so.
    shares = {
        name: run.share(name)
        for name in run.made.added_ps
        if name != "straggler" or codes & FINDINGS[name]
    }
    unrecorded, _ = shares.pop("unrecorded", (0.0, 0.0))
    caused = max((mean for mean, _ in shares.values()), default=0.0)
    if (verdict.cost_ratio or 0.0) < LEAST_NAMED:
        assert verdict.finding is None
        assert max(caused, unrecorded) < (1 + TOLERANCE) * LEAST_NAMED
        return
    largest = max((min(both) for both in shares.values()), default=0.0)
    right = {name for name, both in shares.items() if max(both) >= (1 - TOLERANCE) * largest}
    # Time without a cause is named first where it is twice the rest, or nothing else is worth naming.
    if unrecorded >= 2 * (1 - TOLERANCE) * caused or caused < (1 + TOLERANCE) * LEAST_NAMED:
        right.add("unrecorded")
    if unrecorded >= 2 * (1 + TOLERANCE) * max((max(both) for both in shares.values()), default=0):
        right = {"unrecorded"}
    assert any(
        verdict.finding in FINDINGS[name]
        or (verdict.finding is None and verdict.cause == CAUSES[name])
        for name in right
    ), (verdict.headline, right)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_slowdown_costs_more_than_what_is_recoverable(
    seed: int, run_of: Callable[[int], Run]
) -> None:
    run = run_of(seed)
    most = recoverable(run.report)
    assert most is not None
    assert most.ps_per_step is not None
    largest_ps = max(run.mean_ps(name) for name in run.made.added_ps)
    assert most.ps_per_step >= largest_ps or run.is_near(most.ps_per_step, largest_ps)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_report_does_not_contradict_itself(seed: int, run_of: Callable[[int], Run]) -> None:
    assert first_disagreement(run_of(seed).report) is None


def test_a_seed_makes_one_run_and_seeds_make_all_kinds() -> None:
    made = [mixture(seed) for seed in SEEDS]
    (trace,), (same,) = (run.scenario.traces.values() for run in (made[3], mixture(3)))
    assert trace.space() == same.space()
    assert {name for run in made for name in run.added_ps} == CAUSES.keys()
    assert {run.gpu_count for run in made} == {1, 2, 3, 4}
    assert {len(run.added_ps) for run in made} == {1, 2, 3, 4}
    assert any(
        0 in of_steps and any(of_steps) for run in made for of_steps in run.added_ps.values()
    )
