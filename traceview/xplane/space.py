"""What does one file hold? The planes, lines and metadata of an XSpace, events as columns."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from traceview.xplane.columns import Fault, LineColumns
from traceview.xplane.planes import PlaneKind

StatValue: TypeAlias = int | float | bytes


class Stat(NamedTuple):
    """A stat as recorded: its name and value; text that stood in a reference is resolved."""

    name: bytes
    value: StatValue


class EventMetadata(NamedTuple):
    """What all events of one id have in common."""

    name: bytes
    display_name: bytes
    stats: tuple[Stat, ...]


class Line(Struct, frozen=True, eq=False):
    """One XLine: a stream or a thread. Times as recorded: nanoseconds of the line, picoseconds in it."""

    id: int
    name: bytes
    display_name: bytes
    timestamp_ns: int
    columns: LineColumns
    payload: tuple[int, int]


class Plane(Struct, frozen=True, eq=False):
    """One XPlane. `spellings`: the keys of the stats in the columns, by slot, and their recorded names."""

    id: int
    name: bytes
    kind: PlaneKind
    ordinal: int
    event_metadata: dict[int, EventMetadata]
    stat_names: dict[int, bytes]
    stats: tuple[Stat, ...]
    spellings: dict[str, tuple[bytes, ...]]
    lines: tuple[Line, ...]

    @property
    def event_count(self) -> int:
        """Number of recorded events, aggregated ones included."""
        return sum(line.columns.metadata_id.size for line in self.lines)


class Space(Struct, frozen=True, eq=False):
    """One file. `faults` is empty unless it was read with `salvage`; `data` is the file as it is."""

    path: Path
    data: bytes
    sha256: str
    planes: tuple[Plane, ...]
    hostnames: tuple[bytes, ...]
    errors: tuple[bytes, ...]
    warnings: tuple[bytes, ...]
    faults: tuple[Fault, ...]


class PlaneSummary(Struct, frozen=True):
    """A plane without its events: what `runs` lists."""

    name: bytes
    kind: PlaneKind
    ordinal: int
    line_count: int
    stats: tuple[Stat, ...]


class SpaceSummary(Struct, frozen=True):
    """A file without its events, and the damage met on the way."""

    planes: tuple[PlaneSummary, ...]
    faults: tuple[Fault, ...]
