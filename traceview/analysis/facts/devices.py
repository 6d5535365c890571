"""States what devices are, and which part each took: its status, which computed, and whether these ran one after another."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from traceview.analysis.facts.run import Run
from traceview.analysis.facts.selection import covered_ps
from traceview.base.intervals import Int64Array
from traceview.base.record import Ratio, Record, Share
from traceview.ledger.table import clocks_agree
from traceview.trace.device.memory import allocators
from traceview.trace.host.state_timeline import joined_spans
from traceview.trace.model import Trace, part_in_training, step_groups
from traceview.trace.strategy.replicas import least_replica_counts
from traceview.xplane.planes import ActivityClass

MARGINAL_RATIO: Final = 0.20
"""A device that computes less than this of the busiest of its kind and role is marginal."""

WITHOUT_EVENT: Final = ("empty", "memory_only")
"""The statuses of devices that recorded no event."""

OF_CHANCE_RATIO: Final = 0.5
"""Devices that run one after another overlap less than this share of what chance gives."""

_FOR_TWO: Final = 1.5
"""Cores for two devices to compute at once, most of the time: a choice of ours."""

_FEWEST_MEETINGS: Final = 1.5
"""Of fewer, by chance and in all pairs and steps, it says nothing that they do not happen. A choice of ours."""

_KINDS: Final = ("gpu", "tpu", "other", "replica")
"""Devices of one kind are compared with each other: the first of these that computed."""


def statuses(run: Run) -> list[str]:
    """The status of each device of the device list over the whole recording.

    empty: no event; memory_only: no event, but its allocator holds bytes; copy_only: copies or fills, no kernel;
    marginal: it computes less than a fifth of the busiest device; else active.
    """
    compute_ps = [activity.compute.length for activity in run.activities]
    columns, busiest = run.trace.device_columns, busiest_peers(run)
    result = []
    for index in range(len(run.trace.device_list)):
        classes = columns.class_[columns.rows_of(index)]
        if classes.size == 0:
            allocator = run.trace.once(allocators).get(index)
            result.append("memory_only" if allocator and allocator.held_bytes[-1] else "empty")
        elif (classes >= ActivityClass.H2D).all():
            result.append("copy_only")
        elif compute_ps[index] < MARGINAL_RATIO * compute_ps[busiest[index]]:
            result.append("marginal")
        else:
            result.append("active")
    return result


def busiest_peers(run: Run) -> list[int]:
    """For each device the index of the device of its kind and role that computes most.

    GPUs are not compared with replicas on a CPU, nor workers with parameter servers or evaluators.
    """
    compute_ps = [activity.compute.length for activity in run.activities]
    parts = list(map(part_in_training, run.trace.hosts))
    peers = [(device.kind, parts[device.host]) for device in run.trace.device_list]
    first: dict[tuple[str, str], int] = {}
    for index in sorted(range(len(peers)), key=lambda i: (-compute_ps[i], i)):
        first.setdefault(peers[index], index)
    return [first[peer] for peer in peers]


def devices_in_use(run: Run) -> tuple[int, ...]:
    """The devices (device indices, by host and number) of one kind that computed in the window."""
    kind_of = {
        device: entry.kind
        for device, entry in enumerate(run.trace.device_list)
        if entry.kind in _KINDS and compute_ps(run, device) > 0
    }
    kind = next((kind for kind in _KINDS if kind in kind_of.values()), None)
    return tuple(device for device, own in kind_of.items() if own == kind)


def make_steps_together(trace: Trace, devices: Collection[int]) -> bool:
    """Whether the hosts of the devices train together; with parameter servers each works at its own pace."""
    hosts = {trace.device_list[device].host for device in devices}
    return any(hosts <= set(group) for group in step_groups(trace.hosts))


def compute_ps(run: Run, device: int) -> int:
    """How long a device computes in its window."""
    window = run.selection.window_of_device(run.trace, device)
    return covered_ps(run.activities[device].compute, window) if window else 0


def least_replica_count(trace: Trace, hosts: Collection[int]) -> int | None:
    """How many replicas the names of ops show at least; None unless `hosts` is one host."""
    (host, *others) = hosts
    return None if others else least_replica_counts(trace).get(host, 1)


# One after another


class Concurrency(Record, frozen=True):
    """How much of the devices' compute overlaps; all null with fewer than two devices, and where clocks cannot be compared.

    Attributes:
        concurrency_ratio: Compute overlap as a share of the largest possible: (sum of compute - its union) over
            (sum - longest), both sums over the used steps. 1 if the shorter compute runs wholly inside the longest, 0 if
            devices never compute at the same time.
        chance_ratio: The concurrency_ratio expected of devices that compute independently: the longest compute
            of a step over its length, from the first kernel of the run to the last.
        is_serial: Whether the devices run one after another: they overlap far less than by chance, in enough steps to
            rule chance out, and not for a lack of cores.
    """

    concurrency_ratio: Share | None
    chance_ratio: Ratio | None
    is_serial: bool | None


def concurrency(run: Run) -> Concurrency:
    """How much of the compute of the devices in use overlaps.

    A device that has less to do in a step cannot overlap with more than that, whatever it does in others. Where devices
    compute in different steps, that shows nothing, and the window counts as one.
    """
    trace, devices = run.trace, devices_in_use(run)
    if len(devices) < 2 or not clocks_agree(trace, devices):
        return Concurrency(None, None, None)
    hosts = {trace.device_list[device].host for device in devices}
    computing = [run.activities[device].compute for device in devices]
    every = joined_spans(computing)
    start, end = _used_steps(run, hosts)
    of_device = np.stack([spans.within(start, end) for spans in computing])
    if 2 * np.count_nonzero((of_device > 0).sum(axis=0) > 1) < max(start.size, 1):
        windows = [run.selection.windows[host] for host in hosts]
        start = np.array([min(window.start_ps for window in windows)], dtype=np.int64)
        end = np.array([max(window.end_ps for window in windows)], dtype=np.int64)
        of_device = np.stack([spans.within(start, end) for spans in computing])
    longest = of_device.max(axis=0)
    possible = of_device.sum(axis=0) - longest
    inside = (every.end > start.min()) & (every.start < end.max())
    first, last = max(every.start[inside][0], start.min()), min(every.end[inside][-1], end.max())
    overlap = int(of_device.sum()) - int(every.within(start, end).sum())
    ratio = overlap / int(possible.sum())
    # Of a mean step.
    span = int(last - first) / start.size
    chance = float((possible / possible.sum() * longest).sum()) / span
    step_count = min(len(run.selection.used_of(host)) for host in hosts)
    pair_count = len(devices) * (len(devices) - 1) // 2
    is_serial = ratio < OF_CHANCE_RATIO * chance
    is_serial &= chance * pair_count * max(step_count, 1) >= _FEWEST_MEETINGS
    is_serial &= not any(_has_one_core(trace, device) for device in devices)
    return Concurrency(ratio, chance, is_serial)


def _has_one_core(trace: Trace, device: int) -> bool:
    """Whether a device is a CPU replica of a host on which other processes leave too few cores for two."""
    entry = trace.device_list[device]
    free = trace.hosts[entry.host].captured.load.free_cores
    return entry.kind == "replica" and free is not None and free < _FOR_TWO


def _used_steps(run: Run, hosts: Collection[int]) -> tuple[Int64Array, Int64Array]:
    """When the used steps of any of these hosts begin and end, by their numbers; int64 `[n]`."""
    bounds: dict[int, tuple[int, int]] = {}
    for host in hosts:
        for step in run.selection.used_of(host):
            first, last = bounds.get(step.number, (step.start_ps, step.end_ps))
            bounds[step.number] = min(first, step.start_ps), max(last, step.end_ps)
    start, end = np.array([*bounds.values()], dtype=np.int64).reshape(-1, 2).T
    return start, end


def model_of(trace: Trace, device: int) -> str | None:
    """The model of a device, by its plane, else as TensorFlow or NVML recorded it; None where nothing says it.

    TensorFlow lists physical GPUs in the order of their planes.
    """
    entry = trace.device_list[device]
    sidecar = trace.hosts[entry.host].sidecar
    if entry.model or sidecar is None or entry.kind != "gpu":
        return entry.model
    physical = sidecar.physical_gpus
    details = physical[entry.ordinal].details if entry.ordinal < len(physical) else None
    if details and details.device_name:
        return details.device_name
    return next((g.name for g in sidecar.outside_view.devices if g.ordinal == entry.ordinal), None)
