"""Recognises how the devices of a host sum their gradients: through NCCL or by copies.

NCCL and the collective ops have kernels and ops of their own. A reduction without them is a sum, `AddN`, and copies
that bring the parts there. Names distinguish that sum from others (TensorFlow 2.21): ops that a replica k ≥ 1 runs for
itself have `replica_<k>` in their names, and the sum over replicas does not.

    NCCL kernels         launched by Collective… ops                          collective_nccl
                         launched by Nccl… ops, or no op recorded             nccl
    no such kernels      Collective… ops: CPU devices, virtual GPUs           collective_ring
    GPU to GPU copies    such sums on several GPUs                            hierarchical_copy
                         such sums on one GPU                                 one_device
    GPUs to host         such sums on the CPU, and copies back                cpu_bounce
    instructions of XLA programs                                              xla

Every healthy step sums and copies a scalar loss, so copies smaller than gradients do not count.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.selection import Selection, rows_in
from traceview.analysis.measures.context import Context
from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import BoolArray, Int32Array, Int64Array
from traceview.base.units import PS_PER_MS, PS_PER_US
from traceview.ledger.states import State
from traceview.trace.device.correlation import Copies, copies_of
from traceview.trace.model import NONE, UNKNOWN_BYTES, Trace
from traceview.trace.strategy.collectives import Collectives
from traceview.xplane.host_names import op_type
from traceview.xplane.planes import ActivityClass

Path: TypeAlias = Literal[
    "collective_nccl",
    "collective_ring",
    "nccl",
    "hierarchical_copy",
    "one_device",
    "cpu_bounce",
    "xla",
    "none",
]

Cause: TypeAlias = Literal["variables", "updates", "virtual", "configured"]

LEAST_SUMMED: Final = 3
"""GPUs whose gradients one of them sums: with two of them it is as good as any other way."""

LEAST_BYTES_PER_STEP: Final = 1024 * 1024
"""Copies of fewer bytes in a step carry no gradients, unless the sidecar knows their size: 256 Ki parameters; our
own choice, above the metrics and indices that real traces copy (0.07 MB in a step of BERT)."""

LEAST_PS_PER_STEP: Final = 100 * PS_PER_US
"""The same for copies whose size is not recorded: 1 MiB at 10 GB/s take 105 µs; our own choice."""

LEAST_GRADIENT_RATIO: Final = 0.5
"""Copies of a smaller share of the gradients carry something else; our own choice."""

WAITS_FOR_SUMS: Final = (
    State.H2D,
    State.HOST_OPS,
    State.LAUNCH,
    State.SYNC,
    State.DEPENDENCY,
    State.LATENCY,
    State.UNKNOWN,
)
"""What a GPU does, or is idle for, before and during a copy of a sum."""

SHOWN_OPS: Final = 4
"""Op names that are given as evidence."""

_COLLECTIVE_TYPE: Final = re.compile(rb"Collective(?!Init|AssignGroup)\w+")
_CROSS_DEVICE_OPS: Final = (
    "CollectiveAllReduce",
    "HierarchicalCopyAllReduce",
    "NcclAllReduce",
    "ReductionToOneDevice",
)
"""Classes of TensorFlow; the name of any other one is of the script."""

_NCCL_TYPE: Final = re.compile(rb"_?Nccl\w+")
_INDICATIVE: Final = re.compile(rb"Collective|Nccl|AddN|Apply")
_GATHER_TYPE: Final = re.compile(rb"Collective(?=\w*Gather)\w+")
_SUM_TYPE: Final = b"AddN"
_UPDATE_TYPE: Final = re.compile(rb"(?:Resource)?(?:Sparse)?Apply\w+")
_OF_REPLICA: Final = re.compile(rb"(?:^|/)replica_[1-9]\d*(?:_\d+)?/")
_NO_SCOPE: Final = re.compile(
    rb"(?:(?:StatefulPartitionedCall\w*|ArithmeticOptimizer|PartitionedCall\w*)/)*[^/]*|.*gradient_tape/.*",
    re.DOTALL,
)


class ReductionPath(Struct, frozen=True):
    """How the devices of a host reduce. `ops`: names of ops that show it. `reason`: why, where the trace shows it.

    `cause`: the reason why gradients are summed on the CPU or on one GPU, where it is a known one.
    """

    path: Path | None
    ops: tuple[str, ...] = ()
    reason: str | None = None
    cause: Cause | None = None


def events_in_windows(trace: Trace, selection: Selection, collectives: Collectives) -> Int64Array:
    """The events of collectives that overlap the window of their host, as indices of the rows of `collectives`."""
    columns = trace.device_columns
    inside = np.zeros(collectives.row.size, dtype=np.bool_)
    by_host = np.argsort(collectives.host, kind="stable")
    hosts = collectives.host[by_host]
    for host, window in selection.windows.items():
        first, last = np.searchsorted(hosts, [host, host + 1])
        of_host = by_host[first:last]
        events = collectives.row[of_host]
        inside[of_host[rows_in(columns.start_ps[events], columns.end_ps[events], window)]] = True
    return np.flatnonzero(inside)


class _Names(Struct, frozen=True, eq=False):
    """Whether each name of the trace is an op of a type, bool `[names + 1]`; the last element is for no name.

    `total`: sums that belong to no single replica.
    """

    collective: BoolArray
    nccl: BoolArray
    gather: BoolArray
    total: BoolArray
    update: BoolArray


def reduction_paths(context: Context) -> dict[int, ReductionPath]:
    """The path of each host that has a window, from what runs in it; `Context.once` keeps it."""
    trace, selection, collectives = context.trace, context.selection, context.collectives
    names = _names(trace)
    inside = events_in_windows(trace, selection, collectives)
    by_host = inside[np.argsort(collectives.host[inside], kind="stable")]
    hosts = collectives.host[by_host]
    paths = {}
    for host in selection.windows:
        first, last = np.searchsorted(hosts, [host, host + 1])
        of_host = by_host[first:last]
        if _are_of_xla(trace, collectives.row[of_host]):
            paths[host] = ReductionPath("xla")
        else:
            launching = collectives.op[of_host]
            paths[host] = _Recognition(trace, names, launching, selection, host).path()
    return paths


def _are_of_xla(trace: Trace, rows: Int64Array) -> bool:
    """Whether these device rows, those of collectives, are instructions of XLA programs; on TPUs all are."""
    columns = trace.device_columns
    kinds = {trace.device_list[device].kind for device in unique_ids(columns.device[rows]).tolist()}
    known = unique_ids(columns.instruction[rows]).tolist()
    return kinds == {"tpu"} or any(
        number != NONE and trace.instructions[number].exchange for number in known
    )


def reduction_rows(context: Context) -> BoolArray:
    """The rows of the ledger in which gradients are summed off the links between GPUs; `Context.once` keeps it.

    On the CPU: exposed copies to the host, copies back that bring the result of an op on the CPU, and the wait for these.
    On one of several GPUs: exposed copies between GPUs.
    """
    ledger, trace = context.ledger, context.trace
    result = np.zeros(ledger.count, dtype=np.bool_)
    if len(ledger.devices) < 2:
        return result
    back: Int64Array | None = None
    for host, path in context.once(reduction_paths).items():
        gpus = _gpus(context, host)
        if path.path == "one_device" and len(gpus) >= LEAST_SUMMED:
            result |= ledger.rows(states=(State.D2D,), devices=gpus)
        elif path.path == "cpu_bounce":
            if back is None:
                back = copied_results(trace, copies_of(trace))
            result |= ledger.rows(states=(State.D2H,), devices=gpus)
            waits = ledger.rows(states=WAITS_FOR_SUMS, devices=gpus)
            result |= waits & is_in(ledger.columns.event, back)
    return result


def _gpus(context: Context, host: int) -> list[int]:
    """The GPUs of a host that compute."""
    trace, activities = context.trace, context.activities
    if host not in context.selection.windows:
        return []
    return [
        device
        for device in trace.devices_of_host[host]
        if trace.device_list[device].kind == "gpu" and activities[device].compute.length
    ]


def _names(trace: Trace) -> _Names:
    columns = [np.zeros(len(trace.names) + 1, dtype=np.bool_) for _ in range(5)]
    for index, name in enumerate(trace.names):
        type_ = op_type(name) if _INDICATIVE.search(name) else None
        if type_ is None:
            continue
        columns[0][index] = _COLLECTIVE_TYPE.fullmatch(type_) is not None
        columns[1][index] = _NCCL_TYPE.fullmatch(type_) is not None
        columns[2][index] = _GATHER_TYPE.fullmatch(type_) is not None
        columns[3][index] = type_ == _SUM_TYPE and not _OF_REPLICA.search(name)
        columns[4][index] = _UPDATE_TYPE.fullmatch(type_) is not None
    return _Names(*columns)


# Results that are copied back

HANDOVER_PS: Final = PS_PER_MS
"""An event that begins later than this after the one before may have waited for something else; our own choice."""

_TRANSFER: Final = re.compile(
    rb"edge_\d+_(?P<edge>[^:]+)(?::\w+)?|(?P<node>[^:]+?)(?:/_\d+)?:_(?:Host)?(?:Send|Recv)"
)
_WITHOUT_INPUT: Final = re.compile(
    rb"_(?:Host)?(?:Send|Recv)|_Arg|Const|Placeholder\w*|(?=\w*Iterator)\w+|Optional\w*"
)
"""Types of ops that take no tensor from a GPU: transfers themselves, constants, and ops that read a dataset."""


def copied_results(trace: Trace, copies: Copies) -> Int64Array:
    """The copies to a GPU that bring the result of an op on the CPU, as rows of the device columns."""
    device, host = trace.device_columns, trace.host_columns
    up = device.class_[copies.row] == ActivityClass.H2D
    numbers, number_of_name = _source_ops(trace, copies.op[up])
    if not numbers:
        return np.empty(0, dtype=np.int64)
    source = np.append(number_of_name, NONE)[copies.op]
    up &= source != NONE
    ops, op_number = _runs(trace, numbers)
    to_device: Int64Array = copies.row[up]
    launch = device.launch[to_device]
    issued = np.where(
        launch == NONE, device.start_ps[to_device], np.append(host.start_ps, 0)[launch]
    )
    of_host = trace.host_of_device[device.device[to_device]]
    at = _latest(
        op_number * len(trace.hosts) + host.host[ops],
        host.end_ps[ops],
        source[up] * len(trace.hosts) + of_host,
        issued,
    )
    with_op = np.flatnonzero(at != NONE)
    return to_device[with_op[issued[with_op] - host.end_ps[ops[at[with_op]]] <= HANDOVER_PS]]


def _source_ops(trace: Trace, ops: Int64Array) -> tuple[dict[bytes, int], Int64Array]:
    """The ops whose results these transfers bring, numbered, and the number for each name of the trace."""
    numbers: dict[bytes, int] = {}
    number_of_name = np.full(len(trace.names), NONE, dtype=np.int64)
    for name in unique_ids(ops[ops != NONE]).tolist():
        transfer = _TRANSFER.fullmatch(trace.names[name])
        if transfer:
            source = transfer["edge"] or transfer["node"]
            number_of_name[name] = numbers.setdefault(source, len(numbers))
    return numbers, number_of_name


def _runs(trace: Trace, numbers: dict[bytes, int]) -> tuple[Int64Array, Int64Array]:
    """Host rows on which one of these ops ran, and its number."""
    number_of_name = np.full(len(trace.names), NONE, dtype=np.int64)
    for name, text in enumerate(trace.names):
        number = numbers.get(text.rpartition(b":")[0])
        type_ = None if number is None else op_type(text)
        if number is not None and type_ is not None and not _WITHOUT_INPUT.fullmatch(type_):
            number_of_name[name] = number
    number_of_row = number_of_name[trace.host_columns.name]
    rows = np.flatnonzero(number_of_row != NONE)
    return rows, number_of_row[rows]


def _latest(key: Int64Array, time: Int64Array, of_key: Int64Array, until: Int64Array) -> Int64Array:
    """For each query the entry of the same key with the latest `time` up to `until`; `NONE` without."""
    is_query = np.repeat([False, True], (key.size, of_key.size))
    keys, times = np.concatenate((key, of_key)), np.concatenate((time, until))
    order = np.lexsort((is_query, times, keys))
    place = np.where(is_query[order], -1, np.arange(order.size))
    last = np.maximum.accumulate(place) if order.size else place
    latest = np.append(order, NONE)[last]
    same = (latest != NONE) & (np.append(keys, NONE)[latest] == keys[order])
    result = np.empty(order.size, dtype=np.int64)
    result[order] = np.where(same, latest, NONE)
    return result[key.size :]


# The path


class _Recognition:
    """Finds the path of one host from the events of its devices and its ops in the window.

    `_launching`: the op of each collective event, as an index of names. `_rows`: device events. `_ops`: host events.
    """

    def __init__(
        self,
        trace: Trace,
        names: _Names,
        launching: Int32Array,
        selection: Selection,
        host: int,
    ) -> None:
        self._trace, self._names, self._launching = trace, names, launching
        window = selection.windows[host]
        self._step_count = max(1, len(selection.steps.get(host, ())))
        columns, calls = trace.device_columns, trace.host_columns
        self._sidecar = trace.hosts[host].sidecar
        self._devices = list(trace.devices_of_host[host])
        self._kinds = {trace.device_list[i].kind for i in self._devices}
        rows = trace.device_rows(host)
        self._rows = rows[rows_in(columns.start_ps[rows], columns.end_ps[rows], window)]
        known = names.collective | names.nccl | names.total | names.update
        of_host = calls.rows_of_host(host)
        ops = np.flatnonzero(known[calls.name[of_host]]) + of_host.start
        ops = ops[rows_in(calls.start_ps[ops], calls.end_ps[ops], window)]
        self._ops = ops[trace.runs_model[calls.line[ops]]] if ops.size else ops

    def path(self) -> ReductionPath:
        """The first path of the module's table that the trace shows."""
        has_events = self._launching.size > 0
        if has_events and "gpu" in self._kinds:
            return self._over_nccl()
        ops = self._named(self._names.collective, self._launching, self._op_names())
        if ops and self._is_ring():
            reasons = [self._why_ring(), self._why_gathered(self._launching, self._op_names())]
            return ReductionPath("collective_ring", ops, "; ".join(filter(None, reasons)) or None)
        path = self._by_copies() if "gpu" in self._kinds else self._on_replicas()
        if ops and path.path == "none":
            reason = "collective ops ran; neither kernels nor copies of gradients were recorded"
            return ReductionPath("none", ops, reason)
        return path

    def _is_ring(self) -> bool:
        """On GPUs the ring of the collective ops copies; ops without copies show no path."""
        if "gpu" not in self._kinds:
            return True
        columns = self._trace.device_columns
        class_ = columns.class_[self._rows]
        copies = columns.p2p[self._rows] | (class_ == ActivityClass.D2H)
        return bool(self._virtual()) or self._is_gradients(self._rows[copies])

    def _op_names(self) -> Int32Array:
        names: Int32Array = self._trace.host_columns.name[self._ops]
        return names

    def _named(self, wanted: BoolArray, *names: Int32Array) -> tuple[str, ...]:
        """Those of these names that are wanted, in the order in which they were added to the trace."""
        every = np.concatenate(names)
        chosen = unique_ids(every[wanted[every]]).tolist()[:SHOWN_OPS]
        return tuple(self._trace.names.text(index) or "" for index in chosen)

    # NCCL, and the collective ops without it

    def _over_nccl(self) -> ReductionPath:
        paths: tuple[tuple[Path, BoolArray], ...] = (
            ("collective_nccl", self._names.collective),
            ("nccl", self._names.nccl),
        )
        for names in (self._launching, self._op_names()):
            for path, wanted in paths:
                ops = self._named(wanted, names)
                if ops:
                    return ReductionPath(path, ops, self._why_gathered(self._launching, names))
        known = self._launching[self._launching >= 0]
        ops = self._named(np.ones(len(self._trace.names) + 1, dtype=np.bool_), known)
        return ReductionPath("nccl", ops, "the TensorFlow op that launched it is not recorded")

    def _why_gathered(self, *names: Int32Array) -> str | None:
        gathers = self._names.gather[np.concatenate(names)].any()
        return "some gradients are IndexedSlices, which are gathered" if gathers else None

    def _why_ring(self) -> str | None:
        if self._kinds == {"replica"}:
            return "NCCL does not support CPU devices"
        return self._virtual() or (
            "no NCCL kernel ran and the devices copied, as with virtual GPUs or the RING implementation"
        )

    # Copies and sums

    def _by_copies(self) -> ReductionPath:
        columns = self._trace.device_columns
        device_sums = self._rows[
            self._names.total[columns.op[self._rows]]
            & (columns.class_[self._rows] == ActivityClass.COMPUTE)
        ]
        summing = unique_ids(columns.device[device_sums])
        class_ = columns.class_[self._rows]
        between = self._rows[columns.p2p[self._rows]]
        if len(self._devices) > 1 and summing.size and self._is_gradients(between):
            ops = self._named(self._names.total, columns.op[device_sums])
            if summing.size > 1:
                return ReductionPath("hierarchical_copy", ops, self._configured())
            return ReductionPath("one_device", ops, *self._why())
        on_device = np.zeros(len(self._trace.names) + 1, dtype=np.bool_)
        on_device[unique_ids(columns.op[self._rows][columns.op[self._rows] >= 0])] = True
        on_cpu = self._names.total & ~on_device
        sums = self._op_names()[on_cpu[self._op_names()]]
        both_ways = all(
            sum(
                self._is_gradients(
                    self._rows[(class_ == direction) & (columns.device[self._rows] == device)]
                )
                for device in self._devices
            )
            > 1
            for direction in (ActivityClass.D2H, ActivityClass.H2D)
        )
        if both_ways and 2 * sums.size >= self._step_count:
            updates = self._names.update & ~on_device
            why = self._why(of_cpu=True, updates=bool(updates[self._op_names()].any()))
            return ReductionPath("cpu_bounce", self._named(on_cpu, sums), *why)
        return ReductionPath("none")

    def _is_gradients(self, rows: Int64Array) -> bool:
        """Whether copies move as much per step as gradients would."""
        columns = self._trace.device_columns
        size = columns.bytes[rows]
        known = size[size != UNKNOWN_BYTES]
        if known.size == 0:
            lasted = int(columns.duration_ps[rows].sum())
            return lasted >= LEAST_PS_PER_STEP * self._step_count
        sidecar = self._sidecar
        gradients = sidecar.environment.training.gradient_bytes if sidecar else None
        least = LEAST_GRADIENT_RATIO * gradients if gradients else LEAST_BYTES_PER_STEP
        return int(known.sum()) >= least * self._step_count

    def _on_replicas(self) -> ReductionPath:
        """Replicas on CPU devices share memory and copy nothing: sums in a scope of their own show the path."""
        columns = self._trace.device_columns
        if len(self._devices) < 2:
            return ReductionPath("none")
        wanted = self._names.total.copy()
        for index in np.flatnonzero(wanted).tolist():
            wanted[index] = not _NO_SCOPE.fullmatch(self._trace.names[index].rpartition(b":")[0])
        sums = self._rows[wanted[columns.op[self._rows]]]
        if not sums.size:
            return ReductionPath("none")
        several = unique_ids(columns.device[sums]).size > 1
        ops = self._named(wanted, columns.op[sums])
        return ReductionPath(
            "hierarchical_copy" if several else "one_device", ops, self._configured()
        )

    # Reasons

    def _why(
        self, *, of_cpu: bool = False, updates: bool = False
    ) -> tuple[str | None, Cause | None]:
        """Why the gradients are not summed over the links between GPUs, in words and by its key."""
        reasons: tuple[tuple[Cause, str | None], ...] = (
            ("variables", self._cpu_variables() if of_cpu else None),
            ("updates", "variables are updated on the CPU" if updates else None),
            ("virtual", self._virtual()),
            ("configured", self._configured()),
        )
        return next(((text, cause) for cause, text in reasons if text), (None, None))

    def _virtual(self) -> str | None:
        if self._sidecar and self._sidecar.has_virtual_gpus:
            return "NCCL does not support GPUs that are divided into virtual devices"
        return None

    def _cpu_variables(self) -> str | None:
        devices = self._sidecar.environment.strategy.parameter_devices if self._sidecar else None
        is_on_cpu = any("CPU" in device for device in devices or ())
        return "variables are on the CPU" if is_on_cpu else None

    def _configured(self) -> str | None:
        operations = self._sidecar.environment.strategy.cross_device_ops if self._sidecar else None
        if operations not in _CROSS_DEVICE_OPS:
            return "the strategy has cross-device ops of the script" if operations else None
        return f"the strategy uses {operations}"
