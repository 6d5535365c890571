"""Tells the compiled functions of a run apart: which computed what, and which only repeat what one that trains computes."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.layers import Place, label_places, makes_batches
from traceview.base.ids import is_in, unique_ids, unique_inverse
from traceview.base.intervals import BoolArray, Int32Array, Int64Array
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.trace.columns import NONE
from traceview.trace.device.correlation import Roots, steps_of_rows
from traceview.trace.device.op_names import Phase, op_labels
from traceview.trace.model import Recording
from traceview.xplane.planes import ActivityClass

CODE_RATIO: Final = 0.5
"""A function repeats one that trains where it shares so much of its compute with it. A choice of ours: in 3 programs it was all."""

_GRAPH: Final = lazy_pattern(
    rb"EagerLocalExecute: __(?:inference_(?P<plain>(?!__backward_).+)|forward_(?P<forward>.+)|inference___backward_(?P<backward>.+)_\d+)_\d+",
    re.DOTALL,
)
"""A function that is called with a tape of gradients has two graphs (TensorFlow 2.21)."""


class Functions(Struct, frozen=True, eq=False):
    """The functions that computed: `names`; `of_event`, int32 the place of that of each device event, `NONE` where a host called
    only one, or none; `trains`, which compute gradients or updates; `repeats`, which do not, make no batches, and compute mostly
    what one that trains does.
    """

    names: tuple[str, ...]
    of_event: Int32Array
    trains: BoolArray
    repeats: BoolArray


def functions_called(trace: Recording) -> Functions:
    """The compiled functions of all hosts."""
    places: dict[tuple[str, bool], int] = {}

    def place_of(function: str, has_gradients: bool = False) -> int:
        return places.setdefault((function, has_gradients), len(places)) if function else NONE

    def place_of_graph(name: bytes) -> int:
        graph = _GRAPH.fullmatch(name)
        if graph is None:
            return NONE
        function: bytes = graph["plain"] or graph["forward"] or graph["backward"]
        return place_of(function.decode("utf-8", "replace"), has_gradients=graph["plain"] is None)

    device = trace.device_columns
    programs = [place_of(each.function) for each in trace.instructions]
    of_event = np.array([*programs, NONE], dtype=np.int32)[device.instruction]
    for number in range(len(trace.hosts)):
        calls = trace.named_on(number, _GRAPH.fullmatch)
        names, of_call = np.unique(trace.host_columns.name[calls], return_inverse=True)
        found = [place_of_graph(trace.names[name]) for name in names.tolist()]
        if len(set(found)) > 1:
            own, of_call = trace.device_rows(number), np.array(found, dtype=np.int64)[of_call]
            launches, of_launch = unique_inverse(device.launch[own])
            function = steps_of_rows(
                launches, Roots(calls, of_call), trace.host_columns, trace.thread_of_line
            )
            function[launches == NONE] = NONE
            of_event[own] = function[of_launch]
    functions = tuple(function for function, _ in places)
    return Functions(functions, of_event, *_purposes(trace, functions, of_event))


def _purposes(
    trace: Recording, names: tuple[str, ...], of_event: Int32Array
) -> tuple[BoolArray, BoolArray]:
    """Which functions train, and which repeat one that does."""
    device, count = trace.device_columns, len(names)
    rows = np.flatnonzero((device.class_ == ActivityClass.COMPUTE) & (of_event != NONE))
    if count < 2:
        nothing = np.zeros(count, dtype=np.bool_)
        return nothing, nothing
    function, label = of_event[rows], trace.once(op_labels).of_row[rows]
    code, ps = trace.once(codes_of_labels)[1][label], device.end_ps[rows] - device.start_ps[rows]
    # On another device it does not make a step of this one longer.
    of_device = code * len(trace.device_list) + device.device[rows]
    phase = trace.once(label_places).phase[label]
    is_training = is_in(phase, (Phase.BACKWARD, Phase.OPTIMIZER))
    trains = np.bincount(function[is_training], minlength=count) > 0
    is_again = is_in(of_device, unique_ids(of_device[trains[function]])) & (code > 0)
    whole = SWEEPS.totals(function, ps, count)
    again = SWEEPS.totals(function[is_again], ps[is_again], count)
    trained = {name for name, does in zip(names, trains.tolist(), strict=True) if does}
    # What is computed for the step is no second pass.
    made = set(makes_batches(trace.instructions, trained))
    made.update(*(host.captured.graphs.makes_batches for host in trace.hosts))
    is_second = ~trains & (whole > 0) & (again >= CODE_RATIO * whole)
    return trains, is_second & ~np.isin(names, sorted(made))


def codes_of_labels(trace: Recording) -> tuple[tuple[object, ...], Int64Array]:
    """What made ops, None first, where that is not known, and int64 the place of that of each label.

    It is a file and a Python function in it, for XLA names a fusion after any of its lines, else the layer.
    """
    places = trace.once(label_places)
    number_of: dict[object, int] = {None: 0}
    codes = [number_of.setdefault(_code_of(place), len(number_of)) for place in places.places]
    return tuple(number_of), np.array(codes, dtype=np.int64)[places.place]


def _code_of(place: Place) -> object:
    line, _, function = place.line.partition(" in ")
    return (line.rpartition(":")[0], function) if function else place.scopes or None
