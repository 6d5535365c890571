"""Recognises how the devices of a host sum their gradients, through NCCL or by copies, and which collectives are of layers.

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

Tells collectives that layers of the model make from those that sum gradients. Gradients are summed once per step, after the
backward pass and in a scope of the optimizer. A layer that computes over all replicas, such as synchronised batch normalisation,
makes its collectives in its own scope, which the backward pass has too; there each of them may have one more, which TensorFlow
names after no layer (TensorFlow 2.21).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.analysis.facts.detours import WAITS_FOR_RESULTS, copied_results, is_sum
from traceview.analysis.facts.selection import rows_in
from traceview.analysis.measures.context import Context
from traceview.base.codes import Code
from traceview.base.ids import groups_of, is_in, unique_ids
from traceview.base.intervals import BoolArray, Int32Array, Int64Array, places
from traceview.base.stats import median_ps
from traceview.base.text import lazy_pattern
from traceview.base.units import PS_PER_US
from traceview.ledger.states import State
from traceview.trace.device.op_names import (
    LONGEST_NAME,
    OPTIMIZER_SCOPE,
    Phase,
    op_names,
    phases_of,
    split_op,
)
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
_CAUSES: Final[Mapping[Cause, str]] = {
    "variables": "variables are on the CPU",
    "updates": "variables are updated on the CPU",
    "virtual": "NCCL does not support GPUs that are divided into virtual devices",
    "configured": "the strategy is set up with cross_device_ops",
}

LEAST_SUMMED: Final = 3
"""GPUs whose gradients one of them sums: with two of them it is as good as any other way."""

LEAST_BYTES_PER_STEP: Final = 1024 * 1024
"""Copies of fewer bytes in a step carry no gradients, unless the sidecar knows their size: 256 Ki parameters; our
own choice, above the metrics and indices that real traces copy (0.07 MB in a step of BERT)."""

LEAST_PS_PER_STEP: Final = 100 * PS_PER_US
"""Shorter copies whose size is not recorded carry none either: 1 MiB at 10 GB/s take 105 µs; our own choice."""

LEAST_GRADIENT_RATIO: Final = 0.5
"""Copies of a smaller share of the gradients carry something else; our own choice."""


class _Op(Code):
    """The part of an op in a reduction; `SUM` belongs to no single replica."""

    OTHER = 0
    COLLECTIVE = 1
    GATHER = 2
    NCCL = 3
    SUM = 4
    UPDATE = 5


_COLLECTIVE: Final = (_Op.COLLECTIVE, _Op.GATHER)
_INDICATIVE: Final = lazy_pattern(rb"Collective|Nccl|AddN|Apply")
_TYPES: Final = (
    (lazy_pattern(rb"Collective(?=\w{0,99}Gather)\w+"), _Op.GATHER),
    (lazy_pattern(rb"Collective(?!Init|AssignGroup)\w+"), _Op.COLLECTIVE),
    (lazy_pattern(rb"_?Nccl\w+"), _Op.NCCL),
    (lazy_pattern(rb"AddN"), _Op.SUM),
    (lazy_pattern(rb"(?:Resource)?(?:Sparse)?Apply\w+"), _Op.UPDATE),
)
_NO_SCOPE: Final = lazy_pattern(
    rb"(?:(?:StatefulPartitionedCall\w*|ArithmeticOptimizer|PartitionedCall\w*)/)*[^/]*|.*gradient_tape/.*",
    re.DOTALL,
)


class ReductionPath(Struct, frozen=True):
    """How the devices of a host reduce. `reason`: why, where the trace shows it.

    `cause`: the reason why gradients are summed on the CPU or on one GPU, where it is a known one.
    """

    path: Path | None
    reason: str | None = None
    cause: Cause | None = None


def _because(path: Path, cause: Cause | None) -> ReductionPath:
    return ReductionPath(path, None if cause is None else _CAUSES[cause], cause)


def events_in_windows(context: Context) -> Int64Array:
    """The rows of the collectives that overlap the window of their host, ascending; `Context.once` keeps it."""
    columns, collectives = context.trace.device_columns, context.collectives
    inside = [np.empty(0, dtype=np.int64)]
    for rows in groups_of(collectives.host):
        window = context.selection.windows.get(int(collectives.host[rows[0]]))
        if window is not None:
            events = collectives.row[rows]
            inside.append(rows[rows_in(columns.start_ps[events], columns.end_ps[events], window)])
    return np.sort(np.concatenate(inside))


def reduction_paths(context: Context) -> dict[int, ReductionPath]:
    """The path of each host that has a window, from what runs in it; `Context.once` keeps it."""
    trace, collectives = context.trace, context.collectives
    inside = context.once(events_in_windows)
    paths = {}
    for host in context.selection.windows:
        rows = inside[collectives.host[inside] == host]
        if _are_of_xla(trace, collectives.row[rows]):
            paths[host] = ReductionPath("xla")
        else:
            paths[host] = _Recognition(context, host, collectives.op[rows]).path()
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
    ledger = context.ledger
    result = np.zeros(ledger.count, dtype=np.bool_)
    for host, path in context.once(reduction_paths).items():
        if len(ledger.devices) < 2 and not has_virtual_gpus(context.trace, host):
            continue
        gpus = _gpus(context, host)
        if path.path == "one_device" and len(gpus) >= LEAST_SUMMED:
            result |= ledger.rows(states=(State.D2D,), devices=gpus)
        elif path.path == "cpu_bounce":
            back = context.once(copied_results).row
            result |= ledger.rows(states=(State.D2H,), devices=gpus)
            waits = ledger.rows(states=WAITS_FOR_RESULTS, devices=gpus)
            result |= waits & is_in(ledger.columns.event, back)
    return result


def has_virtual_gpus(trace: Trace, host: int) -> bool:
    """Whether replicas share a GPU, as far as the sidecar says."""
    return trace.hosts[host].captured.has_virtual_gpus


def _gpus(context: Context, host: int) -> list[int]:
    trace, activities = context.trace, context.activities
    return [
        device
        for device in trace.devices_of_host[host]
        if trace.device_list[device].kind == "gpu" and activities[device].compute.length
    ]


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


# The path


_UNRECORDED: Final = "collective ops ran; neither kernels nor copies of gradients were recorded"


class _Recognition:
    """Finds the path of one host from the events of its devices and its ops in the window.

    `_launching`: the op of each collective event, as an index of names; `_called`: that of each op on the host. `_rows`:
    device events.
    """

    def __init__(self, context: Context, host: int, launching: Int32Array) -> None:
        trace, window = context.trace, context.selection.windows[host]
        columns, calls = trace.device_columns, trace.host_columns
        self._trace, self._launching = trace, launching
        self._does = context.once(_op_kinds)
        self._step_count = max(1, len(context.selection.steps.get(host, ())))
        self._environment = trace.hosts[host].captured.environment
        self._devices = list(trace.devices_of_host[host])
        self._kinds = {trace.device_list[i].kind for i in self._devices}
        self._is_virtual = "gpu" in self._kinds and has_virtual_gpus(trace, host)
        rows = trace.device_rows(host)
        self._rows = rows[rows_in(columns.start_ps[rows], columns.end_ps[rows], window)]
        of_host = calls.rows_of_host(host)
        ops = np.flatnonzero(self._does[calls.name[of_host]]) + of_host.start
        ops = ops[rows_in(calls.start_ps[ops], calls.end_ps[ops], window)]
        ops = ops[trace.runs_model[calls.line[ops]]] if ops.size else ops
        self._called: Int32Array = calls.name[ops]

    def path(self) -> ReductionPath:
        """The first path of the module's table that the trace shows."""
        has_gpus = "gpu" in self._kinds
        if self._launching.size and has_gpus:
            return self._over_nccl()
        is_asked = self._has(_COLLECTIVE, self._launching) or self._has(_COLLECTIVE, self._called)
        if is_asked and self._is_ring():
            reasons = (self._why_ring(), self._why_gathered(self._called))
            return ReductionPath("collective_ring", "; ".join(filter(None, reasons)) or None)
        path = self._by_copies() if has_gpus else self._on_replicas()
        if is_asked and path.path == "none":
            return ReductionPath("none", _UNRECORDED)
        return path

    def _has(self, kinds: tuple[_Op, ...], names: Int32Array) -> bool:
        return bool(is_in(self._does[names], kinds).any())

    # NCCL, and the collective ops without it

    def _over_nccl(self) -> ReductionPath:
        for names in (self._launching, self._called):
            if self._has(_COLLECTIVE, names):
                return ReductionPath("collective_nccl", self._why_gathered(names))
            if self._has((_Op.NCCL,), names):
                return ReductionPath("nccl", self._why_gathered(names))
        return ReductionPath("nccl", "the TensorFlow op that launched it is not recorded")

    def _why_gathered(self, names: Int32Array) -> str | None:
        gathers = self._has((_Op.GATHER,), np.concatenate((self._launching, names)))
        return "some gradients are IndexedSlices, which are gathered" if gathers else None

    def _is_ring(self) -> bool:
        """On GPUs the ring of the collective ops copies; ops without copies show no path."""
        columns = self._trace.device_columns
        copies = columns.p2p[self._rows] | (columns.class_[self._rows] == ActivityClass.D2H)
        is_ring = "gpu" not in self._kinds or self._is_virtual
        return is_ring or self._is_gradients(self._rows[copies])

    def _why_ring(self) -> str:
        if self._kinds == {"replica"}:
            return "NCCL does not support CPU devices"
        if self._is_virtual:
            return _CAUSES["virtual"]
        return "no NCCL kernel ran and the devices copied, as with virtual GPUs or the RING implementation"

    # Copies and sums

    def _by_copies(self) -> ReductionPath:
        columns, rows = self._trace.device_columns, self._rows
        class_, op = columns.class_[rows], columns.op[rows]
        is_sum = (self._does[op] == _Op.SUM) & (class_ == ActivityClass.COMPUTE)
        summing = unique_ids(columns.device[rows[is_sum]])
        if len(self._devices) > 1 and summing.size and self._is_gradients(rows[columns.p2p[rows]]):
            return self._on_devices(summing.size)
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
            return ReductionPath("none")
        updates = bool((on_cpu & (self._does[self._called] == _Op.UPDATE)).any())
        return _because("cpu_bounce", next(self._causes(on_cpu=True, updates=updates), None))

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

    def _on_replicas(self) -> ReductionPath:
        """Replicas on CPU devices share memory and copy nothing: sums in a scope of their own show the path."""
        columns, names = self._trace.device_columns, self._trace.names
        rows = self._rows[self._does[columns.op[self._rows]] == _Op.SUM]
        scoped = [
            name
            for name in unique_ids(columns.op[rows]).tolist()
            if not _NO_SCOPE.fullmatch(names[name].rpartition(b":")[0])
        ]
        rows = rows[is_in(columns.op[rows], scoped)]
        if len(self._devices) < 2 or not rows.size:
            return ReductionPath("none")
        return self._on_devices(unique_ids(columns.device[rows]).size)

    def _on_devices(self, device_count: int) -> ReductionPath:
        """The path of sums on so many devices; on several it is the strategy's alone."""
        if device_count > 1:
            is_set_up = "configured" in self._causes()
            return _because("hierarchical_copy", "configured" if is_set_up else None)
        return _because("one_device", next(self._causes(), None))

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


