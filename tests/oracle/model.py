"""Devices and hosts as the oracle works with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.oracle.classes import Activity
from tests.oracle.intervals import Interval
from tests.oracle.links import Links
from tests.oracle.reading import Host
from tests.oracle.steps import Step

Row = dict[str, Any]


@dataclass(eq=False)
class Device:
    host: str
    kind: str
    ordinal: int
    model: str | None
    activities: list[Activity] = field(default_factory=list)
    held_bytes: int | None = None
    peak_bytes: int | None = None

    @property
    def short_name(self) -> str:
        if self.model == "CPU":
            return f"CPU:{self.ordinal}"
        return {"gpu": "GPU:", "tpu": "TPU:", "replica": "replica:"}[self.kind] + str(self.ordinal)

    def of_class(self, *classes: str) -> list[Activity]:
        return [a for a in self.activities if a.cls in classes]


@dataclass(eq=False)
class HostAnswer:
    host: Host
    links: Links
    devices: list[Device]
    shared: list[Activity]
    steps: list[Step] = field(default_factory=list)
    step_method: str = "none"
    window: Interval = (0, 0)
    window_kind: str = ""
    end_spread: int = (
        0  # spread of the differences between ends of collectives here and on another host
    )
    shares_ends: bool = False  # whether these ends were compared with another host
    cores: int | None = None  # that the process may use, as its sidecar says
    untrained: frozenset[str] = frozenset()  # ops that train nothing, as it says of the graphs

    def activities(self) -> list[Activity]:
        return [a for device in self.devices for a in device.activities]


def device_name(device: Device, several: bool) -> Row:
    name = f"{device.host}/{device.short_name}" if several else device.short_name
    return {"host": device.host, "device": name, "ordinal": device.ordinal, "kind": device.kind}
