"""What does the timeline show, in a saved file or on a page? Lanes in words, colours and letters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from traceview.analysis.lanes.compute import Lane, Lanes
from traceview.render import numbers
from traceview.render.idle import LOOKS

HOW_TO_GET: Final = "traceview report LOGDIR -o DIR"
"""What makes a report with lanes."""

MOST_LABEL: Final = 22
"""Characters of the label of a row; the middle of a longer one is left out."""


@dataclass(frozen=True)
class ClassLook:
    """How a class of slices is drawn: the end of its colour's name, a letter, and what it is called."""

    style: str
    letter: str
    words: str


CLASS_LOOKS: Final = {
    "compute": ClassLook("compute", "", "compute"),
    "collective": ClassLook("communication", "", "communication"),
    "h2d": ClassLook("h2d", "", "copies to the device"),
    "d2h": ClassLook("d2h", "", "copies from the device"),
    "d2d": ClassLook("d2d", "", "copies between devices"),
    "memset": ClassLook("memset", "", "fills"),
    "train": ClassLook("step", "", "step"),
    "eval": ClassLook("step-eval", "", "evaluation step"),
    "excluded": ClassLook("step-excluded", "", "step not counted"),
}
CAUSE_LOOKS: Final = {
    cause: ClassLook(f"idle-{cause.replace('_', '-')}", look.letter, look.words)
    for cause, look in LOOKS.items()
}


def look_of(lane: Lane, class_: str) -> ClassLook:
    """The look of a class in a lane: `h2d` is a copy, and a cause of idle time."""
    found = CAUSE_LOOKS if lane.kind in ("idle", "thread") else CLASS_LOOKS
    return found.get(class_, CLASS_LOOKS["compute"])


@dataclass(frozen=True)
class Slice:
    """One slice: picoseconds from the start of the window, and what each class covers of it."""

    start_ps: int
    end_ps: int
    class_ps: dict[str, int]
    name: int


def slices(lane: Lane) -> Iterator[Slice]:
    """The slices of a lane, from its columns."""
    holes = dict(zip(accumulate(lane.merged), lane.merged_hole_ps, strict=True))
    others: dict[int, dict[str, int]] = {}
    further = zip(accumulate(lane.other_slice), lane.other_class, lane.other_ps, strict=True)
    for place, class_, length in further:
        others.setdefault(place, {})[lane.classes[class_]] = length
    end = 0
    columns = zip(lane.before_ps, lane.length_ps, lane.class_, lane.name, strict=True)
    for place, (before, length, class_, name) in enumerate(columns):
        start, end = end + before, end + before + length
        found = others.get(place, {})
        main = length - holes.get(place, 0) - sum(found.values())
        yield Slice(start, end, {lane.classes[class_]: main, **found}, name)


def every_lane(lanes: Lanes) -> Iterator[Lane]:
    """The lanes of all hosts, then those of all devices."""
    for host in lanes.hosts:
        yield from host.lanes
    for device in lanes.devices:
        yield from device.lanes


def legend(lanes: Lanes) -> dict[str, list[ClassLook]]:
    """The looks that occur, by a heading: what ran, the steps, and why a device or a thread waited."""
    met = {look_of(lane, class_) for lane in every_lane(lanes) for class_ in lane.classes}
    ran = [look for look in CLASS_LOOKS.values() if look in met]
    steps = [look for look in ran if look.style.startswith("step")]
    causes = [look for look in CAUSE_LOOKS.values() if look in met]
    groups = {"": [look for look in ran if look not in steps] + steps, "idle for": causes}
    return {heading: looks for heading, looks in groups.items() if looks}


def offsets(lanes: Lanes) -> tuple[dict[str, int], int]:
    """By host where its window begins on the common clock, from the earliest; and where the last one ends."""
    first = min((host.start_ps for host in lanes.hosts), default=0)
    last = max((host.end_ps for host in lanes.hosts), default=0)
    return {host.host: host.start_ps - first for host in lanes.hosts}, last - first


def cut_words(lanes: Lanes) -> str:
    """What was left out or merged to make the picture, in one sentence; empty where nothing was."""
    every = list(every_lane(lanes))
    resolutions = sorted({lane.resolution_ps for lane in every if lane.resolution_ps})
    told = []
    if resolutions:
        least, most = numbers.time(resolutions[0]), numbers.time(resolutions[-1])
        span = least if least == most else f"{least} to {most}, by lane,"
        events = sum(lane.event_count for lane in every)
        drawn = sum(len(lane.length_ps) for lane in every)
        told.append(
            f"Slices shorter than {span} are merged with their neighbours:"
            f" {numbers.count(events)} events in {numbers.count(drawn)} slices; times stay exact."
        )
    if lanes.left_out_device_count:
        told.append(f"{numbers.plural(lanes.left_out_device_count, 'more device')} not drawn.")
    return " ".join(told)


def label(text: str) -> str:
    """A name for the head of a row."""
    if len(text) <= MOST_LABEL:
        return text
    return f"{text[: MOST_LABEL // 2]}…{text[1 - MOST_LABEL // 2 :]}"
