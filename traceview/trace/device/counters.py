"""Reads what the hardware of devices was sampled for, by name, whatever wrote it: the trace itself, or NVML beside it.

CUDA's profiler keeps samples on the line `_counters_` of a GPU's plane: power, temperature and clocks of CUPTI, and the metrics
that were asked for with `gpu_pm_sample_counters` (JAX), each as an event of no length with the value as its stat (openxla/xla:
`cupti_buffer_events.cc`, `cupti_collector.cc`, `cupti_pm_sampler_utils.cc`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from traceview.base.ids import is_in
from traceview.base.units import PS_PER_NS
from traceview.trace.model import Samples
from traceview.trace.sidecar.sidecar import NvmlSamples
from traceview.xplane.planes import COUNTERS, COUNTERS_LINE
from traceview.xplane.table import PlaneTable

LATEST_NS: Final = 1 << 62
"""No later time is compared with others: differences have to fit into 64 bits."""

LARGEST_VALUE: Final = 1e15
"""No sample is larger; clocks in hertz are below 10¹⁰."""


def counters_of(table: PlaneTable) -> dict[str, Samples]:
    """The samples on a plane, by name (`COUNTERS`)."""
    lines = [place for place, line in enumerate(table.lines) if line.name == COUNTERS_LINE]
    if not lines:
        return {}
    event, value = table.doubles("counter")
    on_line = is_in(table.line[event], lines) & np.isfinite(value) & (value >= 0)
    event, value = event[on_line], value[on_line]
    found = {}
    for key, units in COUNTERS.items():
        unit_of_name = np.array([units.get(name, 0) for name in table.names], dtype=np.float64)
        unit = unit_of_name[table.name[event]]
        is_counter = (unit > 0) & (value * unit <= LARGEST_VALUE)
        if is_counter.any():
            time_ps = table.start_ps[event[is_counter]]
            order = np.argsort(time_ps, kind="stable")
            found[key] = Samples(time_ps[order], (value * unit)[is_counter][order])
    return found


def counters_of_nvml(samples: NvmlSamples, start_ns: int | None) -> dict[str, Samples]:
    """The samples of NVML that are joined with steps; none where it is not known when the profile began."""
    if start_ns is None:
        return {}
    columns = {
        "power_watts": samples.power_watts,
        "sm_clock_hz": samples.sm_clock_hz,
        "throttle_reasons": samples.throttle_reasons,
    }
    found = {}
    for key, column in columns.items():
        known = sorted(
            (t, float(value))
            for t, value in samples.timed(column)
            if value is not None and 0 <= value <= LARGEST_VALUE and t >= 0
        )
        if known:
            # Of a day and more apart they are in no step.
            since_ns = np.array([t - start_ns for t, _ in known], dtype=np.float64)
            is_near = np.abs(since_ns) <= LATEST_NS / PS_PER_NS
            found[key] = Samples(
                np.array([t - start_ns for t, _ in known], dtype=np.int64)[is_near] * PS_PER_NS,
                np.array([value for _, value in known], dtype=np.float64)[is_near],
            )
    return found


def summed(counters: Mapping[str, Samples], *keys: str) -> Samples | None:
    """The sums of some counters at the times that all of them have; None where one is missing."""
    first, *others = (counters.get(key) for key in keys)
    if first is None or None in others:
        return None
    time_ps, value = first.time_ps, first.value
    for other in others:
        if other is not None:
            time_ps, own, place = np.intersect1d(time_ps, other.time_ps, return_indices=True)
            value = value[own] + other.value[place]
    return Samples(time_ps, value)
