"""Where were gradients computed, and on one device only though they are meant for several?

By the names of ops: forward, backward, optimizer and reduction on each device. That a gradient op ran does not
show that the backward pass was reached: constants of it need no input and may run long before, so it has to be
a share of the compute.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from traceview.analysis.balance.gradient_reasons import Reason, is_below_replicas, reasons_for_one
from traceview.analysis.base import Skipped
from traceview.analysis.nvml.result import OutsideView
from traceview.analysis.placement import Placement
from traceview.document import numbers
from traceview.intervals import Int64Array
from traceview.record import LARGEST, Count, DeviceKey, Hostname, Integer, Picoseconds, Record
from traceview.trace.model import Trace
from traceview.trace.op_phase import (
    Phase,
    least_replica_counts,
    phases_of,
    phases_on_host,
    replica_numbers,
)
from traceview.trace.sidecar import Sidecar
from traceview.xplane.planes import ActivityClass

BACKWARD_RATIO: Final = 0.05
"""A backward pass takes about twice the forward one; below this share of the named compute only its constants ran."""

_SEVERAL: Final = 2
_UNTOLD: Final = "the backward pass ran before the recording, or under names that do not tell, as without a tf.function"


class DevicePhases(Record, frozen=True):
    """What ran on one device in the whole recording: events and sums of durations by part of the step.

    Of kernels (on a CPU: ops) whose names tell; `unknown_count` of others. `replicas`: numbers in the names of
    ops, `replica_4/…`; replica 0 and runs of one have none. `backward`: whether the backward pass ran there,
    None where no name tells.

    Attributes:
        host: Name of the host.
        device: Key of the device.
        ordinal: Number of the device.
        replicas: Numbers of replicas in the names of ops.
        forward_count: Kernels (on a CPU: ops) of the forward pass.
        backward_count: Kernels (on a CPU: ops) of the backward pass.
        optimizer_count: Kernels (on a CPU: ops) of the optimizer.
        reduction_count: Kernels (on a CPU: ops) of the reduction of gradients.
        unknown_count: Kernels (on a CPU: ops) of which no name tells.
        forward_ps: Sum of the durations of those of the forward pass, picoseconds.
        backward_ps: Sum of the durations of those of the backward pass, picoseconds.
        optimizer_ps: Sum of the durations of those of the optimizer, picoseconds.
        reduction_ps: Sum of the durations of those of the reduction of gradients, picoseconds.
        backward: Whether the backward pass ran there: 5 % of what names tell of forward, backward and
            optimizer; null where no name tells.
    """

    host: Hostname
    device: DeviceKey
    ordinal: Count
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
    """Which devices ran gradients.

    Attributes:
        computed: Keys of the devices that ran the backward pass.
        not_computed: Keys of the devices whose ops are known and that did not; empty where no device did.
        is_single: Whether one device computed gradients though several are visible or belong to the strategy.
        reasons: Why, as far as evidence shows it; empty otherwise.
        remark: Why no device is known to have computed gradients; null where one is.
        least_replica_counts: By host, how many replicas there are at least, by the names of its ops; hosts
            where none tells are left out.
        statements: Where replicas ran and memory is held, in plain sentences; none where each GPU has its own
            replica.
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
    outside: OutsideView | Skipped,
) -> Gradients:
    """Ask of each device of `in_use` (device indices of devices with kernels) what part of the step ran there."""
    phase = phases_of(trace)
    columns = trace.device_columns
    rows = []
    for device in sorted(in_use):
        mine = columns.rows_of(device)
        of_work = columns.class_[mine] <= ActivityClass.COLLECTIVE
        of_phase = phase[mine][of_work]
        count = np.bincount(of_phase, minlength=len(Phase))
        total = _totals(of_phase, columns.duration_ps[mine][of_work])
        rows.append(_row(trace, device, count.tolist(), total))
    told = [row for row in rows if row.backward is not None]
    empty = _with_empty_batches(trace, told)
    computed = tuple(row.device for row in told if row.backward and row not in empty)
    counts = least_replica_counts(trace)
    single = _index_of(trace, computed[0]) if len(computed) == 1 else None
    is_single = single is not None and _is_meant_for_several(trace, single)
    return Gradients(
        computed=computed,
        not_computed=tuple(row.device for row in told if row.device not in computed)
        if computed
        else (),
        is_single=is_single,
        reasons=tuple(reasons_for_one(trace, single, placement, outside))
        if single is not None and is_single
        else (),
        remark=None if computed else _remark(trace, phase, rows, told),
        least_replica_counts={trace.hosts[host].name: count for host, count in counts.items()},
        statements=(
            *(
                statement
                for host in range(len(trace.hosts))
                for statement in _where_replicas_ran(trace, host, counts.get(host, 1))
            ),
            *([] if is_single or not empty else [_of_empty(empty)]),
        ),
        devices=tuple(rows),
    )


