"""A profiler server without TensorFlow: the gRPC service, and whatever a test wants it to answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from traceview.capture.remote.profiler_service import Address

Handler = Callable[[Any, Any], bytes]
"""Gets a `ProfileRequest` and gRPC's context."""

_FIELDS = {
    "duration_ms": (1, "TYPE_UINT64"),
    "repository_root": (5, "TYPE_STRING"),
    "session_id": (6, "TYPE_STRING"),
    "host_name": (7, "TYPE_STRING"),
    "emit_xspace": (9, "TYPE_BOOL"),
}
_RESPONSE_FIELDS = {"empty_trace": (7, "TYPE_BOOL"), "xspace": (8, "TYPE_BYTES")}


def _messages() -> tuple[Any, Any]:
    """`ProfileRequest` and `ProfileResponse`, as far as they matter, by the protobuf runtime."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="service.proto", package="t", syntax="proto3")
    for name, fields in {"Request": _FIELDS, "Response": _RESPONSE_FIELDS}.items():
        message = file.message_type.add(name=name)
        for key, (number, kind) in fields.items():
            message.field.add(
                name=key, number=number, type=field.Type.Value(kind), label=field.LABEL_OPTIONAL
            )
    # Typed in some versions of protobuf only.
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    request, response = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{name}"))
        for name in ("Request", "Response")
    )
    return request, response


ProfileRequest, ProfileResponse = _messages()


@contextmanager
def serving(handler: Handler, port: int = 0, service: str = "ProfilerService") -> Iterator[Address]:
    """A server that answers with `handler`, on a free port or on `port`."""
    with running([handler], port, service) as (address,):
        yield address


@contextmanager
def running(
    handlers: Sequence[Handler], port: int = 0, service: str = "ProfilerService"
) -> Iterator[list[Address]]:
    """Several servers at once."""
    servers = []
    addresses = []
    for handler in handlers:
        server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
        method = grpc.unary_unary_rpc_method_handler(
            handler, request_deserializer=ProfileRequest.FromString
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(f"tensorflow.{service}", {"Profile": method}),)
        )
        addresses.append(Address("127.0.0.1", server.add_insecure_port(f"127.0.0.1:{port}")))
        server.start()
        servers.append(server)
    try:
        yield addresses
    finally:
        for server in servers:
            server.stop(None).wait()


def busy(_: Any, context: Any) -> bytes:
    """Another profile runs, as a server of TensorFlow 2.21 says it."""
    context.abort(grpc.StatusCode.INTERNAL, "Another profiling session active.")
    raise AssertionError


def sending(trace: bytes) -> Handler:
    """A server of TensorFlow 2.21, which sends what it recorded."""

    def answer(request: Any, _: Any) -> bytes:
        return bytes(
            ProfileResponse(xspace=trace if request.emit_xspace else b"").SerializeToString()
        )

    return answer
