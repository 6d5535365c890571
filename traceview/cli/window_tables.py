"""Which tables stand behind a report? Those of its window, as Parquet, for whoever wants to compute on."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Final

from traceview.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from traceview.analyses.selection import Selection
    from traceview.trace.model import Trace

NAMES: Final = (
    "device_events",
    "copies",
    "ops",
    "gaps",
    "steps",
    "collectives",
    "input_stages",
)
"""Tables with a file each; columns as `traceview.trace.frames` and the commands of these names give them."""


def file_name(table: str) -> str:
    """Where a table lies in the folder of a report."""
    return f"data/{table}.parquet"


def check_parquet() -> None:
    """Raise `UsageError` if Parquet cannot be written."""
    if find_spec("pyarrow") is None:
        raise UsageError("--with-data needs pyarrow", hint="pip install 'traceview[parquet]'")


def window_tables(trace: Trace, selection: Selection) -> dict[str, bytes]:
    """Every table of `NAMES` as the content of a Parquet file, by the name of that file."""
    frames: dict[str, Callable[[Trace, Selection], pd.DataFrame]] = {
        "device_events": _device_events,
        "copies": _copies,
        "ops": _ops,
        "gaps": _gaps,
        "steps": _steps,
        "collectives": _collectives,
        "input_stages": _input_stages,
    }
    found = {}
    for name in NAMES:
        buffer = BytesIO()
        frames[name](trace, selection).to_parquet(buffer, engine="pyarrow", index=False)
        found[file_name(name)] = buffer.getvalue()
    return found


def _device_events(trace: Trace, selection: Selection) -> pd.DataFrame:
    from traceview.trace.frames import device_events_frame

    # Gaps name the events before and after them by these numbers.
    return _inside(device_events_frame(trace).reset_index(names="row"), trace, selection)


def _copies(trace: Trace, selection: Selection) -> pd.DataFrame:
    from traceview.trace.frames import copies_frame

    return _inside(copies_frame(trace), trace, selection)


def _inside(frame: pd.DataFrame, trace: Trace, selection: Selection) -> pd.DataFrame:
    """The rows that overlap the window of their device's host."""
    windows = {
        trace.device_key(device): selection.window_of_device(trace, device)
        for device in range(len(trace.roster))
    }
    start, end = frame["start_ps"], frame["start_ps"] + frame["duration_ps"]
    inside = start < start
    for device, window in windows.items():
        if window is not None:
            overlaps = (start < window.end_ps) & (end >= window.start_ps)
            inside |= (frame["device"] == device) & overlaps
    return frame[inside]


def _ops(trace: Trace, selection: Selection) -> pd.DataFrame:
    from traceview.analyses.ops import table_in_window
    from traceview.trace.frames import ops_frame

    return ops_frame(trace, table_in_window(trace, selection))


def _gaps(trace: Trace, selection: Selection) -> pd.DataFrame:
    from traceview.trace.frames import gaps_frame

    return gaps_frame(trace, selection.windows)


def _steps(trace: Trace, selection: Selection) -> pd.DataFrame:
    from traceview.analyses import idle
    from traceview.analyses import steps as step_times
    from traceview.analyses.activity import activities
    from traceview.analyses.finding import Skipped
    from traceview.analyses.step_table import StepLine, in_whole_steps, step_table
    from traceview.trace.frames import rows_frame

    found = step_times.compute(trace, selection, tuple(activities(trace)))
    whole = in_whole_steps(selection)
    waits = idle.compute(trace, whole, idle.idle_time(trace, whole), 0)
    keys = {trace.device_key(device) for device in range(len(trace.roster))}
    known = None if isinstance(waits, Skipped) else waits
    rows = [] if isinstance(found, Skipped) else step_table(found, known, keys)
    return rows_frame(rows, StepLine)


def _collectives(trace: Trace, selection: Selection) -> pd.DataFrame:
    from traceview.analyses.collective_table import CollectiveRow, collective_table
    from traceview.trace.collectives import collectives_of
    from traceview.trace.frames import rows_frame

    keys = {trace.device_key(device) for device in range(len(trace.roster))}
    rows, _ = collective_table(trace, selection, collectives_of(trace), keys, None)
    return rows_frame(rows, CollectiveRow)


def _input_stages(trace: Trace, selection: Selection) -> pd.DataFrame:
    from traceview.analyses import input as pipeline
    from traceview.analyses.finding import Skipped
    from traceview.analyses.idle import idle_time
    from traceview.trace.cause import Cause
    from traceview.trace.frames import rows_frame
    from traceview.trace.pipeline import InputStage

    causes = idle_time(trace, selection).causes_of_steps
    idle = {device: of_steps[Cause.INPUT] for device, of_steps in causes.items()}
    found = pipeline.compute(trace, selection, idle, None)
    return rows_frame(() if isinstance(found, Skipped) else found.stages, InputStage)
