"""Holds the rule on CUDA graphs that the tracer recorded as a whole, and its findings."""

from __future__ import annotations

from typing import Final

from traceview.analysis.base import Evidence, Finding, Rule
from traceview.analysis.launches.result import Launches
from traceview.document import numbers

OPAQUE_CUDA_GRAPH: Final = Rule(
    "opaque-cuda-graph",
    starts_at="any CUDA graph that is recorded as one event",
    severities=("info",),
    meaning=(
        "The tracer recorded CUDA graphs without their kernels. They count as compute; which kernels, ops and "
        "collectives ran in them, and in which precision, is not in the trace."
    ),
    evidence="opaque_count and opaque_ps of graphs in results.launches.",
    advice=(
        "To see the kernels, capture once without graphs: XLA_FLAGS=--xla_gpu_enable_command_buffer= switches those "
        "of XLA off."
    ),
    example="12 CUDA graphs recorded without kernels",
)


def diagnose(result: Launches) -> list[Finding]:
    """CUDA graphs of which only the whole is recorded."""
    rows = [row for row in result.devices if row.graphs.opaque_count]
    if not rows:
        return []
    count = sum(row.graphs.opaque_count for row in rows)
    longest = max(rows, key=lambda row: row.graphs.opaque_ps)
    return [
        OPAQUE_CUDA_GRAPH.finding(
            f"{numbers.plural(count, 'CUDA graph')} recorded without kernels",
            [Evidence("opaque_count", row.graphs.opaque_count, 0, row.device) for row in rows],
            confidence=("high", "recorded in the trace"),
            explanation=(
                f"{OPAQUE_CUDA_GRAPH.meaning} They take {numbers.time(longest.graphs.opaque_ps)} on {longest.device}."
            ),
            devices=[row.device for row in rows],
        )
    ]
