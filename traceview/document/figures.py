"""Defines the data of charts: utilization strips, the lanes of a timeline, and step times.

A chart is data in no format; a page draws it, and in text the table of its section has the numbers. Strips and lanes are
part of the saved report.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, structs

from traceview.base.record import (
    LARGEST,
    Count,
    DeviceKey,
    Hostname,
    Integer,
    Picoseconds,
    Record,
    SliceName,
    ThreadName,
    one_of,
)
from traceview.document import numbers
from traceview.document.vocabulary import CLASSES, STATES, STEP_KINDS, Look

LaneKind: TypeAlias = Literal["steps", "compute", "communication", "copies", "idle", "thread"]


class UtilizationStrip(Record, frozen=True):
    """The activity of one device per slice of its window; the parts are exclusive as in device_time.

    Attributes:
        device: Key of the device.
        start_ps: Start of the first slice, picoseconds since the origin of the run.
        end_ps: End of the last slice, picoseconds since the origin of the run.
        compute_ps: Compute per slice, picoseconds.
        collective_ps: Exposed collectives per slice, picoseconds.
        copy_ps: Exposed copies and fills per slice, picoseconds.
        idle_ps: Idle time per slice, picoseconds.
    """

    device: DeviceKey
    start_ps: Integer
    end_ps: Integer
    compute_ps: tuple[Picoseconds, ...]
    collective_ps: tuple[Picoseconds, ...]
    copy_ps: tuple[Picoseconds, ...]
    idle_ps: tuple[Picoseconds, ...]


class UtilizationStrips(Record, frozen=True):
    """The window of every device in equal slices.

    Attributes:
        slice_count: Slices per device; slice i runs from start + (end - start) * i // slice_count.
        devices: The devices that have a window.
    """

    slice_count: Count
    devices: tuple[UtilizationStrip, ...]

    def __post_init__(self) -> None:
        for row in self.devices:
            columns = (row.compute_ps, row.collective_ps, row.copy_ps, row.idle_ps)
            if any(len(column) != self.slice_count for column in columns):
                raise ValueError(f"expected {self.slice_count} slices")


class Lane(Record, frozen=True):
    """One row of the timeline: slices in time order that do not overlap, as columns.

    Where device events overlap, each counts from where all that began before it have ended.

    Attributes:
        kind: What the lane shows.
        thread: Name of the thread; null for the other kinds.
        event_count: What the lane holds in all: steps, device events, gaps, or changes of what a thread did.
        resolution_ps: Slices shorter than this are merged with their neighbours, picoseconds; 0 where none is.
        classes: What class and other_class are indices of: classes of device activity; causes of idle time, which also
            classify what a thread did; train, eval or excluded for steps.
        before_ps: Per slice: time since the end of the slice before it, for the first since the start of the window,
            picoseconds.
        length_ps: Per slice: its length, picoseconds.
        class_: Per slice: the class that covers most of it.
        name: Per slice: index into names, of the op, or without one of the kernel, of the longest event; of idle time
            what ended it; of a thread what ran in the middle of it; for steps the number of the longest. -1 without one.
        merged: Per slice that stands for several events: its index, less that of the one before in this list.
        merged_count: Per slice in merged: how many events.
        merged_hole_ps: Per slice in merged: how much of it none of them covers, picoseconds.
        other_slice: Per further class in a slice: the index of the slice, less that of the entry before.
        other_class: Per entry of other_slice: the further class.
        other_ps: Per entry of other_slice: what that class covers, picoseconds; the rest of what is covered is of the
            class of the slice.
    """

    kind: LaneKind
    thread: ThreadName | None
    event_count: Count
    resolution_ps: Picoseconds
    classes: tuple[Annotated[str, one_of(*dict.fromkeys((*CLASSES, *STATES, *STEP_KINDS)))], ...]
    before_ps: tuple[Picoseconds, ...]
    length_ps: tuple[Picoseconds, ...]
    class_: tuple[Count, ...]
    name: tuple[Annotated[int, Meta(ge=-1, le=LARGEST)], ...]
    merged: tuple[Count, ...]
    merged_count: tuple[Count, ...]
    merged_hole_ps: tuple[Picoseconds, ...]
    other_slice: tuple[Count, ...]
    other_class: tuple[Count, ...]
    other_ps: tuple[Picoseconds, ...]

    def look_of(self, class_: str) -> Look:
        """The look of a class in this lane: `h2d` is a copy, and a cause of idle time; threads of the host are grey."""
        if self.kind in ("idle", "thread"):
            look = STATES.get(class_, STATES["unknown"])
            return look if self.kind == "idle" else of_host(look)
        return CLASSES.get(class_) or STEP_KINDS.get(class_) or CLASSES["compute"]


class DeviceLanes(Record, frozen=True):
    """The lanes of one device in the window of its host; a lane that holds nothing is absent.

    Attributes:
        device: Key of the device.
        host: Name of its host.
        lanes: Of the kinds compute, communication, copies and idle.
    """

    device: DeviceKey
    host: Hostname
    lanes: tuple[Lane, ...]


class HostLanes(Record, frozen=True):
    """The window of one host, with its steps and the threads that matter.

    These are the thread that runs the steps, those that launch most, and those that the longest gaps name.

    Attributes:
        host: Name of the host.
        start_ps: Start of the window, picoseconds since the origin of the run.
        end_ps: End of the window, picoseconds since the origin of the run.
        lanes: The steps first, then a lane per thread.
        detailed_steps: Numbers of the steps in which lanes keep short slices: the median one, the slowest one, and the
            worst one of each finding; merged only if they alone do not fit.
    """

    host: Hostname
    start_ps: Integer
    end_ps: Integer
    lanes: tuple[Lane, ...]
    detailed_steps: tuple[Count, ...] = ()


class Lanes(Record, frozen=True):
    """A picture of the window, for a timeline: a bounded number of slices.

    Times in lanes are picoseconds from the start of the window of their host.

    Attributes:
        hosts: One entry per host of these devices: its window, its steps and the threads that matter.
        devices: One entry per device whose host recorded device events, in the order of the devices.
        left_out_device_count: Devices beyond those.
        names: What slices are called, by index; of very long ones the middle is left out.
    """

    hosts: tuple[HostLanes, ...]
    devices: tuple[DeviceLanes, ...]
    left_out_device_count: Count
    names: tuple[SliceName, ...]

    @property
    def lanes(self) -> Iterator[Lane]:
        """The lanes of all hosts, then those of all devices."""
        for host in self.hosts:
            yield from host.lanes
        for device in self.devices:
            yield from device.lanes


def of_host(look: Look) -> Look:
    """A cause on a thread of the host: its letter alone tells it, for colours are for devices."""
    return structs.replace(look, style="host", is_hatched=False)


def legend(lanes: Lanes) -> dict[str, list[Look]]:
    """The looks that occur, by a heading: what ran and the steps, why a device was idle, and what else a thread did."""
    occurring = {lane.look_of(class_) for lane in lanes.lanes for class_ in lane.classes}
    ran = [look for look in (*CLASSES.values(), *STEP_KINDS.values()) if look in occurring]
    causes = [look for look in STATES.values() if look in occurring]
    on_hosts = [of_host(look) for look in STATES.values() if look not in causes]
    groups = {
        "": ran,
        "idle for": causes,
        "threads of the host": [look for look in on_hosts if look in occurring],
    }
    return {heading: looks for heading, looks in groups.items() if looks}


def window_offsets(lanes: Lanes) -> tuple[dict[str, int], int]:
    """By host where its window begins on the common clock, from the earliest; and where the last one ends."""
    first = min((host.start_ps for host in lanes.hosts), default=0)
    last = max((host.end_ps for host in lanes.hosts), default=0)
    return {host.host: host.start_ps - first for host in lanes.hosts}, last - first


def merged_sentence(lanes: Lanes) -> str:
    """State what was merged or left out of the picture; empty where nothing was."""
    longest_ps = max((lane.resolution_ps for lane in lanes.lanes), default=0)
    sentences = []
    if longest_ps:
        sentences.append(
            f"Slices shorter than up to {numbers.time(longest_ps)} are merged with their neighbours, but in the median, the "
            "slowest and the worst steps; times stay exact."
        )
    if lanes.left_out_device_count:
        more = numbers.plural(lanes.left_out_device_count, "more device is", "more devices are")
        sentences.append(f"{more} not drawn.")
    return " ".join(sentences)


class Span(Struct, frozen=True):
    """A span of one device on the timeline, in picoseconds from the start of its window.

    `devices`: what else to open there; the span is framed on `device` alone.
    """

    device: str
    start_ps: int
    end_ps: int
    devices: tuple[str, ...] = ()


class StepBar(Struct, frozen=True):
    """The time of one step.

    `look`: the kind of step. `cause`: of a slow step what it has most more of than the median step, None where that is
    not known; `excess_ps`: what a slow step takes longer than the median one, 0 of one that is not slow.
    """

    number: int
    duration_ps: int
    look: Look
    excess_ps: int
    cause: Look | None
    span: Span | None


class StepTimes(Struct, frozen=True):
    """The steps in their order. `lead`: which steps are slow and why, or that they are alike."""

    bars: tuple[StepBar, ...]
    median_ps: int
    lead: str
