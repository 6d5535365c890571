"""Reads which steps a recorded file marks, edge steps included."""

from __future__ import annotations

from pathlib import Path

from scripts.xspace import XSpace


def markers_of(place: Path) -> list[int]:
    """Numbers of the markers in a trace, or in the one trace of a run, in time order."""
    (trace,) = place.glob("*.xplane.pb") if place.is_dir() else [place]
    found = []
    for plane in XSpace.FromString(trace.read_bytes()).planes:
        for line in plane.lines:
            for event in line.events:
                stats = {
                    plane.stat_metadata[stat.metadata_id].name: stat.int64_value
                    for stat in event.stats
                }
                if b"_r" in stats and b"step_num" in stats:
                    start_ps = line.timestamp_ns * 1000 + event.offset_ps
                    found.append((start_ps, int(stats[b"step_num"])))
    return [number for _, number in sorted(found)]
