"""A window holds the events that overlap it, and steps in it have a median and a spread."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import traceview
from scripts.scenarios.model import ms, new_trace
from traceview.analysis.facts.selection import rows_in
from traceview.trace.windows import Window

WINDOW = Window(host=0, kind="steps", start_ps=100, end_ps=200)


@pytest.mark.parametrize(
    ("start", "end", "inside"),
    [
        (0, 100, False),
        (0, 101, True),
        (0, 300, True),
        (199, 300, True),
        (200, 300, False),
        (99, 99, False),
        (100, 100, True),
        (199, 199, True),
        (200, 200, False),
    ],
)
def test_events_of_a_window(start: int, end: int, inside: bool) -> None:
    rows = rows_in(np.array([start], dtype=np.int64), np.array([end], dtype=np.int64), WINDOW)
    assert rows.tolist() == ([0] if inside else [])


def test_median_of_an_even_number_of_steps(tmp_path: Path) -> None:
    """Steps of 10, 20, 30 and 41 ms: quartiles lie at 17.5 and 32.75."""
    trace = new_trace()
    start = 0
    for number, length in enumerate((20, 41, 10, 30)):
        trace.marker(number, ms(start), ms(start + length))
        trace.kernel(0, ms(start), ms(start + 1))
        start += length
    trace.write(tmp_path)
    steps = traceview.analyze(tmp_path).results.steps
    assert steps is not None
    assert [step.duration_ps for step in steps.steps] == [ms(20), ms(41), ms(10), ms(30)]
    assert (steps.median_ps, steps.iqr_ps) == (ms(25), ms(15.25))
    assert steps.cv_ratio == pytest.approx(float(np.std([20, 41, 10, 30]) / 25.25))
