"""Makes findings about ops that labels name: how long they compute, of which types they are, and which line or layer made most."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.measures.context import Context
from traceview.analysis.measures.op_work import (
    are_tiny,
    dispatch_of_labels,
    label_ps,
    layer_of,
    line_of,
    program_of,
    rows_of_labels,
)
from traceview.analysis.rules.finding import Evidence, Finding, Severity
from traceview.analysis.rules.rule import TINY_OPS, Rule
from traceview.analysis.rules.words import Argument, Ops, Quantity
from traceview.analysis.workload.compute_rules import BATCH_WORK, CONSTANT, UNTRAINED
from traceview.analysis.workload.costly_ops import types_of_labels
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.sweeping import SWEEPS
from traceview.ledger.states import State

TOP_TYPES: Final = 3
"""Types of ops that are named, those that take longest."""


class SomeOps(Struct, frozen=True, eq=False):
    """Ops that a finding may be about.

    `rows`: of the ledger in which they compute, bool; `by_label`: for how long, int64 picoseconds; `by_type`: the same by type, ""
    where none was recorded; `types`: the types that take longest.
    """

    rows: BoolArray
    by_label: Int64Array
    by_type: Mapping[str, int]
    types: list[str]

    @property
    def whole_ps(self) -> int:
        """How long all devices together compute them."""
        return int(self.by_label.sum())


def some_ops(
    context: Context, labels: BoolArray, devices: Collection[int] | None = None
) -> SomeOps:
    """What some devices, by default all, compute of what these labels name."""
    rows = rows_of_labels(context, labels, devices)
    by_label = label_ps(context, rows)
    types, of_label = context.once(types_of_labels)
    total = SWEEPS.totals(of_label, by_label, len(types)).tolist()
    by_type = {type_: ps for type_, ps in zip(types, total, strict=True) if ps}
    named = sorted(filter(None, by_type), key=lambda type_: (-by_type[type_], type_))
    return SomeOps(rows, by_label, by_type, named[:TOP_TYPES])


_LEFT_OUT: Final = (UNTRAINED, CONSTANT, BATCH_WORK)
"""Rules about ops that a step need not have: without them their dispatch is gone, too."""


def finding_of_ops(
    context: Context,
    rule: Rule,
    labels: BoolArray,
    saved_ratio: float = 1.0,
    note: str = "",
    shown: BoolArray | None = None,
    key: str = "",
    devices: Collection[int] | None = None,
    also: BoolArray | bool = False,
    action: str | None = None,
    made_by: str | None = None,
    severity: Severity | None = None,
) -> Finding | None:
    """The finding about some ops, with the type and the line of those that take longest, or of the type `made_by`.

    `saved_ratio`: how much of their time is the loss, for the reason that `note` gives. `shown`: labels that the trace shows to
    be such ops; where none of these took time, graphs of the capture do. `key`: of its title, and its action unless `action` is
    another. `devices`: on which they are such ops, by default all. `also`: further rows. `severity`: unless the cost says it.
    """
    if not labels.any():
        return None
    ops = some_ops(context, labels, devices)
    if not ops.whole_ps:
        return None
    is_of_graph = shown is not None and not ops.by_label[shown].any()
    by_label = ops.by_label
    types = [made_by] if made_by and made_by in ops.by_type else ops.types[:1]
    if types:
        # The line is that of the ops that are named.
        every, of_label = context.once(types_of_labels)
        by_label = np.where(of_label == every.index(types[0]), by_label, 0)
    arguments = layer_of(context, by_label) | named_ops(context, types, by_label)
    rows = ops.rows | also
    if key == "donating":
        arguments |= program_of(context, rows)
    notes = [note, key]
    if rule in _LEFT_OUT and (dispatch := dispatch_of_labels(context, labels, devices)).any():
        rows |= dispatch
        notes.append("dispatch")
    if are_tiny(context, ops.rows):
        notes.append(TINY_OPS)
    exchanged = context.ledger.loss(rows & context.ledger.rows(states=(State.COMMUNICATION,)))
    # A choice of ours: less changes no sentence. What is gathered says so itself.
    if 10 * exchanged.ps >= context.ledger.loss(rows).ps and key != "gathered":
        arguments["exchanged"] = Quantity(exchanged.mean_ps, "ps")
        notes.append("exchanged")
    return rule.of_rows(
        context,
        rows,
        arguments=arguments,
        confidence=("high", "graph" if is_of_graph else ""),
        keeps_waiting=note in ("", "part", "gathered"),
        shares_cores=True,
        saved_ratio=saved_ratio,
        title=note or key,
        action=key if action is None else action,
        notes=tuple(dict.fromkeys(notes)),
        evidence=type_evidence(ops),
        severity=severity,
    )


def named_ops(context: Context, types: Sequence[str], by_label: Int64Array) -> dict[str, Argument]:
    """The types of ops that a title names, and the line that made them, as far as these are known."""
    named: dict[str, Argument] = {"ops": Ops(tuple(types))} if types else {}
    return named | line_of(context, by_label)


def type_evidence(ops: SomeOps) -> list[Evidence]:
    """The types that take longest, one by one."""
    return [Evidence("op_type", type_, None, "", value_is="type") for type_ in ops.types]
