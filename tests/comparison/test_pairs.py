"""Pairs of runs with a known change are explained right: the part, its size, the devices, the op."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.scenarios.pairs import CAPTURES, PAIRS
from traceview.comparison.build import compare, reports_of
from traceview.comparison.model import Comparison

CHANGED = [
    name
    for name in PAIRS
    if name not in ("gpu_gone", "straggler_begun", "changes_cancel", "noise_only")
]
REASONS = {
    "op_slower": r"because model takes 5\.\d+ ms longer",
    "copy_added": r"because HtoD copies take [12]\.\d+ ms longer",
    "input_doubled": r"because GPU:0–3 wait [34]\.\d+ ms more for input",
    "input_fivefold": r"because GPU:0–3 wait 1[56]\.\d+ ms more for input",
    "collective_slower": r"because communication takes [23]\.\d+ ms longer",
    "callback_added": r"because GPU:0–3 wait 3\.\d+ ms more between steps",
    "retracing_begun": r"because GPU:0–3 wait 4\.\d+ ms more for tracing and compilation",
}
FINDINGS = {
    "op_slower": [],
    "copy_added": [("h2d-exposed", "changed")],
    "input_doubled": [("input-bound", "changed")],
    "input_fivefold": [("input-bound", "changed")],
    "collective_slower": [("collective-exposed", "changed")],
    "callback_added": [("callback-stall", "came")],
    "retracing_begun": [("retracing", "came")],
}


def compared(
    folder: Path, name: str, *, is_forced: bool = False
) -> tuple[Comparison, dict[str, float]]:
    pair = PAIRS[name]()
    before, after = pair.write(folder)
    return compare(reports_of(before), reports_of(after), force=is_forced), dict(pair.changes)


def assert_exact(comparison: Comparison) -> None:
    step = comparison.step
    assert step.difference_ps == step.after_ps - step.before_ps
    assert sum(row.before_ps for row in comparison.states) == step.before_ps
    assert sum(row.after_ps for row in comparison.states) == step.after_ps
    assert sum(row.difference_ps for row in comparison.states) == step.difference_ps
    for device in comparison.devices:
        assert sum(row.before_ps for row in device.states) == device.before_ps
        assert sum(row.after_ps for row in device.states) == device.after_ps
        if device.status == "both":
            # Each capture states whole picoseconds of its devices.
            assert abs(device.before_ps - step.before_ps) <= CAPTURES
            assert abs(device.after_ps - step.after_ps) <= CAPTURES


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_is_explained_with_its_size(tmp_path: Path, name: str) -> None:
    comparison, changes = compared(tmp_path, name)
    assert_exact(comparison)
    ((state, expected_ps),) = changes.items()
    assert comparison.step.direction == "slower"
    assert comparison.step.difference_ps == pytest.approx(expected_ps, rel=0.1)
    largest = comparison.states[0]
    assert (largest.state, largest.direction) == (state, "slower")
    assert largest.difference_ps == pytest.approx(expected_ps, rel=0.05)
    assert all(row.direction == "none" for row in comparison.states[1:])
    assert re.search(f"{REASONS[name]}$", comparison.verdict)
    found = [(row.code, row.status) for row in comparison.findings]
    assert found == FINDINGS[name]


def test_a_gpu_that_is_gone_is_named(tmp_path: Path) -> None:
    comparison, _ = compared(tmp_path, "gpu_gone", is_forced=True)
    assert_exact(comparison)
    assert [(row.device, row.status) for row in comparison.devices] == [
        ("GPU:0", "both"),
        ("GPU:1", "both"),
        ("GPU:2", "both"),
        ("GPU:3", "gone"),
    ]
    assert comparison.verdict.startswith(
        "The runs do different work (devices 4 → 3), so their step"
    )
    assert comparison.verdict.endswith("; no longer used: GPU:3")
    assert [(row.name, row.before, row.after) for row in comparison.conditions] == [
        ("devices", "4", "3")
    ]


def test_the_gpu_that_others_wait_for_is_the_reason(tmp_path: Path) -> None:
    comparison, changes = compared(tmp_path, "straggler_begun")
    assert_exact(comparison)
    by_state = {row.state: row for row in comparison.states}
    slower_ps = changes["compute"]
    assert by_state["compute"].difference_ps == pytest.approx(slower_ps / 4, rel=0.2)
    assert by_state["device_wait"].difference_ps == pytest.approx(slower_ps * 3 / 4, rel=0.1)
    assert re.search(r", because model takes [34]\.\d+ ms longer on GPU:0$", comparison.verdict)


def test_changes_that_cancel_are_both_named(tmp_path: Path) -> None:
    comparison, changes = compared(tmp_path, "changes_cancel")
    assert_exact(comparison)
    assert comparison.step.direction == "none"
    shown = {row.state: row for row in comparison.states if row.direction != "none"}
    assert set(shown) == {"input", "compute"}
    for state, row in shown.items():
        assert row.difference_ps == pytest.approx(changes[state], rel=0.05)
    assert re.search(
        r"\. Opposite changes: model takes [23]\.\d+ ms longer, and GPU:0–3 wait [23]\.\d+ ms less for input$",
        comparison.verdict,
    )


def test_noise_is_called_noise(tmp_path: Path) -> None:
    comparison, changes = compared(tmp_path, "noise_only")
    assert_exact(comparison)
    assert changes == {}
    assert comparison.step.direction == "none"
    assert {row.direction for row in comparison.states} == {"none"}
    assert {op.status for op in comparison.ops} == {"same"}
    assert comparison.findings == ()
    assert comparison.verdict.startswith(
        "No clear change: 29.1 → 29.1 ms per step. These runs would"
    )
