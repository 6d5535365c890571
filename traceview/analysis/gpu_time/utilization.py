"""Cuts the window of every device into equal slices with what the device did in each: the strips of a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from traceview.analysis.facts.activity import DeviceActivity
from traceview.analysis.facts.selection import Selection
from traceview.analysis.measures.context import Analysis, View
from traceview.analysis.measures.idle_report import numbered_gaps
from traceview.analysis.rules.finding import Skipped
from traceview.document.figures import Lanes, UtilizationStrip, UtilizationStrips
from traceview.document.model import Section, Strips, Timeline
from traceview.trace.model import Trace

SLICES: Final = 240
"""Slices of a strip: divides evenly into the widths of terminals from 20 characters on."""


def compute(
    trace: Trace, selection: Selection, activities: Sequence[DeviceActivity]
) -> UtilizationStrips | Skipped:
    """The strip of every device; `activities` by device index."""
    strips = []
    for index, activity in enumerate(activities):
        window = selection.window_of_device(trace, index)
        if window is None:
            continue
        # In Python integers: the product may exceed 63 bits.
        edges = [window.start_ps + window.length_ps * i // SLICES for i in range(SLICES + 1)]
        bounds = np.array(edges, dtype=np.int64)
        parts = activity.parts(bounds[:-1], bounds[1:])
        strips.append(
            UtilizationStrip(
                trace.device_key(index),
                window.start_ps,
                window.end_ps,
                compute_ps=tuple(parts[0].tolist()),
                collective_ps=tuple(parts[1].tolist()),
                copy_ps=tuple(parts[2:6].sum(axis=0).tolist()),
                idle_ps=tuple(parts[6].tolist()),
            )
        )
    return UtilizationStrips(SLICES, tuple(strips)) if strips else Skipped("no devices")


def timeline_section(view: View, result: UtilizationStrips) -> Section | None:
    """The lanes of all devices where the report holds them, and a strip for each device that did anything."""
    shown = tuple(
        strip.device
        for strip in result.devices
        if _is_busy(strip) and strip.device not in view.others
    )
    timeline = Timeline(
        view.record("lanes", Lanes),
        outliers=view.outliers if view.others else (),
        gaps=tuple((numbered.number, numbered.span) for numbered in numbered_gaps(view)),
        lines={
            numbered.number: numbered.gap.python
            for numbered in numbered_gaps(view)
            if numbered.gap.python
        },
    )
    strips = (Strips(result, shown),) if shown else ()
    return Section("timeline", "Timeline", (timeline, *strips), is_folded=False)


def _is_busy(strip: UtilizationStrip) -> bool:
    return any(map(any, (strip.compute_ps, strip.collective_ps, strip.copy_ps)))


ANALYSIS: Final = Analysis[UtilizationStrips](
    "timeline",
    compute=lambda context: compute(context.trace, context.selection, context.activities),
    join=lambda hosts: UtilizationStrips(SLICES, hosts.rows(lambda result: result.devices)),
    sections=(timeline_section,),
)
