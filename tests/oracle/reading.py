"""Reads files into hosts, planes, lines and events with their times (docs/xplane.md, "Messages", "Time", "Planes")."""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.xspace import XSpace

Stat = int | float | str | bytes
# Smaller stamps are relative to the profile's start (docs/method.md, "Origin of times").
ABSOLUTE_STAMP_NS = 10**15
UNKNOWN = "<unknown>"


@dataclass(eq=False)
class Event:
    name: str
    start: int  # ps since the run's origin
    end: int
    stats: dict[str, Stat]
    line: Line
    order: int  # place in the file

    def integer(self, stat: str) -> int | None:
        return as_integer(self.stats.get(stat))

    def text(self, stat: str) -> str:
        value = self.stats.get(stat)
        return value if isinstance(value, str) else ""


@dataclass(eq=False)
class Line:
    id: int
    name: str
    plane: str
    events: list[Event] = field(default_factory=list)


@dataclass(eq=False)
class Plane:
    name: str
    stats: dict[str, Stat] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)


@dataclass(eq=False)
class Host:
    name: str
    planes: dict[str, Plane]
    start_ns: int | None  # profile_start_time
    stop_ns: int | None
    shift: int = 0  # ps from the run's origin to this host's time 0

    def all_events(self) -> list[Event]:
        return [e for p in self.planes.values() for line in p.lines for e in line.events]

    def host_lines(self) -> list[Line]:
        """Threads and driver calls: /host:CPU and the planes that the writer merges into it at the end."""
        return [
            line for name in HOST_PLANES if name in self.planes for line in self.planes[name].lines
        ]

    def host_events(self) -> list[Event]:
        return [event for line in self.host_lines() for event in line.events]


HOST_PLANES = (
    "/host:CPU",
    "/host:CUPTI",
    "/host:NVTX-CUPTI",
    "/host:ROCTRACER",
    "/host:python-tracer",
    "/host:TPU-runtime",
)


def as_integer(value: Stat | None) -> int | None:
    """The value as an integer; a stat may be int64 or uint64 (docs/xplane.md, "Messages")."""
    return value if isinstance(value, int) else None