# Collectives of layers

_GRADIENTS: Final = b"gradient_tape/"
_OF_CALL: Final = lazy_pattern(rb"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
_BATCH_NORM: Final = lazy_pattern(rb"batch_?norm", re.IGNORECASE)


class SmallCollectives(Struct, frozen=True, eq=False):
    """Collectives that exchange little each. `rows`: int64, of the device columns. `per_step`: in a used step, median.

    `title`: of the finding about them. `scopes`: of the layers that they are of.
    """

    rows: Int64Array
    per_step: int
    title: str
    scopes: frozenset[bytes] = frozenset()


def layer_collectives(context: Context) -> SmallCollectives | None:
    """The collectives of layers; None without any in a used step."""
    trace, collectives, steps = context.trace, context.collectives, used_steps(context)
    scope_of = {
        op: _path(split_op(trace.names.text(op) or "")[0]).rpartition(b"/")[0]
        for op in unique_ids(collectives.op).tolist()
        if op != NONE
    }
    of_layers, of_step = _scopes(trace)
    is_forward = _asked_in(collectives, scope_of, of_layers)
    is_backward = _asked_in(collectives, scope_of, of_step)
    is_backward &= _before_the_last_gradient(trace, collectives, is_backward)
    forward, backward = (per_step(collectives, rows, steps) for rows in (is_forward, is_backward))
    if not forward:
        return None
    # More of them cannot all belong to these layers: some may sum gradients.
    rows = is_forward | is_backward if backward <= forward else is_forward
    layers = of_layers & set(scope_of.values())
    title = "norm" if all(map(_BATCH_NORM.search, layers)) else "layers"
    count = per_step(collectives, rows, steps)
    return SmallCollectives(collectives.row[rows], count, title, layers)


def used_steps(context: Context) -> Int64Array:
    """The numbers of the used steps, ascending."""
    return np.array(sorted({s.number for s in context.selection.used_steps}), dtype=np.int64)


def per_step(collectives: Collectives, rows: BoolArray | Int64Array, steps: Int64Array) -> int:
    """How many of the collectives of some rows begin in a used step, median, rounded down; 0 without steps."""
    of_step = np.sort(collectives.first_step[unique_ids(collectives.collective[rows])])
    return median_ps(places(of_step, steps, right=True) - places(of_step, steps)) or 0


def _asked_in(
    collectives: Collectives, scope_of: Mapping[int, bytes], scopes: frozenset[bytes]
) -> BoolArray:
    """Which collectives were asked for by an op right in one of some scopes."""
    ops = [op for op, scope in scope_of.items() if scope in scopes]
    return is_in(collectives.op.astype(np.int64), np.array(sorted(ops), dtype=np.int64))


def _scopes(trace: Trace) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """The scopes of layers, which ops of the backward pass repeat, and those around the model, b"" among them.

    A scope that the script puts around the step has most gradient ops or the optimizer in it, and is none of a layer.
    """
    gradients: Counter[bytes] = Counter()
    of_step: set[bytes] = {b""}
    of_optimizer: set[bytes] = set()
    gradient_count = 0
    # Replicas have the same ops, so that each is read once.
    for path in {_path(name) for name, _ in trace.once(op_names).ops if name is not None}:
        if path.startswith(_GRADIENTS):
            gradient_count += 1
            gradients.update(_around(path.removeprefix(_GRADIENTS).rpartition(b"/")[0]))
        elif (optimizer := OPTIMIZER_SCOPE.search(path)) is not None:
            of_step.update(_around(path[: optimizer.start()]))
            of_optimizer.update(_around(path[: optimizer.end()].rstrip(b"/")))
    of_step.update(scope for scope, count in gradients.items() if 2 * count > gradient_count)
    layers = gradients.keys() - of_step - of_optimizer
    return frozenset(layers), frozenset(of_step)


def _around(scope: bytes) -> Iterator[bytes]:
    while scope:
        yield scope
        scope = scope.rpartition(b"/")[0]


def _path(name: str) -> bytes:
    """The path of an op, whose name is without replica and type, without the function that was called."""
    return _OF_CALL.sub(b"", name[:LONGEST_NAME].encode())


def _before_the_last_gradient(trace: Trace, collectives: Collectives, rows: BoolArray) -> BoolArray:
    """Which of `rows` end before an op of the backward pass begins, in the same step on their device."""
    columns, phase = trace.device_columns, phases_of(trace)
    result = np.zeros(rows.size, dtype=np.bool_)
    for device in unique_ids(collectives.device[rows]).tolist():
        of_device = columns.rows_of(device)
        gradients = np.sort(columns.start_ps[of_device][phase[of_device] == Phase.BACKWARD])
        own = np.flatnonzero(rows & (collectives.device == device))
        end = collectives.end_ps[own]
        steps = trace.steps_by_host[trace.device_list[device].host].steps
        step_ends = np.array([step.end_ps for step in steps], dtype=np.int64)
        step_end = np.append(step_ends, end.max())[np.searchsorted(step_ends, end, side="right")]
        result[own] = np.searchsorted(gradients, step_end) > np.searchsorted(gradients, end)
    return result
