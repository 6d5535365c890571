"""Finds exchanges of what all devices have alike, such as gradients that were summed before."""

from __future__ import annotations

from typing import Final

from traceview.graphs.calls import CALLS
from traceview.graphs.flow import Flow, Node, node_of, reached

_EXCHANGES: Final = frozenset(("CollectiveReduceV2", "NcclAllReduce"))
"""Ops that give all devices the sum of what each gives (TensorFlow 2.21)."""


def sent_again(flow: Flow) -> set[Node]:
    """The exchanges of what depends on nothing but other exchanges, constants and variables, of which replicas have equal ones."""
    sends = {node for node, op in flow.ops.items() if op.type in _EXCHANGES}
    given = {node for node, op in flow.ops.items() if op.type == "Placeholder"} - flow.given.keys()
    # Each replica may take another branch.
    chosen = {
        (call, name)
        for call, name in flow.given
        for inner in call.inner.get(name.rpartition(":")[0], ())
        if inner.op.type not in CALLS
    }
    further = {node: takers for node, takers in flow.takers.items() if node not in sends}
    own = reached((given | chosen | flow.sources.keys()) - flow.variables - sends, further) - sends
    summed = reached(sends, flow.takers) - own
    return {node for node in sends if node_of(node[0], flow.ops[node].inputs[0]) in summed}
