"""Spreads the causes of gaps over a table, for tests that look at each gap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from traceview.trace.host.gaps import Gaps
from traceview.trace.model import Step
from traceview.trace.state import State


def causes_of_gaps(gaps: Gaps) -> npt.NDArray[np.int64]:
    """The time of each whole gap with each cause, int64 `[causes, gaps]`."""
    result = np.zeros((len(State), gaps.count), dtype=np.int64)
    spans = gaps.idle_spans
    np.add.at(result, (spans.state, spans.gap), spans.end_ps - spans.start_ps)
    return result


def causes_of_steps(gaps: Gaps, steps: Sequence[Step]) -> npt.NDArray[np.int64]:
    """The idle time of each step with each cause, int64 `[causes, steps]`."""
    bounds = [step.start_ps for step in steps], [step.end_ps for step in steps]
    return np.stack([gaps.spans_with(cause).within(*bounds) for cause in State])
