"""Joins a comparison with what its conditions say, for programs that read both from one file."""

from __future__ import annotations

from traceview.comparison.model import Comparison
from traceview.gate.result import GateResult


class JudgedComparison(Comparison, frozen=True):
    """What differs between two sides, and whether the conditions on it hold.

    Attributes:
        gate: What the conditions of --require and --fail-on say; null without any.
    """

    gate: GateResult | None = None


def judged_comparison(comparison: Comparison, gate: GateResult | None) -> JudgedComparison:
    """The comparison with the verdict on it."""
    fields = {name: getattr(comparison, name) for name in Comparison.__struct_fields__}
    return JudgedComparison(**fields, gate=gate)
