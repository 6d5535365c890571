"""Why are gradients computed on one device only: which known reason does the evidence show?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from traceview.analysis.base import Skipped
from traceview.analysis.nvml.result import Nvml
from traceview.analysis.placement import Placement
from traceview.document import numbers
from traceview.record import Record
from traceview.trace.model import Host, Trace
from traceview.trace.op_phase import backward_replicas
from traceview.trace.placement import local_device
from traceview.trace.sidecar import Sidecar

FOLDED_RATIO: Final = 0.20
"""Gradients of a replica that take less than this of those of another on the same device are its constants."""

OTHER_PROCESS_RATIO: Final = 0.05
"""Memory that another process holds on a GPU, from which on it is named (METRICS: gpu-shared)."""

_SEVERAL: Final = 2
_NO_DEVICE_SCOPE: Final = "Take tf.device out of the step and let strategy.run place it."
_USE_THE_STRATEGY: Final = "Build model and optimizer in with strategy.scope(): and call strategy.run(step, args=(batch,))."


class Reason(Record, frozen=True):
    """Why gradients are on one device, as far as recorded evidence shows it.

    Attributes:
        code: unused_strategy, one_replica, outside_scope, pinned_ops, small_batch, visible_devices or
            gpu_shared.
        text: In a sentence.
        advice: What to change.
    """

    code: str
    text: str
    advice: str


def reasons_for_one(
    trace: Trace, device: int, placement: Placement | Skipped, outside: Nvml | Skipped
) -> Iterator[Reason]:
    """The known reasons that evidence shows for gradients on one device, a device index, only."""
    host, key = trace.hosts[trace.device_list[device].host], trace.device_key(device)
    together = _replicas_together(trace, device)
    if host.sidecar is not None:
        yield from _of_strategy(host.sidecar)
        yield from _of_variables(host.sidecar)
        if not together:
            yield from _of_pinning(host, placement, host.sidecar)
        yield from _of_batch(host.sidecar)
        yield from _of_visibility(host.sidecar)
    if together:
        yield Reason(
            "pinned_ops",
            f"{key} ran the gradients of {numbers.listed([f'replica_{number}' for number in together])}: that is "
            "so below tf.device",
            _NO_DEVICE_SCOPE,
        )
    if not isinstance(outside, Skipped):
        yield from _of_others(host, key, outside)


def _replicas_together(trace: Trace, device: int) -> list[int]:
    """The replicas that computed gradients on one device, if several did and it is not divided."""
    sidecar = trace.hosts[trace.device_list[device].host].sidecar
    physical = sidecar.environment.devices.physical if sidecar else None
    if any((one.logical_devices or 1) > 1 for one in physical or () if one.type == "GPU"):
        return []
    length = backward_replicas(trace, device)
    # Constants of another replica may be folded into one.
    least = FOLDED_RATIO * max(length.values(), default=0)
    found = sorted(replica for replica, ps in length.items() if ps >= least)
    return found if len(found) >= _SEVERAL else []


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
            f"the {strategy.class_} has one replica, {_local(sidecar, strategy.devices)}",
            "Give the strategy all devices: tf.distribute.MirroredStrategy() takes every visible GPU; print "
            "strategy.num_replicas_in_sync.",
        )


def _local(sidecar: Sidecar, devices: Iterable[str] | None) -> str:
    task = sidecar.environment.cluster
    names = [local_device(name, task.role, task.index) for name in devices or ()]
    return numbers.listed(names or ["not named"])


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
        told = f" (such as {numbers.listed(names[:3])})" if names else ""
        yield Reason(
            "outside_scope",
            f"{numbers.plural(count, 'trainable variable')} of the step {'is' if count == 1 else 'are'} not "
            f"mirrored{told}: that is so of a model built outside strategy.scope()",
            _USE_THE_STRATEGY,
        )


def _of_pinning(host: Host, placement: Placement | Skipped, sidecar: Sidecar) -> Iterator[Reason]:
    strategy, task = sidecar.environment.strategy, sidecar.environment.cluster
    if strategy.is_used and strategy.replicas == 1:
        # It asks for its only device itself.
        return
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
                f"{numbers.plural(asked[devices[0]], 'op')} of {graph.step or graph.name or 'the step'} ask for "
                f"{devices[0]} and none for another device: that is so below tf.device",
                _NO_DEVICE_SCOPE,
            )


def _of_batch(sidecar: Sidecar) -> Iterator[Reason]:
    batch, replicas = sidecar.environment.batch, sidecar.environment.strategy.replicas
    if batch.global_ is not None and is_below_replicas(sidecar):
        yield Reason(
            "small_batch",
            f"a batch of {numbers.plural(batch.global_, 'example')} does not reach {replicas} replicas: the others "
            "compute gradients of empty batches",
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


def _of_others(host: Host, device: str, outside: Nvml) -> Iterator[Reason]:
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
                + (f" and holds {numbers.size(held)}" if held else ""),
                "See with nvidia-smi whose it is, and give each job GPUs of its own.",
            )


def is_below_replicas(sidecar: Sidecar) -> bool:
    """Whether the batch has fewer examples than there are replicas."""
    batch = sidecar.environment.batch.global_
    return batch is not None and batch < (sidecar.environment.strategy.replicas or 0)
