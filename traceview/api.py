"""The public objects: a `Trace` with its tables as pandas DataFrames, and `load`, which reads one."""

from __future__ import annotations

import warnings
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from traceview.trace import load as loading
from traceview.trace import model
from traceview.trace.model import Device

if TYPE_CHECKING:
    import pandas as pd


class Trace(model.Trace):
    """One run: everything its hosts recorded, on one clock; its tables are made when they are first asked for."""

    @property
    def roster(self) -> tuple[Device, ...]:
        """The former name of `device_list`."""
        warnings.warn(
            "Trace.roster is now called Trace.device_list", DeprecationWarning, stacklevel=2
        )
        return self.device_list

    @cached_property
    def devices(self) -> pd.DataFrame:
        """One row per device; see `traceview.trace.frames.devices_frame`."""
        from traceview.trace import frames

        return frames.devices_frame(self)

    @cached_property
    def device_events(self) -> pd.DataFrame:
        """One row per device event; see `traceview.trace.frames.device_events_frame`."""
        from traceview.trace import frames

        return frames.device_events_frame(self)

    @cached_property
    def copies(self) -> pd.DataFrame:
        """One row per copy; see `traceview.trace.frames.copies_frame`."""
        from traceview.trace import frames

        return frames.copies_frame(self)

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """One row per collective and device; see `traceview.trace.frames.collectives_frame`."""
        from traceview.trace import frames

        return frames.collectives_frame(self)

    @cached_property
    def host_events(self) -> pd.DataFrame:
        """One row per host event; see `traceview.trace.frames.host_events_frame`."""
        from traceview.trace import frames

        return frames.host_events_frame(self)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per step; see `traceview.trace.frames.steps_frame`."""
        from traceview.trace import frames

        return frames.steps_frame(self)

    @cached_property
    def gaps(self) -> pd.DataFrame:
        """One row per gap of every device; see `traceview.trace.frames.gaps_frame`."""
        from traceview.trace import frames

        return frames.gaps_frame(self)

    @cached_property
    def ops(self) -> pd.DataFrame:
        """One row per device, op and kernel; see `traceview.trace.frames.ops_frame`."""
        from traceview.trace import frames

        return frames.ops_frame(self)

    @cached_property
    def active_devices(self) -> pd.DataFrame:
        """One row per step; see `traceview.trace.frames.active_devices_frame`."""
        from traceview.trace import frames

        return frames.active_devices_frame(self)

    @cached_property
    def input_stages(self) -> pd.DataFrame:
        """One row per stage of the input pipelines; see `traceview.trace.frames.input_stages_frame`."""
        from traceview.trace import frames

        return frames.input_stages_frame(self)


def load(path: str | Path, *, run: str | None = None, salvage: bool = False) -> Trace:
    """Read a run.

    `path`: a log directory, a directory in it, one run's directory or a single `*.xplane.pb`. `run`
    chooses among several; without it the newest is read. `salvage` accepts damaged files and keeps what is
    readable; a damaged file beside good ones is salvaged in any case. Damage stands in `Trace.problems`.

    Raises `TraceNotFoundError` (nothing there), `TraceFormatError` (nothing readable).
    """
    return Trace(**vars(loading.load(path, run=run, salvage=salvage)))
