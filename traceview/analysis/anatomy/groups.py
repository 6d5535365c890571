"""Joins devices whose mean steps are alike, so that a screen shows every kind of device in a few rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from traceview.analysis.anatomy.result import Anatomy, DeviceAnatomy, mean_parts
from traceview.document import numbers
from traceview.document.model import AnatomyPart, AnatomyRow
from traceview.document.vocabulary import STEP_PARTS, look_of

ALIKE_RATIO: Final = 0.02
"""Devices are alike if no part of their steps differs by more than this share of the longer step; a choice of ours."""

MOST_ROWS: Final = 8
"""With their legend they fill half of a terminal; devices that are alike share a row."""

WITH_WAITS: Final = "waiting in collectives included"
"""Added to a busy ratio that includes such waiting: a collective runs on the device while it waits for others."""

_LEAST_WAIT_RATIO: Final = 0.005
"""Of a mean step, as a share that shows."""

CLEAR_RATIO: Final = 0.5
"""The device waited for is named from this share of the waiting on."""

_IN_ORDER: Final = tuple(
    dict.fromkeys(
        (
            *("compute", "collective", "h2d", "d2h", "d2d", "memset"),
            *("collective_wait", "peer"),
            *STEP_PARTS,
        )
    )
)
"""Work first, then transfers, then waiting."""


class _Group(Struct):
    """Devices that are alike; the first one stands for them."""

    devices: list[DeviceAnatomy]

    def is_like(self, device: DeviceAnatomy, most_ratio: float) -> bool:
        first = self.devices[0]
        parts, others = shown_parts(first), shown_parts(device)
        most_ps = most_ratio * max(first.step_ps, device.step_ps)
        return all(
            abs(parts.get(key, 0) - others.get(key, 0)) <= most_ps for key in {*parts, *others}
        )


def shown_parts(device: DeviceAnatomy) -> dict[str, int]:
    """Picoseconds by class of activity or cause; they sum to the step. Copies and the wait for them are one part."""
    parts: dict[str, int] = {}
    for key, ps in (*device.activity.items(), *device.idle.items()):
        parts[key] = parts.get(key, 0) + ps
    return parts


def anatomy_rows(result: Anatomy, most: int = MOST_ROWS) -> tuple[AnatomyRow, ...]:
    """A row per group of devices that are alike, at most `most`: of many different ones the limit grows until they fit."""
    ratio = ALIKE_RATIO
    groups = _groups(result.devices, ratio)
    while len(groups) > most and ratio < 1:
        ratio *= 2
        groups = _groups(result.devices, ratio)
    return tuple(_row(group.devices) for group in groups)


def waits_in_collectives(result: Anatomy | None) -> bool:
    """Whether some device waits in collectives for a part of its step that shows."""
    return any(
        row.activity.get("collective_wait", 0) >= _LEAST_WAIT_RATIO * row.step_ps > 0
        for row in (result.devices if result else ())
    )


def _groups(devices: Sequence[DeviceAnatomy], ratio: float) -> list[_Group]:
    groups: list[_Group] = []
    for device in devices:
        like = next((group for group in groups if group.is_like(device, ratio)), None)
        if like is None:
            groups.append(_Group([device]))
        else:
            like.devices.append(device)
    return groups


def _row(devices: Sequence[DeviceAnatomy]) -> AnatomyRow:
    """The mean of alike devices."""
    by_device = [shown_parts(device) for device in devices]
    keys = list(dict.fromkeys((*_IN_ORDER, *(key for parts in by_device for key in parts))))
    means = mean_parts(
        (sum(parts.get(key, 0) for parts in by_device) for key in keys), len(devices)
    )
    step_ps = sum(means)
    return AnatomyRow(
        label=device_range([device.device for device in devices]),
        devices=tuple(device.device for device in devices),
        step_count=max(device.step_count for device in devices),
        step_ps=step_ps,
        parts=tuple(
            AnatomyPart(
                look_of(STEP_PARTS, key),
                _words(key, devices),
                ps,
                ps / step_ps if step_ps else 0.0,
            )
            for key, ps in zip(keys, means, strict=True)
            if ps
        ),
    )


def _words(key: str, devices: Sequence[DeviceAnatomy]) -> str:
    """The display name of a part; waiting for a device names it, if it is the same one for all and none of them."""
    own = {device.device for device in devices}
    awaited = {
        device.waits_for
        for device in devices
        if device.waits_for is not None and (device.waits_for_ratio or 0.0) >= CLEAR_RATIO
    }
    words = look_of(STEP_PARTS, key).words
    if key == "collective_wait" and len(awaited) == 1 and awaited.isdisjoint(own):
        return f"{words} (for {awaited.pop()})"
    return words


def device_range(keys: Sequence[str]) -> str:
    """`GPU:0–3`, `GPU:0, 2`; of several hosts `GPU:0–7 on 16 hosts`, or how many there are."""
    of_host: dict[str, list[str]] = {}
    for key in keys:
        of_host.setdefault(key.rpartition("/")[0], []).append(numbers.without_host(key))
    if len(of_host) == 1:
        return numbers.joined_devices(keys)
    alike = {tuple(names) for names in of_host.values()}
    if len(alike) == 1:
        return f"{numbers.joined_devices(alike.pop())} on {len(of_host)} hosts"
    return f"{len(keys)} devices on {len(of_host)} hosts"
