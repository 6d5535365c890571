"""Finds what a forward pass has computed before, and what was dropped since to save memory."""

from __future__ import annotations

from typing import Final

from traceview.graphs.calls import GRADIENT_SCOPE
from traceview.graphs.flow import Flow, Node, reached

_CHOICE: Final = "SelectV2"


def recomputed(flow: Flow) -> set[Node]:
    """What `tf.recompute_grad` computes for a gradient, as do layers made within `keras.RematScope`; not the gradient itself.

    So that it waits for the gradient, all that it is given is added to a number that is 0 if one of the gradient is equal to itself
    (tensorflow/python/ops/custom_gradient.py, TensorFlow 2.21).
    """
    barriers = [
        node for node, op in flow.ops.items() if op.type == _CHOICE and _is_barrier(flow, node)
    ]
    if not barriers:
        return set()
    after = {
        node: [each for each in takers if GRADIENT_SCOPE not in each[1]]
        for node, takers in flow.takers.items()
        if GRADIENT_SCOPE not in node[1]
    }
    return reached(barriers, after)


def _is_barrier(flow: Flow, node: Node) -> bool:
    condition, zero, other = flow.ops[node].inputs
    compared = (
        [each.name for each in condition.op.inputs]
        if condition.op.type == "Equal"
        else ["", "other"]
    )
    return len(set(compared)) == 1 and zero.op.type == other.op.type == "Const"
