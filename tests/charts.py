"""Hand-made data of charts for the tests: a window of 100 ms in ten parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from traceview.document.figures import DeviceLanes, HostLanes, Lane, Lanes, UtilizationStrip

MS = 10**9
HOST = "worker0"
WINDOW_PS = 100 * MS
SLICE_COUNT = 240


def strip(device: str) -> UtilizationStrip:
    """Ten parts of 10 ms: six compute, one communicates, one copies, one does little, one is idle."""
    slice_ps = WINDOW_PS // SLICE_COUNT
    kinds = "cccccc" + "m" + "o" + "l" + "i"

    def where(kind: str, share: float = 1.0) -> tuple[int, ...]:
        return tuple(
            round(slice_ps * share) * (kinds[place // 24] == kind) for place in range(SLICE_COUNT)
        )

    little = where("l", 0.25)
    return UtilizationStrip(
        device,
        0,
        WINDOW_PS,
        compute_ps=tuple(map(sum, zip(where("c"), little, strict=True))),
        collective_ps=where("m"),
        copy_ps=where("o"),
        idle_ps=tuple(map(sum, zip(where("i"), where("l", 0.75), strict=True))),
    )


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


def lanes_of(*devices: str, rename: Callable[[str], str] = str) -> Lanes:
    """Per device the ten parts of `strip`; one slice stands for 12 kernels, one gap has two causes."""
    lanes = (
        lane(
            "compute",
            (0, 60, "compute"),
            (80, 90, "compute"),
            event_count=13,
            resolution_ps=20 * MS,
            merged=(1,),
            merged_count=(12,),
            merged_hole_ps=(7_500_000_000,),
        ),
        lane("communication", (60, 70, "collective")),
        lane("copies", (70, 73, "h2d"), (73, 74, "d2h"), (74, 80, "d2d")),
        lane(
            "idle",
            (90, 100, "input"),
            classes=("input", "launch"),
            other_slice=(0,),
            other_class=(1,),
            other_ps=(4 * MS,),
        ),
    )
    steps = lane(
        "steps",
        (0, 28, "excluded"),
        (28, 52, "train"),
        (52, 75, "train"),
        (75, 100, "train"),
        name=(0, 1, 2, 3),
    )
    thread = lane("thread", (0, 60, "launch"), (90, 100, "input"), thread=rename("python3"))
    host = rename(HOST)
    return Lanes(
        (HostLanes(host, 0, WINDOW_PS, (steps, thread)),),
        tuple(DeviceLanes(device, host, lanes) for device in devices),
        0,
        (rename("model/dense/MatMul:MatMul"), rename("IteratorGetNext:IteratorGetNext")),
    )


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
