"""Computes what collectives cost: how much is transfer, how much waiting for other devices, how much is hidden.

All devices leave a collective together, so the device that came last spends the shortest time in it. That time is the
transfer; the others waited for the rest of their time in it. On a device the waiting comes first:

    GPU:0   ▕ compute ▏▕ wait   ▕ transfer ▏
    GPU:1   ▕ compute          ▏▕ transfer ▏      last

Only time that no kernel covers costs anything; it, too, is divided into transfer and waiting. Where parts of several
collectives overlap on a device, transfer goes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from traceview.analysis.base import Skipped
from traceview.analysis.collectives.bandwidth import (
    BytesSource,
    Link,
    Workers,
    agreed,
    bandwidth_of,
    is_reducing,
    sidecars,
)
from traceview.analysis.collectives.reduction_path import (
    Path,
    ReductionPath,
    events_in_windows,
    reduction_paths,
)
from traceview.analysis.context import Context
from traceview.analysis.cost import mean_of_steps
from traceview.analysis.selection import step_bounds
from traceview.ids import is_in, sorted_unique, unique_ids
from traceview.intervals import BoolArray, Int64Array, IntervalSet, uncovered, union
from traceview.record import Count, DeviceKey, Hostname, OpName, Picoseconds, Record, Share
from traceview.robust import median_ps
from traceview.trace.collectives import Collectives
from traceview.trace.model import Trace
from traceview.xplane.planes import ActivityClass

Matched: TypeAlias = Literal["keys", "order", "mixed"]
Library: TypeAlias = Literal["nccl", "rccl"]


class CollectiveTimes(Record, frozen=True):
    """The collectives of some devices that overlap the window.

    Attributes:
        device_count: Devices that took part.
        member_count: Devices that take part, those of workers that were not recorded included: every worker
            has equally many.
        library: The library for collectives of these GPUs; null without GPUs.
        count: Collectives that overlap the window.
        incomplete_count: Those of them that not all devices recorded; left out of transfer and waiting.
        count_per_step: Collectives per step, median over the used steps; null without any.
        matched_by: What showed that events of different devices are one collective; null without any.
        transfer_ps: Sum of the shortest durations over the devices, picoseconds.
        transfer_per_step_ps: The same per step, median over the used steps, picoseconds; null without any.
        wait_ps: Time each device spent in collectives beyond the transfers, picoseconds by device.
        wait_per_step_ps: The same per step, median over the used steps, picoseconds by device; null without
            any.
        exposed_ps: Time in collectives without compute, picoseconds by device.
        exposed_per_step_ps: The same per step, median over the used steps, picoseconds by device; null without
            any. As in all numbers per step by device, devices of hosts without a used step are left out.
        exposed_transfer_ps: The part of the exposed time in transfers, picoseconds by device; the rest is
            waiting.
        exposed_transfer_per_step_ps: The same per step, median over the used steps, picoseconds by device; null
            without any.
        exposed_wait_per_step_ps: Exposed waiting per step, median over the used steps, picoseconds by device;
            null without any.
        overlap_ratio: Share of the time in collectives that compute covers, over all devices; null without any.
        last_count: How often each device started after all others of its collectives.
        bytes: Bytes of all collectives if recorded, else of one step's gradients from the sidecar; null where
            neither is known.
        bytes_source: Where bytes are from; null without.
        algorithm_bytes_per_second: bytes over the transfers, rounded down; null where bytes are not known.
        bus_bytes_per_second: The same times what each link carries per byte: 2(n-1)/n of an all-reduce, (n-1)/n
            of an all-gather or reduce-scatter among n devices.
        link: What links the GPUs, from the sidecar; null where not known, and for a network.
        link_bytes_per_second: What the links of one GPU carry in one direction; null where not known.
        expected_ps: What reducing the gradients of one step takes at the speed of the link, picoseconds; null
            where either is not known.
        packs: Calls into which the strategy is set to pack the gradients; null where not known.
        path: How the devices reduce gradients; null where none of these names fits.
        path_ops: Names of ops that show the path.
        path_reason: Why the devices reduce that way; null where the trace does not show it.
        mean_exposed_transfer_per_step_ps: Exposed time in transfers per step, mean over the used steps, rounded down,
            picoseconds by device; null without any, and in reports of earlier versions.
        mean_exposed_wait_per_step_ps: Exposed waiting per step, mean over the used steps, rounded down, picoseconds by
            device; null without any, and in reports of earlier versions.
    """

    device_count: Count
    member_count: Count
    library: Library | None
    count: Count
    incomplete_count: Count
    count_per_step: Count | None
    matched_by: Matched | None
    transfer_ps: Picoseconds
    transfer_per_step_ps: Picoseconds | None
    wait_ps: dict[DeviceKey, Picoseconds]
    wait_per_step_ps: dict[DeviceKey, Picoseconds] | None
    exposed_ps: dict[DeviceKey, Picoseconds]
    exposed_per_step_ps: dict[DeviceKey, Picoseconds] | None
    exposed_transfer_ps: dict[DeviceKey, Picoseconds]
    exposed_transfer_per_step_ps: dict[DeviceKey, Picoseconds] | None
    exposed_wait_per_step_ps: dict[DeviceKey, Picoseconds] | None
    overlap_ratio: Share | None
    last_count: dict[DeviceKey, Count]
    bytes: Count | None
    bytes_source: BytesSource | None
    algorithm_bytes_per_second: Count | None
    bus_bytes_per_second: Count | None
    link: Link | None
    link_bytes_per_second: Count | None
    expected_ps: Picoseconds | None
    packs: Count | None
    path: Path | None
    path_ops: tuple[OpName, ...]
    path_reason: str | None
    mean_exposed_transfer_per_step_ps: dict[DeviceKey, Picoseconds] | None = None
    mean_exposed_wait_per_step_ps: dict[DeviceKey, Picoseconds] | None = None


class HostCollectives(CollectiveTimes, frozen=True, kw_only=True):
    """The part of one host: its devices only. Transfers are those of the whole collectives.

    Attributes:
        host: Name of the host.
    """

    host: Hostname


class CollectiveResult(CollectiveTimes, frozen=True, kw_only=True):
    """All devices together, and the part of each host.

    Attributes:
        hosts: The part of each host.
    """

    hosts: tuple[HostCollectives, ...]


def compute(context: Context) -> CollectiveResult | Skipped:
    """Sum up the collectives of a trace."""
    trace, selection, collectives = context.trace, context.selection, context.collectives
    hosts = sorted(trace.hosts_with_device_events & set(selection.windows))
    device_count = sum(device.host in hosts for device in trace.device_list)
    if device_count < 2 and not collectives.count:
        return Skipped("not applicable: fewer than two devices, and no collective")
    sums = _Sums(context)
    paths = reduction_paths(trace, collectives, selection)
    parts = tuple(
        HostCollectives(**asdict(sums.times([host], paths[host])), host=trace.hosts[host].name)
        for host in hosts
    )
    whole = sums.times(hosts, _common([paths[host] for host in hosts]))
    return CollectiveResult(**asdict(whole), hosts=parts)


def transfer_spans(trace: Trace, collectives: Collectives) -> list[IntervalSet]:
    """When each device, by device index, transferred in a collective: the waiting comes before it.

    The transfer of an incomplete collective is not known: all of it counts.
    """
    columns = trace.device_columns
    transfer = np.where(collectives.is_complete, collectives.transfer_ps, np.iinfo(np.int64).max)
    end = columns.end_ps[collectives.row]
    duration = columns.duration_ps[collectives.row]
    begin = end - np.minimum(transfer[collectives.collective], duration)
    # Rows are in the order of collectives, not of devices.
    order = np.argsort(collectives.device, kind="stable")
    bounds = np.searchsorted(collectives.device[order], np.arange(len(trace.device_list) + 1))
    return [union(begin[order[low:high]], end[order[low:high]]) for low, high in pairwise(bounds)]


def _common(paths: Sequence[ReductionPath]) -> ReductionPath:
    """The path of the hosts that reduce, if it is the same; the first host's evidence holds for all."""
    reducing = [path for path in paths if path.path != "none"] or list(paths)
    if len({path.path for path in reducing}) > 1:
        return ReductionPath(None, (), "hosts reduce in different ways")
    return reducing[0]


