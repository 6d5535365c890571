"""Finds what devices wait for because ops of the step run on the CPU: these ops, and the copies of tensors to them and back.

The runtime of TensorFlow copies a tensor between devices in an op of its own, which is named after the op that made the tensor
(2.21: `mul/_3:_Send`, before `edge_12_mul`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.ledger import ledger_of
from traceview.analysis.facts.run import Run
from traceview.analysis.rules.rule import LIMIT
from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.text import lazy_pattern
from traceview.ledger.columns import By
from traceview.ledger.states import State
from traceview.ledger.table import Ledger, totals
from traceview.trace.columns import NONE
from traceview.trace.device.correlation import copies_of
from traceview.trace.host.gaps import LATENCY_PS
from traceview.xplane.planes import ActivityClass, op_type

WAITS_FOR_RESULTS: Final = (
    State.HOST_OPS,
    State.H2D,
    State.LAUNCH,
    State.SYNC,
    State.DEPENDENCY,
    State.LATENCY,
    State.UNKNOWN,
)
"""States of a GPU before and during the copy of what an op on the CPU made."""

TRANSFER: Final = lazy_pattern(
    rb"edge_\d+_(?P<edge>[^:]+)(?::\w+)?|(?P<node>[^:]+?)(?:/_\d+)?:_(?:Host)?(?:Send|Recv)"
)
"""Copies inside of a graph."""

_WITHOUT_INPUT: Final = lazy_pattern(
    rb"_(?:Host)?(?:Send|Recv)|_Arg|Const|Placeholder\w*|(?=\w*Iterator)\w+|Optional\w*"
)
"""Types of ops that take no tensor from a GPU: transfers themselves, constants, and ops that read a dataset."""

_SUM: Final = b"AddN"
_OF_REPLICA: Final = lazy_pattern(rb"(?:^|/)replica_[1-9]\d*(?:_\d+)?/")


class Results(Struct, frozen=True, eq=False):
    """Copies to devices of what ops on the CPU made: int64 `row`, in the device columns; whether of a sum over replicas, bool `is_sum`.

    `op_of`: by the name of a copy, a number of `Trace.names`, the op whose result it brings, `scope/name:Type`.
    """

    row: Int64Array
    is_sum: BoolArray
    op_of: dict[int, bytes]


def copied_results(context: Run) -> Results:
    """The copies of results of ops on the CPU; `Run.once` keeps them."""
    trace = context.trace
    copies, names = trace.once(copies_of), trace.names
    is_up = trace.device_columns.class_[copies.row] == ActivityClass.H2D
    source_of = {}
    for name in unique_ids(copies.op[is_up]).tolist():
        transfer = TRANSFER.fullmatch(names[name]) if name != NONE else None
        if transfer:
            source_of[name] = transfer["edge"] or transfer["node"]
    sources = set(source_of.values())
    type_of = {
        op: type_
        for name in (unique_ids(trace.host_columns.name).tolist() if sources else ())
        if (op := names[name].rpartition(b":")[0]) in sources
        and (type_ := op_type(names[name])) is not None
        and not _WITHOUT_INPUT.fullmatch(type_)
    }
    op_of = {
        name: b"%s:%s" % (source, type_of[source])
        for name, source in source_of.items()
        if source in type_of
    }
    sums = [name for name in op_of if is_sum(names[name], type_of[source_of[name]])]
    chosen = is_up & is_in(copies.op, list(op_of))
    return Results(copies.row[chosen], is_in(copies.op[chosen], sums), op_of)


def is_sum(name: bytes, type_: bytes) -> bool:
    """Whether an op sums over replicas: one that a replica k >= 1 runs for itself has its number in its name."""
    return type_ == _SUM and not _OF_REPLICA.search(name)


def detour_rows(context: Run) -> BoolArray:
    """The rows of the ledger in which GPUs wait for ops on the CPU, for the copies around them, and for launches that could not be
    made ahead because of them; none where they are no finding.

    Without sums of gradients; where these take as much, copies to the host are theirs.
    """
    trace, ledger = context.trace, context.once(ledger_of)
    columns = ledger.columns
    results, nothing = context.once(copied_results), np.zeros(ledger.count, dtype=np.bool_)
    down = ledger.rows(states=(State.D2H,))
    op = trace.device_columns.op[columns.event[down]]
    down[down] = trace.names.where(op, TRANSFER.fullmatch)
    if not (results.row.size or down.any()):
        return nothing
    waits, (stretch, is_within) = ledger.rows(states=WAITS_FOR_RESULTS), _stretches(ledger)
    of_sums = waits & is_in(columns.event, results.row[results.is_sum])
    up = waits & is_in(columns.event, results.row[~results.is_sum])
    asked = down & is_within[stretch]
    if not (up | asked).any() or ledger.loss(of_sums).share >= LIMIT:
        return nothing
    by_op = ledger.rows(states=(State.HOST_OPS,)) & (columns.by_kind == By.OP)
    # The host also runs events that are no ops, such as what hands on the results of a graph.
    by_op[by_op] = trace.names.where(columns.by[by_op], op_type)
    rows = up | down | by_op
    asked_ps, took_ps = (
        totals(stretch[of], columns.duration_ps[of], is_within.size) for of in (asked, rows)
    )
    # A launch that takes longer than what is between two kernels does not wait for that.
    held_up = (asked_ps > 0) | (took_ps > LATENCY_PS)
    rows |= ledger.rows(states=_LATE) & ~of_sums & held_up[stretch]
    return rows if ledger.loss(rows).share >= LIMIT else nothing


_LATE: Final = (State.LAUNCH, State.LATENCY)


def _stretches(ledger: Ledger) -> tuple[Int64Array, BoolArray]:
    """The stretch of each row, from one of compute to the next, and which stretches lie between two of compute in one step.

    Behind a detour the host has launched nothing ahead.
    """
    columns = ledger.columns
    begins: BoolArray = columns.activity == ActivityClass.COMPUTE
    begins[[first for first in ledger.first[:-1] if first < begins.size]] = True
    step = columns.step[begins]
    is_within = np.append(False, np.append(step[1:] == step[:-1], False))
    return np.cumsum(begins, dtype=np.int64), is_within
