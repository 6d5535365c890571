"""Traces of tests, written and loaded."""

from __future__ import annotations

from pathlib import Path

import traceview
from scripts.cuda_trace import CudaTrace


def loaded(folder: Path, *traces: CudaTrace) -> traceview.Trace:
    """A run with a file for each of these traces."""
    for trace in traces:
        trace.write(folder)
    return traceview.load(folder)


def lengths_by_name(recording: traceview.Trace) -> dict[str, list[int]]:
    """Picoseconds of the events of devices by their name, in the order of the trace."""
    columns, found = recording.device_columns, dict[str, list[int]]()
    for name, ps in zip(columns.name.tolist(), columns.duration_ps.tolist(), strict=True):
        found.setdefault(recording.names.text(name) or "", []).append(ps)
    return found
