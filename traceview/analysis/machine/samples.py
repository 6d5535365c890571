"""Joins the samples of a device, whatever wrote them, with the used steps of its host and with the states of its ledger.

It says how many steps were throttled, what a step takes of energy, and how busy units and memory are while the device computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict

from traceview.analysis.facts.selection import step_bounds
from traceview.analysis.measures.context import Context
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.units import PS_PER_S
from traceview.ledger.states import State
from traceview.trace.device.counters import summed
from traceview.trace.model import Samples

LEAST_SPAN_PS: Final = PS_PER_S
"""NVML states power as the mean of up to a second, so shorter recordings say more of what was before them."""

FEWEST_SAMPLES: Final = 5


class StepSamples(Struct, frozen=True):
    """What the samples of one GPU say of the used steps of its host; None where they do not.

    `lowered_ratio`: share of the samples in compute with a lower clock than the highest, where no reason is sampled;
    `clock_hz`: the median of their clocks. The others are fields of `NvmlRow`.
    """

    sampled_step_count: int | None = None
    throttled_step_count: int | None = None
    joules_per_step: float | None = None
    sm_active_ratio: float | None = None
    dram_ratio: float | None = None
    nvlink_ratio: float | None = None
    lowered_ratio: float | None = None
    clock_hz: int | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """Those of `NvmlRow`."""
        own = ("lowered_ratio", "clock_hz")
        return {key: value for key, value in asdict(self).items() if key not in own}


def samples_of_steps(
    context: Context,
    host: int,
    device: int | None,
    counters: Mapping[str, Samples],
    is_throttled: Callable[[int], object],
    full_clock_hz: float | None,
) -> StepSamples:
    """The samples of a GPU of a host; nothing without used steps or samples. `full_clock_hz`: from there on no clock is lowered."""
    steps = context.selection.used_of(host)
    if not steps or not counters:
        return StepSamples()
    begins, ends = step_bounds(steps)
    offset_ps = context.trace.hosts[host].start_ps

    def places_of(samples: Samples) -> Int64Array:
        """The number of the step that each sample lies in, -1 for none."""
        at = samples.time_ps + offset_ps
        place = np.searchsorted(begins, at, side="right") - 1
        inside = (place >= 0) & (at < ends[place])
        return np.where(inside, place, -1)

    def in_steps(key: str) -> npt.NDArray[np.float64]:
        """The values of the samples in used steps."""
        samples = counters.get(key, _NO_SAMPLES)
        return samples.value[places_of(samples) >= 0]

    def in_compute(samples: Samples) -> BoolArray:
        """Which samples were taken while the device computes."""
        if device is None:
            return np.zeros(samples.value.size, dtype=np.bool_)
        return _computes(context, device, samples.time_ps + offset_ps)

    def share_in_compute(samples: Samples | None) -> float | None:
        """The mean of shares; of a peak that was measured otherwise some are a little more than all."""
        known = samples or _NO_SAMPLES
        return _mean(np.minimum(known.value[in_compute(known)], 1))

    sampled, computing = counters.get("throttle_reasons", _NO_SAMPLES), _NO_SAMPLES.value
    is_held = np.array([bool(is_throttled(int(bits))) for bits in sampled.value], dtype=np.bool_)
    if not sampled.value.size and full_clock_hz and device is not None:
        sampled = counters.get("sm_clock_hz", _NO_SAMPLES)
        computes = in_compute(sampled)
        computing = sampled.value[computes]
        is_held = (sampled.value < full_clock_hz) & computes
    place = places_of(sampled)
    nvlink = [_mean(in_steps(f"nvlink_{way}_ratio")) for way in ("receive", "send")]
    return StepSamples(
        sampled_step_count=len(set(place.tolist()) - {-1}),
        throttled_step_count=len(set(place[is_held].tolist()) - {-1}),
        joules_per_step=_joules(in_steps("power_watts"), begins, ends),
        lowered_ratio=_mean(computing < full_clock_hz) if full_clock_hz else None,
        clock_hz=round(float(np.median(computing))) if computing.size else None,
        sm_active_ratio=share_in_compute(counters.get("sm_active_ratio")),
        dram_ratio=share_in_compute(summed(counters, "dram_read_ratio", "dram_write_ratio")),
        nvlink_ratio=max((ratio for ratio in nvlink if ratio is not None), default=None),
    )


_NO_SAMPLES: Final = Samples(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float64))


def _computes(context: Context, device: int, time_ps: Int64Array) -> BoolArray:
    """At which times a device computes, of those that take part in sums."""
    ledger = context.ledger
    own = ledger.rows_of(device)
    start, columns = ledger.columns.start_ps[own], ledger.columns
    if not start.size:
        return np.zeros(time_ps.size, dtype=np.bool_)
    row = np.maximum(np.searchsorted(start, time_ps, side="right") - 1, 0)
    is_compute = (columns.state[own] == State.COMPUTE) & ledger.counts[own]
    since = time_ps - start[row]
    inside: BoolArray = is_compute[row] & (since >= 0) & (since < columns.duration_ps[own][row])
    return inside


def _mean(values: npt.NDArray[np.float64] | BoolArray) -> float | None:
    return float(values.mean()) if values.size else None


def _joules(powers: npt.NDArray[np.float64], begins: Int64Array, ends: Int64Array) -> float | None:
    """Mean power in the steps times their mean length; None where they are too short or too few samples lie in them."""
    span_ps = int(ends.max() - begins.min())
    if powers.size < FEWEST_SAMPLES or span_ps < LEAST_SPAN_PS:
        return None
    mean_s = float((ends - begins).mean()) / PS_PER_S
    return float(powers.mean()) * mean_s
