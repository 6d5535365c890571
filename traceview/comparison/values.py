"""Puts further numbers of both sides beside each other: input, copies, collectives and memory, where they differ."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from traceview.comparison.model import StepDifference, ValueDifference
from traceview.report.absent import is_lost
from traceview.report.model import Report

LEAST_CHANGE_RATIO: Final = 0.1
"""Of the smaller value: a number that differs by less is not worth a line; a choice of ours."""
LEAST_TIME_RATIO: Final = 0.01
"""Of the step: times that differ by less are not either."""
LEAST_SHARE: Final = 0.1
"""Shares that differ by less are not either."""

_Topic = Literal["input", "transfers", "collectives", "memory"]


_RESULTS: Final[Mapping[_Topic, Sequence[str]]] = {
    "input": ("input", "steps"),
    "transfers": ("transfers", "steps"),
    "collectives": ("collectives",),
    "memory": ("device_time",),
}
"""What a report has to hold for a topic: what it lacks is not known to be zero."""


class _Place(NamedTuple):
    """What a number is of; `device` and `stage` are empty where it is of all."""

    topic: _Topic
    name: str
    key: str
    device: str = ""
    stage: str = ""


def value_differences(
    before: Sequence[Report], after: Sequence[Report], step: StepDifference
) -> tuple[ValueDifference, ...]:
    """The numbers that differ by a tenth or more, in the order of the topics; the mean of the captures of a side.

    Times also by more than what would have been shown of the step: nothing is known of their own noise.
    """
    topics = {
        topic
        for topic, needed in _RESULTS.items()
        if not any(is_lost(report, result) for report in (*before, *after) for result in needed)
    }
    old, new = _means(before, topics), _means(after, topics)
    least_ratio = max(LEAST_CHANGE_RATIO, step.least_shown_ratio or 0.0)
    return tuple(
        ValueDifference(
            topic=place.topic,
            name=place.name,
            key=place.key,
            device=place.device or None,
            stage=place.stage or None,
            before=old.get(place),
            after=new.get(place),
        )
        for place in {**old, **new}
        if _differs(place.key, old.get(place, 0), new.get(place, 0), step.before_ps, least_ratio)
    )


def _differs(key: str, old: float, new: float, step_ps: int, least_ratio: float) -> bool:
    change = abs(new - old)
    if key.endswith("_ratio"):
        return change >= LEAST_SHARE
    is_time = key.endswith("_ps")
    if is_time and change < LEAST_TIME_RATIO * step_ps:
        return False
    # Of the smaller one: three times as much and a third of it differ as much.
    return change > 0 and change >= (least_ratio if is_time else LEAST_CHANGE_RATIO) * min(old, new)


def _means(reports: Sequence[Report], topics: Collection[str]) -> Mapping[_Place, float]:
    values: dict[_Place, list[float]] = {}
    for report in reports:
        for place, value in _values(report):
            if place.topic in topics:
                values.setdefault(place, []).append(value)
    return {place: round(sum(of_place) / len(of_place), 6) for place, of_place in values.items()}


def _values(report: Report) -> Iterator[tuple[_Place, float]]:
    steps = report.results.steps
    step_count = max(steps.used_count, 1) if steps else 1
    yield from _of_input(report, step_count)
    yield from _of_transfers(report, step_count)
    yield from _of_collectives(report)
    devices = report.results.device_time.devices if report.results.device_time else ()
    for device in devices:
        if device.memory_peak_bytes is not None:
            place = _Place("memory", "most memory held", "memory_peak_bytes", device.device)
            yield place, device.memory_peak_bytes


def _of_input(report: Report, step_count: int) -> Iterator[tuple[_Place, float]]:
    result = report.results.input
    if result is None:
        return
    for stage in result.stages:
        if stage.blocking and not stage.injected:
            own = _Place("input", "own work per step", "own_ps", stage=stage.name)
            yield own, stage.own_ps / step_count
            if stage.parallelism is not None:
                place = _Place("input", "parallel calls", "parallelism", stage=stage.name)
                yield place, stage.parallelism


def _of_transfers(report: Report, step_count: int) -> Iterator[tuple[_Place, float]]:
    result = report.results.transfers
    for device in result.devices if result else ():
        for key, words in (
            ("h2d", "to the device"),
            ("d2h", "from the device"),
            ("d2d", "between devices"),
        ):
            direction = getattr(device.directions, key)
            of = (f"copies {words}", device.device)
            yield (
                _Place("transfers", f"{of[0]}, per step", "count", of[1]),
                direction.count / step_count,
            )
            if direction.bytes is not None:
                yield (
                    _Place("transfers", f"bytes copied {words}, per step", "bytes", of[1]),
                    direction.bytes / step_count,
                )
            if direction.mean_exposed_ps_per_step is not None:
                yield (
                    _Place("transfers", f"exposed copies {words}", "exposed_ps", of[1]),
                    direction.mean_exposed_ps_per_step,
                )


def _of_collectives(report: Report) -> Iterator[tuple[_Place, float]]:
    result = report.results.collectives
    if result is None:
        return
    if result.count_per_step is not None:
        yield _Place("collectives", "collectives per step", "count"), result.count_per_step
    if result.transfer_per_step_ps is not None:
        yield (
            _Place("collectives", "transfers of collectives per step", "transfer_ps"),
            result.transfer_per_step_ps,
        )
    if result.overlap_ratio is not None:
        place = _Place("collectives", "communication under compute", "overlap_ratio")
        yield place, result.overlap_ratio
