"""Describes which ops of step functions compute in float64, the same in every step, from the batch alone or from variables alone,
which train nothing, and which repeat what others do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from traceview.graphs.calls import GRADIENT_SCOPE, calls_of
from traceview.graphs.dropped import dropped
from traceview.graphs.exchanges import sent_again
from traceview.graphs.flow import NEXT, Flow, around, reached
from traceview.graphs.pairs import of_pairs
from traceview.graphs.passes import decoded_again
from traceview.graphs.products import (
    products_of_zeros,
    repeated_products,
    separable,
    summed_products,
)
from traceview.graphs.recomputed import recomputed
from traceview.graphs.repeated import computed_again
from traceview.graphs.shifted import shifted
from traceview.graphs.turns import carried

_NO_WORK: Final = frozenset((
    "Const", "Identity", "IdentityN", "NoOp", "Placeholder", "PlaceholderWithDefault", "ReadVariableOp", "Shape",
))  # fmt: skip

_IN_64_BITS: Final = frozenset(("float64", "complex128"))

_OWN_KINDS: Final = ("float64", "constant", "batch", "variable", "untrained", "fixed", "idle")


def describe_values(
    graphs: Iterable[Any], shapes: Mapping[int, Sequence[int]], trained: Collection[int] = ()
) -> dict[str, Any]:
    """The names of ops in float64, of those that read only constants and tensors made before the graph, of those that besides read
    only the batch, or only variables, and of those that train nothing; none for names of others. `fixed_ops` are those of the second
    and third that read variables which nothing changes; `same_batch`: how many replicas read the same batch, 0 unless all do.

    `shapes`: of variables, by the ids of their handles; `trained`: of these the trained ones, without an update of one of
    which batch, variable and untrained ops are not known.
    """
    calls = list(calls_of(graphs))
    flow = Flow(calls)
    fixed = flow.fixed(shapes, trained)
    states = (node for node, is_state in flow.sources.items() if is_state and node not in fixed)
    changing = reached(flow.sources.keys() - fixed, flow.users)
    by_fixed, by_state = reached(fixed, flow.users), reached(states, flow.users)
    by_others = reached(flow.sources.keys() - flow.variables, flow.users)
    moved = flow.moved(trained)
    needed = flow.needed(moved) - (changing & flow.multiplied)
    idle = flow.idle({*trained} - moved, moved) - needed if needed else set()
    # Where the only data are a tensor made before the graph, all that reads it reads no batch.
    has_batch = bool(needed) and not all(flow.sources.values())
    forward = {node for node, op in flow.ops.items() if GRADIENT_SCOPE not in op.name}
    works = {node for node in forward if flow.ops[node].type not in _NO_WORK}
    free = {name for _, name in works & changing - by_others}
    scopes = {*free, *map(_scope, free)} - {"", *(_scope(name) for _, name in forward & by_others)}
    saved = {
        "dropped": dropped(flow),
        "copied": repeated_products(flow),
        "zero": products_of_zeros(flow, fixed),
        "separable": separable(flow, fixed),
    }
    also = {
        "summed": flow.summed_gradients() if needed else set(),
        "dense": flow.dense(by_others) if has_batch else set(),
        "again": decoded_again(flow) & needed if needed else set(),
        "sent": sent_again(flow),
        "pair": of_pairs(flow),
        "apart": summed_products(calls),
        "recomputed": recomputed(flow),
        "same": computed_again(flow),
        "shifted": shifted(flow),
        "carried": carried(calls),
        **{kind: nodes for kind, (nodes, _) in saved.items()},
    }
    kinds: dict[str, set[str]] = {}
    for node, op in flow.ops.items():
        if op.type in _NO_WORK and node not in also["shifted"]:
            continue
        own = set()
        if not _IN_64_BITS.isdisjoint(tensor.dtype.name for tensor in op.outputs):
            own.add("float64")
        if op.type in _NO_WORK:
            # A read is work where it copies what is then changed.
            pass
        elif node in idle:
            own.add("idle")
        elif node not in changing:
            own.add("constant")
        elif needed and node not in needed and not flow.is_of_loss(node):
            own.add("untrained")
        elif needed and node not in by_state and not (op.type.startswith(NEXT) or _widens(op)):
            own.add("batch")
        elif has_batch and (node not in by_others or _scope(op.name) in scopes):
            own.add("variable")
        if node in by_fixed and not own.isdisjoint(("constant", "batch")):
            own.add("fixed")
        own.update(kind for kind, nodes in also.items() if node in nodes)
        for name in node[0].names_of(op):
            kinds[name] = kinds.get(name, own) & own
    ops = {
        f"{kind}_ops": [name for name, own in kinds.items() if kind in own][:1_000]
        for kind in (*_OWN_KINDS, *also)
    }
    same_batch = flow.replicas_of(changing - by_state) if needed else 0
    return {
        **ops,
        "saved_percent": {kind: percent for kind, (_, percent) in saved.items()},
        "same_batch": same_batch,
    }


def _widens(op: Any) -> bool:
    """Whether an op casts to a larger type: what the step is given before is less to hand over, and to copy to a GPU."""
    return op.type == "Cast" and bool(op.outputs[0].dtype.size > op.inputs[0].dtype.size)


def _scope(name: str) -> str:
    """The scope of an op; of a gradient that of the op that it is of."""
    return around(name.rpartition(GRADIENT_SCOPE)[2])
