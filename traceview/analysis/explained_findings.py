"""Which findings say the same thing twice? One cause is one finding: what it explains stands inside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from traceview.analysis.base import Evidence, Finding

EXPLAINS: Final = {
    "marginal-gpu": ("straggler-gpu", "serial-gpus"),
    "single-gpu-gradients": ("straggler-gpu",),
    "serial-gpus": ("straggler-gpu", "collective-wait"),
    "replica-starved": ("straggler-gpu", "collective-wait"),
    "straggler-gpu": ("collective-wait",),
    "unused-gpu": ("single-gpu-gradients",),
}
"""What a finding explains, by its code (METRICS 12). Those that are about certain devices have to share one."""

_ON_THE_SAME_DEVICE: Final = frozenset(
    (("replica-starved", "straggler-gpu"), ("single-gpu-gradients", "straggler-gpu"))
)


def with_explained_inside(findings: Sequence[Finding]) -> list[Finding]:
    """The findings without those that another of them explains; the explaining one names them in its evidence."""
    kept = []
    inside: dict[int, list[Finding]] = {}
    for one in findings:
        place = _explaining(one, findings)
        if place is None:
            kept.append(one)
        else:
            inside.setdefault(place, []).append(one)
    return [
        replace(one, evidence=(*one.evidence, *map(_told, inside[place])))
        if (place := _place(one, findings)) in inside
        else one
        for one in kept
    ]


def _place(wanted: Finding, findings: Sequence[Finding]) -> int:
    return next(place for place, one in enumerate(findings) if one is wanted)


def _explaining(explained: Finding, findings: Sequence[Finding]) -> int | None:
    """The place of what explains a finding, and is itself explained by nothing that would hide it."""
    for place, one in enumerate(findings):
        if explained.code not in EXPLAINS.get(one.code, ()):
            continue
        apart = set(one.devices).isdisjoint(explained.devices)
        if not ((one.code, explained.code) in _ON_THE_SAME_DEVICE and apart):
            above = _explaining(one, findings)
            return place if above is None else above
    return None


def _told(explained: Finding) -> Evidence:
    return Evidence("explains", explained.title, None, explained.code)
