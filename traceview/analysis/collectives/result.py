"""What do collectives cost: how much of them is transfer, how much waiting for other devices, how much is hidden?

All devices leave a collective together, so the one that came last was in it for the shortest time: that is the
transfer, and what the others were in it longer they waited. On a device the waiting comes first:

    GPU:0   ▕ compute ▏▕ wait   ▕ transfer ▏
    GPU:1   ▕ compute          ▏▕ transfer ▏      last

Only what no kernel covers costs anything; of that, too, the part in the transfer and the part in the waiting are
told apart. Where parts of several collectives overlap on a device, transfer goes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Final, Literal, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from traceview.analysis.activity import DeviceActivity
from traceview.analysis.base import Skipped
from traceview.analysis.collectives.reduction_path import Path, ReductionPath, reduction_paths
from traceview.analysis.selection import Selection, rows_in
from traceview.ids import unique_ids
from traceview.intervals import BoolArray, Int64Array, IntervalSet, uncovered, union
from traceview.record import Count, DeviceKey, Hostname, OpName, Picoseconds, Record, Share
from traceview.robust import median_ps
from traceview.trace.collectives import CollectiveKind, Collectives
from traceview.trace.links import nvlink_bytes_per_second, pcie_bytes_per_second
from traceview.trace.model import UNKNOWN_BYTES, Trace
from traceview.trace.roles import missing_tasks, step_groups
from traceview.trace.sidecar import Sidecar
from traceview.units import PS_PER_S
from traceview.xplane.planes import ActivityClass

Matched: TypeAlias = Literal["keys", "order", "mixed"]
BytesSource: TypeAlias = Literal["recorded", "sidecar"]
Link: TypeAlias = Literal["nvlink", "pcie"]
Library: TypeAlias = Literal["nccl", "rccl"]

_SCATTERED: Final = (
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
)


class CollectiveTimes(Record, frozen=True):
    """The collectives of some devices that overlap the window.

    Attributes:
        device_count: Devices that took part.
        member_count: Devices that take part: those recorded, and of processes that were not recorded as many as
            of each that was.
        library: The library for collectives of these GPUs; null without GPUs.
        count: Collectives that overlap the window.
        incomplete_count: Those of them that not all devices recorded; left out of transfer and waiting.
        count_per_step: Collectives per step, median over the used steps; null without any.
        matched_by: How events of different devices were told to be one collective; null without any.
        transfer_ps: Sum of the shortest durations over the devices, picoseconds.
        transfer_per_step_ps: The same per step, median over the used steps, picoseconds; null without any.
        wait_ps: What each device was in collectives longer than the transfers, picoseconds by device.
        wait_per_step_ps: The same per step, median over the used steps, picoseconds by device; null without
            any.
        exposed_ps: Time in collectives without compute, picoseconds by device.
        exposed_per_step_ps: The same per step, median over the used steps, picoseconds by device; null without
            any.
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
        link: What links the GPUs, from the sidecar; null where it is not known, or a network.
        link_bytes_per_second: What the links of one GPU carry in one direction; null where not known.
        expected_ps: What reducing the gradients of one step takes at the speed of the link, picoseconds; null
            where either is not known.
        packs: Calls into which the strategy was told to pack the gradients; null where not known.
        path: How the devices reduce; null where it has no such name.
        path_ops: Names of ops that show the path.
        path_reason: Why the devices reduce so, where it shows.
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


class HostCollectives(CollectiveTimes, frozen=True):
    """The part of one host: its devices only. Transfers are those of the whole collectives.

    Attributes:
        host: Name of the host.
    """

    host: Hostname


class CollectiveResult(CollectiveTimes, frozen=True):
    """All devices together, and the part of each host.

    Attributes:
        hosts: The part of each host.
    """

    hosts: tuple[HostCollectives, ...]


def compute(
    trace: Trace,
    selection: Selection,
    activities: Sequence[DeviceActivity],
    found: Collectives,
) -> CollectiveResult | Skipped:
    """Sum up the collectives `found`; `activities` by device index."""
    traced = {trace.device_list[i].host for i in unique_ids(trace.device_columns.device)}
    hosts = sorted(traced & set(selection.windows))
    devices = sum(device.host in hosts for device in trace.device_list)
    if devices < 2 and not found.count:
        return Skipped("not applicable: fewer than two devices, and no collective")
    sums = _Sums(trace, selection, activities, found)
    paths = reduction_paths(trace, found, selection)
    parts = tuple(
        HostCollectives(**asdict(sums.times([host], paths[host])), host=trace.hosts[host].name)
        for host in hosts
    )
    whole = sums.times(hosts, _common([paths[host] for host in hosts]))
    return CollectiveResult(**asdict(whole), hosts=parts)


