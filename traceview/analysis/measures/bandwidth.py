"""Computes how many bytes collectives move per second, and how many the recorded link carries.

The bytes are those that the events record. Where they record none, it is the size of the gradients, which the sidecar
knows, over the transfer of all-reduces in a step. Sparse gradients are gathered, and how large they are is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from traceview.base.ids import groups_of, is_in
from traceview.base.intervals import BoolArray
from traceview.base.record import LARGEST, Count, Picoseconds, Record
from traceview.base.units import PS_PER_S
from traceview.trace.model import UNKNOWN_BYTES, Trace
from traceview.trace.sidecar.links import nvlink_bytes_per_second, pcie_bytes_per_second
from traceview.trace.sidecar.sidecar import Sidecar
from traceview.trace.strategy.collectives import CollectiveKind, Collectives
from traceview.trace.strategy.roles import missing_tasks, step_groups

Link: TypeAlias = Literal["nvlink", "pcie"]

_SCATTERED: Final = (
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
)
_REDUCING: Final = (CollectiveKind.ALL_REDUCE, CollectiveKind.UNKNOWN)


class Bandwidth(Record, frozen=True):
    """How many bytes collectives move, and what their link would allow.

    Attributes:
        bytes: Bytes of all collectives if recorded, else of one step's gradients from the sidecar; null where
            neither is known.
        bus_bytes_per_second: bytes over the transfers, times what each link carries per byte: 2(n-1)/n of an all-reduce,
            (n-1)/n of an all-gather or reduce-scatter among n devices; rounded down, null where bytes are not known.
        link: What links the GPUs, from the sidecar; null where not known, and for a network.
        link_bytes_per_second: What the links of one GPU carry in one direction; null where not known.
        expected_ps: What reducing the gradients of one step takes at the speed of the link, picoseconds; null
            where either is not known.
    """

    bytes: Count | None
    bus_bytes_per_second: Count | None
    link: Link | None
    link_bytes_per_second: Count | None
    expected_ps: Picoseconds | None


class Workers(Struct, frozen=True):
    """How many workers train together, and how many of them were not recorded."""

    recorded_count: int
    missing_count: int

    @classmethod
    def of(cls, trace: Trace) -> Workers:
        """The workers of a run."""
        together = max(step_groups(trace.hosts), key=len, default=())
        return cls(len(together), len(missing_tasks(trace.hosts)))

    def member_count(self, recorded_devices: int) -> int:
        """How many devices take part where so many were recorded: all workers have equally many."""
        if not self.missing_count:
            return recorded_devices
        workers = self.recorded_count + self.missing_count
        return recorded_devices * workers // self.recorded_count


def bandwidth_of(
    trace: Trace,
    collectives: Collectives,
    hosts: Sequence[int],
    chosen: BoolArray,
    workers: Workers,
    reduce_ps_per_step: int | None,
) -> Bandwidth:
    """The bandwidth of the chosen collectives, bool `[collectives]`, of these hosts.

    `reduce_ps_per_step`: transfer of their complete all-reduces in a step.
    """
    complete = chosen & collectives.is_complete
    members = workers.member_count(int(collectives.device_count[complete].max(initial=0)))
    # All workers train the same model: what one sidecar says about it holds for all.
    # Sparse gradients are gathered instead: the size of dense ones says nothing about what is moved then.
    gathers = bool((collectives.kind[collectives.first][chosen] == CollectiveKind.ALL_GATHER).any())
    gradient_bytes = (
        None
        if gathers
        else agreed(
            sidecar.environment.training.gradient_bytes or None
            for sidecar in sidecars(trace, hosts)
        )
    )
    is_on_network = not collectives.is_within_host[chosen].all()
    link, link_speed = (None, None) if is_on_network else _link(trace, hosts)
    expected_ps = None
    if gradient_bytes is not None and link_speed and members > 1:
        sent = _bus_factor(CollectiveKind.ALL_REDUCE, members) * gradient_bytes
        expected_ps = int(sent * PS_PER_S / link_speed)

    size: int | None = None
    on_bus = Fraction(0)
    length_ps = 0
    if complete.any() and not (collectives.bytes_moved[complete] == UNKNOWN_BYTES).any():
        size, length_ps = 0, int(collectives.transfer_ps[complete].sum())
        for kind, devices, moved in _sizes(collectives, complete):
            whole = _whole_size(kind, devices, moved, workers)
            size += whole
            on_bus += whole * _bus_factor(kind, workers.member_count(devices))
    elif gradient_bytes is not None and reduce_ps_per_step:
        size, length_ps = gradient_bytes, reduce_ps_per_step
        on_bus = size * _bus_factor(CollectiveKind.ALL_REDUCE, members)
    return Bandwidth(
        bytes=size,
        bus_bytes_per_second=_per_second(on_bus, length_ps),
        link=link,
        link_bytes_per_second=link_speed,
        expected_ps=expected_ps,
    )


def is_reducing(collectives: Collectives) -> BoolArray:
    """Whether each collective may reduce gradients, bool `[collectives]`."""
    result: BoolArray = is_in(collectives.kind[collectives.first], _REDUCING)
    return result


def sidecars(trace: Trace, hosts: Sequence[int]) -> list[Sidecar]:
    """The sidecars of those of these hosts that have one."""
    return [sidecar for host in hosts if (sidecar := trace.hosts[host].sidecar) is not None]


def agreed(values: Iterable[int | None]) -> int | None:
    """The only value that is known; None without any, and where several are."""
    known = set(values) - {None}
    return known.pop() if len(known) == 1 else None


def _link(trace: Trace, hosts: Sequence[int]) -> tuple[Link | None, int | None]:
    """What links the GPUs of these hosts, if all are alike: NVLink, else PCIe; with bytes per second."""
    links: set[tuple[Link | None, int | None]] = set()
    capabilities = {
        (device.count("compute_cap_major"), device.count("compute_cap_minor"))
        for host in hosts
        for device in map(trace.device_list.__getitem__, trace.devices_of_host[host])
        if device.kind == "gpu"
    }
    for sidecar in sidecars(trace, hosts):
        for gpu in sidecar.environment.links.gpus or ():
            nvlinks = gpu.nvlinks.active if gpu.nvlinks else None
            if nvlinks:
                speeds = {nvlink_bytes_per_second(version, nvlinks) for version in capabilities}
                links.add(("nvlink", speeds.pop() if len(speeds) == 1 else None))
                continue
            generation = gpu.pcie_generation_max or gpu.pcie_generation
            speed = pcie_bytes_per_second(generation, gpu.pcie_width or gpu.pcie_width_max)
            links.add(("pcie" if speed else None, speed))
    return links.pop() if len(links) == 1 else (None, None)


def _sizes(collectives: Collectives, complete: BoolArray) -> list[tuple[CollectiveKind, int, int]]:
    """Kind, device count and bytes of the complete collectives; those of equal kind and count are summed."""
    kind = collectives.kind[collectives.first][complete]
    count, size = collectives.device_count[complete], collectives.bytes_moved[complete]
    return [
        (CollectiveKind(kind[of[0]]), int(count[of[0]]), int(size[of].sum()))
        for of in groups_of(kind, count)
    ]


def _whole_size(kind: CollectiveKind, devices: int, size: int, workers: Workers) -> int:
    """An all-gather also holds the parts of devices that were not recorded."""
    if kind == CollectiveKind.ALL_GATHER and devices:
        return size * workers.member_count(devices) // devices
    return size


def _bus_factor(kind: CollectiveKind, devices: int) -> Fraction:
    """What each link carries per byte reduced (NCCL tests, PERFORMANCE.md); 1 for what goes one way."""
    if devices < 1:
        return Fraction(0)
    if kind in _SCATTERED:
        return Fraction(devices - 1, devices)
    if kind in _REDUCING:
        return Fraction(2 * (devices - 1), devices)
    return Fraction(1)


def _per_second(size: Fraction, length_ps: int) -> int | None:
    rate = int(size * PS_PER_S / length_ps) if length_ps > 0 else None
    return None if rate is not None and rate > LARGEST else rate
