"""Hand-made data of charts for the tests: a window of 100 ms in ten parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from traceview.document.figures import Lane

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
