"""Recomputes input waits of a host without GPUs, and self times of iterator stages (docs/method.md, "Input")."""

from __future__ import annotations

import re

from tests.oracle.intervals import clip, length, subtract, union
from tests.oracle.reading import Event, Host

MARKERS = re.compile(r"train[^/]*|test[^/]*|TraceContext[^/]*|Profiled batch")


def _iterators(host: Host) -> list[Event]:
    return [event for event in host.host_events() if event.name.startswith("Iterator::")]


def _id(call: Event, stat: str) -> int | None:
    value = call.integer(stat)
    return None if value is None else value % 2**64


def _inside(call: Event, calls: list[Event]) -> list[Event]:
    """Calls on the same thread inside a call; of two equal calls the later recorded one is inside."""
    return [
        other
        for other in calls
        if other is not call
        and other.line is call.line
        and call.start <= other.start
        and other.end <= call.end
        and (other.end - other.start, -other.order) < (call.end - call.start, -call.order)
    ]


def stage_times(host: Host, window: tuple[int, int] | None = None) -> dict[str, tuple[int, int]]:
    """Of the calls that overlap the window, if given, by name without the numbers of inputs: self time, and the part of it in which an input ran elsewhere.

    Self time is the time that no call inside covers. An input elsewhere is a call whose `parent_id` is the id of the
    call and whose innermost surrounding call is not of that iterator. What takes from a shard only waits.
    """
    calls = _iterators(host)
    takers = _shard_takers(host, calls)
    inside = {id(call): _inside(call, calls) for call in calls}
    elsewhere: dict[int | None, list[tuple[int, int]]] = {}
    for call in calls:
        around = [other for other in calls if call in inside[id(other)]]
        nearest = max(around, key=lambda other: (other.start, other.order), default=None)
        above = _id(call, "parent_id")
        if above not in (None, _id(call, "id")) and (not nearest or _id(nearest, "id") != above):
            elsewhere.setdefault(above, []).append((call.start, call.end))
    times: dict[str, tuple[int, int]] = {}
    for call in calls:
        own = subtract([(call.start, call.end)], [(o.start, o.end) for o in inside[id(call)]])
        others = union(elsewhere.get(_id(call, "id"), []))
        waiting = length(own) - length(subtract(own, others))
        if _id(call, "id") in takers:
            waiting = length(own)
        if window and (call.start >= window[1] or call.end <= window[0]):
            continue
        name = re.sub(r"\[\d+\]", "", call.name)
        total, waited = times.get(name, (0, 0))
        times[name] = (total + length(own), waited + waiting)
    return times


def _tops(calls: list[Event]) -> dict[int | None, int | None]:
    """By id, the iterator at the top of its pipeline."""
    asker = {_id(call, "id"): _id(call, "parent_id") for call in calls}

    def top(number: int | None) -> int | None:
        above = asker.get(number)
        return number if above in (None, number) else top(above)

    return {number: top(number) for number in asker}


def _filling(calls: list[Event]) -> set[int | None]:
    """The pipelines that fill the shards of a distributed dataset, by the iterator at the top."""
    tops = _tops(calls)
    return {
        tops[_id(call, "id")]
        for call in calls
        if call.line.name.startswith("tf_data_multi_device_iterator")
    }


def _shard_takers(host: Host, calls: list[Event]) -> set[int | None]:
    """Generators that ask no iterator, in pipelines that do not fill the shards."""
    if not any("GetNextFromShard" in event.name for event in host.host_events()):
        return set()
    asked = {_id(call, "parent_id") for call in calls}
    tops, filling = _tops(calls), _filling(calls)
    return {
        number
        for call in calls
        if call.name.endswith("::Generator")
        and (number := _id(call, "id")) not in asked
        and tops[number] not in filling
    }


def work_ratio(host: Host, stage: str, window: tuple[int, int]) -> float:
    """The self time of a stage less its waiting, over the window."""
    own, waiting = stage_times(host, window)[stage]
    return (own - waiting) / (window[1] - window[0])


def empty_ratios(
    host: Host, stage: str, steps: list[tuple[int, int]], waits: list[int]
) -> tuple[float | None, float | None]:
    """Of the steps in which a prefetch was asked, the share in which it was empty; and the share of their waits.

    Of several prefetches the one with the least counts.

    Prefetches above the stage in its pipeline count, and those of the replicas if it fills their shards.
    """
    calls = _iterators(host)
    tops, filling = _tops(calls), _filling(calls)
    fills = any(tops[_id(call, "id")] in filling for call in calls if call.name == stage)
    requests: dict[tuple[str, bool], list[tuple[int, bool]]] = {}
    for call in calls:
        limit, fill = call.integer("buffer_limit"), call.integer("buffered_elements")
        is_source = tops[_id(call, "id")] in filling
        is_above = is_source == fills and stage.startswith(f"{call.name}::")
        if not call.name.endswith("::Prefetch") or not (is_above or (fills and not is_source)):
            continue
        if limit is not None or fill is not None:
            is_met = not fill and call.end - call.start > 50_000_000
            requests.setdefault((call.name, is_source), []).append((call.start, is_met))
    ratios, of_waits = [], []
    for asked in requests.values():
        met = [[empty for at, empty in asked if a <= at < b] for a, b in steps]
        answered = [any(empty) for empty in met if empty]
        if answered:
            ratios.append(sum(answered) / len(answered))
        total = sum(wait for empty, wait in zip(met, waits, strict=True) if empty)
        if total:
            waited = [wait for empty, wait in zip(met, waits, strict=True) if any(empty)]
            of_waits.append(sum(waited) / total)
    return min(ratios, default=None), min(of_waits, default=None)


def _waits(host: Host) -> list[tuple[int, int]]:
    """Waits on the thread of the markers, and waits elsewhere with the id of a FunctionRun of the model."""
    threads = {
        event.line.id
        for event in host.host_events()
        if "step_num" in event.stats and MARKERS.fullmatch(event.name)
    }
    model = [e for e in host.host_events() if not e.line.name.startswith("tf_data")]
    ids = {e.integer("id") for e in model if e.name == "FunctionRun"}
    waits = []
    for event in host.host_events():
        if not re.fullmatch(r"IteratorGetNext\w*::DoCompute", event.name):
            continue
        in_step = event.line.id in threads or (
            not threads and not event.line.name.startswith("tf_data")
        )
        if in_step or event.integer("id") in ids:
            waits.append((event.start, event.end))
    return waits


def step_waits(host: Host, steps: list[tuple[int, int]]) -> list[int]:
    """The time of each step in which the model waited for input."""
    waits = union(_waits(host))
    return [length(clip(waits, step)) for step in steps]
