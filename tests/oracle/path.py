"""Walks the critical path of each step, span by span between all edges (docs/method.md, "Critical path")."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tests.oracle.classes import CLASSES
from tests.oracle.collectives import Collective, Part, find_collectives
from tests.oracle.host_causes import HostCauses
from tests.oracle.idle import find_gaps
from tests.oracle.interval_cover import Cover
from tests.oracle.intervals import Interval
from tests.oracle.model import Device, HostAnswer, Row, device_name

# A span of the path: device, class or cause, start, end.
Span = tuple[str, str, int, int]


@dataclass(eq=False)
class _Lane:
    """A device in use: where each class is, where it transfers, and its gaps with the causes in them."""

    answer: HostAnswer
    device: Device
    name: str
    classes: dict[str, Cover]
    busy: Cover
    transfers: Cover
    gaps: list[tuple[int, int, list[tuple[int, int, str]]]]

    def state(self, time: int) -> str:
        """The first class at an instant, `waiting` in a collective that transfers nothing yet, else the cause."""
        for cls in CLASSES:
            if self.classes[cls].holds(time):
                is_waiting = cls == "collective" and not self.transfers.holds(time)
                return "waiting" if is_waiting else cls
        gap = self.gap_at(time)
        if gap is None:
            raise AssertionError((self.name, time))
        return next(cause for a, b, cause in gap[2] if a <= time < b)

    def gap_at(self, time: int) -> tuple[int, int, list[tuple[int, int, str]]] | None:
        """The gap at an instant."""
        place = bisect_right(self.gaps, time, key=lambda gap: gap[0]) - 1
        return self.gaps[place] if place >= 0 and time < self.gaps[place][1] else None

    @cached_property
    def edges(self) -> set[int]:
        covers = [*self.classes.values(), self.transfers]
        inside = {edge for _, _, parts in self.gaps for a, b, _ in parts for edge in (a, b)}
        return inside | {edge for cover in covers for span in cover.spans for edge in span}


class _Paths:
    def __init__(self, answers: list[HostAnswer], several: bool) -> None:
        self.collectives = find_collectives(answers)
        self.lanes = [
            lane
            for answer in answers
            if answer.activities()
            for lane in self._lanes(answers, answer, several)
        ]
        hosts = {lane.answer.host.name: lane.answer for lane in self.lanes}
        # The host that the others were compared with shares no ends itself.
        self._clocks_agree = sum(not answer.shares_ends for answer in hosts.values()) < 2

    def _lanes(self, answers: list[HostAnswer], answer: HostAnswer, several: bool) -> list[_Lane]:
        host, lanes = HostCauses(answer), []
        for device in answer.devices:
            gaps = find_gaps(answers, answer, host, device)
            if any(cause == "unused" for gap in gaps for _, _, cause in gap.parts):
                continue
            lanes.append(
                _Lane(
                    answer,
                    device,
                    device_name(device, several)["device"],
                    {cls: Cover(a.span for a in device.of_class(cls)) for cls in CLASSES},
                    Cover(a.span for a in device.activities),
                    Cover(self._transfers(device)),
                    [(gap.start, gap.end, gap.parts) for gap in gaps],
                )
            )
        return lanes

    def _transfers(self, device: Device) -> list[Interval]:
        return [
            (max(start, end - collective.transfer) if collective.complete else start, end)
            for collective in self.collectives
            for part in collective.parts
            if part.device is device
            for start, end in [part.activity.span]
        ]

    def path(self, answer: HostAnswer, bounds: Interval) -> list[Span] | None:
        """The path through a span of a host, backwards; None without a device in use."""
        start, end = bounds
        own = [lane for lane in self.lanes if lane.answer is answer]
        if not own:
            return None

        def ended(lane: _Lane) -> tuple[int, int]:
            begun = [min(b, end) for a, b in lane.busy.spans if a < end]
            busy = sum(max(min(b, end) - max(a, start), 0) for a, b in lane.busy.spans)
            return max([start, *begun]), busy

        lane = max(own, key=ended)
        inner = {edge for any_lane in self.lanes for edge in any_lane.edges}
        inner |= {edge for any_lane in self.lanes for edge in any_lane.answer.window}
        edges = sorted({start, end} | {edge for edge in inner if start < edge < end})
        spans: list[Span] = []
        lost_until = end
        for low, high in reversed(list(pairwise(edges))):
            if high > lost_until:
                spans.append((lane.name, "peer", low, high))
                continue
            passed = [lane]
            while lane.state(low) in ("waiting", "peer") if self._is_recorded(lane, low) else False:
                other = self._waited_for(lane, low, high)
                if other is None:
                    break
                if other in passed:
                    circle = passed[passed.index(other) :]
                    lane = max(circle, key=lambda lane: self._wait_begins(lane, low, edges))
                    break
                lane = other
                passed.append(lane)
            if not self._is_recorded(lane, low):
                lost_until = start
                spans.append((lane.name, "peer", low, high))
                continue
            state = lane.state(low)
            if state in ("waiting", "peer"):
                lost_until = self._wait_begins(lane, low, edges)
                state = "peer"
            spans.append((lane.name, state, low, high))
        return spans

    @staticmethod
    def _is_recorded(lane: _Lane, low: int) -> bool:
        return low >= lane.answer.window[0]

    def _wait_begins(self, lane: _Lane, low: int, edges: list[int]) -> int:
        """Where a wait begins that nothing can be followed from."""
        state = lane.state(low)
        gap = lane.gap_at(low)
        place = bisect_left(edges, low)
        while place > 0 and self._is_recorded(lane, edges[place - 1]):
            before = edges[place - 1]
            same_gap = gap is None or gap[0] <= before
            if lane.state(before) != state or not same_gap:
                break
            place -= 1
        return edges[place]

    def _waited_for(self, lane: _Lane, low: int, high: int) -> _Lane | None:
        if lane.state(low) == "waiting":
            running = [
                (part.activity.span[0], collective)
                for collective in self.collectives
                for part in collective.parts
                if part.device is lane.device and self._runs(part, low)
            ]
            device: Device | None = self._came_last(max(running, key=lambda pair: pair[0])[1])
        elif lane.device.kind == "replica":
            others = [
                (next(b for a, b in other.busy.spans if a <= low < b), place)
                for place, other in enumerate(self.lanes)
                if other is not lane and other.answer is lane.answer and other.busy.holds(low)
            ]
            device = self.lanes[min(others)[1]].device if others else None
        else:
            device = self._holding(lane, low)
        other = next((other for other in self.lanes if other.device is device), None)
        if other is None or other is lane:
            return None
        begin, end = other.answer.window
        is_one_clock = other.answer is lane.answer or self._clocks_agree
        return other if begin <= low and high <= end and is_one_clock else None

    @staticmethod
    def _runs(part: Part, time: int) -> bool:
        start, end = part.activity.span
        return start <= time < end

    def _holding(self, lane: _Lane, low: int) -> Device | None:
        """The device that came last to the collective that runs elsewhere and ends first."""
        running = []
        for place, other in enumerate(self.lanes):
            own = [
                (part.activity.span, collective)
                for collective in self.collectives
                for part in collective.parts
                if part.device is other.device and self._runs(part, low)
            ]
            if own and other is not lane:
                (_, end), collective = max(own, key=lambda pair: pair[0][0])
                running.append((end, place, collective))
        if not running:
            return None
        _, place, collective = min(running, key=lambda row: row[:2])
        return self._came_last(collective) if collective.complete else self.lanes[place].device

    @staticmethod
    def _came_last(collective: Collective) -> Device:
        return min(collective.parts, key=lambda part: (part.end - part.start, -part.start)).device


def path_rows(answers: list[HostAnswer], several: bool) -> list[Row]:
    """A row per used step, or without any per host for its window."""
    paths = _Paths(answers, several)
    chosen: list[tuple[HostAnswer, int | None, Interval]] = []
    for answer in answers:
        low, high = answer.window
        for step in answer.steps:
            if step.used and step.start < high and step.end > low:
                bounds = max(step.start, low), min(step.end, high)
                chosen.append((answer, step.number, bounds))
    chosen = chosen or [(answer, None, answer.window) for answer in answers]
    rows = []
    for answer, number, (start, end) in chosen:
        spans = paths.path(answer, (start, end)) if start < end else None
        if spans is None:
            continue
        by_cause: dict[str, int] = {}
        for _, cause, low, high in spans:
            by_cause[cause] = by_cause.get(cause, 0) + high - low
        rows.append(
            {
                "host": answer.host.name,
                "step": number,
                "duration_ps": end - start,
                "by_cause": by_cause,
                "spans": _joined(spans[::-1]),
            }
        )
    return rows


def _joined(spans: list[Span]) -> list[Span]:
    """Spans in time order; those of one device and cause that touch are joined."""
    result: list[Span] = []
    for device, cause, start, end in spans:
        if result and result[-1][:2] == (device, cause):
            result[-1] = (device, cause, result[-1][2], end)
        else:
            result.append((device, cause, start, end))
    return result
