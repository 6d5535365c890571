"""Starts TensorFlow's profiler server in a captured script, without editing it.

The server starts when TensorFlow first runs something. It lives as long as the process and listens on all interfaces. One profile
can run at a time: the server refuses requests while the window is recorded, and a window that should open during a
request is not recorded; a message says so.
"""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Callable

from traceview.base.errors import CaptureError
from traceview.capture.sidecar.file import Sidecar, WindowListener


class ProfilerServer(WindowListener):
    """A server on `port`. `say` gets a line when it is up, or why not."""

    def __init__(self, port: int, say: Callable[[str], None]) -> None:
        self.port = port
        self._say = say
        self._is_started = False

    def start(self) -> None:
        """TensorFlow runs something for the first time."""
        try:
            check_free(self.port)
            sys.modules["tensorflow"].profiler.experimental.server.start(self.port)
        except CaptureError as error:
            self._say(f"note: the profiler server did not start: {error.message}")
            return
        except Exception as error:
            # The script goes on without it.
            self._say(f"note: the profiler server did not start: {error}")
            return
        self._is_started = True
        self._say(
            f"profiler server on port {self.port}; to record: traceview capture --remote "
            f"{socket.gethostname()}:{self.port} --duration 2s"
        )

    def opening(self, sidecar: Sidecar) -> None:
        """Note whether the job takes requests for more profiles."""
        sidecar.add("server", {"port": self.port, "is_started": self._is_started})


def check_free(port: int) -> None:
    """Raise `CaptureError` if the port is in use, or not allowed."""
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
