"""Of very many devices, which ones does a reader have to see?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from traceview.analysis.device_time.result import DeviceTimeRow

MOST: Final = 16
"""Devices with a row each on a page; of more than that only those that stand out have one."""

NAMED: Final = 4
"""A finding about so many devices or fewer is about them, not about the run."""

APART: Final = 0.02
"""A share of the window that differs by this from the median device sets a device apart."""

_Shares = tuple[float, ...]


@dataclass(frozen=True)
class OutlierDevices:
    """Whom to show, by key in the order of the device list, and the others.

    `shown`: devices that a finding is about and those that differ most from the median device, with one
    that is like it. `others`: the rest, empty where all are shown.
    """

    shown: tuple[str, ...]
    others: tuple[str, ...]

    def __contains__(self, device: str) -> bool:
        return device not in self.others


def outlier_devices(
    devices: Sequence[DeviceTimeRow], named: Sequence[str] = (), most: int = MOST
) -> OutlierDevices:
    """At most `most` of the devices that recorded anything, those `named` first; all where there are no more."""
    rows = [row for row in devices if row.status != "empty"]
    if len(rows) <= most:
        return OutlierDevices(tuple(row.device for row in rows), ())
    apart = _apart(rows)
    # Python sorts stably: equals keep the order of the device list.
    by_distance = sorted(rows, key=lambda row: -apart[row.device])
    chosen = [device for device in named if device in apart]
    chosen += [row.device for row in by_distance if apart[row.device] >= APART]
    kept = set(list(dict.fromkeys(chosen))[: most - 1])
    ordinary = [row.device for row in rows if apart[row.device] < APART]
    kept.update(ordinary[:1])
    return OutlierDevices(
        tuple(row.device for row in rows if row.device in kept),
        tuple(row.device for row in rows if row.device not in kept),
    )


def _apart(rows: Sequence[DeviceTimeRow]) -> dict[str, float]:
    """By how much a device differs from the median device by compute at most, as a share of its window.

    A device of another status than most, or with nothing known, is apart altogether.
    """
    shares = {row.device: _shares(row) for row in rows}
    known = sorted(one for one in shares.values() if one is not None)
    # A device that is there, rather than medians of each part that no device may have together.
    middle = known[(len(known) - 1) // 2] if known else ()
    statuses = [row.status for row in rows]
    usual = max(statuses, key=statuses.count)
    apart = {}
    for row in rows:
        mine = shares[row.device]
        if row.status != usual:
            apart[row.device] = 1.0
        elif mine is None:
            apart[row.device] = 0.0
        else:
            apart[row.device] = max(abs(one - of) for one, of in zip(mine, middle, strict=True))
    return apart


def _shares(row: DeviceTimeRow) -> _Shares | None:
    parts = (row.compute_ps, row.exposed_collective_ps, row.exposed_h2d_ps, row.idle_ps)
    if not row.window_ps or any(part is None for part in parts):
        return None
    return tuple(part / row.window_ps for part in parts if part is not None)