def decode(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


def _stats(messages: Any, names: dict[int, str]) -> dict[str, Stat]:
    result: dict[str, Stat] = {}
    for stat in messages:
        name = names.get(stat.metadata_id, UNKNOWN)
        kind = stat.WhichOneof("value")
        if kind is None:
            continue
        value = getattr(stat, kind)
        if kind == "ref_value":
            if value in names:  # a reference to nothing is no text
                result[name] = names[value]
        elif kind == "str_value":
            result[name] = decode(value)
        else:
            result[name] = value
    return result


# One event before its time is known: name, offset_ps, duration_ps, stats.
RawEvent = tuple[str, int, int, dict[str, Stat]]


@dataclass
class RawLine:
    id: int
    name: str
    stamp_ns: int
    events: list[RawEvent]


@dataclass(eq=False)
class RawPlane:
    name: str
    stats: dict[str, Stat] = field(default_factory=dict)
    lines: list[RawLine] = field(default_factory=list)


def _raw_line(line: Any, event_metadata: Any, stat_names: dict[int, str]) -> RawLine:
    names: dict[int, tuple[str, dict[str, Stat]]] = {
        key: (decode(meta.name), _stats(meta.stats, stat_names))
        for key, meta in event_metadata.items()
    }
    raw = RawLine(line.id, decode(line.name), line.timestamp_ns, [])
    for event in line.events:
        if event.WhichOneof("data") == "num_occurrences":
            continue  # aggregated: it has no time (docs/xplane.md, "Messages")
        name, shared = names.get(event.metadata_id, (UNKNOWN, {}))
        own = _stats(event.stats, stat_names)
        raw.events.append((name, event.offset_ps, event.duration_ps, {**shared, **own}))
    return raw


def _raw_planes(data: bytes) -> dict[str, RawPlane]:
    """Planes merged by name, exactly repeated lines dropped (docs/xplane.md, "Messages")."""
    planes: dict[str, RawPlane] = {}
    for message in XSpace.FromString(data).planes:
        stat_names = {key: decode(meta.name) for key, meta in message.stat_metadata.items()}
        name = decode(message.name)
        plane = planes.setdefault(name, RawPlane(name))
        # Where chunks of a plane have different values for a stat, the first one read counts.
        plane.stats = {**_stats(message.stats, stat_names), **plane.stats}
        for line_message in message.lines:
            line = _raw_line(line_message, message.event_metadata, stat_names)
            # A repeated line has the same id, name, stamp and events with their stats.
            if line not in plane.lines:
                plane.lines.append(line)
    return planes


def _timed(host: Host, raw_planes: dict[str, RawPlane]) -> None:
    """Give every event its time since the run's origin, in ps."""
    absolute = [
        line.stamp_ns
        for plane in raw_planes.values()
        for line in plane.lines
        if line.stamp_ns >= ABSOLUTE_STAMP_NS
    ]
    zero_ns = host.start_ns
    if zero_ns is None:
        # The smallest stamp of all absolute lines, also of empty ones (docs/xplane.md, "Time").
        zero_ns = min(absolute, default=0)
    order = 0
    for raw_plane in raw_planes.values():
        plane = Plane(raw_plane.name, raw_plane.stats)
        host.planes[plane.name] = plane
        for raw_line in raw_plane.lines:
            line = Line(raw_line.id, raw_line.name, plane.name)
            plane.lines.append(line)
            stamp_ns = raw_line.stamp_ns
            if stamp_ns >= ABSOLUTE_STAMP_NS:
                stamp_ns -= zero_ns
            base = host.shift + stamp_ns * 1000
            for name, offset, duration, stats in raw_line.events:
                if plane.name.startswith("/device:TPU:"):
                    # The true times of TPU events are in these stats (docs/xplane.md, "Planes").
                    offset = as_integer(stats.get("device_offset_ps", offset)) or 0
                    duration = as_integer(stats.get("device_duration_ps", duration)) or 0
                start = base + offset
                # A negative duration counts as zero length.
                event = Event(name, start, start + max(0, duration), stats, line, order)
                line.events.append(event)
                order += 1


def read_hosts(files: list[Path], clocks: dict[str, int] | None = None) -> list[Host]:
    """One host per distinct file, on a common clock: the earliest profile_start_time is time 0.

    `clocks`: ps to add to the times of a host before that, by name.
    """
    digests: set[bytes] = set()
    hosts: list[Host] = []
    contents: list[dict[str, RawPlane]] = []
    # Of byte-identical files the first in order of path gives the host's name.
    for path in sorted(
        files,
        key=lambda path: [int(p) if p.isdecimal() else p for p in re.split(r"([0-9]+)", path.name)],
    ):
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        digest = hashlib.sha256(data).digest()
        if digest in digests:
            continue
        digests.add(digest)
        raw = _raw_planes(data)
        environment = raw.get("Task Environment", RawPlane("")).stats
        name = path.name.removesuffix(".gz").removesuffix(".xplane.pb")
        start_ns = as_integer(environment.get("profile_start_time"))
        stop_ns = as_integer(environment.get("profile_stop_time"))
        hosts.append(Host(name, {}, start_ns, stop_ns))
        contents.append(raw)
    origin_ns = min((h.start_ns for h in hosts if h.start_ns is not None), default=0)
    for host in hosts:
        # A host without profile_start_time cannot be aligned; it starts at the origin.
        if host.start_ns is not None:
            host.shift = (host.start_ns - origin_ns) * 1000
        host.shift += (clocks or {}).get(host.name, 0)
    first = min((host.shift for host in hosts if host.start_ns is not None), default=0)
    for host, raw in zip(hosts, contents, strict=True):
        host.shift -= first
        _timed(host, raw)
    return hosts
