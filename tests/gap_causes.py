"""Spreads the causes of gaps over a table, for tests that look at each gap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceview.trace.host.cause import Cause
from traceview.trace.host.gaps import Gaps


def causes_of_gaps(gaps: Gaps) -> npt.NDArray[np.int64]:
    """The time of each whole gap with each cause, int64 `[causes, gaps]`."""
    result = np.zeros((len(Cause), gaps.count), dtype=np.int64)
    for cause, (pieces, lengths) in gaps.by_cause.items():
        np.add.at(result[cause], gaps.gap[pieces], lengths)
    return result
