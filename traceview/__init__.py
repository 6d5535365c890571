"""Which GPUs of a TensorFlow training run are really used, and why are the others waiting?

`load` reads a recorded profile into a `Trace` of DataFrames, `analyze` makes a `Report` of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceview.errors import (
    CaptureError,
    OutputExistsError,
    TraceFormatError,
    TraceNotFoundError,
    TraceviewError,
    UsageError,
)
from traceview.version import VERSION

if TYPE_CHECKING:
    from traceview.analyses.finding import Finding
    from traceview.capture.callback import keras_callback
    from traceview.capture.session import CaptureWarning, capture_steps
    from traceview.report.build import analyze
    from traceview.report.model import Report
    from traceview.trace.load import load
    from traceview.trace.model import Trace

__version__ = VERSION

__all__ = [
    "CaptureError",
    "CaptureWarning",
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
    "keras_callback",
    "load",
]

_LAZY = {
    "CaptureWarning": "traceview.capture.session",
    "Finding": "traceview.analyses.finding",
    "Report": "traceview.report.model",
    "Trace": "traceview.trace.model",
    "analyze": "traceview.report.build",
    "capture_steps": "traceview.capture.session",
    "keras_callback": "traceview.capture.callback",
    "load": "traceview.trace.load",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
