"""Finds products of matrices and convolutions of which a slice, or a diagonal, drops most."""

from __future__ import annotations

from math import fsum
from typing import Any, Final

from traceview.graphs.calls import GRADIENT_SCOPE
from traceview.graphs.flops import FLOPS_OF, relative_size
from traceview.graphs.flow import OF_ONE, OF_TWO, VIEWS, Flow, Node, followed

_PASSES: Final = OF_ONE | OF_TWO | VIEWS
"""What gives each number for one that it is given."""
_DIAGONALS: Final = frozenset(
    ("DiagPart", "MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3")
)
_PICKS: Final = frozenset(("Gather", "GatherV2", "Slice", "StridedSlice", *_DIAGONALS))
_SPREADS: Final = frozenset(("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3"))
"""What makes the gradient of a diagonal: a matrix of zeros around it."""
_ASKS: Final = frozenset(("Rank", "Shape", "ShapeN", "Size"))
"""What reads no numbers."""
MOST_KEPT: Final = 1 / 3
"""A choice of ours: a slice that keeps more may be cheaper than what avoids it."""


def dropped(flow: Flow) -> tuple[set[Node], int]:
    """The products of whose numbers slices and diagonals keep no more than a third, with what is computed of each number before that and with their
    gradients; and how much is dropped of each, percent, at least.
    """
    found, most = set[Node](), 0.0
    for node, _ in flow.forward(FLOPS_OF):
        kept, before = _kept(flow, node)
        if kept <= MOST_KEPT:
            most = max(most, kept)
            found |= before
    gradients = flow.gradients(node for node in found if flow.type_of(node) in FLOPS_OF)
    gradients = {node for node in gradients if flow.type_of(node) in FLOPS_OF}
    spread = {
        node
        for node, op in flow.ops.items()
        if op.type in _SPREADS and not gradients.isdisjoint(flow.takers.get(node, ()))
    }
    return found | gradients | spread, int(100 * (1 - most)) if found else 0


def _kept(flow: Flow, start: Node) -> tuple[float, set[Node]]:
    """Which part of the numbers of a product anything but what picks some, or what is behind that, reads; 1 where that is not known.
    Also what computes all of them.
    """

    def users(node: Node) -> list[Node]:
        return [each for each in flow.takers.get(node, ()) if GRADIENT_SCOPE not in each[1]]

    before = followed(
        [start], lambda node: (each for each in users(node) if flow.type_of(each) in _PASSES)
    )
    ends = [each for node in before for each in users(node) if flow.type_of(each) not in _PASSES]
    picks = [flow.ops[each] for each in ends if flow.type_of(each) in _PICKS]
    is_known = bool(picks) and all(flow.type_of(each) in _PICKS | _ASKS for each in ends)
    return fsum(map(_part, picks)) if is_known else 1.0, before


def _part(op: Any) -> float:
    """Which part of its input what picks some gives, by the shapes; 1 where they do not tell, but of a diagonal 0."""
    if op.type in _DIAGONALS:
        rank = op.inputs[0].shape.rank
        return 1 / ((rank and op.inputs[0].shape[-1]) or float("inf"))
    return min(relative_size(op.outputs[0], op.inputs[0]) or 1.0, 1.0)
