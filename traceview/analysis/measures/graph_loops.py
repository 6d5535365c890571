"""Finds loops of small ops in compiled steps, such as `tf.map_fn`, `tf.vectorized_map` that falls back to one, and `jax.lax.map`.

In a graph, or a program of XLA, each op has a name of its own: one that runs several times in a step is in a loop. What such ops
take is their compute, and the dispatch before each of them. Defined in docs/method.md: "Loops of small ops".
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.devices import devices_in_use
from traceview.analysis.facts.graph_ops import named_in_graphs
from traceview.analysis.facts.layers import instructions_that
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.op_work import (
    DISPATCH,
    LEFT_OUT_RATIO,
    counted_events,
    label_flops,
    label_ps,
    rows_of_labels,
    time_by_label,
)
from traceview.analysis.rules.rule import LIMIT
from traceview.base.intervals import BoolArray
from traceview.base.units import PS_PER_US
from traceview.ledger.columns import IDLE
from traceview.ledger.states import State
from traceview.trace.columns import NONE
from traceview.trace.device.op_names import label_lines, op_labels, op_names

_FEWEST_TURNS: Final = 16
"""Of a loop, in each step. A choice of ours."""

_SMALL_PS: Final = 50 * PS_PER_US
"""The mean length of ops that dispatch makes much longer: it takes 10 to 30 µs for each (TensorFlow 2.21, JAX 0.10, two cores)."""

_OF_STEP_RATIO: Final = 0.975
"""Of the compute: a loop with more is that of the training itself, such as several steps in one call. A choice of ours."""

_DISPATCH_RATIO: Final = 0.25
"""Of the time of a loop on a GPU, where ops as short as this may fill all of it. A choice of ours."""

_SAVED_OF_XLA: Final = 0.5
"""Of a loop of a program of XLA, whose ops have little dispatch: 256 turns that took 28.8 ms took 14.3 at once (JAX 0.10, two cores)."""

_RECURRENT_RATIO: Final = 0.25
"""What iterations hand to each other, of the time of what they need not: with more it is no loop over independent rows. A choice of ours."""

_BODY: Final = "while/body/"
"""What is in the scope of instructions of a loop (JAX 0.10)."""


class GraphLoops(Struct, frozen=True, eq=False):
    """Ops of loops that need not run in turn: bool `labels` (`op_labels`), bool `rows` of the ledger in which they run or are dispatched, how
    many turns in a step, how much of that time is the loss, and whether other ops of such loops need what the turn before has made.
    """

    labels: BoolArray
    rows: BoolArray
    turns: int
    saved_ratio: float = 1.0
    has_others: bool = False


def graph_loops(context: Context) -> GraphLoops:
    """The loops of small ops of all devices; nothing is one where they are the whole step, of few turns, or no finding."""
    ledger, of_row = context.ledger, context.trace.once(op_labels).of_row
    count = context.trace.once(op_labels).row.size
    labels = np.zeros(count, dtype=np.bool_)
    times, ran_ps, turns = 0, 0, 0
    nothing = GraphLoops(labels, np.zeros(ledger.count, dtype=np.bool_), 0)
    if not ledger.has_steps:
        return nothing
    instruction = context.trace.device_columns.instruction[context.trace.once(op_labels).row]
    # A kernel of a GPU, whose op may not be recorded, is that of many layers.
    on_cpu = all(context.trace.device_list[each].kind == "replica" for each in ledger.devices)
    in_turn = context.trace.once(named_in_graphs)["carried_ops"]
    of_loops: BoolArray = (instruction == NONE) & on_cpu & ~in_turn
    # Programs of one op each run one after the other, too.
    bodies = instructions_that(context.trace, lambda each: _BODY in each.scope)
    of_loops |= instructions_that(context.trace, lambda each: each.need == "turns")
    for device in devices_in_use(context):
        events, steps = counted_events(context, device), ledger.steps_of_device[device]
        of_label = np.bincount(of_row[events], minlength=count)
        repeats = of_loops & (of_label >= _FEWEST_TURNS * max(steps, 1))
        own = events[repeats[of_row[events]]]
        times += own.size
        ran_ps += int(context.trace.device_columns.duration_ps[own].sum())
        labels |= repeats
        if own.size:
            turns = max(turns, int(np.median(of_label[repeats])) // max(steps, 1))
    if not times or ran_ps > _SMALL_PS * times:
        return nothing
    every = [*context.once(time_by_label).values()]
    whole_ps = sum(each.total for each in every)
    if sum(each.where(labels).total for each in every) > _OF_STEP_RATIO * whole_ps:
        return nothing
    rows = rows_of_labels(context, labels, states=(State.COMPUTE, *DISPATCH))
    columns = ledger.columns
    # The last turn ends with ops that record nothing.
    ends = rows & (columns.activity != IDLE)
    rows[1:] |= ends[:-1] & ledger.rows(states=DISPATCH)[1:] & (columns.activity[1:] == IDLE)
    waits = rows & (columns.state != State.COMPUTE)
    waits_ps, whole_ps = (int(columns.duration_ps[each].sum()) for each in (waits, rows))
    if not on_cpu and waits_ps < _DISPATCH_RATIO * whole_ps:
        return nothing
    others_ps, own_ps = (
        sum(each.where(of).total for each in every) for of in ((bodies & ~labels) | in_turn, labels)
    )
    saved_ratio = _SAVED_OF_XLA if (instruction[labels] != NONE).any() else 1.0
    has_others = others_ps > _RECURRENT_RATIO * own_ps
    if ledger.loss(rows).share * saved_ratio < (LEFT_OUT_RATIO if has_others else LIMIT):
        return nothing
    return GraphLoops(labels, rows, turns, saved_ratio, has_others)


FEWEST_MADE: Final = 64
"""Ops of one type that a line makes in a graph, where a model has few layers that are alike. A choice of ours."""


def unrolled_loops(context: Context) -> GraphLoops:
    """What loops in Python have made: ops of lines that make many small ones of a type in a graph, but for products.

    Its `turns` are how many ops these are.
    """
    trace, row = context.trace, context.trace.once(op_labels).row
    (ops, op_of_label), lines = trace.once(op_names), trace.once(label_lines)
    every = np.ones(row.size, dtype=np.bool_)
    ps = label_ps(context, rows_of_labels(context, every))
    is_free = (ps > 0) & (trace.device_columns.instruction[row] == NONE)
    is_free &= trace.once(label_flops) == 0
    of_line: dict[str, list[int]] = {}
    for label in np.flatnonzero(is_free).tolist():
        of_line.setdefault(lines[label], []).append(label)
    found, total = ~every, 0
    runs = max(sum(context.ledger.steps_of_device.values()), 1)
    for line, own in of_line.items():
        # Each runs once in a step of each device.
        made = {*op_of_label[own].tolist()}
        count = max(Counter(ops[each][1] for each in made).values())
        if line and count >= FEWEST_MADE and ps[own].sum() <= _SMALL_PS * runs * len(made):
            found[own], total = True, total + len(made)
    return GraphLoops(
        found, rows_of_labels(context, found, states=(State.COMPUTE, *DISPATCH)), total
    )


def loops_in_turn(context: Context) -> GraphLoops:
    """What runs in the other loops of a step, whose iterations need those before; nothing where that is the whole step."""
    trace, ledger = context.trace, context.ledger
    labels, of_row = trace.once(op_labels), trace.once(op_labels).of_row
    inside = instructions_that(trace, lambda each: _BODY in each.scope)
    inside |= trace.once(named_in_graphs)["carried_ops"]
    found, turns = np.zeros_like(inside), 0
    for device in devices_in_use(context) if ledger.has_steps and inside.any() else ():
        of_label = np.bincount(of_row[counted_events(context, device)], minlength=labels.row.size)
        steps = max(ledger.steps_of_device[device], 1)
        own = inside & (of_label >= _FEWEST_TURNS * steps)
        found |= own
        turns = max(turns, int(of_label[own].max(initial=0)) // steps)
    found &= ~context.once(graph_loops).labels
    every = [*context.once(time_by_label).values()]
    whole_ps, own_ps = (
        sum(of)
        for of in zip(*((each.total, each.where(found).total) for each in every), strict=True)
    )
    if own_ps > _OF_STEP_RATIO * whole_ps:
        found[:] = False
    return GraphLoops(found, rows_of_labels(context, found), turns)
