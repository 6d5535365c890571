"""Computes the best case per fix: lower bounds of the step time if one thing were fixed, never forecasts.

The critical path of a step runs from its start to its end, over devices and hosts. A fix shortens that path by no
more than the moments in which its problem occurs somewhere:

    no_input_wait           a device is idle and waits for input
    no_exposed_collectives  a device transfers and computes nothing, or is held up by a collective of others; a device
                            that waits *in* a collective waits for a device that does something else
    no_exposed_copies       a device copies with neither compute nor a collective, or waits for a copy

None of these reduces what a device computes, so a step is never shorter than its longest compute. If all devices
shared the compute evenly, by their speeds, moments in which only some of them compute would become shorter:

    balanced_devices        moments in which any device computes, minus what all of them together need for the sum

If each device kept its own compute, and none waited for another to begin, the longest compute would cover the others:

    concurrent_devices      moments in which any device computes, minus the longest compute of one device

Other waiting may take the place of what a fix removes, so the step may stay longer than the bound; one fix never makes
it shorter. Moments of several hosts are combined where collectives show that their clocks agree. Hosts that share no
collective do not wait for each other, so the step of each is bounded by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from traceview.analysis.activity import DeviceActivity
from traceview.analysis.balance.device_speed import relative_speeds
from traceview.analysis.base import Skipped
from traceview.analysis.cost import mean_of_steps
from traceview.analysis.idle_attribution import IdleAttribution
from traceview.analysis.joined_steps import JoinedSteps
from traceview.analysis.selection import Selection, step_bounds
from traceview.document import numbers
from traceview.ids import sorted_unique
from traceview.intervals import Int64Array, IntervalSet, difference, union
from traceview.record import Picoseconds, Record
from traceview.robust import median_ps
from traceview.trace.cause import Cause
from traceview.trace.gap_spans import cause_spans
from traceview.trace.model import Trace
from traceview.xplane.planes import ActivityClass

_COPIES: Final = (ActivityClass.H2D, ActivityClass.D2H, ActivityClass.D2D)
_WAITS: Final = (Cause.INPUT, Cause.PEER, Cause.H2D)
_NEVER: Final = union(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
_MOMENTS: Final = {
    "no_input_wait": "the moments in which a device was idle and waited for input",
    "no_exposed_collectives": (
        "the moments in which a device computed nothing and transferred in a collective or was held up by one"
    ),
    "no_exposed_copies": (
        "the moments in which a device neither computed nor communicated and copied or waited for a copy"
    ),
}
OTHER_CLOCKS: Final = "the clocks of the hosts cannot be compared"
_NO_COMMON_STEP: Final = "the hosts have no step in common"


class WhatIf(Record, frozen=True):
    """A lower bound of the step time after one fix.

    Attributes:
        name: no_input_wait, no_exposed_collectives, no_exposed_copies, balanced_devices or concurrent_devices.
        step_bound_ps: Least step time, median over the used steps, picoseconds.
        saved_ps: How far that is below the median step, picoseconds.
        reasoning: What the bound is made from, in a sentence.
        mean_saved_ps: How far the bounds of the used steps are below them, mean, rounded down, picoseconds; null in
            reports of earlier versions.
    """

    name: str
    step_bound_ps: Picoseconds
    saved_ps: Picoseconds
    reasoning: str
    mean_saved_ps: Picoseconds | None = None

    @property
    def shown_ps(self) -> int:
        """What it saves of the mean step, as costs are; of the median step in reports of earlier versions."""
        return self.saved_ps if self.mean_saved_ps is None else self.mean_saved_ps


class Bounds(Struct, frozen=True):
    """The bounds that are known, and by name why another is not."""

    rows: tuple[WhatIf, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)


def what_ifs(
    trace: Trace,
    selection: Selection,
    activities: Sequence[DeviceActivity],
    joined: JoinedSteps,
    transfers: Sequence[IntervalSet],
    idle: IdleAttribution,
) -> Bounds:
    """The bounds, from the devices of `joined`; none without used steps. `transfers`: of collectives, by device index."""
    whole = selection.median_step_ps
    if whole is None or not joined.devices:
        return Bounds()
    spans = {
        device: _moments(trace, device, activities[device], transfers[device], idle)
        for device in joined.devices
    }
    compute = {d: activities[d].compute for d in joined.devices}
    agree = clocks_agree(trace, joined.devices)
    bounds: dict[str, list[Int64Array]] = {}
    lengths: list[Int64Array] = []
    devices_of: dict[int, list[int]] = {}
    for device in joined.devices:
        devices_of.setdefault(trace.device_list[device].host, []).append(device)
    steps = {host: step_bounds(selection.used_of(host)) for host in devices_of}
    # On one clock, what any device does counts for the steps of all hosts.
    groups = [tuple(devices_of)] if agree else [(host,) for host in devices_of]
    for hosts in groups:
        start, end = (
            np.concatenate(times) for times in zip(*(steps[host] for host in hosts), strict=True)
        )
        longest = np.concatenate(
            [
                np.max(
                    [compute[device].within(*steps[host]) for device in devices_of[host]], axis=0
                )
                for host in hosts
            ]
        )
        combined = [device for host in hosts for device in devices_of[host]]
        for name in _MOMENTS:
            saved = _any(spans[device][name] for device in combined).within(start, end)
            bounds.setdefault(name, []).append(np.maximum(end - start - saved, longest))
        lengths.append(end - start)
    step_ps = np.concatenate(lengths)
    rows = [
        _row(
            name,
            np.concatenate(of_hosts),
            step_ps,
            whole,
            f"the mean step without {_MOMENTS[name]}",
        )
        for name, of_hosts in bounds.items()
    ]
    if len(joined.devices) < 2:
        return Bounds(tuple(rows))
    if not agree or not joined.count:
        reason = OTHER_CLOCKS if joined.count else _NO_COMMON_STEP
        return Bounds(
            tuple(rows), dict.fromkeys(("balanced_devices", "concurrent_devices"), reason)
        )
    missing = {}
    joined_ps = (joined.end_ps - joined.start_ps).reshape(-1)
    together = _any(compute.values()).within(joined.start_ps, joined.end_ps)

    def shortened(needed_ps: Int64Array) -> Int64Array:
        """Every step, on the host of each device, if moments in which any device computes took as long as needed."""
        excess: Int64Array = np.maximum(together - needed_ps, 0)
        return (joined.end_ps - joined.start_ps - excess).reshape(-1)

    speeds = relative_speeds(trace, joined)
    if isinstance(speeds, Skipped):
        missing["balanced_devices"] = speeds.reason
    else:
        reasoning = (
            "the mean step with the compute shared by the speed of each device: moments in which only "
            f"some of {len(joined.devices)} devices compute become shorter"
        )
        evened = shortened(_needed(joined, speeds))
        rows.append(_row("balanced_devices", evened, joined_ps, whole, reasoning))
    reasoning = (
        f"the mean step with the compute of all {len(joined.devices)} devices within the longest"
    )
    at_once = shortened(joined.compute_ps.max(axis=0))
    rows.append(_row("concurrent_devices", at_once, joined_ps, whole, reasoning))
    return Bounds(tuple(rows), missing)


def even_share_ps(bounds: Sequence[WhatIf]) -> int | None:
    """What sharing the compute evenly saves of the mean step by itself, at the present overlap; None if not known.

    Its bound also removes what computing at once saves, which has a bound of its own.
    """
    saved_ps = {bound.name: bound.mean_saved_ps for bound in bounds}
    shared, at_once = saved_ps.get("balanced_devices"), saved_ps.get("concurrent_devices")
    return None if shared is None or at_once is None else max(shared - at_once, 0)


def clocks_agree(trace: Trace, devices: Sequence[int]) -> bool:
    """Whether collectives show that a moment on one of the devices is the same on another."""
    clocks = [
        trace.hosts[host].clock for host in {trace.device_list[device].host for device in devices}
    ]
    # The host that the others are aligned to has no residual itself.
    unaligned = sum(clock is None or clock.residual_ps is None for clock in clocks)
    return len(clocks) == 1 or unaligned <= 1


def _moments(
    trace: Trace,
    device: int,
    activity: DeviceActivity,
    transfers: IntervalSet,
    idle: IdleAttribution,
) -> dict[str, IntervalSet]:
    """When the problem of each bound occurs on a device."""
    waits = _waits(trace, idle, device)
    # Replicas have no queue: they wait for replicas that still compute.
    held_up = _NEVER if trace.device_list[device].kind == "replica" else waits[Cause.PEER]
    return {
        "no_input_wait": waits[Cause.INPUT],
        "no_exposed_collectives": _any((difference(transfers, activity.compute), held_up)),
        "no_exposed_copies": _any(
            (*(activity.added[copies] for copies in _COPIES), waits[Cause.H2D])
        ),
    }


def _waits(trace: Trace, idle: IdleAttribution, device: int) -> dict[Cause, IntervalSet]:
    """When a device was idle with each cause that a bound takes away, to the instant."""
    gaps = idle.gaps.get(device)
    if gaps is None:
        return dict.fromkeys(_WAITS, _NEVER)
    # Other gaps, most of them, need not be looked at instant by instant.
    pieces = [gaps.by_cause[cause][0] for cause in _WAITS if cause in gaps.by_cause]
    chosen = sorted_unique(gaps.gap[np.concatenate([_NEVER.start, *pieces])])
    spans = cause_spans(trace, gaps, idle.states[trace.device_list[device].host], chosen)
    return {
        cause: union(spans.start_ps[is_one], spans.end_ps[is_one])
        for cause in _WAITS
        for is_one in [spans.cause == cause]
    }


def _any(unions: Iterable[IntervalSet]) -> IntervalSet:
    """The moments that any of the sets holds."""
    sets = list(unions)
    starts, ends = [spans.start for spans in sets], [spans.end for spans in sets]
    return union(np.concatenate(starts), np.concatenate(ends))


def _needed(joined: JoinedSteps, speeds: npt.NDArray[np.float64]) -> Int64Array:
    """How long all devices together need for the compute of each step, rounded down; int64 `[steps]`."""
    if np.all(speeds == speeds[0]):
        # Integers keep this exact for equal devices.
        mean: Int64Array = joined.compute_ps.sum(axis=0) // len(joined.devices)
        return mean
    return np.floor(speeds @ joined.compute_ps).astype(np.int64)


def _row(name: str, bounds: Int64Array, step_ps: Int64Array, whole: int, reasoning: str) -> WhatIf:
    """`bounds`: of steps that are as long as `step_ps`. `whole`: the median step."""
    bound = min(median_ps(bounds) or 0, whole)
    # Of steps that some host lacks, or that the window cuts, a bound may be longer.
    mean_saved_ps = mean_of_steps(np.maximum(step_ps - bounds, 0))
    reasoning = (
        f"{reasoning}: at most {numbers.time(mean_saved_ps)} less"
        if mean_saved_ps
        else f"nothing to save: {reasoning} is as long"
    )
    return WhatIf(name, bound, whole - bound, reasoning, mean_saved_ps)