def transfer_spans(trace: Trace, found: Collectives) -> list[IntervalSet]:
    """When each device, by device index, transferred in a collective: the waiting comes before it.

    What an incomplete collective transferred is not known: all of it counts.
    """
    columns = trace.device_columns
    transfer = np.where(found.is_complete, found.transfer_ps, np.iinfo(np.int64).max)
    end = columns.end_ps[found.row]
    begin = end - np.minimum(transfer[found.collective], columns.duration_ps[found.row])
    # Rows are in the order of collectives, not of devices.
    order = np.argsort(found.device, kind="stable")
    bounds = np.searchsorted(found.device[order], np.arange(len(trace.device_list) + 1))
    return [union(begin[order[low:high]], end[order[low:high]]) for low, high in pairwise(bounds)]


def _common(paths: Sequence[ReductionPath]) -> ReductionPath:
    """The path of the hosts that reduce, if it is the same; the first host's evidence stands for all."""
    told = [one for one in paths if one.path != "none"] or list(paths)
    if len({one.path for one in told}) > 1:
        return ReductionPath(None, (), "hosts reduce in different ways")
    return told[0]


class _Sums:
    """Everything that the parts of the result are summed from, once."""

    def __init__(
        self,
        trace: Trace,
        selection: Selection,
        activities: Sequence[DeviceActivity],
        found: Collectives,
    ) -> None:
        self._trace, self._selection, self._activities = trace, selection, activities
        self._found = found
        columns = trace.device_columns
        self._host_of = np.array([device.host for device in trace.device_list], dtype=np.int64)
        self._row_host = self._host_of[found.device]
        inside = np.zeros(found.row.size, dtype=np.bool_)
        for host, window in selection.windows.items():
            mine = np.flatnonzero(self._row_host == host)
            rows = found.row[mine]
            inside[mine[rows_in(columns.start_ps[rows], columns.end_ps[rows], window)]] = True
        self._in_window = np.zeros(found.count, dtype=np.bool_)
        self._in_window[found.collective[inside]] = True
        self._transfers = transfer_spans(trace, found)
        self._missing_count = len(missing_tasks(trace.hosts))
        together = max(step_groups(trace.hosts), key=len, default=())
        self._recorded_count = len(together)

    def times(self, hosts: Sequence[int], path: ReductionPath) -> CollectiveTimes:
        """What the devices of `hosts` were in together."""
        found, trace = self._found, self._trace
        rows = np.isin(self._row_host, hosts) & self._in_window[found.collective]
        here = np.zeros(found.count, dtype=np.bool_)
        here[found.collective[rows]] = True
        complete = here & found.is_complete
        told = rows & complete[found.collective]
        numbers = self._used_numbers(hosts)
        devices = [i for i in range(len(trace.device_list)) if self._host_of[i] in hosts]
        keys = [trace.device_key(device) for device in devices]
        exposed = [self._exposed(device) for device in devices]
        by_device = dict(zip(keys, devices, strict=True))
        waited = {key: told & (found.device == device) for key, device in by_device.items()}
        last = found.last_among(told)
        took_part = np.unique(found.device[rows])
        speeds = self._speeds(hosts, here, complete, numbers)
        return CollectiveTimes(
            device_count=int(took_part.size),
            member_count=self._members(int(took_part.size)),
            library=self._library(hosts),
            count=int(here.sum()),
            incomplete_count=int((here & ~complete).sum()),
            count_per_step=median_ps(self._per_step(here, np.ones_like(found.first), numbers)),
            matched_by=_matched_by(found.by_keys[rows]),
            transfer_ps=int(found.transfer_ps[complete].sum()),
            transfer_per_step_ps=median_ps(self._per_step(complete, found.transfer_ps, numbers)),
            wait_ps={key: int(found.wait_ps[mine].sum()) for key, mine in waited.items()},
            wait_per_step_ps=_medians(
                {key: self._waits_per_step(mine, numbers) for key, mine in waited.items()}
            ),
            exposed_ps={key: one.whole for key, one in zip(keys, exposed, strict=True)},
            exposed_per_step_ps=_medians(
                {key: one.per_step for key, one in zip(keys, exposed, strict=True)}
            ),
            exposed_transfer_ps={key: one.transfer for key, one in zip(keys, exposed, strict=True)},
            exposed_transfer_per_step_ps=_medians(
                {key: one.transfer_per_step for key, one in zip(keys, exposed, strict=True)}
            ),
            exposed_wait_per_step_ps=_medians(
                {
                    key: one.per_step - one.transfer_per_step
                    for key, one in zip(keys, exposed, strict=True)
                }
            ),
            overlap_ratio=_overlap_ratio(exposed),
            last_count={
                key: int(np.count_nonzero(last & (found.device == device)))
                for key, device in by_device.items()
            },
            **asdict(speeds),
            packs=self._packs(hosts),
            path=path.path,
            path_ops=path.ops,
            path_reason=path.reason,
        )

    # Steps

    def _used_numbers(self, hosts: Sequence[int]) -> Int64Array:
        numbers = [
            step.number
            for host in hosts
            for step in self._selection.steps.get(host, ())
            if step.excluded is None
        ]
        return np.unique(np.array(numbers, dtype=np.int64))

    def _per_step(self, chosen: BoolArray, values: Int64Array, numbers: Int64Array) -> Int64Array:
        """The sum of `values` of the chosen collectives in each of the steps `numbers`."""
        return _summed(self._found.first_step[chosen], values[chosen], numbers)

    def _waits_per_step(self, rows: BoolArray, numbers: Int64Array) -> Int64Array:
        steps = self._found.first_step[self._found.collective[rows]]
        return _summed(steps, self._found.wait_ps[rows], numbers)

    # Exposure

    def _exposed(self, device: int) -> _Exposed:
        window = self._selection.window_of_device(self._trace, device)
        activity, transfers = self._activities[device], self._transfers[device]
        steps = self._selection.steps.get(int(self._host_of[device]), ())
        used = [step for step in steps if step.excluded is None]
        start = np.array([step.start_ps for step in used], dtype=np.int64)
        end = np.array([step.end_ps for step in used], dtype=np.int64)
        if window is not None:
            start, end = np.append(start, window.start_ps), np.append(end, window.end_ps)
        collective = ActivityClass.COLLECTIVE
        whole = activity.parts(start, end)[collective]
        compute_ = activity.by_class[ActivityClass.COMPUTE]
        transfer = uncovered(transfers, compute_, start, end)
        busy = activity.by_class[collective].within(start, end)
        if window is None:
            return _Exposed(0, 0, 0, whole, transfer)
        return _Exposed(int(whole[-1]), int(transfer[-1]), int(busy[-1]), whole[:-1], transfer[:-1])

    # Bytes and links

    def _speeds(
        self, hosts: Sequence[int], here: BoolArray, complete: BoolArray, numbers: Int64Array
    ) -> _Speeds:
        found = self._found
        moved = found.bytes_moved
        devices = self._members(int(found.device_count[complete].max(initial=0)))
        transfer = int(found.transfer_ps[complete].sum())
        gradients = self._gradient_bytes(hosts)
        link, speed = self._link(hosts) if self._is_within_host(here) else (None, None)
        expected = None
        if gradients is not None and speed and devices > 1:
            sent = _bus_factor(CollectiveKind.ALL_REDUCE, devices) * gradients
            expected = int(sent * PS_PER_S / speed)
        if complete.any() and not (moved[complete] == UNKNOWN_BYTES).any():
            sizes = [
                (CollectiveKind(kind), count, self._whole(CollectiveKind(kind), count, size))
                for kind, count, size in self._sizes(complete)
            ]
            total = sum(size for _, _, size in sizes)
            on_bus = sum(
                (size * _bus_factor(kind, self._members(count)) for kind, count, size in sizes),
                start=Fraction(0),
            )
            return _Speeds(
                total,
                "recorded",
                _per_second(Fraction(total), transfer),
                _per_second(on_bus, transfer),
                link,
                speed,
                expected,
            )
        reduces = complete & np.isin(
            found.kind[found.first], (CollectiveKind.ALL_REDUCE, CollectiveKind.UNKNOWN)
        )
        per_step = median_ps(self._per_step(reduces, found.transfer_ps, numbers))
        if gradients is None or not per_step:
            return _Speeds(None, None, None, None, link, speed, expected)
        on_bus = gradients * _bus_factor(CollectiveKind.ALL_REDUCE, devices)
        return _Speeds(
            gradients,
            "sidecar",
            _per_second(Fraction(gradients), per_step),
            _per_second(on_bus, per_step),
            link,
            speed,
            expected,
        )

    def _members(self, devices: int) -> int:
        """How many devices take part where `devices` were recorded: workers have equally many."""
        if not self._missing_count:
            return devices
        hosts = self._recorded_count
        return devices * (hosts + self._missing_count) // hosts

    def _whole(self, kind: CollectiveKind, devices: int, size: int) -> int:
        """Of an all-gather the parts of devices that were not recorded are to be added."""
        gathers = kind == CollectiveKind.ALL_GATHER and devices
        return size * self._members(devices) // devices if gathers else size

    def _library(self, hosts: Sequence[int]) -> Library | None:
        gpus = [one for one in self._trace.device_list if one.host in hosts and one.kind == "gpu"]
        names = [self._trace.names[int(name)].lower() for name in np.unique(self._found.name)]
        if not gpus:
            return None
        is_amd = any(one.stats.get("device_vendor") == "AMD" for one in gpus)
        return "rccl" if is_amd or any(b"rccl" in name for name in names) else "nccl"

    def _sizes(self, complete: BoolArray) -> list[tuple[int, int, int]]:
        """Kind, devices and bytes of the collectives, those alike summed."""
        found = self._found
        keys = np.stack((found.kind[found.first], found.device_count), axis=1)[complete]
        kinds, index = np.unique(keys, axis=0, return_inverse=True)
        total = np.zeros(kinds.shape[0], dtype=np.int64)
        np.add.at(total, index.reshape(-1), found.bytes_moved[complete])
        return [
            (int(kind), int(count), size)
            for (kind, count), size in zip(kinds.tolist(), total.tolist(), strict=True)
        ]

    def _is_within_host(self, here: BoolArray) -> bool:
        """Whether none of the collectives goes over a network."""
        rows = here[self._found.collective]
        pairs = np.stack((self._found.collective[rows], self._row_host[rows]), axis=1)
        return bool(np.unique(pairs, axis=0).shape[0] == here.sum())

    def _sidecars(self, hosts: Sequence[int]) -> list[Sidecar]:
        return [one for host in hosts if (one := self._trace.hosts[host].sidecar) is not None]

    def _gradient_bytes(self, hosts: Sequence[int]) -> int | None:
        """All workers train the same model: what one sidecar says of it holds for all."""
        sizes = {one.environment.training.gradient_bytes for one in self._sidecars(hosts)}
        known = sizes - {None, 0}
        return known.pop() if len(known) == 1 else None

    def _packs(self, hosts: Sequence[int]) -> int | None:
        packs = {one.environment.strategy.packs for one in self._sidecars(hosts)} - {None}
        return packs.pop() if len(packs) == 1 else None

    def _link(self, hosts: Sequence[int]) -> tuple[Link | None, int | None]:
        """What the GPUs of these hosts are linked by, if all are alike: NVLink, else PCIe."""
        found: set[tuple[Link | None, int | None]] = set()
        capabilities = {
            (device.stats.get("compute_cap_major"), device.stats.get("compute_cap_minor"))
            for device in self._trace.device_list
            if device.host in hosts and device.kind == "gpu"
        }
        for sidecar in self._sidecars(hosts):
            for gpu in sidecar.environment.links.gpus or ():
                links = gpu.nvlinks.active if gpu.nvlinks else None
                over_nvlink = {nvlink_bytes_per_second(one, links) for one in capabilities}
                if links:
                    known = over_nvlink.pop() if len(over_nvlink) == 1 else None
                    found.add(("nvlink", known))
                    continue
                generation = gpu.pcie_generation_max or gpu.pcie_generation
                speed = pcie_bytes_per_second(generation, gpu.pcie_width or gpu.pcie_width_max)
                found.add(("pcie" if speed else None, speed))
        return found.pop() if len(found) == 1 else (None, None)


