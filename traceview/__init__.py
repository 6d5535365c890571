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

    from traceview.analysis.rules.finding import Finding
    from traceview.api import Comparison, Report, Trace, analyze, compare, load, load_report
    from traceview.base.errors import (
        CaptureError,
        ComparisonError,
        OutputExistsError,
        TraceFormatError,
        TraceNotFoundError,
        TraceviewError,
        UsageError,
    )
    from traceview.capture.api import CaptureWarning, capture_steps, keras_callback

__version__ = VERSION

__all__ = [
    "CaptureError",
    "CaptureWarning",
    "Comparison",
    "ComparisonError",
    "Finding",
    "OutputExistsError",
    "Report",
    "Trace",
    "TraceFormatError",
    "TraceNotFoundError",
    "TraceviewError",
    "UsageError",
    "__version__",
    "analyze",
    "capture_steps",
    "compare",
    "keras_callback",
    "load",
    "load_report",
]

_LAZY = {
    "CaptureError": "traceview.base.errors",
    "CaptureWarning": "traceview.capture.api",
    "Comparison": "traceview.api",
    "ComparisonError": "traceview.base.errors",
    "Finding": "traceview.analysis.rules.finding",
    "OutputExistsError": "traceview.base.errors",
    "Report": "traceview.api",
    "Trace": "traceview.api",
    "TraceFormatError": "traceview.base.errors",
    "TraceNotFoundError": "traceview.base.errors",
    "TraceviewError": "traceview.base.errors",
    "UsageError": "traceview.base.errors",
    "analyze": "traceview.api",
    "capture_steps": "traceview.capture.api",
    "compare": "traceview.api",
    "keras_callback": "traceview.capture.api",
    "load": "traceview.api",
    "load_report": "traceview.api",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext traceview`: the cell magic `%%traceview` captures the training in a cell."""
    _notebook_magic().register(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext traceview`."""
    _notebook_magic().unregister(shell)


def _notebook_magic() -> Any:
    from importlib import import_module

    return import_module("traceview.cli.notebook_magic")


def __dir__() -> list[str]:
    return sorted(__all__)
