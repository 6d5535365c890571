"""Finds compiled functions that run the layers of the one that trains a second time."""

from __future__ import annotations

import numpy as np

from traceview.analysis.facts.functions import functions_called
from traceview.analysis.measures.context import Context
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.words import Names
from traceview.analysis.workload.compute_rules import SECOND_FORWARD
from traceview.base.sweeping import SWEEPS
from traceview.ledger.states import State


def second_forward(context: Context) -> Finding | None:
    """Functions without gradients that run the code of one that trains."""
    ledger, functions = context.ledger, context.trace.once(functions_called)
    if not functions.repeats.any():
        return None
    rows = ledger.rows(states=(State.COMPUTE,))
    # `NONE` is the last.
    repeats = np.append(functions.repeats, False)
    rows &= repeats[functions.of_event[ledger.columns.event]]
    of_rows = functions.of_event[ledger.columns.event[rows]]
    whole = SWEEPS.totals(of_rows, ledger.columns.duration_ps[rows], len(functions.names))
    longest = np.argsort(-whole, kind="stable")[: np.count_nonzero(whole)].tolist()
    texts = tuple(functions.names[place] for place in longest)
    return SECOND_FORWARD.of_rows(
        context,
        rows,
        arguments={"function": Names(texts[:1], "function")},
        evidence=[Evidence("function", text, None, "", value_is="function") for text in texts],
    )
