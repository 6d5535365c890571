"""What the protobuf runtime says of the header of a plane: what the decoders have to say.

Messages are those of `scripts/xspace.py` without what traceview leaves unread, for damage in there is none to it. An
entry of a map is an ordinary message here, which on the wire it is: of an entry with an unknown field the runtime
makes an unknown field, where the runtimes of other languages, which write traces, pass over the field alone.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from scripts import xspace
from traceview.xplane.columns import EventMetadata, PlaneHeader, Stat

_UNREAD = {("XPlane", "lines"), ("XEventMetadata", "child_id")}
_GROUP = 3


def _plane_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto()
    xspace.XPlane.DESCRIPTOR.file.CopyToProto(file)
    for message in file.message_type:
        read = [field for field in message.field if (message.name, field.name) not in _UNREAD]
        del message.field[:]
        message.field.extend(read)
        for entry in message.nested_type:
            entry.ClearField("options")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(xspace.XPlane.DESCRIPTOR.full_name)
    )


_Plane = _plane_class()


def parsed(data: bytes) -> Any | None:
    """The message of a plane; None if the runtime finds it damaged."""
    try:
        return _Plane.FromString(data)
    except DecodeError:
        return None


def has_group(message: Any) -> bool:
    """Whether there is a group in it, which every reader of today passes over."""
    messages: list[Any] = []
    for _, value in message.ListFields():
        if isinstance(value, Message):
            messages.append(value)
        elif not isinstance(value, (int, float, bytes)):
            messages += value
    unknown: Any = UnknownFieldSet(message)
    return any(field.wire_type == _GROUP for field in unknown) or any(
        has_group(inner) for inner in messages
    )


def header_of(message: Any, *, is_damaged: bool) -> PlaneHeader:
    """The message as the decoders have to give it."""
    stat_names = {entry.key: entry.value.name for entry in message.stat_metadata}

    def stats(messages: Any) -> tuple[Stat, ...]:
        return tuple(_stat(stat, stat_names) for stat in messages)

    event_metadata = {
        entry.key: EventMetadata(
            entry.value.name, entry.value.display_name, stats(entry.value.stats)
        )
        for entry in message.event_metadata
    }
    return PlaneHeader(message.name, event_metadata, stat_names, stats(message.stats), is_damaged)


def _stat(message: Any, stat_names: dict[int, bytes]) -> Stat:
    member = message.WhichOneof("value")
    value = 0 if member is None else getattr(message, member)
    if member == "ref_value":
        # Modulo 2**64, as the id that it names.
        value = stat_names.get(value - (1 << 64) if value >> 63 else value, b"")
    return Stat(stat_names.get(message.metadata_id, b""), value)
