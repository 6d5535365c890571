"""Summarizes a trace that was just written: how many events of which kind, and what its tracer warns of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from traceview.xplane.space import Plane

CALLBACK_LIMIT: Final = 2_097_152
ACTIVITY_LIMIT: Final = 2_097_152
"""Driver callbacks and device activities that one profile can hold, all GPUs of the process together (openxla/xla,
`cupti_tracer.h`). Host events have no limit."""

FULL_RATIO: Final = 0.5
"""A buffer that is fuller than this may lose events in a window of other steps."""


@dataclass(frozen=True)
class TraceSummary:
    """Counts of one file. `callbacks`: host events that belong to a device event."""

    host_events: int
    callbacks: int
    device_events: int
    warnings: tuple[str, ...]
    sha256: str
    size: int

    @property
    def counts(self) -> dict[str, int]:
        """Events by kind."""
        return {
            "host": self.host_events,
            "callbacks": self.callbacks,
            "device": self.device_events,
        }

    @property
    def fullest_ratio(self) -> float:
        """How full the fuller of the tracer's two buffers was."""
        return max(self.callbacks / CALLBACK_LIMIT, self.device_events / ACTIVITY_LIMIT)


def prepare_reading() -> None:
    """Import what reads traces; a Python that ends by Ctrl-C and imports classes then forgets that and exits with 1."""
    import_module("traceview.xplane.read")


def read_summary(path: Path) -> TraceSummary:
    """Count the events of a file; raises `TraceFormatError`."""
    from traceview.xplane.planes import PlaneKind
    from traceview.xplane.read import read_file

    space = read_file(path)
    host = callbacks = device = 0
    for plane in space.planes:
        if plane.kind is PlaneKind.GPU:
            device += plane.event_count
        elif plane.kind is PlaneKind.HOST:
            host += plane.event_count
            callbacks += _count_of_stat(plane, "correlation_id")
    return TraceSummary(
        host_events=host,
        callbacks=callbacks,
        device_events=device,
        warnings=tuple(warning.decode("utf-8", "replace") for warning in space.warnings),
        sha256=space.digest(),
        size=space.size,
    )


def _count_of_stat(plane: Plane, key: str) -> int:
    if key not in plane.spellings:
        return 0
    slot = list(plane.spellings).index(key)
    return sum(int((line.columns.stat_slot == slot).sum()) for line in plane.lines)


def release(version: str) -> tuple[int, int] | None:
    """`2.21.0rc1` as (2, 21)."""
    match = re.match(r"(\d{1,4})\.(\d{1,4})", version)
    return (int(match[1]), int(match[2])) if match else None
