"""Finds XProf and TensorBoard, and serves one to this machine alone until the process that started it has ended.

    python -m traceview.export.viewers xprof|tensorboard LOGDIR PORT

XProf's server and its second server of remote calls accept connections from every network, and no option of theirs
changes that. Standard input is a pipe that nobody writes to: when it closes, the starter has ended.
XProf is the module `xprof` since 2.20, and was `tensorboard_plugin_profile` before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from threading import Thread
from typing import Any, Final

from traceview.base.errors import UsageError

XPROF_MODULES: Final = ("xprof", "tensorboard_plugin_profile")
"""Names of the module of XProf, the newest first."""

_HINT: Final = "pip install 'traceview[xprof]'"


def xprof_module() -> str:
    """The name of XProf's module; raises `UsageError` where it is not installed."""
    for name in XPROF_MODULES:
        if find_spec(name) is not None:
            return name
    raise UsageError("XProf is not installed", hint=_HINT)


def check_tensorboard() -> None:
    """Raise `UsageError` where TensorBoard, or the plugin that shows profiles in it, is not installed."""
    if find_spec("tensorboard") is None:
        raise UsageError(
            "TensorBoard is not installed",
            hint="pip install tensorboard 'traceview[xprof]'; --open xprof needs no TensorBoard",
        )
    try:
        xprof_module()
    except UsageError:
        raise UsageError(
            "TensorBoard is installed, but not its plugin for profiles", hint=_HINT
        ) from None


LOOPBACK: Final = "127.0.0.1"


def serve_xprof(logdir: str, port: str) -> None:
    """Run XProf's server; it returns when it is interrupted."""
    server: Any = import_module(f"{xprof_module()}.server")
    server._get_wildcard_address = lambda _: LOOPBACK
    converter = getattr(server, "_pywrap_profiler_plugin", None)
    if converter is not None and hasattr(converter, "start_grpc_server"):
        # For several machines that convert together; pages come without it.
        converter.start_grpc_server = lambda *_, **__: None
    if hasattr(server, "launch_server"):
        # Before 2.21, whose command line also changed.
        server.launch_server(logdir, int(port))
    else:
        sys.argv = ["xprof", "--logdir", logdir, "--port", port]
        sys.exit(server.main())


def serve_tensorboard(logdir: str, port: str) -> None:
    """Run TensorBoard; it returns when it is interrupted."""
    tensorboard: Any = import_module("tensorboard.main")
    sys.argv = ["tensorboard", "--logdir", logdir, "--port", port, "--host", LOOPBACK]
    tensorboard.run_main()


_SERVERS: Final[dict[str, Callable[[str, str], None]]] = {
    "xprof": serve_xprof,
    "tensorboard": serve_tensorboard,
}


def _end_with_the_starter() -> None:
    os.read(0, 1)
    os._exit(0)


if __name__ == "__main__":
    Thread(target=_end_with_the_starter, daemon=True).start()
    name, *arguments = sys.argv[1:]
    _SERVERS[name](*arguments)
