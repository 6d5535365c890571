"""Chooses the devices that a reader has to see where there are too many for a row each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from traceview.analysis.measures.device_report import DeviceTimeRow
from traceview.analysis.rules.finding import Finding
from traceview.analysis.rules.words import Devices

MOST_ROWS: Final = 16
"""Devices with a row each; of more than that only the outliers have one."""

FEW_DEVICES: Final = 4
"""A finding about so many devices or fewer is about them, not about the run."""

OUTLIER_RATIO: Final = 0.02
"""A device is an outlier if a part of its window differs by this share of it from the median device."""

_Shares: TypeAlias = tuple[float, ...]


class OutlierDevices(Struct, frozen=True):
    """Keys of devices in the order of the device list.

    Devices that recorded nothing are in neither where there are `FEW_DEVICES` of them or more: a sentence names them.

    `shown`: devices that a finding is about and those that differ most from the median device, with one typical
    device. `others`: the rest, empty where all are shown.
    """

    shown: tuple[str, ...]
    others: tuple[str, ...]


def outlier_devices(
    devices: Sequence[DeviceTimeRow], named: Sequence[str] = (), most: int = MOST_ROWS
) -> OutlierDevices:
    """At most `most` of the devices that recorded anything, those `named` first; all where there are no more."""
    empty = [row for row in devices if row.status == "empty"]
    rows = [row for row in devices if row not in empty or len(empty) < FEW_DEVICES]
    if len(rows) <= most:
        return OutlierDevices(tuple(row.device for row in rows), ())
    distance = _distances(rows)
    # Python sorts stably: equals keep the order of the device list.
    farthest = sorted(distance, key=lambda device: -distance[device])
    chosen = [device for device in named if device in distance]
    chosen += [device for device in farthest if distance[device] >= OUTLIER_RATIO]
    kept = set(list(dict.fromkeys(chosen))[: most - 1])
    typical = [device for device in distance if distance[device] < OUTLIER_RATIO]
    kept.update(typical[:1])
    return OutlierDevices(
        tuple(row.device for row in rows if row.device in kept),
        tuple(row.device for row in rows if row.device not in kept),
    )


def named_devices(findings: Sequence[Finding]) -> list[str]:
    """The devices that findings are about or name, such as the one that others wait for."""
    groups = [
        devices
        for finding in findings
        for devices in (
            finding.devices,
            *(each.keys for each in finding.arguments.values() if isinstance(each, Devices)),
        )
    ]
    return [device for devices in groups if len(devices) <= FEW_DEVICES for device in devices]


def _distances(rows: Sequence[DeviceTimeRow]) -> dict[str, float]:
    """By device the largest difference of a part from the median device by compute, as a share of its window.

    A device of another status than most has the largest distance; one with no known parts has none.
    """
    shares = {row.device: _shares(row) for row in rows}
    known = sorted(parts for parts in shares.values() if parts is not None)
    # An actual device, rather than medians of each part that no device may have together.
    median = known[(len(known) - 1) // 2] if known else ()
    statuses = [row.status for row in rows]
    usual = max(statuses, key=statuses.count)
    distances = {}
    for row in rows:
        parts = shares[row.device]
        if row.status != usual:
            distances[row.device] = 1.0
        elif parts is None:
            distances[row.device] = 0.0
        else:
            differences = (abs(part - middle) for part, middle in zip(parts, median, strict=True))
            distances[row.device] = max(differences)
    return distances


def _shares(row: DeviceTimeRow) -> _Shares | None:
    parts = (row.compute_ps, row.exposed_collective_ps, row.exposed_h2d_ps, row.idle_ps)
    if not row.window_ps or any(part is None for part in parts):
        return None
    return tuple(part / row.window_ps for part in parts if part is not None)
