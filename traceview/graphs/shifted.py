"""Finds variables that a step copies whole to change a part of them, as a queue whose rows move up by as many as are new."""

from __future__ import annotations

from typing import Final

from traceview.graphs.calls import source
from traceview.graphs.flow import Flow, Node, node_of

_JOINS: Final = frozenset(("ConcatV2", "Roll", "TensorScatterAdd", "TensorScatterUpdate"))
_CUTS: Final = frozenset(("Identity", "Slice", "StridedSlice"))
_MOST_CUTS: Final = 8
"""Ops between what is read and what joins it. A choice of ours."""


def shifted(flow: Flow) -> set[Node]:
    """What assigns to a variable most of what it held, in other places or with other rows, and what reads, cuts and joins that."""
    found = set[Node]()
    for node, op in flow.ops.items():
        if op.type != "AssignVariableOp":
            continue
        joined, size = source(op.inputs[1]).op, op.inputs[1].shape.num_elements()
        variable = flow.root(node_of(node[0], op.inputs[0]))
        for tensor in joined.inputs if joined.type in _JOINS and size else ():
            chain, made = [joined], tensor.op
            while made.type in _CUTS and len(chain) < _MOST_CUTS:
                chain.append(made)
                made = made.inputs[0].op
            is_most = 2 * (tensor.shape.num_elements() or 0) > size
            if made.type == "ReadVariableOp" and is_most:
                read = (node[0], made.name)
                if flow.root(node_of(node[0], made.inputs[0])) == variable:
                    found |= {node, *((node[0], each.name) for each in chain)}
                    is_own = set(flow.takers.get(read, ())) <= found
                    found |= {read} if is_own else set()
    return found
