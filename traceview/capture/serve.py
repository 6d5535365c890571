"""How does a script that is captured offer TensorFlow's profiler server, without being edited?

The server starts as soon as the script has imported TensorFlow, which it does not configure: devices, threads
and memory may be set up afterwards as without it (TensorFlow 2.21). It lives as long as the process and
listens on all interfaces. One profile can run at a time: a request that comes while the window is recorded is
refused by the server at once, and a window that should open during a request is not recorded, which is said.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

from traceview.capture.imports import ImportWatch
from traceview.capture.sidecar import Sidecar
from traceview.errors import CaptureError

_TENSORFLOW: Final = "tensorflow"


class ProfilerServer:
    """A server on `port`, from the script's import of TensorFlow on. `say` hears when it is up, or why not."""

    def __init__(self, port: int, say: Callable[[str], None]) -> None:
        self.port = port
        self._say = say
        self._is_started = False
        self._watch = ImportWatch(self._awaited, self._start)

    def check(self) -> None:
        """Raise `CaptureError` if the port is taken, or may not be used."""
        _check_free(self.port)

    def install(self) -> None:
        """Wait for TensorFlow to be imported."""
        self._watch.install()

    def remove(self) -> None:
        """Wait no more; a server that has started stays until the process ends."""
        self._watch.remove()

    # What a capture tells those who listen

    def opening(self, sidecar: Sidecar) -> None:
        """Whether the job could be asked for more profiles."""
        sidecar.add("server", {"port": self.port, "is_started": self._is_started})

    def opened(self, sidecar: Sidecar) -> None:
        """Nothing."""

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Nothing."""

    def _awaited(self) -> tuple[str, ...]:
        return () if self._is_started else (_TENSORFLOW,)

    def _start(self, tensorflow: ModuleType) -> None:
        try:
            tensorflow.profiler.experimental.server.start(self.port)
        except Exception as error:
            # The script is not disturbed.
            self._say(f"note: no profiler server: {error}")
            return
        self._is_started = True
        self._say(
            f"profiler server on port {self.port}: traceview capture --remote "
            f"{socket.gethostname()}:{self.port} --duration 2s"
        )


def _check_free(port: int) -> None:
    # gRPC shares a port that another server has (SO_REUSEPORT), and each request then goes to either.
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
                    hint="processes on one host need one each",
                ) from error
            raise CaptureError(f"--serve {port}: {error.strerror or error}") from error
