"""Pairs of runs with a known change are explained right: the part, its size, the devices, the op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from scripts.scenarios.pairs import CAPTURES, PAIRS
from traceview.comparison.build import compare, reports_of
from traceview.comparison.document import document_of, screen_of
from traceview.comparison.model import Comparison
from traceview.document import numbers
from traceview.document.terminal import render_section


def assert_exact(comparison: Comparison) -> None:
    step = comparison.step
    assert step.difference_ps == step.after_ps - step.before_ps
    assert sum(row.before_ps for row in comparison.states) == step.before_ps
    assert sum(row.after_ps for row in comparison.states) == step.after_ps
    assert sum(row.difference_ps for row in comparison.states) == step.difference_ps
    for device in comparison.devices:
        if device.status == "both":
            # Each capture states whole picoseconds of its devices.
            for state_ps, step_ps in (
                ([row.before_ps for row in device.states], step.before_ps),
                ([row.after_ps for row in device.states], step.after_ps),
            ):
                assert abs(sum(state_ps) - step_ps) <= CAPTURES


def expected(name: str, changes: Mapping[str, float]) -> dict[str, float]:
    """By state by how much its mean over the devices is longer; three of four GPUs wait for one that is slower."""
    if name != "straggler_begun":
        return dict(changes)
    return {"compute": changes["compute"] / 4, "device_wait": changes["compute"] * 3 / 4}


@pytest.mark.parametrize("name", PAIRS)
def test_a_change_is_explained_with_its_size(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    golden: Callable[[str, str], None],
) -> None:
    monkeypatch.chdir(tmp_path)
    pair = PAIRS[name]()
    before, after = (reports_of(side) for side in pair.write(Path("logs")))
    comparison = compare(before, after, force=name == "gpu_gone")
    assert_exact(comparison)
    if name != "gpu_gone":
        shown = {
            row.state: row.difference_ps for row in comparison.states if row.direction != "none"
        }
        near = 0.2 if name == "straggler_begun" else 0.05
        assert shown == pytest.approx(expected(name, pair.changes), rel=near)
    text = render_section(screen_of(comparison)[0], width=100, color=False)
    bars = (
        f"{row.label}, {row.step_count} steps: {numbers.time(row.step_ps)}\n"
        for row in document_of(comparison).summary.anatomy
    )
    golden(f"pairs/{name}.txt", f"{text}\n{''.join(bars)}")


def test_a_cause_that_is_gone_is_said_to_cost_less(tmp_path: Path) -> None:
    before, after = (reports_of(side) for side in PAIRS["input_doubled"]().write(tmp_path))
    verdict = compare(after, before).verdict
    assert "because all 4 GPUs wait 4.00 ms less for input" in verdict
