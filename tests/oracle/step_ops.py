"""Recomputes the kinds of ops in the steps (docs/method.md, "Step ops")."""

from __future__ import annotations

from fractions import Fraction

from tests.oracle.model import Row, device_name
from tests.oracle.op_kinds import kind_of
from tests.oracle.segments import Ledger

SPARSE = ("UnsortedSegmentSum", "ResourceScatter", "ResourceSparseApply")


def step_op_rows(ledger: Ledger, several: bool) -> list[Row]:
    """One row per device that computed in the used steps."""
    rows = []
    for answer in ledger.answers:
        count = sum(step.used for step in answer.steps)
        for device in answer.devices:
            parts = [
                (segment.end - segment.start, segment.activity)
                for segment in ledger.segments[id(device)]
                if segment.state == "compute" and segment.step is not None and segment.step.used
                if segment.activity is not None
            ]
            whole = sum(ps for ps, _ in parts)
            kinds = []
            for kind in ("python", "printing", "summaries", "checks", "text", "optimizer"):
                own = [(ps, activity) for ps, activity in parts if kind_of(activity) == kind]
                if own:
                    total = sum(ps for ps, _ in own)
                    kinds.append(
                        {
                            "kind": kind,
                            "count": len({id(activity) for _, activity in own}),
                            "ps_per_step": total // count,
                            "compute_ratio": Fraction(total, whole),
                        }
                    )
            sparse = [
                activity
                for _, activity in parts
                if kind_of(activity) == "optimizer" and activity.op_type.startswith(SPARSE)
            ]
            if parts:
                rows.append(
                    {
                        **device_name(device, several),
                        "updates_sparse": bool(sparse),
                        "kinds": kinds,
                    }
                )
    return rows
