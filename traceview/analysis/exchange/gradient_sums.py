"""Recognises gradients that are summed on the CPU or on one GPU, by their copies, instead of over the links between GPUs.

NCCL and the collective ops have kernels and ops of their own. A reduction without them is a sum, `AddN`, and copies
that bring the parts there. Names distinguish that sum from others (TensorFlow 2.21): ops that a replica k ≥ 1 runs for
itself have `replica_<k>` in their names, and the sum over replicas does not.

    GPUs to host         such sums on the CPU, and copies back                cpu
    GPU to GPU copies    such sums on one GPU                                 one

Sums on several GPUs are shared work. Every healthy step sums and copies a scalar loss, so copies smaller than gradients do
not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.analysis.facts.detours import WAITS_FOR_RESULTS, copied_results, is_sum
from traceview.analysis.facts.selection import rows_in
from traceview.analysis.measures.context import Context
from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import BoolArray, Int32Array, Int64Array
from traceview.base.text import lazy_pattern
from traceview.base.units import PS_PER_US
from traceview.ledger.states import State
from traceview.trace.columns import UNKNOWN_BYTES
from traceview.xplane.planes import ActivityClass, op_type

Cause: TypeAlias = Literal["variables", "updates", "virtual", "configured"]

LEAST_SUMMED: Final = 3
"""GPUs whose gradients one of them sums: with two of them it is as good as any other way."""

LEAST_BYTES_PER_STEP: Final = 1024 * 1024
"""Copies of fewer bytes in a step carry no gradients, unless the sidecar knows their size: 256 Ki parameters; our
own choice, above the metrics and indices that real traces copy (0.07 MB in a step of BERT)."""

LEAST_PS_PER_STEP: Final = 100 * PS_PER_US
"""Shorter copies whose size is not recorded carry none either: 1 MiB at 10 GB/s take 105 µs; our own choice."""

LEAST_GRADIENT_RATIO: Final = 0.5
"""Copies of a smaller share of the gradients carry something else; our own choice."""


class _Op(IntEnum):
    """The part of an op in a reduction; `SUM` belongs to no single replica."""

    OTHER = 0
    COLLECTIVE = 1
    SUM = 2
    UPDATE = 3


_INDICATIVE: Final = lazy_pattern(rb"Collective|AddN|Apply")
_TYPES: Final = (
    (lazy_pattern(rb"Collective(?!Init|AssignGroup)\w+"), _Op.COLLECTIVE),
    (lazy_pattern(rb"AddN"), _Op.SUM),
    (lazy_pattern(rb"(?:Resource)?(?:Sparse)?Apply\w+"), _Op.UPDATE),
)


class GradientSum(Struct, frozen=True):
    """Where a host sums its gradients, and why there, where a known cause shows."""

    place: Literal["cpu", "one"]
    cause: Cause | None


def sums_off_links(context: Context) -> dict[int, GradientSum]:
    """The hosts that sum gradients on the CPU or on one GPU; `Context.once` keeps it."""
    sums = {host: _Recognition(context, host).found() for host in context.selection.windows}
    return {host: found for host, found in sums.items() if found is not None}


def reduction_rows(context: Context) -> BoolArray:
    """The rows of the ledger in which gradients are summed off the links between GPUs; `Context.once` keeps it.

    On the CPU: exposed copies to the host, copies back that bring the result of an op on the CPU, and the wait for these.
    On one of several GPUs: exposed copies between GPUs.
    """
    trace, ledger = context.trace, context.ledger
    result = np.zeros(ledger.count, dtype=np.bool_)
    for host, found in context.once(sums_off_links).items():
        if len(ledger.devices) < 2 and not trace.hosts[host].captured.has_virtual_gpus:
            continue
        gpus = [
            device
            for device in trace.devices_of_host[host]
            if trace.device_list[device].kind == "gpu" and context.activities[device].compute.length
        ]
        if found.place == "one" and len(gpus) >= LEAST_SUMMED:
            result |= ledger.rows(states=(State.D2D,), devices=gpus)
        elif found.place == "cpu":
            back = context.once(copied_results).row
            result |= ledger.rows(states=(State.D2H,), devices=gpus)
            waits = ledger.rows(states=WAITS_FOR_RESULTS, devices=gpus)
            result |= waits & is_in(ledger.columns.event, back)
    return result


def _op_kinds(context: Context) -> npt.NDArray[np.uint8]:
    """By name of the trace what its op does, `_Op`; the last element is for no name."""
    names = context.trace.names
    kinds = np.zeros(len(names) + 1, dtype=np.uint8)
    for index, name in enumerate(names):
        type_ = op_type(name) if _INDICATIVE.search(name) else None
        if type_ is not None:
            matching = (kind for pattern, kind in _TYPES if pattern.fullmatch(type_))
            kind = next(matching, _Op.OTHER)
            kinds[index] = 0 if kind == _Op.SUM and not is_sum(name, type_) else kind
    return kinds


class _Recognition:
    """Finds where one host sums from the events of its devices, `_rows`, and its ops, `_called`, in the window."""

    def __init__(self, context: Context, host: int) -> None:
        trace, window = context.trace, context.selection.windows[host]
        columns, calls = trace.device_columns, trace.host_columns
        self._trace, self._does = trace, context.once(_op_kinds)
        self._step_count = max(1, len(context.selection.steps.get(host, ())))
        captured = trace.hosts[host].captured
        self._environment, self._is_virtual = captured.environment, captured.has_virtual_gpus
        self._devices = list(trace.devices_of_host[host])
        self._has_gpus = any(trace.device_list[device].kind == "gpu" for device in self._devices)
        rows = trace.device_rows(host)
        self._rows = rows[rows_in(columns.start_ps[rows], columns.end_ps[rows], window)]
        of_host = calls.rows_of_host(host)
        ops = np.flatnonzero(self._does[calls.name[of_host]]) + of_host.start
        ops = ops[rows_in(calls.start_ps[ops], calls.end_ps[ops], window)]
        ops = ops[trace.runs_model[calls.line[ops]]] if ops.size else ops
        self._called: Int32Array = calls.name[ops]

    def found(self) -> GradientSum | None:
        """Where the gradients are summed; None where collectives do it, several devices, or nothing shows it."""
        columns, rows = self._trace.device_columns, self._rows
        class_, op = columns.class_[rows], columns.op[rows]
        has_collectives = (class_ == ActivityClass.COLLECTIVE).any()
        if (
            not self._has_gpus
            or has_collectives
            or (self._does[self._called] == _Op.COLLECTIVE).any()
        ):
            return None
        is_sum = (self._does[op] == _Op.SUM) & (class_ == ActivityClass.COMPUTE)
        summing = unique_ids(columns.device[rows[is_sum]])
        if len(self._devices) > 1 and summing.size and self._is_gradients(rows[columns.p2p[rows]]):
            return GradientSum("one", next(self._causes(), None)) if summing.size == 1 else None
        on_cpu = ~is_in(self._called, unique_ids(op[op >= 0]))
        sums = self._called[on_cpu & (self._does[self._called] == _Op.SUM)]
        # Replicas that share a GPU copy both their gradients from it.
        least = 1 if self._is_virtual else 2
        both_ways = all(
            sum(
                self._is_gradients(rows[(class_ == direction) & (columns.device[rows] == device)])
                for device in self._devices
            )
            >= least
            for direction in (ActivityClass.D2H, ActivityClass.H2D)
        )
        if not both_ways or 2 * sums.size < self._step_count:
            return None
        updates = bool((on_cpu & (self._does[self._called] == _Op.UPDATE)).any())
        return GradientSum("cpu", next(self._causes(on_cpu=True, updates=updates), None))

    def _is_gradients(self, rows: Int64Array) -> bool:
        """Whether copies move as much per step as gradients would."""
        columns = self._trace.device_columns
        size = columns.bytes[rows]
        known = size[size != UNKNOWN_BYTES]
        if known.size == 0:
            lasted = int(columns.duration_ps[rows].sum())
            return lasted >= LEAST_PS_PER_STEP * self._step_count
        gradients = self._environment.training.gradient_bytes
        least = LEAST_GRADIENT_RATIO * gradients if gradients else LEAST_BYTES_PER_STEP
        return int(known.sum()) >= least * self._step_count

    def _causes(self, *, on_cpu: bool = False, updates: bool = False) -> Iterator[Cause]:
        """Why the gradients are not summed over the links between GPUs, the first first."""
        strategy = self._environment.strategy
        if on_cpu and any("CPU" in device for device in strategy.parameter_devices or ()):
            yield "variables"
        if updates:
            yield "updates"
        # Without a strategy's order such replicas sum on a GPU.
        if self._is_virtual and not on_cpu:
            yield "virtual"
        if strategy.cross_device_ops:
            yield "configured"
