"""Finds the CPU devices of an XLA program, which have no plane: JAX on CPUs, and Keras on JAX.

Each op of the program is an event on whichever thread ran it, named as in the HLO, with the number of its device in
`device_ordinal` (jaxlib 0.10, measured). An op that ends on another thread says so in an event `end: <op>` there, which
consumes what the op produced. A collective lasts from when a device enters it until all have met. It keeps a thread, so work
that is left of an op then may only be queued: an op counts to the beginning of the next collective of its device at most.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np

from traceview.base.ids import unique_inverse
from traceview.base.intervals import BoolArray, Int64Array, union
from traceview.trace.device.classify import with_ops_inside
from traceview.trace.device.correlation import linked_events
from traceview.trace.model import MOST_DEVICES, NONE, Device, HostColumns, Names
from traceview.trace.strategy.replicas import Replicas, columns_of_ops
from traceview.xplane.planes import NameKind, is_xla_container, xla_op_kind

_OP: Final = re.compile(rb"[A-Za-z_][\w.\-]{0,255}")
"""The name of an HLO instruction; what the runtime records beside it has spaces or colons."""

_END: Final = b"end: "

CPU: Final = "CPU"
"""The model of such a device."""


def find_xla_devices(names: Names, columns: HostColumns) -> Replicas:
    """The CPU devices of one host, which has no device planes. A number of 32,768 or more is none of a device."""
    ordinals = columns.stat("device_ordinal")
    is_device = (ordinals.value >= 0) & (ordinals.value < MOST_DEVICES)
    rows, number = ordinals.row[is_device], ordinals.value[is_device]
    is_op = names.where(columns.name[rows], _OP.fullmatch)
    rows, number = rows[is_op], number[is_op]
    if not rows.size:
        return Replicas()
    known, device = unique_inverse(number)
    end_ps = _ends(names, columns, rows)
    order = np.argsort(device, kind="stable")
    rows, device, end_ps = rows[order], device[order], end_ps[order]
    is_work = ~_are_loops(names, columns, rows, device, end_ps)
    rows, device, end_ps = rows[is_work], device[is_work], end_ps[is_work]
    is_collective = names.where(
        columns.name[rows], lambda name: xla_op_kind(name) is NameKind.COLLECTIVE
    )
    for own in _of_devices(device):
        end_ps[own] = _until_collective(columns, rows[own], end_ps[own], is_collective[own])
    found = columns_of_ops(columns, rows, device, end_ps, is_collective)
    devices = (Device(0, f"CPU:{number}", "replica", number, CPU, {}) for number in known.tolist())
    return Replicas(tuple(devices), found)


def _ends(names: Names, columns: HostColumns, rows: Int64Array) -> Int64Array:
    """When each op ended, which may be on another thread."""
    end = columns.end_ps[rows]
    producer, produced, consumer, consumed = linked_events(columns)
    is_end = names.where(columns.name[consumer], lambda name: name.startswith(_END))
    until = np.full(int(max(produced.max(initial=0), consumed.max(initial=0))) + 1, NONE, np.int64)
    np.maximum.at(until, consumed[is_end], columns.end_ps[consumer[is_end]])
    of_row = np.full(columns.count, NONE, dtype=np.int64)
    of_row[producer] = until[produced]
    result: Int64Array = np.maximum(end, of_row[rows])
    return result


def _are_loops(
    names: Names, columns: HostColumns, rows: Int64Array, device: Int64Array, end_ps: Int64Array
) -> BoolArray:
    """Loops and calls, whose ops are recorded too; the rows are in the order of their devices."""
    result = names.where(columns.name[rows], is_xla_container)
    if result.any():
        start_ps = columns.start_ps[rows]
        for own in _of_devices(device):
            result[own] = with_ops_inside(result[own], start_ps[own], end_ps[own])
    return result


def _of_devices(device: Int64Array) -> Iterator[slice]:
    """The rows of each device; they are in the order of devices."""
    bounds = np.append(np.flatnonzero(np.diff(device, prepend=-1)), device.size).tolist()
    return (slice(low, high) for low, high in pairwise(bounds))


def _until_collective(
    columns: HostColumns, rows: Int64Array, end_ps: Int64Array, is_collective: BoolArray
) -> Int64Array:
    """The ends of ops of one device: beyond its own event an op lasts only where no collective runs."""
    begun, own_end = columns.start_ps[rows], columns.end_ps[rows]
    collectives = union(begun[is_collective], end_ps[is_collective])
    following = np.append(collectives.start, np.iinfo(np.int64).max)
    # The first that ends after the op's own event, whether it runs then or begins later.
    bound = following[np.searchsorted(collectives.end, own_end, side="right")]
    cut = np.maximum(own_end, np.minimum(end_ps, bound))
    return np.where(is_collective, end_ps, cut)
