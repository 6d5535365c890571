"""Joins the samples of NVML with the used steps of their host: how many steps were throttled, and what a step takes of energy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.selection import step_bounds
from traceview.analysis.measures.context import Context
from traceview.base.intervals import Int64Array
from traceview.base.units import PS_PER_NS, PS_PER_S
from traceview.trace.sidecar.nvml import NvmlSamples

LEAST_SPAN_PS: Final = PS_PER_S
"""NVML states power as the mean of up to a second, so shorter recordings say more of what was before them."""

FEWEST_SAMPLES: Final = 5
_LATEST_NS: Final = 1 << 62


class StepSamples(Struct, frozen=True):
    """What the samples of one GPU say of the used steps of its host; None where they do not.

    `sampled_count`: steps with a sample; `throttled_count`: those with one in which something held the clocks back.
    `joules`: energy of a step, mean.
    """

    sampled_count: int
    throttled_count: int
    joules: float | None


def samples_of_steps(
    context: Context,
    host: int,
    samples: NvmlSamples,
    is_throttled: Callable[[int], object],
) -> StepSamples | None:
    """The samples of a GPU of a host; None without used steps, or where the file does not say when it began."""
    start_ns, steps = context.trace.hosts[host].profile_start_ns, context.selection.used_of(host)
    if start_ns is None or start_ns > _LATEST_NS or not steps:
        return None
    begins, ends = step_bounds(steps)
    offset_ps = context.trace.hosts[host].start_ps

    def place_of(t_ns: int) -> int:
        """The number of the step that a time lies in, -1 for none."""
        at = (t_ns - start_ns) * PS_PER_NS + offset_ps
        place = int(np.searchsorted(begins, at, side="right")) - 1
        return place if place >= 0 and at < ends[place] else -1

    reasons = samples.timed(samples.throttle_reasons)
    seen = {place_of(t) for t, _ in reasons} - {-1}
    throttled = {
        place_of(t) for t, bits in reasons if bits is not None and bits >= 0 and is_throttled(bits)
    }
    powers = [
        power
        for t, power in samples.timed(samples.power_watts)
        if power is not None and power >= 0 and place_of(t) >= 0
    ]
    return StepSamples(len(seen), len(throttled - {-1}), _joules(powers, begins, ends))


def _joules(powers: list[float], begins: Int64Array, ends: Int64Array) -> float | None:
    """Mean power in the steps times their mean length; None where they are too short or too few samples lie in them."""
    span_ps = int(ends.max() - begins.min())
    if len(powers) < FEWEST_SAMPLES or span_ps < LEAST_SPAN_PS:
        return None
    mean_s = float((ends - begins).mean()) / PS_PER_S
    return sum(powers) / len(powers) * mean_s
