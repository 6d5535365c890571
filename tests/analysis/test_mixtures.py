"""Of random runs with one to four slowdowns at once, the report names each one with its size.

The sizes are known from how the runs were made (`scripts/scenarios/mixtures.py`), not from traceview.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.scenarios.mixtures import STATES, Mixture, mixture
from tests.analysis.made import loss_of
from tests.ledger.ledgers import states_of_path
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Context
from traceview.analysis.registry import RULES
from traceview.report.build import report_of
from traceview.trace.reading.load import load

SEEDS = (*range(80), 95, 127, 184, 705, 774)
"""The last ones were wrong once: slow devices below the limits of a finding, and hosts that are late in the last step."""
TOLERANCE = 0.08
"""Relative; what is smaller than `SMALL` of the step may be wrong by that."""
SMALL = 0.005

FINDINGS: dict[str, set[str]] = {
    # Time without a cause is the ratio of the verdict.
    "unrecorded": set(),
    "input": {"input-bound"},
    "checkpoint": {"checkpoint-stall"},
    "sync": {"d2h-sync"},
    "python": {"between-calls"},
    "retracing": {"retracing"},
    "cpu_op": {"cpu-heavy-op", "host-bound"},
    "copy": {"h2d-exposed"},
    "launches": {"launch-bound"},
    "straggler": {"straggler-gpu"},
    "collective": {"collective-exposed"},
    "callback": {"callback-stall"},
}


class Run:
    """One mixture, its ledger, and the report on it."""

    def __init__(self, made: Mixture, context: Context) -> None:
        self.made, self.ledger = made, context.ledger
        self.report = report_of(context, window="auto", steps=None)
        self.count = len(made.step_ps)
        self.mean_step_ps = sum(made.step_ps) / self.count

    def is_near(self, measured_ps: float, true_ps: float) -> bool:
        return abs(measured_ps - true_ps) <= max(TOLERANCE * true_ps, SMALL * self.mean_step_ps)

    def mean_ps(self, name: str) -> float:
        return sum(self.made.added_ps[name]) / self.count

    def share(self, name: str) -> float:
        """Of the GPU time: a slow device is lost time on the others, which wait for it."""
        waiting = 1 - 1 / self.made.gpu_count if name == "straggler" else 1.0
        return self.mean_ps(name) / self.mean_step_ps * waiting

    def on_path(self) -> dict[str, float]:
        """The true mean of each part of the path."""
        parts = {"compute": sum(self.made.compute_ps) / self.count}
        for name in self.made.added_ps:
            parts[STATES[name]] = parts.get(STATES[name], 0.0) + self.mean_ps(name)
        return parts


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Run]:
    runs: dict[int, Run] = {}

    def run(seed: int) -> Run:
        if seed not in runs:
            folder: Path = tmp_path_factory.mktemp(f"mixture{seed}")
            made = mixture(seed)
            made.scenario.write(folder)
            trace = load(folder)
            runs[seed] = Run(made, Context(trace, select(trace)))
        return runs[seed]

    return run


@pytest.mark.parametrize("seed", SEEDS)
def test_every_part_of_the_path_is_as_long_as_it_was_made(
    seed: int, run_of: Callable[[int], Run]
) -> None:
    run = run_of(seed)
    steps, true = run.report.results.steps, run.on_path()
    assert steps is not None
    assert [step.duration_ps for step in steps.steps if step.used] == list(run.made.step_ps)
    paths = list(states_of_path(run.ledger).values())
    assert len(paths) == run.count
    for state in true.keys() | {state for states in paths for state in states}:
        measured_ps = sum(states.get(state, 0) for states in paths) // run.count
        assert run.is_near(measured_ps, true.get(state, 0.0)), (state, measured_ps)
    for number, states in enumerate(paths):
        for name, added_ps in run.made.added_ps.items():
            if name != "straggler":
                measured_ps = states.get(STATES[name], 0)
                assert run.is_near(measured_ps, added_ps[number]), (number, name)


@pytest.mark.parametrize("seed", SEEDS)
def test_findings_are_of_what_is_there_and_lose_what_it_takes(
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
        true_ps = run.mean_ps(name)
        assert run.is_near(loss_of(finding).ps_per_step, true_ps), (finding.title, true_ps)
        true_ps = run.share(name) * run.mean_step_ps
        assert run.is_near(loss_of(finding).gpu_time_ratio * run.mean_step_ps, true_ps), name
        if name == "straggler":
            assert f"GPU:{run.made.slow_gpu}" not in finding.devices
    codes = {finding.code for finding in run.report.findings}
    for name in run.made.added_ps:
        limit = min((RULES[code].limit for code in FINDINGS[name]), default=1.0)
        assert run.share(name) < (1 + TOLERANCE) * limit + SMALL or codes & FINDINGS[name], name


@pytest.mark.parametrize("seed", SEEDS)
def test_the_verdict_is_the_largest_loss(seed: int, run_of: Callable[[int], Run]) -> None:
    run = run_of(seed)
    named = {finding.code for finding in run.report.findings if finding.severity != "info"}
    # What a step would be shorter by: of a slow device all, though it is itself at work meanwhile.
    shares = {
        name: run.mean_ps(name) / run.mean_step_ps
        for name in run.made.added_ps
        if named & FINDINGS[name]
    }
    verdict = run.report.verdict
    unknown_ps = run.mean_ps("unrecorded") if "unrecorded" in run.made.added_ps else 0.0
    assert verdict.unknown_ratio is not None
    assert run.is_near(verdict.unknown_ratio * run.mean_step_ps, unknown_ps)
    if not shares:
        assert verdict.status != "problem", verdict.headline
        return
    largest = max(shares.values())
    right = {name for name, share in shares.items() if share >= (1 - TOLERANCE) * largest - SMALL}
    assert any(verdict.finding in FINDINGS[name] for name in right), (verdict.headline, right)


def test_a_seed_makes_one_run_and_seeds_make_all_kinds() -> None:
    made = [mixture(seed) for seed in SEEDS]
    (trace,), (same,) = (run.scenario.traces.values() for run in (made[3], mixture(3)))
    assert trace.space() == same.space()
    assert {name for run in made for name in run.added_ps} == STATES.keys()
    assert {run.gpu_count for run in made} == {1, 2, 3, 4}
    assert {len(run.added_ps) for run in made} == {1, 2, 3, 4}
    assert any(
        0 in of_steps and any(of_steps) for run in made for of_steps in run.added_ps.values()
    )
