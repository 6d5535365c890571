"""Reads a Perfetto trace with Perfetto's own descriptors, which `pip install perfetto` brings."""

from __future__ import annotations

import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

CLEARED, NEEDS = 1, 2
BEGIN, END = 1, 2


@dataclass
class Slice:
    track: int
    name: str
    category: str
    start_ns: int
    end_ns: int = -1
    arguments: dict[str, Any] = field(default_factory=dict)
    flows: tuple[int, ...] = ()

    @property
    def picoseconds(self) -> tuple[int, int]:
        """Start and length: in its arguments where nanoseconds do not tell them."""
        return (
            self.arguments.get("start_ps", self.start_ns * 1000),
            self.arguments.get("duration_ps", (self.end_ns - self.start_ns) * 1000),
        )


@dataclass
class Read:
    tracks: dict[int, Any]
    slices: list[Slice]

    def process_of(self, track: int) -> str:
        """The name of the process of a track."""
        found = self.tracks[track]
        processes = {
            one.process.pid: one.process.process_name
            for one in self.tracks.values()
            if one.HasField("process")
        }
        pid = found.thread.pid or self.tracks[found.parent_uuid].process.pid
        return str(processes[pid])

    def track_name(self, track: int) -> str:
        """What a track is called."""
        found = self.tracks[track]
        return str(found.thread.thread_name if found.HasField("thread") else found.name)


def read(content: bytes) -> Read:
    """All slices of a trace; `AssertionError` for what Perfetto would drop."""
    with warnings.catch_warnings():
        # Of descriptors one major version older than the protobuf runtime.
        warnings.simplefilter("ignore")
        schema = import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = schema.Trace.FromString(content)
    assert trace.packet[0].sequence_flags & CLEARED
    tracks: dict[int, Any] = {}
    interned: dict[str, dict[int, str]] = defaultdict(dict)
    slices: list[Slice] = []
    open_slices: dict[int, list[Slice]] = defaultdict(list)
    last: dict[int, int] = defaultdict(int)
    tids: set[int] = set()
    for packet in trace.packet:
        assert not unknown_fields(packet)
        assert packet.trusted_packet_sequence_id == 1
        if packet.HasField("track_descriptor"):
            found = packet.track_descriptor
            assert found.uuid not in tracks
            tracks[found.uuid] = found
            if found.HasField("thread"):
                assert found.thread.tid not in tids
                tids.add(found.thread.tid)
        for texts, entries in packet.interned_data.ListFields():
            for entry in entries:
                assert entry.iid > 0
                assert entry.iid not in interned[texts.name]
                interned[texts.name][entry.iid] = (
                    entry.name if hasattr(entry, "name") else entry.str.decode()
                )
        if not packet.HasField("track_event"):
            continue
        assert packet.sequence_flags == NEEDS
        event, time = packet.track_event, packet.timestamp
        assert event.track_uuid in tracks
        assert time >= last[event.track_uuid]
        last[event.track_uuid] = time
        if event.type == BEGIN:
            (category,) = event.category_iids
            one = Slice(
                event.track_uuid,
                interned["event_names"][event.name_iid],
                interned["event_categories"][category],
                time,
                arguments=dict(_argument(one, interned) for one in event.debug_annotations),
                flows=tuple(event.flow_ids),
            )
            slices.append(one)
            open_slices[event.track_uuid].append(one)
        else:
            assert event.type == END
            open_slices[event.track_uuid].pop().end_ns = time
    assert not any(open_slices.values())
    return Read(tracks, slices)


def unknown_fields(packet: Any) -> bool:
    """Whether a packet holds what its descriptors do not know."""
    known = packet.ByteSize()
    packet.DiscardUnknownFields()
    return bool(packet.ByteSize() != known)


def _argument(one: Any, interned: dict[str, dict[int, str]]) -> tuple[str, Any]:
    name = interned["debug_annotation_names"][one.name_iid]
    if one.HasField("string_value_iid"):
        return name, interned["debug_annotation_string_values"][one.string_value_iid]
    return name, one.int_value
