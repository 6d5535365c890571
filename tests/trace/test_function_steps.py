"""A step detected from calls of a function ends with the last component of its call."""

from __future__ import annotations

from pathlib import Path

import traceview
from scripts.scenarios.model import Step, ms, new_trace


def test_the_last_one_ends_with_the_last_component_of_its_call(tmp_path: Path) -> None:
    """A call has one `FunctionRun` per device, and any of them may be the last to return."""
    trace = new_trace()
    for index in range(3):
        step = Step(trace, 50 * index)
        step.kernel(0, 2, 4)
        for component, (start, end) in enumerate([(0, 1), (1, 30), (31, 32)]):
            run = {"id": 7 + index, "_r": 1, "_pt": 2, "_p": 100 * index + component}
            step.host("FunctionRun", start, end, run, thread=trace.thread("python", 2))
    trace.write(tmp_path)
    found = traceview.load(tmp_path).steps_by_host[0]
    assert found.method == "function"
    assert found.steps[-1].duration_ps == ms(32)
