"""Summarizes a trace that was just written: how many events of which kind, and which tracer options were in force."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from traceview.xplane.space import Plane

CALLBACK_LIMIT: Final = 2_097_152
ACTIVITY_LIMIT: Final = 2_097_152
"""Driver callbacks and device activities that one profile can hold, all GPUs of the process together (openxla/xla,
`cupti_tracer.h`). Host events have no limit."""

DEFAULT_OPTIONS: Final = {
    "host_tracer_level": 2,
    "device_tracer_level": 1,
    "python_tracer_level": 0,
}
"""What a capture asks for: TensorFlow's defaults, the only levels that 2.20 and 2.21 honour."""
OPTIONS_IGNORED: Final = ((2, 20), (2, 21))
"""Releases in which ProfilerOptions have no effect: the binding refuses every value (measured with 2.20.0 and 2.21.0)."""
_RECORDED_SINCE: Final = (2, 21)
_OPTION_FIELDS: Final = {2: "host_tracer_level", 3: "device_tracer_level", 4: "python_tracer_level"}
"""Fields of ProfileOptions (tsl/profiler/protobuf/profiler_options.proto); an absent one is 0."""


@dataclass(frozen=True)
class TraceSummary:
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


def read_summary(path: Path) -> TraceSummary:
    """Count the events of a file; raises `TraceFormatError`."""
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
    return TraceSummary(
        host_events=host,
        callbacks=callbacks,
        device_events=device,
        options=options,
        warnings=tuple(warning.decode("utf-8", "replace") for warning in space.warnings),
        sha256=space.digest(),
        size=space.size,
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
    options = dict.fromkeys(_OPTION_FIELDS.values(), 0)
    for number, begin in zip(fields.number.tolist(), fields.begin.tolist(), strict=True):
        if number in _OPTION_FIELDS:
            options[_OPTION_FIELDS[number]] = data[begin]
    return options


def describe_options(version: str, recorded: dict[str, int] | None) -> dict[str, Any]:
    """The group `options` of the sidecar: levels asked for and in force, and whether this release ignores them.

    `recorded` is what the trace says, None where it says nothing; then `in_force` stays unknown.
    """
    number = release(version)
    is_ignored = number in OPTIONS_IGNORED or (recorded is not None and recorded != DEFAULT_OPTIONS)
    group: dict[str, Any] = {
        "asked": DEFAULT_OPTIONS,
        "in_force": recorded,
        "is_ignored": is_ignored,
    }
    if recorded is None:
        reason = "the trace does not say"
        if number is not None and number < _RECORDED_SINCE:
            verb = "ignores" if number in OPTIONS_IGNORED else "takes"
            name = f"TensorFlow {number[0]}.{number[1]}"
            reason = f"{name} {verb} options, and records none in the trace"
        group["missing"] = {"in_force": reason}
    return group


def release(version: str) -> tuple[int, int] | None:
    """`2.21.0rc1` as (2, 21)."""
    match = re.match(r"(\d{1,4})\.(\d{1,4})", version)
    return (int(match[1]), int(match[2])) if match else None
