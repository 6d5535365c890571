"""Shows which GPUs a training job uses, and what the idle ones wait for.

`load` reads a recorded profile into a `Trace` of DataFrames, `analyze` makes a `Report` of it, `load_report` reads one
that was saved, and `compare` says what differs between two sides.
"""

from __future__ import annotations

from traceview.base.version import VERSION

TYPE_CHECKING = (
    False  # Importing typing takes a while, in which Ctrl-C would end a command with a traceback.
)
if TYPE_CHECKING:
    from typing import Any

    from traceview.analysis.rules.finding import Finding as Finding
    from traceview.api import Comparison as Comparison
    from traceview.api import Report as Report
    from traceview.api import Trace as Trace
    from traceview.api import analyze as analyze
    from traceview.api import compare as compare
    from traceview.api import load as load
    from traceview.api import load_report as load_report
    from traceview.base.errors import CaptureError as CaptureError
    from traceview.base.errors import ComparisonError as ComparisonError
    from traceview.base.errors import OutputExistsError as OutputExistsError
    from traceview.base.errors import TraceFormatError as TraceFormatError
    from traceview.base.errors import TraceNotFoundError as TraceNotFoundError
    from traceview.base.errors import TraceviewError as TraceviewError
    from traceview.base.errors import UsageError as UsageError
    from traceview.capture.api import CaptureWarning as CaptureWarning
    from traceview.capture.api import capture_steps as capture_steps
    from traceview.capture.api import keras_callback as keras_callback

__version__ = VERSION

_NAMES = {
    "analysis.rules.finding": "Finding",
    "api": "Comparison Report Trace analyze compare load load_report",
    "base.errors": "CaptureError ComparisonError OutputExistsError TraceFormatError TraceNotFoundError "
    "TraceviewError UsageError",
    "capture.api": "CaptureWarning capture_steps keras_callback",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__"]
__all__ += _MODULES


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"traceview.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext traceview`: the cell magic `%%traceview` captures the training in a cell."""
    from importlib import import_module

    import_module("traceview.cli.notebook_magic").register(shell)


def __dir__() -> list[str]:
    return sorted(__all__)