class _Exposed(Struct, frozen=True, eq=False):
    """One device: exposed time, the part of it in transfers and time in collectives in the window; per step."""

    whole: int
    transfer: int
    busy: int
    per_step: Int64Array
    transfer_per_step: Int64Array


class _Sums:
    """What the sums over hosts are made from, computed once."""

    def __init__(self, context: Context) -> None:
        self._trace, self._selection = context.trace, context.selection
        self._collectives, self._activities = context.collectives, context.activities
        inside = events_in_windows(self._trace, self._selection, self._collectives)
        self._in_window = np.zeros(self._collectives.count, dtype=np.bool_)
        self._in_window[self._collectives.collective[inside]] = True
        self._transfers = transfer_spans(self._trace, self._collectives)
        self._workers = Workers.of(self._trace)

    def times(self, hosts: Sequence[int], path: ReductionPath) -> CollectiveTimes:
        """The sums over the devices of `hosts`."""
        collectives, trace = self._collectives, self._trace
        rows = is_in(collectives.host, hosts) & self._in_window[collectives.collective]
        chosen = np.zeros(collectives.count, dtype=np.bool_)
        chosen[collectives.collective[rows]] = True
        complete = chosen & collectives.is_complete
        in_complete = rows & complete[collectives.collective]
        last = collectives.last_among(in_complete)
        used = [step.number for host in hosts for step in self._selection.used_of(host)]
        numbers = sorted_unique(np.array(used, dtype=np.int64))
        devices = {
            trace.device_key(index): index
            for index in range(len(trace.device_list))
            if trace.device_list[index].host in hosts
        }
        exposed = {key: self._exposed(device) for key, device in devices.items()}
        waited = {
            key: in_complete & (collectives.device == device) for key, device in devices.items()
        }
        busy_ps = sum(times.busy for times in exposed.values())
        exposed_ps = sum(times.whole for times in exposed.values())
        device_count = unique_ids(collectives.device[rows]).size
        transfer_ps, step = collectives.transfer_ps, collectives.first_step[collectives.collective]
        bandwidth = bandwidth_of(
            trace,
            collectives,
            hosts,
            chosen,
            self._workers,
            median_ps(self._per_step(complete & is_reducing(collectives), transfer_ps, numbers)),
        )
        return CollectiveTimes(
            device_count=device_count,
            member_count=self._workers.member_count(device_count),
            library=self._library(hosts),
            count=int(chosen.sum()),
            incomplete_count=int((chosen & ~complete).sum()),
            count_per_step=median_ps(
                self._per_step(chosen, np.ones_like(collectives.first), numbers)
            ),
            matched_by=_matched_by(collectives.by_keys[rows]),
            transfer_ps=int(transfer_ps[complete].sum()),
            transfer_per_step_ps=median_ps(self._per_step(complete, transfer_ps, numbers)),
            wait_ps={key: int(collectives.wait_ps[mask].sum()) for key, mask in waited.items()},
            wait_per_step_ps=_medians(
                {
                    key: _summed(step[mask], collectives.wait_ps[mask], numbers)
                    for key, mask in waited.items()
                    if exposed[key].per_step.size
                }
            ),
            exposed_ps={key: times.whole for key, times in exposed.items()},
            exposed_per_step_ps=_medians({key: times.per_step for key, times in exposed.items()}),
            exposed_transfer_ps={key: times.transfer for key, times in exposed.items()},
            exposed_transfer_per_step_ps=_medians(
                {key: times.transfer_per_step for key, times in exposed.items()}
            ),
            exposed_wait_per_step_ps=_medians(
                {key: times.per_step - times.transfer_per_step for key, times in exposed.items()}
            ),
            overlap_ratio=(busy_ps - exposed_ps) / busy_ps if busy_ps else None,
            last_count={
                key: int(np.count_nonzero(last & (collectives.device == device)))
                for key, device in devices.items()
            },
            **asdict(bandwidth),
            packs=agreed(sidecar.environment.strategy.packs for sidecar in sidecars(trace, hosts)),
            path=path.path,
            path_ops=path.ops,
            path_reason=path.reason,
            mean_exposed_transfer_per_step_ps=_means(
                {key: times.transfer_per_step for key, times in exposed.items()}
            ),
            mean_exposed_wait_per_step_ps=_means(
                {key: times.per_step - times.transfer_per_step for key, times in exposed.items()}
            ),
        )

    def _per_step(self, chosen: BoolArray, values: Int64Array, numbers: Int64Array) -> Int64Array:
        """The sum of `values` of the chosen collectives in each of the steps `numbers`."""
        return _summed(self._collectives.first_step[chosen], values[chosen], numbers)

    def _exposed(self, device: int) -> _Exposed:
        window = self._selection.window_of_device(self._trace, device)
        activity, transfers = self._activities[device], self._transfers[device]
        host = self._trace.device_list[device].host
        start, end = step_bounds(self._selection.used_of(host))
        if window is not None:
            start, end = np.append(start, window.start_ps), np.append(end, window.end_ps)
        collective = ActivityClass.COLLECTIVE
        whole = activity.parts(start, end)[collective]
        transfer = uncovered(transfers, activity.compute, start, end)
        busy = activity.by_class[collective].within(start, end)
        if window is None:
            return _Exposed(0, 0, 0, whole, transfer)
        return _Exposed(int(whole[-1]), int(transfer[-1]), int(busy[-1]), whole[:-1], transfer[:-1])

    def _library(self, hosts: Sequence[int]) -> Library | None:
        devices = self._trace.device_list
        gpus = [device for device in devices if device.host in hosts and device.kind == "gpu"]
        if not gpus:
            return None
        names = [self._trace.names[int(name)] for name in unique_ids(self._collectives.name)]
        is_amd = any(gpu.stats.get("device_vendor") == "AMD" for gpu in gpus)
        return "rccl" if is_amd or any(b"rccl" in name.lower() for name in names) else "nccl"


def _summed(steps: Int64Array, values: Int64Array, numbers: Int64Array) -> Int64Array:
    total = np.zeros(numbers.size, dtype=np.int64)
    place = np.searchsorted(numbers, steps)
    inside = np.append(numbers, np.iinfo(np.int64).min)[place] == steps
    np.add.at(total, place[inside], values[inside])
    return total


def _medians(values: dict[str, Int64Array]) -> dict[str, int] | None:
    medians = {key: median_ps(lengths) for key, lengths in values.items()}
    return {key: median for key, median in medians.items() if median is not None} or None


def _means(values: dict[str, Int64Array]) -> dict[str, int] | None:
    means = {key: mean_of_steps(lengths) for key, lengths in values.items()}
    return {key: mean for key, mean in means.items() if mean is not None} or None


def _matched_by(by_keys: BoolArray) -> Matched | None:
    if not by_keys.size:
        return None
    return "mixed" if by_keys.any() and not by_keys.all() else "keys" if by_keys[0] else "order"
