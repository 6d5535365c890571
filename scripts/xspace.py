"""XSpace message classes for writing and for brute-force reading: every field of the schema, no shortcuts.

traceview itself reads events with its own decoder; the generators and the test oracle use these classes,
so that the two sides share no code. Field numbers and types: openxla/xla `tsl/profiler/protobuf/xplane.proto`.
Strings are declared as bytes, because recorded names need not be valid UTF-8.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "int64": _FIELD.TYPE_INT64,
    "int32": _FIELD.TYPE_INT32,
    "uint64": _FIELD.TYPE_UINT64,
    "bool": _FIELD.TYPE_BOOL,
    "double": _FIELD.TYPE_DOUBLE,
    "float": _FIELD.TYPE_FLOAT,
    "bytes": _FIELD.TYPE_BYTES,
}

Messages = dict[str, list[tuple[int, str, str, str]]]
"""By message its fields: number, name, type, and kind: one, rep, map, or the name of a oneof."""

_MESSAGES: Messages = {
    "XSpace": [
        (1, "planes", "XPlane", "rep"),
        (2, "errors", "bytes", "rep"),
        (3, "warnings", "bytes", "rep"),
        (4, "hostnames", "bytes", "rep"),
    ],
    "XPlane": [
        (1, "id", "int64", "one"),
        (2, "name", "bytes", "one"),
        (3, "lines", "XLine", "rep"),
        (4, "event_metadata", "XEventMetadata", "map"),
        (5, "stat_metadata", "XStatMetadata", "map"),
        (6, "stats", "XStat", "rep"),
    ],
    "XLine": [
        (1, "id", "int64", "one"),
        (10, "display_id", "int64", "one"),
        (2, "name", "bytes", "one"),
        (11, "display_name", "bytes", "one"),
        (3, "timestamp_ns", "int64", "one"),
        (9, "duration_ps", "int64", "one"),
        (4, "events", "XEvent", "rep"),
    ],
    "XEvent": [
        (1, "metadata_id", "int64", "one"),
        (2, "offset_ps", "int64", "data"),
        (5, "num_occurrences", "int64", "data"),
        (3, "duration_ps", "int64", "one"),
        (4, "stats", "XStat", "rep"),
    ],
    "XStat": [
        (1, "metadata_id", "int64", "one"),
        (2, "double_value", "double", "value"),
        (3, "uint64_value", "uint64", "value"),
        (4, "int64_value", "int64", "value"),
        (5, "str_value", "bytes", "value"),
        (6, "bytes_value", "bytes", "value"),
        (7, "ref_value", "uint64", "value"),
    ],
    "XEventMetadata": [
        (1, "id", "int64", "one"),
        (2, "name", "bytes", "one"),
        (4, "display_name", "bytes", "one"),
        (3, "metadata", "bytes", "one"),
        (5, "stats", "XStat", "rep"),
        (6, "child_id", "int64", "rep"),
    ],
    "XStatMetadata": [
        (1, "id", "int64", "one"),
        (2, "name", "bytes", "one"),
        (3, "description", "bytes", "one"),
    ],
}


def _set_type(field: descriptor_pb2.FieldDescriptorProto, package: str, type_name: str) -> None:
    if type_name in _SCALARS:
        field.type = _SCALARS[type_name]
    else:
        field.type = _FIELD.TYPE_MESSAGE
        field.type_name = f".{package}.{type_name}"


def _file_descriptor(package: str, messages: Messages) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    for message_name, fields in messages.items():
        message = file.message_type.add(name=message_name)
        oneofs: list[str] = []
        for number, name, type_name, kind in fields:
            repeated = kind in ("rep", "map")
            field = message.field.add(
                name=name,
                number=number,
                label=_FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL,
            )
            if kind == "map":
                entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
                entry.options.map_entry = True
                key = entry.field.add(name="key", number=1, label=_FIELD.LABEL_OPTIONAL)
                _set_type(key, package, "int64")
                value = entry.field.add(name="value", number=2, label=_FIELD.LABEL_OPTIONAL)
                _set_type(value, package, type_name)
                field.type = _FIELD.TYPE_MESSAGE
                field.type_name = f".{package}.{message_name}.{entry.name}"
                continue
            _set_type(field, package, type_name)
            if kind not in ("one", "rep"):
                if kind not in oneofs:
                    oneofs.append(kind)
                    message.oneof_decl.add(name=kind)
                field.oneof_index = oneofs.index(kind)
    return file


def classes_of(package: str, messages: Messages) -> dict[str, Any]:
    """The class of each message, by its name."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file_descriptor(package, messages))
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in messages
    }


_CLASSES = classes_of("traceview_scripts", _MESSAGES)
XSpace: Any = _CLASSES["XSpace"]
XPlane: Any = _CLASSES["XPlane"]
XLine: Any = _CLASSES["XLine"]
XEvent: Any = _CLASSES["XEvent"]
XStat: Any = _CLASSES["XStat"]
XEventMetadata: Any = _CLASSES["XEventMetadata"]
XStatMetadata: Any = _CLASSES["XStatMetadata"]


def varint(value: int, padding: int = 0) -> bytes:
    """A number modulo 2**64 in base 128, with `padding` bytes more than it needs, ten at most."""
    value %= 1 << 64
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    for _ in range(min(padding, 10 - len(out))):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)
