"""Finds products that do few FLOPs for their time, and what they would take at the usual rate of a step."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from traceview.analysis.measures.context import Context
from traceview.analysis.measures.op_work import counted_events, flops_by_device
from traceview.analysis.workload.costly_ops import types_of_labels
from traceview.base.intervals import BoolArray, while_as_many_are_open
from traceview.trace.device.op_names import op_labels

_SLOW_RATE: Final = 1 / 20
"""Of the usual FLOP/s of the products of a step; a choice of ours."""

_Floats = npt.NDArray[np.float64]


def slow_products(context: Context) -> tuple[BoolArray, float]:
    """Which labels are products that do few FLOPs for their time, and how much of that they would save at the usual rate.

    No convolution of each channel for itself, which does few for each number that it reads: a network that has some is made of them.
    By the run of each with the least time in which no other op of its device ran: the others shared its cores.
    """
    flops, ps, usual = context.once(_usual_rate)
    types, of_label = context.once(types_of_labels)
    is_apart = np.array(["Depthwise" in type_ for type_ in types], dtype=np.bool_)[of_label]
    is_slow: BoolArray = (flops > 0) & (flops < _SLOW_RATE * usual * ps) & ~is_apart
    if is_slow.any():
        is_slow &= flops < _SLOW_RATE * usual * context.once(_quick_ps)
    return is_slow, saved_at_usual_rate(context, is_slow)


def _quick_ps(context: Context) -> _Floats:
    """How long all runs of each label would take if they were as quick as its quickest one alone, float64 picoseconds."""
    events, labels = context.trace.device_columns, context.trace.once(op_labels)
    least, count = np.full(labels.row.size, np.inf), np.zeros(labels.row.size, np.int64)
    for device in context.ledger.devices:
        rows = counted_events(context, device)
        start, end, label = events.start_ps[rows], events.end_ps[rows], labels.of_row[rows]
        shared = while_as_many_are_open(2, start, end).within(start, end)
        np.minimum.at(least, label, end - start - shared)
        count += np.bincount(label, minlength=count.size)
    return np.where(count, least, 0.0) * count


def saved_at_usual_rate(context: Context, labels: BoolArray) -> float:
    """How much of their time some labels would save if all of it went for their FLOPs, at the usual rate of products."""
    flops, ps, usual = context.once(_usual_rate)
    whole_ps = float(ps[labels].sum())
    return (
        max(1 - float(flops[labels].sum()) / usual / whole_ps, 0.0) if whole_ps and usual else 0.0
    )


def _usual_rate(context: Context) -> tuple[_Floats, _Floats, float]:
    """The known FLOPs and the picoseconds of each label on all devices, and the rate at which, or faster, half of them are done."""
    flops = np.zeros(context.trace.once(op_labels).row.size)
    ps = np.zeros_like(flops)
    for of in context.once(flops_by_device).values():
        flops += of.known_flops
        ps += of.duration_ps.every
    known = np.flatnonzero((flops > 0) & (ps > 0))
    if not known.size:
        return flops, ps, 0.0
    rate = flops[known] / ps[known]
    order = np.argsort(rate, kind="stable")
    done = np.cumsum(flops[known[order]])
    return flops, ps, float(rate[order[np.searchsorted(done, done[-1] / 2)]])
