"""Finds compiled functions that run the layers of the one that trains a second time."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from traceview.analysis.facts.layers import label_places, makes_batches
from traceview.analysis.measures.context import Context
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.words import Names
from traceview.analysis.workload.compute_rules import SECOND_FORWARD
from traceview.analysis.workload.costly_ops import codes_of_labels
from traceview.base.ids import is_in, unique_ids, unique_inverse
from traceview.base.intervals import Int32Array
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.ledger.states import State
from traceview.trace.columns import NONE
from traceview.trace.device.correlation import Roots, steps_of_rows
from traceview.trace.device.op_names import Phase, op_labels
from traceview.trace.model import Recording

_GRAPH: Final = lazy_pattern(rb"EagerLocalExecute: __(?:inference|forward)_(.+)_\d+", re.DOTALL)


def _functions_called(trace: Recording) -> tuple[tuple[str, ...], Int32Array]:
    """The functions that computed, and int32 the place of that of each device event; `NONE` where a host called only one, or none."""
    places: dict[str, int] = {}

    def place_of(function: str) -> int:
        return places.setdefault(function, len(places)) if function else NONE

    device = trace.device_columns
    programs = [place_of(each.function) for each in trace.instructions]
    of_event = np.array([*programs, NONE], dtype=np.int32)[device.instruction]
    for number in range(len(trace.hosts)):
        calls = trace.named_on(number, _GRAPH.fullmatch)
        names, of_call = np.unique(trace.host_columns.name[calls], return_inverse=True)
        graphs = (_GRAPH.fullmatch(trace.names[name]) for name in names.tolist())
        found = [place_of(graph[1].decode("utf-8", "replace") if graph else "") for graph in graphs]
        if len(set(found)) > 1:
            own, of_call = trace.device_rows(number), np.array(found, dtype=np.int64)[of_call]
            launches, of_launch = unique_inverse(device.launch[own])
            function = steps_of_rows(
                launches, Roots(calls, of_call), trace.host_columns, trace.thread_of_line
            )
            function[launches == NONE] = NONE
            of_event[own] = function[of_launch]
    return tuple(places), of_event


def second_forward(context: Context) -> Finding | None:
    """Functions without gradients that run the code of one that trains."""
    ledger, trace = context.ledger, context.trace
    names, of_event = trace.once(_functions_called)
    if len(names) < 2:
        return None
    rows = np.flatnonzero(ledger.rows(states=(State.COMPUTE,)))
    rows = rows[of_event[ledger.columns.event[rows]] != NONE]
    event, ps = ledger.columns.event[rows], ledger.columns.duration_ps[rows]
    function, label = of_event[event], trace.once(op_labels).of_row[event]
    places, count = trace.once(label_places), len(names)
    code = context.once(codes_of_labels)[1][label]
    # On another device it does not make a step of this one longer.
    of_device = code * len(trace.device_list) + ledger.device[rows]
    is_training = is_in(places.phase[label], (Phase.BACKWARD, Phase.OPTIMIZER))
    trains = np.bincount(function[is_training], minlength=count) > 0
    is_again = is_in(of_device, unique_ids(of_device[trains[function]])) & (code > 0)
    whole = SWEEPS.totals(function, ps, count)
    again = SWEEPS.totals(function[is_again], ps[is_again], count)
    is_second = ~trains & (whole > 0) & (again >= SECOND_FORWARD.limits["code_ratio"] * whole)
    trained = {name for name, does in zip(names, trains.tolist(), strict=True) if does}
    # What is computed for the step is no second pass.
    made = set(makes_batches(trace.instructions, trained))
    made.update(*(host.captured.graphs.makes_batches for host in trace.hosts))
    is_second &= ~np.isin(names, sorted(made))
    seconds = np.flatnonzero(is_second)
    of_seconds = np.zeros(ledger.count, dtype=np.bool_)
    of_seconds[rows[is_second[function]]] = True
    longest = seconds[np.argsort(-whole[seconds], kind="stable")].tolist()
    texts = tuple(names[place] for place in longest)
    return SECOND_FORWARD.of_rows(
        context,
        of_seconds,
        arguments={"function": Names(texts[:1], "function")},
        evidence=[Evidence("function", text, None, "", value_is="function") for text in texts],
    )
