"""What is in a trace that was just written: how many events of which kind, and which options were in force?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from traceview.xplane.space import Plane

CALLBACK_LIMIT: Final = 2_097_152
ACTIVITY_LIMIT: Final = 2_097_152
"""Driver callbacks and device activities that one profile can hold, all GPUs of the process together (openxla/xla,
`cupti_tracer.h`). Events of the host have no limit."""

_OPTIONS: Final = {2: "host_tracer_level", 3: "device_tracer_level", 4: "python_tracer_level"}
"""Fields of ProfileOptions (tsl/profiler/protobuf/profiler_options.proto); an absent one is 0."""


@dataclass(frozen=True)
class TraceContents:
    """Counts of one file. `callbacks`: host events that belong to a device event.

    `options`: the tracer levels that were in force, None where TensorFlow does not record them (before 2.21).
    """

    host_events: int
    callbacks: int
    device_events: int
    options: dict[str, int] | None
    warnings: tuple[str, ...]
    sha256: str
    size: int

    @property
    def fullest_ratio(self) -> float:
        """How full the fuller of the tracer's two buffers was."""
        return max(self.callbacks / CALLBACK_LIMIT, self.device_events / ACTIVITY_LIMIT)


def read_contents(path: Path) -> TraceContents:
    """Count in a file; raises `TraceFormatError`."""
    from traceview.xplane.planes import PlaneKind
    from traceview.xplane.read import read_file

    space = read_file(path)
    host = callbacks = device = 0
    options = None
    for plane in space.planes:
        if plane.kind is PlaneKind.GPU:
            device += plane.event_count
        elif plane.kind is PlaneKind.HOST:
            host += plane.event_count
            callbacks += _count_of_stat(plane, "correlation_id")
        elif plane.kind is PlaneKind.ENVIRONMENT:
            options = _options(plane)
    return TraceContents(
        host_events=host,
        callbacks=callbacks,
        device_events=device,
        options=options,
        warnings=tuple(warning.decode("utf-8", "replace") for warning in space.warnings),
        sha256=space.sha256,
        size=len(space.data),
    )


def _count_of_stat(plane: Plane, key: str) -> int:
    if key not in plane.spellings:
        return 0
    slot = list(plane.spellings).index(key)
    return sum(int((line.columns.stat_slot == slot).sum()) for line in plane.lines)


def _options(plane: Plane) -> dict[str, int] | None:
    from traceview.xplane.decode_reference import scan_fields

    recorded = [stat.value for stat in plane.stats if stat.name == b"profile_options"]
    if not recorded or not isinstance(recorded[0], bytes):
        return None
    data = recorded[0]
    fields = scan_fields(data, 0, len(data))
    found = dict.fromkeys(_OPTIONS.values(), 0)
    for number, begin in zip(fields.number.tolist(), fields.begin.tolist(), strict=True):
        if number in _OPTIONS:
            found[_OPTIONS[number]] = data[begin]
    return found
