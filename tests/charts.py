"""Hand-made data of charts for the tests, a window of 100 ms in ten parts; and checks of the lanes of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from traceview.document.figures import Lane
from traceview.report.model import Report

MS = 10**9
HOST = "worker0"
WINDOW_PS = 100 * MS
SLICE_COUNT = 240


def lane(kind: str, *slices: tuple[int, int, str], **changes: Any) -> Lane:
    """Slices of one event each: start and end in milliseconds, and class; the names are 0, 1, 0, 1 …"""
    ends = [0, *(end for _, end, _ in slices)]
    classes = tuple(dict.fromkeys(class_ for _, _, class_ in slices))
    row: dict[str, Any] = {
        "kind": kind,
        "thread": None,
        "event_count": len(slices),
        "resolution_ps": 0,
        "classes": classes,
        "before_ps": tuple(
            (start - end) * MS for (start, _, _), end in zip(slices, ends, strict=False)
        ),
        "length_ps": tuple((end - start) * MS for start, end, _ in slices),
        "class_": tuple(classes.index(class_) for _, _, class_ in slices),
        "name": tuple(place % 2 for place in range(len(slices))),
        "merged": (),
        "merged_count": (),
        "merged_hole_ps": (),
        "other_slice": (),
        "other_class": (),
        "other_ps": (),
    }
    return Lane(**row | changes)


@dataclass(frozen=True)
class Slice:
    """One slice: picoseconds from the start of the window, and what each class covers of it."""

    start_ps: int
    end_ps: int
    class_ps: dict[str, int]


def slices_of_lane(lane: Lane) -> Iterator[Slice]:
    """The slices, from the columns."""
    holes = dict(zip(accumulate(lane.merged), lane.merged_hole_ps, strict=True))
    others: dict[int, dict[str, int]] = {}
    further = zip(accumulate(lane.other_slice), lane.other_class, lane.other_ps, strict=True)
    for place, class_, length in further:
        others.setdefault(place, {})[lane.classes[class_]] = length
    end = 0
    columns = zip(lane.before_ps, lane.length_ps, lane.class_, strict=True)
    for place, (before, length, class_) in enumerate(columns):
        start, end = end + before, end + before + length
        other_ps = others.get(place, {})
        main = length - holes.get(place, 0) - sum(other_ps.values())
        yield Slice(start, end, {lane.classes[class_]: main, **other_ps})


# Lanes have the time of the tables, in order, without overlap


def covered(lane: Lane) -> Counter[str]:
    sums: Counter[str] = Counter()
    for part in slices_of_lane(lane):
        sums.update(part.class_ps)
    return sums


def check(report: Report) -> None:
    """The lanes of a report against its tables, exactly."""
    results = report.results
    assert results.lanes is not None
    assert results.device_time is not None
    assert results.idle is not None
    times = {row.device: row for row in results.device_time.devices}
    causes = {row.device: row for row in results.idle.devices}
    windows = {host.host: host.end_ps - host.start_ps for host in results.lanes.hosts}
    for host in results.lanes.hosts:
        for lane in host.lanes:
            check_lane(lane, windows[host.host])
    assert [device.device for device in results.lanes.devices] == list(causes)
    for device in results.lanes.devices:
        for lane in device.lanes:
            check_lane(lane, windows[device.host])
        own = {lane.kind: lane for lane in device.lanes}
        row, activity = times[device.device], times[device.device].activity
        assert activity is not None
        assert _length(own.get("compute")) == activity["compute"].busy_ps
        assert _length(own.get("communication")) == activity["collective"].busy_ps
        copies = [activity[key].busy_ps for key in ("h2d", "d2h", "d2d", "memset")]
        assert max(copies) <= _length(own.get("copies")) <= sum(copies)
        assert _length(own.get("idle")) == row.idle_ps == causes[device.device].idle_ps
        if "idle" in own:
            assert covered(own["idle"]) == Counter(causes[device.device].states)
            # Where its state changes, a gap is several segments.
            assert own["idle"].event_count >= causes[device.device].gap_count
        for kind, key in {"compute": "compute", "communication": "collective"}.items():
            assert kind not in own or own[kind].event_count == activity[key].count


def check_lane(lane: Lane, window_ps: int) -> None:
    slices = list(slices_of_lane(lane))
    assert slices
    assert all(part.start_ps < part.end_ps for part in slices)
    assert all(part.end_ps <= after.start_ps for part, after in pairwise(slices))
    assert slices[0].start_ps >= 0
    assert slices[-1].end_ps <= window_ps
    assert all(length > 0 for part in slices for length in part.class_ps.values())
    counts = [1] * len(slices)
    for place, count in zip(accumulate(lane.merged), lane.merged_count, strict=True):
        counts[place] = count
    if lane.kind != "idle":
        # Gaps are cut at the bounds of steps, and empty events at the end belong to no slice.
        assert sum(counts) <= lane.event_count
    for place, hole in zip(accumulate(lane.merged), lane.merged_hole_ps, strict=True):
        # A stretch, and a short slice that reaches beyond it.
        length = slices[place].end_ps - slices[place].start_ps
        assert not hole or length < 2 * lane.resolution_ps


def _length(lane: Lane | None) -> int:
    return 0 if lane is None else sum(covered(lane).values())
