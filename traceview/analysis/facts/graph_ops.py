"""Finds the device events of ops that graphs of the capture name (`GraphValues`)."""

from __future__ import annotations

from typing import Final

from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import BoolArray, Int32Array
from traceview.base.text import lazy_pattern
from traceview.trace.device.op_names import op_labels, own_name
from traceview.trace.model import Recording
from traceview.trace.sidecar.sidecar import GraphValues

_FIELDS: Final = tuple(name for name in GraphValues.__struct_fields__ if name.endswith("_ops"))
_ASSIGNMENT: Final = lazy_pattern(rb"EagerLocalExecute: Assign\w{0,9}VariableOp")


def op_of_label(trace: Recording) -> Int32Array:
    """By label (`op_labels`) its op, a name of the trace; `NONE` where none was recorded."""
    return trace.device_columns.op[trace.once(op_labels).row]


def assigns_eagerly(trace: Recording) -> bool:
    """Whether the script assigns to variables outside of graphs: perhaps to those that no graph changes."""
    return any(trace.named_on(host, _ASSIGNMENT.fullmatch).size for host in range(len(trace.hosts)))


def named_in_graphs(trace: Recording) -> dict[str, BoolArray]:
    """By field of `GraphValues` which labels are ops that the graphs of all hosts name that name some; an evaluator runs others."""
    ops = trace.once(op_of_label)
    named_by = {
        op: (trace.names.text(op) or "").rpartition(":")[0] for op in unique_ids(ops).tolist()
    }
    found = {}
    for field in _FIELDS:
        every = (frozenset(getattr(host.captured.graphs, field)) for host in trace.hosts)
        named = list(filter(None, every))
        names = frozenset.intersection(*named) if named else frozenset()
        chosen = [op for op, name in named_by.items() if name in names or own_name(name) in names]
        found[field] = is_in(ops, chosen)
    if trace.once(assigns_eagerly):
        found["constant_ops"] &= ~found["fixed_ops"]
    found["variable_ops"] |= found["dense_ops"]
    found["untrained_ops"] |= found["idle_ops"]
    return found
