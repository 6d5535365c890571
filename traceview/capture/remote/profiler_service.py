"""Asks profiler servers for traces, through gRPC.

The service is `tensorflow.ProfilerService` (openxla/xla, `tsl/profiler/protobuf/profiler_service.proto`). It is called
directly and not through `tf.profiler.experimental.client.trace`, which

- needs an import of TensorFlow, where grpcio is enough,
- does not say which worker failed, or why: a busy server and an absent one give the same message,
- writes to standard output, and
- leaves each trace on the server's disk. A server of TensorFlow 2.21 sends its trace if `emit_xspace` is set (measured;
  2.19 and 2.20 do not know the field). An older one ignores the field and writes
  `<repository_root>/<session_id>/<host_name>.xplane.pb` on its own disk.

The messages are small enough to write field by field, without generated classes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from traceview.base.errors import CaptureError, UsageError

METHOD: Final = "/tensorflow.ProfilerService/Profile"
_CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    # Notice within a second that a server has come up; gRPC by itself waits longer after each attempt.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # The job is in the same network; a proxy is for traffic that leaves it.
    ("grpc.enable_http_proxy", 0),
)
_POLL_SECONDS: Final = 0.1
"""How late a person sees what changed."""
_ANSWER_SECONDS: Final = 120.0
"""Time for a server to collect and send its trace: collecting 462 k events took 1 s, and a trace at the tracer's limits
has 100 MB."""
_REASON_SECONDS: Final = 2.0
"""Time to learn from a server that is not connected why it is not."""

_NO_PROFILER_SERVER: Final = "not a profiler server"
_NO_HOST: Final = "no such host"

_VARINT, _CONTENT = 0, 2
_XSPACE: Final = 8
"""Field of ProfileResponse (tsl/profiler/protobuf/profiler_service.proto)."""


_SCHEME: Final = "grpc://"
_ADDRESS: Final = re.compile(r"(?P<host>\[[^\[\]\s]+\]|[^\[\]:/\s]+):(?P<port>\d{1,5})", re.ASCII)
_NO_PORT: Final = re.compile(r"\[[^\[\]\s]+\]|[^\[\]:/\s]+")
_UNFIT_FOR_A_FILE: Final = re.compile(r"[^A-Za-z0-9.\-]")
_EXAMPLE: Final = "for example 10.0.0.2:6009,10.0.0.3:6009"


@dataclass(frozen=True)
class Address:
    """The address of one server. The `host` of an IPv6 address keeps its brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def file_stem(self) -> str:
        """`<host>_<port>`, as TensorFlow's own client names the files of remote captures."""
        return f"{_UNFIT_FOR_A_FILE.sub('_', self.host.strip('[]'))}_{self.port}"


def parse_addresses(texts: Sequence[str]) -> list[Address]:
    """Read the values of --remote, each `host:port` or several joined by commas; raises `UsageError`."""
    parts = [part.strip() for text in texts for part in text.split(",")]
    addresses = [_parse(part) for part in parts if part]
    if not addresses:
        raise UsageError("--remote: no address given", hint=_EXAMPLE)
    stems: dict[str, Address] = {}
    for address in addresses:
        other = stems.setdefault(address.file_stem, address)
        if other is not address:
            raise UsageError(f"--remote: {other} and {address} are the same server")
    return addresses


def _parse(text: str) -> Address:
    match = _ADDRESS.fullmatch(text.removeprefix(_SCHEME))
    if match is None:
        if _NO_PORT.fullmatch(text.removeprefix(_SCHEME)):
            raise UsageError(f"--remote {text}: the port is missing", hint=_EXAMPLE)
        raise UsageError(f"--remote {text}: not a host:port", hint=_EXAMPLE)
    port = int(match["port"])
    if not 0 < port < 1 << 16:
        raise UsageError(f"--remote {text}: the port must be between 1 and 65535")
    return Address(match["host"], port)


@dataclass(frozen=True)
class Answer:
    """What one server answered; without an answer, `failure` says why.

    An answer without a `trace` comes from a server that wrote it on its own disk, or failed to.
    """

    address: Address
    trace: memoryview | None = None
    failure: str | None = None
    is_reached: bool = True


