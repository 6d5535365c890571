"""What can a run be written as? Light to import: the commands ask at their start."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from traceview.errors import UsageError

TABLES: Final = (
    "devices",
    "device_events",
    "host_events",
    "copies",
    "ops",
    "gaps",
    "steps",
    "collectives",
    "input_stages",
)
"""The tables of a window. Columns are those of the commands of these names, of events and gaps also those that
`traceview.trace.frames` describes."""


def check_pyarrow(what: str) -> None:
    """Raise `UsageError` if Parquet, which `what` needs, cannot be written."""
    if find_spec("pyarrow") is None:
        raise UsageError(f"{what} needs pyarrow", hint="pip install 'traceview[parquet]'")
