"""Finds the devices that computed gradients, and whether only one did though several should have.

Names of ops show forward pass, backward pass, optimizer and reduction on each device. A gradient op alone does not show
that the backward pass was reached: its constants need no input and may run long before. So gradients have to be a share
of the compute.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from traceview.analysis.balance.gradient_reasons import Reason, is_below_replicas, reasons_for_one
from traceview.analysis.balance.rules import SINGLE
from traceview.analysis.base import OfDevice, Skipped
from traceview.analysis.nvml.result import Nvml
from traceview.analysis.placement import Placement
from traceview.document import numbers
from traceview.record import LARGEST, Count, DeviceKey, Integer, Picoseconds, Record
from traceview.sweeping import SWEEPS
from traceview.trace.model import Trace
from traceview.trace.op_phase import (
    Phase,
    phases_of,
    phases_on_host,
)
from traceview.trace.replica_names import ReplicaNames
from traceview.trace.sidecar import Sidecar
from traceview.xplane.planes import ActivityClass

_BEFORE: Final = "the backward pass ran before the recording"
_UNNAMED: Final = "names show it only inside a tf.function"


class DevicePhases(OfDevice, frozen=True):
    """The parts of the training step that ran on one device in the whole recording, by the names of its kernels.

    Attributes:
        replicas: Numbers of replicas in the names of ops, `replica_4/…`; replica 0 and a single replica have none.
        forward_count: Kernels (on a CPU: ops) of the forward pass.
        backward_count: Kernels (on a CPU: ops) of the backward pass.
        optimizer_count: Kernels (on a CPU: ops) of the optimizer.
        reduction_count: Kernels (on a CPU: ops) of the reduction of gradients.
        unknown_count: Kernels (on a CPU: ops) whose names do not show the part.
        forward_ps: Sum of the durations of those of the forward pass, picoseconds.
        backward_ps: Sum of the durations of those of the backward pass, picoseconds.
        optimizer_ps: Sum of the durations of those of the optimizer, picoseconds.
        reduction_ps: Sum of the durations of those of the reduction of gradients, picoseconds.
        backward: Whether the backward pass ran there: 5 % of the durations of forward, backward and optimizer;
            null where no name shows any of them.
    """

    replicas: tuple[Integer, ...]
    forward_count: Count
    backward_count: Count
    optimizer_count: Count
    reduction_count: Count
    unknown_count: Count
    forward_ps: Picoseconds
    backward_ps: Picoseconds
    optimizer_ps: Picoseconds
    reduction_ps: Picoseconds
    backward: bool | None


class Gradients(Record, frozen=True):
    """The devices that computed gradients.

    Attributes:
        computed: Keys of the devices that ran the backward pass.
        not_computed: Keys of the devices whose ops are known and that ran no backward pass; empty where no device
            did.
        is_single: Whether one device computed gradients though several are visible or belong to the strategy.
        reasons: Why only one did, as far as evidence shows it; empty otherwise.
        remark: Why no device is known to have computed gradients; null where one is.
        least_replica_counts: By host, the least number of replicas that the names of its ops show; without hosts
            where no name shows any.
        statements: Where replicas ran and memory is held, in sentences; empty where each GPU has its own replica.
        devices: The devices that computed in the window.
    """

    computed: tuple[DeviceKey, ...]
    not_computed: tuple[DeviceKey, ...]
    is_single: bool
    reasons: tuple[Reason, ...]
    remark: str | None
    least_replica_counts: dict[str, Annotated[int, Meta(ge=2, le=LARGEST)]]
    statements: tuple[str, ...]
    devices: tuple[DevicePhases, ...]


def compute(
    trace: Trace,
    in_use: Collection[int],
    placement: Placement | Skipped,
    outside: Nvml | Skipped,
) -> Gradients:
    """Find the parts of the step that ran on the devices of `in_use` (device indices)."""
    phase, replicas = phases_of(trace), ReplicaNames(trace)
    columns = trace.device_columns
    rows = []
    for device in in_use:
        events = columns.rows_of(device)
        is_kernel = columns.class_[events] <= ActivityClass.COLLECTIVE
        of_kernels = phase[events][is_kernel]
        count = np.bincount(of_kernels, minlength=len(Phase))
        lengths_ps = columns.duration_ps[events][is_kernel]
        total = SWEEPS.totals(of_kernels.astype(np.int64), lengths_ps, len(Phase))
        rows.append(_row(trace, replicas, device, count.tolist(), total.tolist()))
    named = [row for row in rows if row.backward is not None]
    empty = _with_empty_batches(trace, named)
    computed = tuple(row.device for row in named if row.backward and row not in empty)
    counts = replicas.least_counts
    single = next((i for i in in_use if (trace.device_key(i),) == computed), None)
    is_single = single is not None and _is_meant_for_several(trace, single)
    return Gradients(
        computed=computed,
        not_computed=tuple(row.device for row in named if computed and row.device not in computed),
        is_single=is_single,
        reasons=tuple(reasons_for_one(trace, replicas, single, placement, outside))
        if single is not None and is_single
        else (),
        remark=None if computed else _remark(trace, phase, rows),
        least_replica_counts={trace.hosts[host].name: count for host, count in counts.items()},
        statements=(
            *(
                statement
                for host in range(len(trace.hosts))
                for statement in _where_replicas_ran(trace, replicas, host, counts.get(host, 1))
            ),
            *(() if is_single else _of_empty([row.device for row in empty])),
        ),
        devices=tuple(rows),
    )


def _with_empty_batches(trace: Trace, rows: list[DevicePhases]) -> list[DevicePhases]:
    """Devices whose replicas got no example: their kernels compute gradients of empty batches.

    The examples of a batch go to the first replicas of a host (measured with TensorFlow 2.21).
    """
    if len(trace.hosts) > 1:
        return []
    examples = {
        host.name: host.sidecar.environment.batch.global_ or 0
        for host in trace.hosts
        if host.sidecar is not None and is_below_replicas(host.sidecar)
    }
    return [
        row
        for row in rows
        if row.host in examples
        and (row.replicas[0] if row.replicas else row.ordinal) >= examples[row.host]
    ]


def _of_empty(devices: list[str]) -> Iterator[str]:
    if devices:
        yield (
            f"the batch has fewer examples than there are replicas: {numbers.listed(devices)} "
            f"{'computes' if len(devices) == 1 else 'compute'} gradients of empty batches"
        )


def _row(
    trace: Trace, names: ReplicaNames, device: int, count: list[int], total: list[int]
) -> DevicePhases:
    named = total[Phase.FORWARD] + total[Phase.BACKWARD] + total[Phase.OPTIMIZER]
    return DevicePhases(
        *trace.identity(device),
        replicas=names.on_device(device),
        forward_count=count[Phase.FORWARD],
        backward_count=count[Phase.BACKWARD],
        optimizer_count=count[Phase.OPTIMIZER],
        reduction_count=count[Phase.REDUCTION],
        unknown_count=count[Phase.UNKNOWN],
        forward_ps=total[Phase.FORWARD],
        backward_ps=total[Phase.BACKWARD],
        optimizer_ps=total[Phase.OPTIMIZER],
        reduction_ps=total[Phase.REDUCTION],
        backward=total[Phase.BACKWARD] >= SINGLE.limits["backward_ratio"] * named
        if named
        else None,
    )


def _remark(trace: Trace, phase: npt.NDArray[np.uint8], rows: list[DevicePhases]) -> str:
    """Why no device is known to have computed gradients."""
    if all(row.backward is None for row in rows):
        return "the names of the kernels do not show which part of a training step they are"
    kinds = {trace.device_key(i): device.kind for i, device in enumerate(trace.device_list)}
    noun = "op" if all(kinds[row.device] == "replica" for row in rows) else "kernel"
    on_host = phases_on_host(trace)
    # A collective that the host launches may never run, and an optimizer that it launches may run on the CPU.
    later = [
        word
        for word, has_run in (
            ("the optimizer", (phase == Phase.OPTIMIZER).any() or Phase.OPTIMIZER in on_host),
            ("the reduction of gradients", (phase == Phase.REDUCTION).any()),
        )
        if has_run
    ]
    backward_count = sum(row.backward_count for row in rows)
    devices = numbers.listed([row.device for row in rows if row.backward_count])
    limit = numbers.share(SINGLE.limits["backward_ratio"])
    few = (
        f"the {numbers.plural(backward_count, noun)} named after gradients on {devices} take less than {limit} of the "
        "compute"
    )
    if later and backward_count:
        return f"{numbers.listed(later)} ran, but {few}; {_UNNAMED}"
    if later:
        # A whole step holds its backward pass.
        is_whole = any(step.excluded is None for host in trace.steps_by_host for step in host.steps)
        why = _UNNAMED if is_whole else f"{_BEFORE}, or {_UNNAMED}"
        return f"{numbers.listed(later)} ran, but no {noun} is named after a gradient; {why}"
    if backward_count:
        return f"the recording does not reach the backward pass: {few}, so they only prepare it"
    if on_host:
        return f"the host launched gradients, but no {noun} of them ran in the recording"
    return "neither gradients nor an optimizer ran: the recording is of inference, or ends before the backward pass"


def _where_replicas_ran(
    trace: Trace, names: ReplicaNames, host: int, least_count: int
) -> Iterator[str]:
    """Where the GPUs of a host do not each run the replica of their own number."""
    columns, entries = trace.device_columns, enumerate(trace.device_list)
    gpus = [i for i, entry in entries if (entry.host, entry.kind) == (host, "gpu")]
    running = {
        device: names.on_device(device)
        for device in gpus
        if (columns.class_[columns.rows_of(device)] <= ActivityClass.COLLECTIVE).any()
    }
    placed = {device: replicas for device, replicas in running.items() if replicas}
    numbered = [replica for replicas in placed.values() for replica in replicas]
    if len(set(numbered)) < len(numbered):
        # Ops of one replica ran on several devices: no device has a replica of its own.
        return
    # Ops of the first replica have no number in their names.
    count = len({replica for replicas in running.values() for replica in replicas or (0,)})
    is_usual = all(replicas == (trace.device_list[i].ordinal,) for i, replicas in placed.items())
    if not running or (is_usual and count >= least_count):
        return
    where = numbers.listed(
        [
            f"{trace.device_key(device)} ran {numbers.listed([f'replica_{number}' for number in replicas])}"
            for device, replicas in placed.items()
        ]
    )
    if count >= least_count:
        yield where
    elif placed:
        yield (
            f"{where}; names of ops show at least {least_count} replicas, and no other GPU ran a kernel"
        )
    else:
        only = numbers.listed([trace.device_key(device) for device in running])
        yield f"names of ops show at least {least_count} replicas, and only {only} ran kernels"
    holding = [
        f"{numbers.size(held)} on {trace.device_key(device)}"
        for device in gpus
        if device not in running and (held := trace.device_list[device].memory_held_bytes)
    ]
    if holding:
        yield f"TensorFlow holds memory where no kernel ran: {numbers.listed(holding)}"


def _is_meant_for_several(trace: Trace, device: int) -> bool:
    entry = trace.device_list[device]
    kind = (entry.host, entry.kind)
    alike_count = sum((other.host, other.kind) == kind for other in trace.device_list)
    sidecar = trace.hosts[entry.host].sidecar
    planned_count = len(sidecar.environment.strategy.devices or ()) if sidecar else 0
    return max(alike_count, planned_count) > 1 or _could_be_several(sidecar)


def _could_be_several(sidecar: Sidecar | None) -> bool:
    """Whether a mirroring strategy has one replica on a machine with more devices of its kind."""
    if sidecar is None:
        return False
    environment = sidecar.environment
    strategy = environment.strategy
    if "Mirrored" not in (strategy.class_ or "") or strategy.replicas != 1:
        return False
    kind = "GPU" if any("GPU" in name for name in strategy.devices or ()) else "CPU"
    logical = [name for name in environment.devices.logical or () if kind in name]
    physical = [device for device in environment.devices.physical or () if device.type == kind]
    machine = environment.links.gpus or () if kind == "GPU" else ()
    return max(len(logical), len(physical), len(machine)) > 1
