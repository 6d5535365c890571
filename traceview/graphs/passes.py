"""Finds passes over ids that a later one repeats."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from traceview.graphs.calls import GRADIENT_SCOPE, MOST_VISITED
from traceview.graphs.flops import FLOPS_OF
from traceview.graphs.flow import Flow, Node, node_of, reached

_LOOKUPS: Final = {"Gather": 1, "GatherV2": 1, "ResourceGather": 1, "OneHot": 0}
"""Ops that make numbers of ids, and which of their inputs these are."""
_JOINS: Final = {
    "Cast": slice(1), "ConcatV2": slice(-1), "ExpandDims": slice(1), "GatherV2": slice(1), "Identity": slice(1), "Pack": slice(None),
    "Reshape": slice(1), "Squeeze": slice(1), "StridedSlice": slice(1), "TensorListSetItem": slice(0, 3, 2),
    "TensorListStack": slice(1), "TensorScatterUpdate": slice(0, 3, 2), "Transpose": slice(1),
}  # fmt: skip
"""Ops whose result has all that some of their inputs have, and which these are, as far as they are what `_keeps` asks for."""
_MASKS: Final = ("begin_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def decoded_again(flow: Flow) -> set[Node]:
    """Passes over ids that a later one repeats with those that were drawn from them, and through which no gradient goes.

    A pass begins where ids are looked up. Of three, each with all ids of the last, the second; in a loop with those of the last turn.
    """
    lookups = {node: op for node, op in flow.ops.items() if op.type in _LOOKUPS}
    made, joins = reached(lookups, flow.users), dict(flow.given)
    for node, op in flow.ops.items():
        if op.type in _JOINS and _keeps(op):
            joins[node] = [node_of(node[0], each) for each in list(op.inputs)[_JOINS[op.type]]]
    found, left = set[Node](), MOST_VISITED
    passes: list[tuple[set[Node], set[Node]]] = []
    for node, op in lookups.items():
        ids = op.inputs[_LOOKUPS[op.type]]
        joined = reached([node_of(node[0], ids)], joins)
        drawn = (joined & made) - joins.keys()
        after = reached([node], flow.after) if drawn else drawn
        left -= len(joined) + len(after)
        is_trained = any(GRADIENT_SCOPE in name for _, name in after)
        if left < 0:
            return set()
        if is_trained or not _has_places(flow, after, ids.shape):
            continue
        passes.append((drawn, after))
        for each in joined & flow.given.keys():
            last = reached(flow.given[each], joins)
            left -= len(last)
            if left < 0:
                return set()
            # Of a loop, which gives what it was given and what it draws.
            if each in last and any(each[0] in (of, of.outer) for of, _ in last & drawn):
                found |= after
    for drawn, after in passes if len(passes) ** 2 < MOST_VISITED else ():
        if any(drawn < each for each, _ in passes) and any(each < drawn for each, _ in passes):
            found |= after
    return found


def _has_places(flow: Flow, nodes: Iterable[Node], shape: Any) -> bool:
    """Whether products among these have a row for each element of such a shape, which has several."""
    sizes = shape.as_list() if shape.rank else [1]
    products = (flow.ops[node] for node in nodes if flow.type_of(node) in FLOPS_OF)
    results = ((op, *op.outputs[0].consumers()) for op in products if sizes[-1] != 1)
    shapes = (tensor.shape for ops in results for op in ops for tensor in op.outputs)
    return any(each.rank and each[: len(sizes)].as_list() == sizes for each in shapes)


def _keeps(op: Any) -> bool:
    """Whether an op gives its input in as many dimensions, and of each that it cuts several or the first; true of what cuts none."""
    if op.type not in ("StridedSlice", "GatherV2"):
        return True
    before, after = op.inputs[0].shape, op.outputs[0].shape
    masks = [*map(op.get_attr, _MASKS)] if op.type == "StridedSlice" else [1]
    if before.rank is None or before.rank != after.rank or any(masks[1:]):
        return False
    sizes = enumerate(zip(before.as_list(), after.as_list(), strict=True))
    return all(
        masks[0] >> place & 1 if size is None else size == whole or size > 1
        for place, (whole, size) in sizes
    )
