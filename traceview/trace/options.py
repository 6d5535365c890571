"""Which profiler options were in force? TensorFlow writes them into the trace, from 2.21 on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from traceview.xplane.decode_reference import scan_fields
from traceview.xplane.planes import PlaneKind
from traceview.xplane.space import PlaneSummary

_STAT: Final = b"profile_options"
_VARINT: Final = 0
_LEVELS: Final = {2: "host_tracer_level", 3: "device_tracer_level", 4: "python_tracer_level"}
"""Fields of ProfileOptions (tsl/profiler/protobuf/profiler_options.proto); an absent one is 0."""


def tracer_levels(planes: Iterable[PlaneSummary]) -> dict[str, int] | None:
    """The levels of the tracers by name; None where they are not recorded, or not readably."""
    recorded = [
        stat.value
        for plane in planes
        if plane.kind is PlaneKind.ENVIRONMENT
        for stat in plane.stats
        if stat.name == _STAT and isinstance(stat.value, bytes)
    ]
    return _levels(recorded[-1]) if recorded else None


def _levels(data: bytes) -> dict[str, int] | None:
    fields = scan_fields(data, 0, len(data))
    if fields.fault is not None:
        return None
    found = dict.fromkeys(_LEVELS.values(), 0)
    for number, wire_type, begin, end in zip(
        fields.number.tolist(),
        fields.wire_type.tolist(),
        fields.begin.tolist(),
        fields.end.tolist(),
        strict=True,
    ):
        if number in _LEVELS:
            # Levels are single digits: what takes more than one byte is none.
            if wire_type != _VARINT or end - begin != 1:
                return None
            found[_LEVELS[number]] = data[begin]
    return found
