"""How severe a finding is: by what a change would save."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.scenarios.model import marked_steps, new_trace


@pytest.mark.parametrize(
    ("other_ms", "severity"), [(30, "critical"), (91, "warning"), (96, "info")]
)
def test_a_wait_that_another_device_hides_saves_little(
    other_ms: float, severity: str, tmp_path: Path
) -> None:
    """GPU:0 waits 70 of 100 ms for input; GPU:1 works so long that the step could be shorter by the rest."""
    trace = new_trace(length_ms=1000)
    for step in marked_steps(trace, period_ms=100, marker_ms=100):
        step.host("Iterator::Prefetch", 0, 70)
        step.kernel(0, 70, 100, launch_ms=69.9)
        step.kernel(1, 100 - other_ms, 100, launch_ms=99.9 - other_ms)
    trace.write(tmp_path)
    findings = {row.code: row.severity for row in traceview.analyze(tmp_path).findings}
    assert findings["input-bound"] == severity
