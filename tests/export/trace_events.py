"""Checks a trace by the published rules of the Trace Event Format, and that a viewer shows all of it.

Written from "Trace Event Format" (Google, Duffy, 2016), without a line of traceview.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

Event = dict[str, Any]
_NUMBER = (int, float)
METADATA = {
    "process_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}


def checked(content: bytes) -> list[Event]:
    """The events of a file, all of which have what the format wants of them; `AssertionError` for others."""
    document = json.loads(content, parse_constant=_no_constant, object_pairs_hook=_no_repetition)
    assert set(document) <= {"traceEvents", "displayTimeUnit", "otherData", "metadata"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    events: list[Event] = document["traceEvents"]
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event.get("args", {}), dict)
        {"M": _check_metadata, "X": _check_slice, "C": _check_counter}[event["ph"]](event)
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"} <= named
    processes = [e["pid"] for e in events if e["name"] == "process_name"]
    assert sorted(processes) == sorted({e["pid"] for e in events})
    assert len(named) == len({tid for _, tid in named}), "a thread belongs to one process"
    _check_nesting(events)
    _check_arrows(events)
    return events


def slices(events: list[Event]) -> dict[tuple[int, int], list[Event]]:
    """The complete events by process and thread, in the order of the file."""
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append(event)
    return found


def nanoseconds(microseconds: float) -> int:
    """A time of the file."""
    return round(microseconds * 1000)


def picoseconds(event: Event) -> tuple[int, int]:
    """Start and length of a slice: in its arguments where nanoseconds do not tell them."""
    found = event.get("args", {})
    return (
        found.get("start_ps", nanoseconds(event["ts"]) * 1000),
        found.get("duration_ps", nanoseconds(event["dur"]) * 1000),
    )


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def _no_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    assert len(found) == len(pairs), "a key stands twice"
    return found


def _check_time(value: Any) -> None:
    assert isinstance(value, _NUMBER)
    assert not isinstance(value, bool)
    assert value >= 0


def _check_metadata(event: Event) -> None:
    key, kind = METADATA[event["name"]]
    assert set(event["args"]) == {key}
    assert isinstance(event["args"][key], kind)


def _check_slice(event: Event) -> None:
    _check_time(event["ts"])
    _check_time(event["dur"])
    assert isinstance(event["cat"], str)
    allowed = {"name", "ph", "pid", "tid", "ts", "dur", "cat", "args"}
    assert set(event) <= allowed | {"bind_id", "flow_in", "flow_out"}


def _check_counter(event: Event) -> None:
    _check_time(event["ts"])
    assert event["args"]
    assert all(isinstance(value, _NUMBER) for value in event["args"].values())


def _check_nesting(events: list[Event]) -> None:
    for (pid, tid), mine in slices(events).items():
        open_ends: list[int] = []
        last = 0
        for event in mine:
            start = nanoseconds(event["ts"])
            end = start + nanoseconds(event["dur"])
            assert start >= last, "a track is sorted by time"
            last = start
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1], f"overlap on {pid}/{tid}: {event}"
            open_ends.append(end)


def _check_arrows(events: list[Event]) -> None:
    bound = [event for event in events if "bind_id" in event]
    begun = {event["bind_id"]: event["ts"] for event in bound if event.get("flow_out")}
    assert len(begun) == sum(bool(event.get("flow_out")) for event in bound)
    ended = [event for event in bound if event.get("flow_in")]
    assert {event["bind_id"] for event in ended} == set(begun)
    assert all(event["ts"] >= begun[event["bind_id"]] for event in ended)
