"""Reads the plane `Task Environment`: when the profile started and stopped, and the tracer levels in force.

TensorFlow records the tracer levels from version 2.21 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.xplane.decode_reference import scan_fields
from traceview.xplane.planes import PlaneKind
from traceview.xplane.space import PlaneSummary
from traceview.xplane.table import stat_of

_OPTIONS: Final = b"profile_options"
_VARINT: Final = 0
_LATEST_NS: Final = 1 << 62
"""In the year 2116; later times are damage."""

_LEVELS: Final = {2: "host_tracer_level", 3: "device_tracer_level", 4: "python_tracer_level"}
"""Fields of ProfileOptions (tsl/profiler/protobuf/profiler_options.proto); an absent field is 0."""


def profile_times(planes: Sequence[PlaneSummary]) -> tuple[int | None, int | None]:
    """Unix nanoseconds at which the profile started and stopped; None where not recorded."""
    times: list[int | None] = []
    for name in (b"profile_start_time", b"profile_stop_time"):
        values = [
            stat_of(plane.stats, name) for plane in planes if plane.kind is PlaneKind.ENVIRONMENT
        ]
        numbers = [value for value in values if isinstance(value, int) and 0 <= value <= _LATEST_NS]
        times.append(numbers[-1] if numbers else None)
    return times[0], times[1]


def tracer_levels(planes: Sequence[PlaneSummary]) -> dict[str, int] | None:
    """The levels of the tracers by name; None where they are not recorded or not readable."""
    recorded = [
        stat.value
        for plane in planes
        if plane.kind is PlaneKind.ENVIRONMENT
        for stat in plane.stats
        if stat.name == _OPTIONS and isinstance(stat.value, bytes)
    ]
    return _levels(recorded[-1]) if recorded else None


def _levels(data: bytes) -> dict[str, int] | None:
    fields = scan_fields(data, 0, len(data))
    if fields.fault is not None:
        return None
    levels = dict.fromkeys(_LEVELS.values(), 0)
    for number, wire_type, begin, end in zip(
        fields.number.tolist(),
        fields.wire_type.tolist(),
        fields.begin.tolist(),
        fields.end.tolist(),
        strict=True,
    ):
        if number in _LEVELS:
            # Levels are single digits: a value of several bytes is not a level.
            if wire_type != _VARINT or end - begin != 1:
                return None
            levels[_LEVELS[number]] = data[begin]
    return levels
