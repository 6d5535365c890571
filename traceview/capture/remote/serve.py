"""Starts TensorFlow's profiler server in a captured script, without editing it.

The server starts as soon as the script has imported TensorFlow, and configures nothing: the script can still set up
devices, threads and memory (TensorFlow 2.21). It lives as long as the process and listens on all interfaces. One profile
can run at a time: the server refuses requests while the window is recorded, and a window that should open during a
request is not recorded; a message says so.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from types import ModuleType
from typing import Final

from traceview.base.errors import CaptureError
from traceview.capture.process.imports import ImportWatch
from traceview.capture.sidecar.file import Sidecar, WindowListener

_TENSORFLOW: Final = "tensorflow"


class ProfilerServer(WindowListener):
    """A server on `port`, from the script's import of TensorFlow on. `say` gets a line when it is up, or why not."""

    def __init__(self, port: int, say: Callable[[str], None]) -> None:
        self.port = port
        self._say = say
        self._is_started = False
        self._watch = ImportWatch(self._modules, self._start)

    def check(self) -> None:
        """Raise `CaptureError` if the port is in use, or not allowed."""
        _check_free(self.port)

    def install(self) -> None:
        """Start the server when TensorFlow is imported."""
        self._watch.install()

    def remove(self) -> None:
        """Stop waiting for TensorFlow; a server that has started stays until the process ends."""
        self._watch.remove()

    def opening(self, sidecar: Sidecar) -> None:
        """Note whether the job takes requests for more profiles."""
        sidecar.add("server", {"port": self.port, "is_started": self._is_started})

    def _modules(self) -> tuple[str, ...]:
        return () if self._is_started else (_TENSORFLOW,)

    def _start(self, tensorflow: ModuleType) -> None:
        try:
            tensorflow.profiler.experimental.server.start(self.port)
        except Exception as error:
            # The script goes on without it.
            self._say(f"note: the profiler server did not start: {error}")
            return
        self._is_started = True
        self._say(
            f"profiler server on port {self.port}; to record: traceview capture --remote "
            f"{socket.gethostname()}:{self.port} --duration 2s"
        )


def _check_free(port: int) -> None:
    # gRPC would share the port of another server (SO_REUSEPORT), and each request would go to either of them.
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise CaptureError(
                    f"--serve {port}: the port is in use",
                    hint="each process on a host needs its own port",
                ) from error
            raise CaptureError(f"--serve {port}: {error.strerror or error}") from error
