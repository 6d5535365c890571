"""How short could a step be if one thing about it were put right? Lower bounds, never forecasts.

Something is on the way at every moment of a step: the chain of what waited for what runs from its start to its
end, now over this device, now over that one, now over the host. Putting one thing right takes out of the chain no
more than the moments in which that thing went on somewhere:

    no_input_wait           some device was idle and waited for input
    no_exposed_collectives  some device transferred, with nothing computed on it, or was held up by a collective
                            of others; who waits *in* a collective waits for a device that is elsewhere
    no_exposed_copies       some device copied, with neither compute nor a collective on it, or waited for a copy

No device computes less for any of these, so that a step is never shorter than its longest compute. And if all
devices shared the compute evenly, by their speeds, then a moment in which some of them compute shrinks to the share
of the whole that they are:

    balanced_devices        moments in which any device computes, less what all of them together need for the sum

If each kept its own compute, and none waited for another to begin, the longest compute would cover all others:

    concurrent_devices      moments in which any device computes, less the longest compute of one

What else would take the place is not known, so the step may well stay longer; it cannot become shorter by one of
these alone. Moments of several hosts are laid side by side where collectives show that their clocks agree; hosts
that share none do not wait for each other, and the step of each stands alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from traceview.analysis.activity import DeviceActivity
from traceview.analysis.balance.device_speed import relative_speeds
from traceview.analysis.base import Skipped
from traceview.analysis.joined_steps import JoinedSteps
from traceview.analysis.selection import Selection
from traceview.document import numbers
from traceview.intervals import Int64Array, IntervalSet, difference, union
from traceview.record import Picoseconds, Record
from traceview.robust import median_ps
from traceview.trace.cause import Cause
from traceview.trace.gaps import Gaps
from traceview.trace.model import Step, Trace
from traceview.xplane.planes import ActivityClass

_COPIES: Final = (ActivityClass.H2D, ActivityClass.D2H, ActivityClass.D2D)
_MOMENTS: Final = {
    "no_input_wait": "the moments in which a device had nothing to do and waited for input",
    "no_exposed_collectives": (
        "the moments in which a device transferred in a collective, or was held up by one, and computed nothing"
    ),
    "no_exposed_copies": (
        "the moments in which a device copied, or waited for a copy, and neither computed nor communicated"
    ),
}


class WhatIf(Record, frozen=True):
    """A lower bound of the step time. `name`: no_input_wait, no_exposed_collectives, no_exposed_copies, balanced_devices,
    concurrent_devices.

    Attributes:
        name: no_input_wait, no_exposed_collectives, no_exposed_copies, balanced_devices or concurrent_devices.
        step_bound_ps: The step is not shorter than this, median over the used steps, picoseconds.
        saved_ps: What that is below the median step, picoseconds.
        reasoning: Where the bound comes from, in a sentence.
    """

    name: str
    step_bound_ps: Picoseconds
    saved_ps: Picoseconds
    reasoning: str


@dataclass(frozen=True)
class Bounds:
    """The bounds that can be given, and by name why another cannot."""

    rows: tuple[WhatIf, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Moments:
    """What went on when, by device index: `transfers` of collectives, and `gaps` where known."""

    transfers: Sequence[IntervalSet]
    gaps: Mapping[int, Gaps]


def what_ifs(
    trace: Trace,
    selection: Selection,
    activities: Sequence[DeviceActivity],
    joined: JoinedSteps,
    moments: Moments,
) -> Bounds:
    """The bounds, from the devices of `joined`; none without used steps."""
    whole = selection.median_step_ps
    if whole is None or not joined.devices:
        return Bounds()
    spans = {
        device: {
            "no_input_wait": [_waits(moments.gaps.get(device), Cause.INPUT)],
            "no_exposed_collectives": [
                _Span.of(
                    difference(
                        moments.transfers[device],
                        activities[device].by_class[ActivityClass.COMPUTE],
                    )
                ),
                # Replicas have no queue: what they wait for are others that still compute.
                _waits(
                    None
                    if trace.device_list[device].kind == "replica"
                    else moments.gaps.get(device),
                    Cause.PEER,
                ),
            ],
            "no_exposed_copies": [
                _Span.of(
                    difference(
                        _any(activities[device].by_class[one] for one in _COPIES),
                        activities[device].cumulative[ActivityClass.COLLECTIVE],
                    )
                ),
                _waits(moments.gaps.get(device), Cause.H2D),
            ],
        }
        for device in joined.devices
    }
    compute = {d: activities[d].by_class[ActivityClass.COMPUTE] for d in joined.devices}
    agree = clocks_agree(trace, joined.devices)
    bounds: dict[str, list[Int64Array]] = {}
    for host in dict.fromkeys(trace.device_list[device].host for device in joined.devices):
        steps = [step for step in selection.steps.get(host, ()) if step.excluded is None]
        start, end = _bounds_of(steps)
        own = [device for device in joined.devices if trace.device_list[device].host == host]
        longest = np.max([compute[device].within(start, end) for device in own], axis=0)
        together = joined.devices if agree else own
        for name in _MOMENTS:
            saved = _covered([one for d in together for one in spans[d][name]], start, end)
            bounds.setdefault(name, []).append(np.maximum(end - start - saved, longest))
    rows = [
        _row(name, np.concatenate(found), whole, f"the median step without {_MOMENTS[name]}")
        for name, found in bounds.items()
    ]
    if len(joined.devices) < 2:
        return Bounds(tuple(rows))
    missing = {}
    evened = _evened(trace, joined, compute, agree=agree)
    if isinstance(evened, Skipped):
        missing["balanced_devices"] = evened.reason
    else:
        told = (
            "the median step with the compute shared evenly, each device by its speed: moments in which only "
            f"some of {len(joined.devices)} devices compute become shorter"
        )
        rows.append(_row("balanced_devices", evened, whole, told))
    at_once = _at_once(joined, compute, agree=agree)
    if isinstance(at_once, Skipped):
        missing["concurrent_devices"] = at_once.reason
    else:
        told = f"the median step with the compute of all {len(joined.devices)} devices inside that of the longest"
        rows.append(_row("concurrent_devices", at_once, whole, told))
    return Bounds(tuple(rows), missing)


def clocks_agree(trace: Trace, devices: Sequence[int]) -> bool:
    """Whether collectives show that a moment on one of the devices is the same on another."""
    clocks = [
        trace.hosts[host].clock for host in {trace.device_list[device].host for device in devices}
    ]
    # The host by which the others are set is compared with none.
    alone = sum(clock is None or clock.residual_ps is None for clock in clocks)
    return len(clocks) == 1 or alone <= 1


@dataclass(frozen=True, eq=False)
class _Span:
    """Moments of one device: all of them lie in `where`; `amount_ps` is how long they are up to each bound of it."""

    where: IntervalSet
    amount_ps: Int64Array

    @classmethod
    def of(cls, exact: IntervalSet) -> _Span:
        return cls(exact, exact.covered)

    def within(self, start: Int64Array, end: Int64Array) -> Int64Array:
        """At most how long they are in each span; exact where `where` is cut at its bounds."""
        first = np.searchsorted(self.where.end, start, side="right")
        last = np.searchsorted(self.where.start, end)
        known = self.amount_ps[np.maximum(last, first)] - self.amount_ps[first]
        result: Int64Array = np.minimum(known, self.where.within(start, end))
        return result


def _waits(gaps: Gaps | None, cause: Cause) -> _Span:
    """Idle time of one cause; where in a gap it lies is not known, only how long it is."""
    if gaps is None:
        return _Span.of(union(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)))
    caused = gaps.cause_ps[cause]
    held = caused > 0
    # Pieces of a gap touch each other; each keeps its own amount.
    start, end = gaps.start_ps[held], gaps.end_ps[held]
    covered = np.concatenate(([0], np.cumsum(end - start)))
    return _Span(IntervalSet(start, end, covered), np.concatenate(([0], np.cumsum(caused[held]))))


def _covered(spans: Sequence[_Span], start: Int64Array, end: Int64Array) -> Int64Array:
    """At most how much of each `[start, end)` is in any of the spans."""
    where = _any(one.where for one in spans)
    summed = np.sum([one.within(start, end) for one in spans], axis=0)
    result: Int64Array = np.minimum(where.within(start, end), summed)
    return result


def _bounds_of(steps: Sequence[Step]) -> tuple[Int64Array, Int64Array]:
    return (
        np.array([step.start_ps for step in steps], dtype=np.int64),
        np.array([step.end_ps for step in steps], dtype=np.int64),
    )


def _evened(
    trace: Trace, joined: JoinedSteps, compute: Mapping[int, IntervalSet], *, agree: bool
) -> Int64Array | Skipped:
    """The bound of every step that all hosts have, on the host of each device."""
    if not joined.count:
        return Skipped("the hosts have no step in common")
    if not agree:
        return Skipped("nothing shows that the clocks of the hosts agree")
    speeds = relative_speeds(trace, joined)
    if isinstance(speeds, Skipped):
        return speeds
    needed = _needed(joined, speeds)
    longer = _any(compute.values()).within(joined.start_ps, joined.end_ps) - needed
    bounds: Int64Array = joined.end_ps - joined.start_ps - np.maximum(longer, 0)
    return bounds.reshape(-1)


def _at_once(
    joined: JoinedSteps, compute: Mapping[int, IntervalSet], *, agree: bool
) -> Int64Array | Skipped:
    """The bound of every step that all hosts have, on the host of each device."""
    if len(joined.devices) < 2:
        return Skipped("one device has none to run beside")
    if not joined.count:
        return Skipped("the hosts have no step in common")
    if not agree:
        return Skipped("nothing shows that the clocks of the hosts agree")
    longer = _any(compute.values()).within(joined.start_ps, joined.end_ps) - joined.compute_ps.max(
        axis=0
    )
    bounds: Int64Array = joined.end_ps - joined.start_ps - np.maximum(longer, 0)
    return bounds.reshape(-1)


def _any(unions: Iterable[IntervalSet]) -> IntervalSet:
    """The moments that any of them holds."""
    every = list(unions)
    return union(
        np.concatenate([one.start for one in every]), np.concatenate([one.end for one in every])
    )


def _needed(joined: JoinedSteps, speeds: npt.NDArray[np.float64]) -> Int64Array:
    """What all devices together need for the compute of each step, rounded down; int64 `[steps]`."""
    if np.all(speeds == speeds[0]):
        # Exact for devices alike.
        mean: Int64Array = joined.compute_ps.sum(axis=0) // len(joined.devices)
        return mean
    return np.floor(speeds @ joined.compute_ps).astype(np.int64)


def _row(name: str, bounds: Int64Array, whole: int, told: str) -> WhatIf:
    bound = min(median_ps(bounds) or 0, whole)
    if bound >= whole:
        return WhatIf(name, bound, 0, f"nothing to save: {told} is as long")
    return WhatIf(name, bound, whole - bound, f"{told}: at most {numbers.time(whole - bound)} less")