class ProfilerService:
    """Connections to several servers. Only `profile` sends anything."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self.addresses = addresses
        self._grpc = _grpc()
        self._channels: dict[Address, Any] = {}
        self._ready: dict[Address, Any] = {}

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connect in the background until the body ends; an interruption ends the recordings."""
        try:
            for address in self.addresses:
                channel = self._grpc.insecure_channel(str(address), options=_CHANNEL_OPTIONS)
                self._channels[address] = channel
                self._ready[address] = self._grpc.channel_ready_future(channel)
            yield
        finally:
            # A server stops recording when its connection is closed.
            for channel in self._channels.values():
                channel.close()

    def wait(self, seconds: float, progress: Callable[[str], None]) -> None:
        """Wait until all servers are connected, or `seconds` have passed."""
        end = time.monotonic() + seconds
        while True:
            absent = [a for a in self.addresses if not self._ready[a].done()]
            left_s = end - time.monotonic()
            if not absent or left_s <= 0:
                return
            progress(f"waiting for {', '.join(map(str, absent))}, {left_s:.0f} s left…")
            time.sleep(min(_POLL_SECONDS, left_s))

    def profile(
        self, duration_ms: int, root: Path, session: str, progress: Callable[[str], None]
    ) -> list[Answer]:
        """Have all servers record at the same time; their answers, in order.

        `root` and `session`: where a server that cannot send writes its trace.
        """
        calls = {}
        for address in self.addresses:
            seconds = _REASON_SECONDS
            if self._ready[address].done():
                seconds = duration_ms / 1000 + _ANSWER_SECONDS
            content = request(duration_ms, str(root), session, address.file_stem)
            ask = self._channels[address].unary_unary(METHOD)
            calls[address] = ask.future(content, timeout=seconds)
        while not all(call.done() for call in calls.values()):
            progress(f"recording {duration_ms / 1000:g} s…")
            time.sleep(_POLL_SECONDS)
        return [self._answer(address, call) for address, call in calls.items()]

    def _answer(self, address: Address, call: Any) -> Answer:
        try:
            trace = trace_of(call.result())
        except self._grpc.RpcError as error:
            return Answer(address, failure=_reason(error), is_reached=self._ready[address].done())
        except ValueError:
            return Answer(address, failure=_NO_PROFILER_SERVER)
        return Answer(address, trace=trace)


def request(duration_ms: int, root: str, session: str, host_name: str) -> bytes:
    """A `ProfileRequest` with TensorFlow's default options (profiler_options.proto, version 1)."""
    options = b"".join(
        (
            _number(5, 1),  # version
            _number(2, 2),  # host_tracer_level
            _number(3, 1),  # device_tracer_level
            _number(1, 1),  # include_dataset_ops
            _number(7, 1),  # enable_hlo_proto
            _number(9, duration_ms),
            _text(10, root),  # repository_path
        )
    )
    return b"".join(
        (
            _number(1, duration_ms),
            _number(2, 1_000_000),  # max_events, as TensorFlow's client sets it; ignored by servers
            _text(4, options),
            _text(5, root),
            _text(6, session),
            _text(7, host_name),
            _number(9, 1),  # emit_xspace
        )
    )


def trace_of(response: bytes) -> memoryview | None:
    """The XSpace in a `ProfileResponse`, None where it has none; raises `ValueError` for anything else."""
    from traceview.xplane.decode_reference import scan_fields

    fields = scan_fields(response, 0, len(response))
    if fields.fault is not None:
        raise ValueError(f"byte {fields.fault.offset}: {fields.fault.reason}")
    for number, kind, begin, end in zip(
        fields.number, fields.wire_type, fields.begin, fields.end, strict=True
    ):
        if number == _XSPACE and kind == _CONTENT:
            return memoryview(response)[int(begin) : int(end)]
    return None


def _grpc() -> Any:
    try:
        import grpc
    except ImportError as error:
        raise CaptureError(
            "--remote needs grpcio, which is not installed",
            hint="pip install 'traceview[remote]', or run this where TensorFlow is installed",
        ) from error
    return grpc


def _reason(error: Any) -> str:
    code, details = error.code().name, str(error.details() or "").strip()
    if "Another profiling session active" in details:
        return "another profile is running there, and only one can run at a time"
    if code == "UNIMPLEMENTED":
        return _NO_PROFILER_SERVER
    if code == "DEADLINE_EXCEEDED":
        return "no answer"
    for sign, reason in _MEANINGS.items():
        if sign in details:
            return reason
    if code == "INTERNAL" and details:
        # A message of the profiler itself.
        return details
    return f"{code}: {details}" if details else code


_MEANINGS: Final = {
    "Connection refused": "connection refused: nothing listens on this port",
    "Domain name not found": _NO_HOST,
    "DNS resolution failed": _NO_HOST,
    "Network is unreachable": "network unreachable",
    "No route to host": "no route to host",
    "Timeout occurred": "the host does not answer",
    "Failed parsing HTTP/2": _NO_PROFILER_SERVER,
    "Socket closed": "connection lost: the job ended before the recording did",
}
"""Parts of gRPC's messages for UNAVAILABLE, and what they mean."""


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _text(field: int, value: str | bytes) -> bytes:
    content = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    return _varint(field << 3 | _CONTENT) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
