"""Shows how long each step took, and how busy the devices were in it."""

from __future__ import annotations

from collections import Counter

from traceview.analysis.steps.result import Steps
from traceview.document import numbers
from traceview.document.vocabulary import STEP_METHODS, look_of


def found_steps(steps: Steps) -> str:
    """How many steps there are, on how many hosts, and how they were found."""
    by_host = Counter(row.host for row in steps.steps)
    count = numbers.plural(steps.count, "step")
    if len(by_host) > 1 and len(set(by_host.values())) == 1:
        count = f"{numbers.plural(max(by_host.values()), 'step')} on each of {len(by_host)} hosts"
    elif len(by_host) > 1:
        count += f" on {len(by_host)} hosts"
    return f"{count} found {look_of(STEP_METHODS, steps.method).words}"
