"""What is asked of a profiler server, and what does it answer?

The service is gRPC, `tensorflow.ProfilerService` (openxla/xla, `tsl/profiler/protobuf/profiler_service.proto`).
It is asked directly and not through `tf.profiler.experimental.client.trace`, because that

- costs an import of TensorFlow, where grpcio, which TensorFlow brings along, suffices,
- does not say which worker failed, or why: a server that is busy and one that is not there read the same,
- writes to standard output, and
- leaves each trace on the server's disk. A server of TensorFlow 2.21 sends it where `emit_xspace` is set
  (measured; 2.19 and 2.20 do not know the field), and no path has to be shared. An older one ignores the
  field and writes `<repository_root>/<session_id>/<host_name>.xplane.pb` on its own disk.

The messages are small enough to be written field by field, which needs no generated class.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from traceview.capture.address import Address
from traceview.errors import CaptureError

METHOD: Final = "/tensorflow.ProfilerService/Profile"
_CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    # A server that comes up should be seen within a second of it; gRPC alone would wait longer and longer.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # TensorFlow jobs are inside a network whose proxy is for the way out of it.
    ("grpc.enable_http_proxy", 0),
)
_POLL_SECONDS: Final = 0.1
_ANSWER_SECONDS: Final = 120.0
"""How long after the recording a server may take to collect and send a trace: collecting 462 k events took 1 s, and
a trace at the tracer's limits has 100 MB."""
_REASON_SECONDS: Final = 2.0
"""How long to ask a server that was not reached once more, for the reason."""

_NO_PROFILER_SERVER: Final = "what listens there is no profiler server"

_VARINT, _CONTENT = 0, 2
_XSPACE: Final = 8


@dataclass(frozen=True)
class Answer:
    """What one server answered, `trace` or not. `failure` says why there was no answer, None if there was one.

    An answer without a trace comes from a server that wrote it on its own disk, or could not.
    """

    address: Address
    trace: memoryview | None = None
    failure: str | None = None
    is_reached: bool = True


class ProfilerService:
    """Connections to several servers. Nothing is sent before `profile`."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self.addresses = addresses
        self._grpc = _grpc()
        self._channels: dict[Address, Any] = {}
        self._ready: dict[Address, Any] = {}

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connect in the background for as long as this lasts; an interruption ends what servers record."""
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
            waited = [a for a in self.addresses if not self._ready[a].done()]
            left = end - time.monotonic()
            if not waited or left <= 0:
                return
            progress(f"waiting for {', '.join(map(str, waited))}, {left:.0f} s left…")
            time.sleep(min(_POLL_SECONDS, left))

    def profile(
        self, duration_ms: int, root: Path, session: str, progress: Callable[[str], None]
    ) -> list[Answer]:
        """Have all servers record at the same time; their answers, in order.

        `root` and `session`: where a server writes that cannot send.
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
            return Answer(address, failure="it answers as no profiler server does")
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
            _number(2, 1_000_000),  # max_events, as TensorFlow's client has it; not looked at
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
            "--remote needs grpcio, which is not installed here",
            hint="pip install 'traceview[remote]'; where TensorFlow is installed it is there already",
        ) from error
    return grpc


def _reason(error: Any) -> str:
    code, details = error.code().name, str(error.details() or "").strip()
    if "Another profiling session active" in details:
        return "another profile is running there; one at a time is possible"
    if code == "UNIMPLEMENTED":
        return _NO_PROFILER_SERVER
    if code == "DEADLINE_EXCEEDED":
        return "it does not answer"
    for sign, reason in _MEANINGS.items():
        if sign in details:
            return reason
    if code == "INTERNAL" and details:
        # The profiler's own words.
        return details
    return f"{code}: {details}" if details else code


_MEANINGS: Final = {
    "Connection refused": "connection refused: nothing listens there",
    "Domain name not found": "there is no host of this name",
    "DNS resolution failed": "there is no host of this name",
    "Network is unreachable": "the network is unreachable",
    "No route to host": "there is no route to the host",
    "Timeout occurred": "the host does not answer",
    "Failed parsing HTTP/2": _NO_PROFILER_SERVER,
    "Socket closed": "the connection broke: the job ended before the recording did",
}
"""What gRPC's texts for UNAVAILABLE hold, and what that means."""


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