@dataclass(frozen=True, eq=False)
class _Exposed:
    """One device: exposed time, the part of it in transfers and time in collectives in the window; per step."""

    whole: int
    transfer: int
    busy: int
    per_step: Int64Array
    transfer_per_step: Int64Array


class _Speeds(Struct, frozen=True):
    bytes: int | None
    bytes_source: BytesSource | None
    algorithm_bytes_per_second: int | None
    bus_bytes_per_second: int | None
    link: Link | None
    link_bytes_per_second: int | None
    expected_ps: int | None


def _overlap_ratio(exposed: Sequence[_Exposed]) -> float | None:
    busy = sum(one.busy for one in exposed)
    return None if busy == 0 else (busy - sum(one.whole for one in exposed)) / busy


def _summed(steps: Int64Array, values: Int64Array, numbers: Int64Array) -> Int64Array:
    total = np.zeros(numbers.size, dtype=np.int64)
    place = np.searchsorted(numbers, steps)
    inside = np.append(numbers, np.iinfo(np.int64).min)[place] == steps
    np.add.at(total, place[inside], values[inside])
    return total


def _medians(values: dict[str, Int64Array]) -> dict[str, int] | None:
    medians = {key: median_ps(one) for key, one in values.items()}
    return {key: one for key, one in medians.items() if one is not None} or None


def _matched_by(by_keys: BoolArray) -> Matched | None:
    if not by_keys.size:
        return None
    return "mixed" if by_keys.any() and not by_keys.all() else "keys" if by_keys[0] else "order"


def _bus_factor(kind: CollectiveKind, devices: int) -> Fraction:
    """What each link carries per byte reduced (NCCL tests, PERFORMANCE.md); 1 for what goes one way."""
    if devices < 1:
        return Fraction(0)
    if kind in _SCATTERED:
        return Fraction(devices - 1, devices)
    if kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.UNKNOWN):
        return Fraction(2 * (devices - 1), devices)
    return Fraction(1)


def _per_second(size: Fraction, lasted_ps: int) -> int | None:
    return None if lasted_ps <= 0 else int(size * PS_PER_S / lasted_ps)
