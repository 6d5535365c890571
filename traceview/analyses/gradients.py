"""Where were gradients computed, and if on one device only: which known reason does the evidence show?

By the names of ops: forward, backward, optimizer and reduction on each device. That a gradient op ran does not
show that the backward pass was reached: constants of it need no input and may run long before, so it has to be
a share of the compute.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from traceview.analyses.finding import Skipped, counted, listed, sized
from traceview.analyses.outside_view import OutsideView
from traceview.analyses.placement import Placement
from traceview.intervals import Int64Array
from traceview.trace.model import Host, Trace
from traceview.trace.op_phase import Phase, phases_of, replica_numbers
from traceview.trace.placement import local_device
from traceview.trace.sidecar import Sidecar
from traceview.xplane.planes import ActivityClass

BACKWARD_RATIO: Final = 0.05
"""A backward pass takes about twice the forward one; below this share of the named compute only its constants ran."""

OTHER_PROCESS_RATIO: Final = 0.05
"""Memory that another process holds on a GPU, from which on it is named (METRICS: gpu-shared)."""

_SEVERAL: Final = 2
_USE_THE_STRATEGY: Final = "Build model and optimizer in with strategy.scope(): and call strategy.run(step, args=(batch,))."


@dataclass(frozen=True)
class DevicePhases:
    """What ran on one device in the whole recording: events and sums of durations by part of the step.

    Of kernels (on a CPU: ops) whose names tell; `unknown_count` of others. `replicas`: numbers in the names of
    ops, `replica_4/…`; replica 0 and runs of one have none. `backward`: whether the backward pass ran there,
    None where no name tells.
    """

    host: str
    device: str
    ordinal: int
    replicas: tuple[int, ...]
    forward_count: int
    backward_count: int
    optimizer_count: int
    reduction_count: int
    unknown_count: int
    forward_ps: int
    backward_ps: int
    optimizer_ps: int
    reduction_ps: int
    backward: bool | None


@dataclass(frozen=True)
class Reason:
    """Why gradients are on one device, as far as recorded evidence shows it.

    `code`: outside_scope, unused_strategy, one_replica, visible_devices, small_batch, pinned_ops, gpu_shared.
    """

    code: str
    text: str
    advice: str


@dataclass(frozen=True)
class Gradients:
    """Which devices ran gradients.

    `computed`, `not_computed`: devices that ran kernels, with and without a backward pass; both empty with a
    `remark` where names tell nothing or the recording does not hold it. `is_single`: one device computed
    gradients though several are visible, or belong to the strategy. `reasons`: those that evidence shows, only if so.
    """

    computed: tuple[str, ...]
    not_computed: tuple[str, ...]
    is_single: bool
    reasons: tuple[Reason, ...]
    remark: str | None
    devices: tuple[DevicePhases, ...]


def compute(
    trace: Trace,
    in_use: Collection[int],
    placement: Placement | Skipped,
    outside: OutsideView | Skipped,
) -> Gradients:
    """Ask of each device of `in_use` (roster indices of devices with kernels) what part of the step ran there."""
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
    computed = tuple(row.device for row in told if row.backward)
    if not computed:
        return Gradients((), (), False, (), _remark(rows, told), tuple(rows))
    several = len(computed) == 1 and _is_meant_for_several(trace, computed[0])
    return Gradients(
        computed=computed,
        not_computed=tuple(row.device for row in told if not row.backward),
        is_single=several,
        reasons=tuple(_reasons(trace, computed[0], placement, outside)) if several else (),
        remark=None,
        devices=tuple(rows),
    )


def _totals(phase: Int64Array, duration: Int64Array) -> list[int]:
    total = np.zeros(len(Phase), dtype=np.int64)
    for one in Phase:
        total[one] = duration[phase == one].sum()
    return [int(value) for value in total]


def _row(trace: Trace, device: int, count: list[int], total: list[int]) -> DevicePhases:
    entry = trace.roster[device]
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


def _remark(rows: list[DevicePhases], told: list[DevicePhases]) -> str:
    if not told:
        return "the names of the kernels do not tell which part of a training step they are"
    some = sum(row.backward_count for row in rows)
    if not some:
        return "no op of a gradient ran in the recording: it is inference, or ends before the backward pass"
    return (
        f"gradients were not reached in the recording: the {counted(some, 'kernel')} of "
        f"{listed([row.device for row in rows if row.backward_count])} with such names take less than "
        f"{BACKWARD_RATIO:.0%} of the compute, as constants of the backward pass do"
    )


def _is_meant_for_several(trace: Trace, device: str) -> bool:
    index = [trace.device_key(i) for i in range(len(trace.roster))].index(device)
    entry = trace.roster[index]
    same = [one for one in trace.roster if (one.host, one.kind) == (entry.host, entry.kind)]
    sidecar = trace.hosts[entry.host].sidecar
    planned = len(sidecar.environment.strategy.devices or ()) if sidecar else 0
    return len(same) >= _SEVERAL or planned >= _SEVERAL


def _reasons(
    trace: Trace, device: str, placement: Placement | Skipped, outside: OutsideView | Skipped
) -> Iterator[Reason]:
    index = [trace.device_key(i) for i in range(len(trace.roster))].index(device)
    host = trace.hosts[trace.roster[index].host]
    if host.sidecar is not None:
        yield from _of_strategy(host.sidecar)
        yield from _of_variables(host.sidecar)
        yield from _of_pinning(host, placement, host.sidecar)
        yield from _of_batch(host.sidecar)
        yield from _of_visibility(host.sidecar)
    if not isinstance(outside, Skipped):
        yield from _of_others(host, device, outside)


def _of_strategy(sidecar: Sidecar) -> Iterator[Reason]:
    strategy = sidecar.environment.strategy
    several = len(strategy.devices or ()) >= _SEVERAL or (strategy.replicas or 0) >= _SEVERAL
    if strategy.class_ is not None and strategy.found_by == "memory" and several:
        yield Reason(
            "unused_strategy",
            f"the script has a {strategy.class_}, and nothing in its step shows that it is used",
            _USE_THE_STRATEGY,
        )
    elif strategy.replicas == 1 and strategy.class_ is not None:
        yield Reason(
            "one_replica",
            f"the {strategy.class_} has one replica, {listed(strategy.devices or ('not named',))}",
            "Give the strategy all devices: tf.distribute.MirroredStrategy() takes every visible GPU; print "
            "strategy.num_replicas_in_sync.",
        )


def _of_variables(sidecar: Sidecar) -> Iterator[Reason]:
    strategy = sidecar.environment.strategy
    if "Mirrored" not in (strategy.class_ or "") or (strategy.replicas or 0) < _SEVERAL:
        return
    alone = [
        graph.variables.not_mirrored
        for graph in sidecar.placement.functions
        if graph.variables is not None and graph.variables.not_mirrored.trainable
    ]
    count = sum(one.trainable or 0 for one in alone)
    if count:
        names = [name for one in alone for name in one.names]
        told = f" (such as {listed(names[:3])})" if names else ""
        yield Reason(
            "outside_scope",
            f"{counted(count, 'trainable variable')} of the step {'is' if count == 1 else 'are'} not "
            f"mirrored{told}: that is so of a model built outside strategy.scope()",
            _USE_THE_STRATEGY,
        )


def _of_pinning(host: Host, placement: Placement | Skipped, sidecar: Sidecar) -> Iterator[Reason]:
    task = sidecar.environment.cluster
    functions = [
        function.graph
        for one in (() if isinstance(placement, Skipped) else placement.hosts)
        if one.host == host.name
        for function in one.functions
    ]
    for graph in functions:
        asked = {
            local_device(name, task.role, task.index): count
            for name, count in graph.ops_per_device.items()
            if count
        }
        devices = [name for name in asked if not name.startswith("CPU:") or len(asked) == 1]
        if len(devices) == 1 and asked[devices[0]] * 2 >= (graph.op_count or 0):
            yield Reason(
                "pinned_ops",
                f"{counted(asked[devices[0]], 'op')} of {graph.step or graph.name or 'the step'} ask for "
                f"{devices[0]} and none for another device: that is so below tf.device",
                "Take tf.device out of the step and let strategy.run place it.",
            )


def _of_batch(sidecar: Sidecar) -> Iterator[Reason]:
    batch, replicas = sidecar.environment.batch, sidecar.environment.strategy.replicas or 0
    if batch.global_ is not None and batch.global_ < replicas:
        yield Reason(
            "small_batch",
            f"a batch of {counted(batch.global_, 'example')} does not reach {replicas} replicas",
            "Batch for all replicas: dataset.batch(per_replica * strategy.num_replicas_in_sync).",
        )


def _of_visibility(sidecar: Sidecar) -> Iterator[Reason]:
    environment = sidecar.environment
    hidden = (environment.variables or {}).get("CUDA_VISIBLE_DEVICES")
    physical = [one for one in environment.devices.physical or () if one.type == "GPU"]
    machine = len(environment.links.gpus or ())
    if hidden is not None and len(physical) == 1 and machine > 1:
        yield Reason(
            "visible_devices",
            f"CUDA_VISIBLE_DEVICES={hidden} shows the process 1 of the {machine} GPUs of the machine",
            "Unset CUDA_VISIBLE_DEVICES, or name all GPUs that should train.",
        )
    visible = [n for n in environment.devices.visible or () if "GPU" in n]
    if len(physical) > 1 and len(visible) == 1:
        yield Reason(
            "visible_devices",
            f"TensorFlow was let see 1 of {len(physical)} GPUs (tf.config.set_visible_devices)",
            "Let TensorFlow see all GPUs that should train: tf.config.set_visible_devices(gpus, 'GPU').",
        )


def _of_others(host: Host, device: str, outside: OutsideView) -> Iterator[Reason]:
    for row in outside.devices:
        if row.host != host.name or row.device == device:
            continue
        holding = [
            one
            for one in row.other_processes or ()
            if (one.memory_ratio or 0) >= OTHER_PROCESS_RATIO
            or (one.utilization_ratio or 0) >= OTHER_PROCESS_RATIO
        ]
        if holding:
            held = sum(one.memory_bytes or 0 for one in holding)
            yield Reason(
                "gpu_shared",
                f"another process is on {row.device}"
                + (f" and holds {sized(held)}" if held else ""),
                "See with nvidia-smi whose it is, and give each job GPUs of its own.",
            )
