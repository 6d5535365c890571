"""Finds the viewers that are installed, and their names.

XProf is the module `xprof` since 2.20, and was `tensorboard_plugin_profile` before.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

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