def _with_empty_batches(trace: Trace, told: list[DevicePhases]) -> list[DevicePhases]:
    """Devices of replicas that no example reached: their kernels compute gradients of nothing.

    The examples of a batch go to the first replicas of a host (TensorFlow 2.21, measured).
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
        for row in told
        if row.host in examples
        and (row.replicas[0] if row.replicas else row.ordinal) >= examples[row.host]
    ]


def _of_empty(empty: list[DevicePhases]) -> str:
    verb = "computes" if len(empty) == 1 else "compute"
    return (
        f"the batch has fewer examples than there are replicas: {numbers.listed([row.device for row in empty])} {verb} "
        "gradients of empty batches"
    )


def _totals(phase: Int64Array, duration: Int64Array) -> list[int]:
    total = np.zeros(len(Phase), dtype=np.int64)
    for one in Phase:
        total[one] = duration[phase == one].sum()
    return [int(value) for value in total]


def _row(trace: Trace, device: int, count: list[int], total: list[int]) -> DevicePhases:
    entry = trace.device_list[device]
    named = total[Phase.FORWARD] + total[Phase.BACKWARD] + total[Phase.OPTIMIZER]
    return DevicePhases(
        host=trace.hosts[entry.host].name,
        device=trace.device_key(device),
        ordinal=entry.ordinal,
        replicas=replica_numbers(trace, device),
        forward_count=count[Phase.FORWARD],
        backward_count=count[Phase.BACKWARD],
        optimizer_count=count[Phase.OPTIMIZER],
        reduction_count=count[Phase.REDUCTION],
        unknown_count=count[Phase.UNKNOWN],
        forward_ps=total[Phase.FORWARD],
        backward_ps=total[Phase.BACKWARD],
        optimizer_ps=total[Phase.OPTIMIZER],
        reduction_ps=total[Phase.REDUCTION],
        backward=total[Phase.BACKWARD] >= BACKWARD_RATIO * named if named else None,
    )


def _remark(
    trace: Trace, phase: Int64Array, rows: list[DevicePhases], told: list[DevicePhases]
) -> str:
    if not told:
        return "the names of the kernels do not tell which part of a training step they are"
    noun = "op" if _is_on_cpu(trace, rows) else "kernel"
    asked = phases_on_host(trace)
    # What the host asks of a collective may never run, and what it asks of an optimizer may run on the CPU.
    later = [
        word
        for word, has in (
            ("the optimizer", (phase == Phase.OPTIMIZER).any() or Phase.OPTIMIZER in asked),
            ("the reduction of gradients", (phase == Phase.REDUCTION).any()),
        )
        if has
    ]
    some = sum(row.backward_count for row in rows)
    few = (
        f"the {numbers.plural(some, noun)} of {numbers.listed([row.device for row in rows if row.backward_count])} with such "
        f"names take less than {BACKWARD_RATIO:.0%} of the compute"
    )
    if later:
        why = (
            f"gradients are named by few: {few}" if some else f"no {noun} is named after a gradient"
        )
        return f"{numbers.listed(later)} ran, and {why}; {_UNTOLD}"
    if some:
        return f"gradients were not reached in the recording: {few}, as constants of the backward pass do"
    if asked:
        return f"gradients were asked for, and no {noun} of them ran in the recording"
    return (
        "neither gradients nor an optimizer ran in the recording: it is inference, or ends before the backward "
        "pass"
    )


def _is_on_cpu(trace: Trace, rows: list[DevicePhases]) -> bool:
    kinds = {trace.device_key(i): one.kind for i, one in enumerate(trace.device_list)}
    return all(kinds[row.device] == "replica" for row in rows)


def _where_replicas_ran(trace: Trace, host: int, least_count: int) -> Iterator[str]:
    """Where the GPUs of a host do not each run the replica of their own number."""
    columns = trace.device_columns
    gpus = [i for i, one in enumerate(trace.device_list) if (one.host, one.kind) == (host, "gpu")]
    running = {
        device: replica_numbers(trace, device)
        for device in gpus
        if (columns.class_[columns.rows_of(device)] <= ActivityClass.COLLECTIVE).any()
    }
    placed = {device: numbers for device, numbers in running.items() if numbers}
    numbered = [one for numbers in placed.values() for one in numbers]
    if len(set(numbered)) < len(numbered):
        # Ops of one replica on several devices were placed one by one: no device has a replica of its own.
        return
    # Ops of the first replica have no number in their names.
    count = len({one for numbers in running.values() for one in numbers or (0,)})
    is_usual = all(numbers == (trace.device_list[i].ordinal,) for i, numbers in placed.items())
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


def _index_of(trace: Trace, key: str) -> int:
    return [trace.device_key(device) for device in range(len(trace.device_list))].index(key)


def _is_meant_for_several(trace: Trace, device: int) -> bool:
    entry = trace.device_list[device]
    same = [one for one in trace.device_list if (one.host, one.kind) == (entry.host, entry.kind)]
    sidecar = trace.hosts[entry.host].sidecar
    planned = len(sidecar.environment.strategy.devices or ()) if sidecar else 0
    return len(same) >= _SEVERAL or planned >= _SEVERAL or _could_be_several(sidecar)


def _could_be_several(sidecar: Sidecar | None) -> bool:
    """Whether a strategy that mirrors has one replica on a machine with more devices of its kind."""
    if sidecar is None:
        return False
    environment = sidecar.environment
    strategy = environment.strategy
    if "Mirrored" not in (strategy.class_ or "") or strategy.replicas != 1:
        return False
    kind = "GPU" if any("GPU" in name for name in strategy.devices or ()) else "CPU"
    logical = [name for name in environment.devices.logical or () if kind in name]
    physical = [one for one in environment.devices.physical or () if one.type == kind]
    machine = environment.links.gpus or () if kind == "GPU" else ()
    return max(len(logical), len(physical), len(machine)) >= _SEVERAL
