"""Which GPUs of a TensorFlow training run are really used, and why are the others waiting?

`load` reads a recorded profile into a `Trace` of DataFrames, `analyze` makes a `Report` of it, and `load_report`
reads one that was saved.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from traceview.errors import (
    CaptureError,
    OutputExistsError,
    TraceFormatError,
    TraceNotFoundError,
    TraceviewError,
    UsageError,
)
from traceview.forms import let_draw
from traceview.version import VERSION

if TYPE_CHECKING:
    from traceview.analyses.finding import Finding
    from traceview.capture.api import CaptureWarning, capture_steps, keras_callback
    from traceview.report.build import analyze
    from traceview.report.model import Report
    from traceview.report.saved import load_report
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
    "load_report",
]

_LAZY = {
    "CaptureWarning": "traceview.capture.api",
    "Finding": "traceview.analyses.finding",
    "Report": "traceview.report.model",
    "Trace": "traceview.trace.model",
    "analyze": "traceview.report.build",
    "capture_steps": "traceview.capture.api",
    "keras_callback": "traceview.capture.api",
    "load": "traceview.trace.load",
    "load_report": "traceview.report.saved",
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


def _draw_for_notebook(report: Report) -> str:
    from traceview.render.html.notebook import render

    return render(report)


def _draw_document(form: str, report: Report) -> str:
    from traceview.render.formats import DOCUMENTS

    content = next(one for one in DOCUMENTS if one.name == form).render(report)
    return content if isinstance(content, str) else content.decode()


let_draw("notebook", _draw_for_notebook)
for _form in ("json", "markdown", "html"):
    let_draw(_form, partial(_draw_document, _form))
