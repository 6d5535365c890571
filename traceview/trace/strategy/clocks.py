"""Aligns the clocks of several hosts by the ends of collectives that they share (docs/method.md, "Clocks of several hosts").

    host0   ────▓▓▓▓▓▓│     ────▓▓▓▓│         each ends 7 ms later on the clock of host1:
    host1   ──────────▓▓▓▓▓│──────────▓▓▓│    its times move back by 7 ms

A host moves as a whole, by one number, so that durations and distances within a host stay as recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceview.base.ids import is_in
from traceview.base.intervals import Int64Array
from traceview.base.stats import MAD_TO_SIGMA, median, median_ps
from traceview.base.units import PS_PER_NS, PS_PER_S
from traceview.trace.model import Host, HostClock, HostSteps, Problem, Recording
from traceview.trace.strategy.collectives import CollectiveKind, match_collectives
from traceview.trace.strategy.roles import step_groups
from traceview.xplane.read import MAX_HOURS, MAX_PS

MIN_COLLECTIVES: Final = 3
"""Fewer collectives do not show how far their ends spread."""

CLEAR_RATIO: Final = 3
"""Clocks differ if their median difference is more than this many times the spread of the differences."""

MIN_FOR_DRIFT: Final = 8
CLEAR_DRIFT_RATIO: Final = 6
"""A drift is reported from this many collectives on, if it adds up to more than this many times the spread."""

MAX_DRIFT_PS_PER_S: Final = 10**9
"""Computer clocks drift by 100 ppm at most; ends that drift apart ten times as fast belong to different collectives."""

_COMMON_END: Final = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
)
_NO_END: Final = np.iinfo(np.int64).min


def align(hosts: Sequence[Host]) -> tuple[Host, ...]:
    """The hosts with their times since the origin of the run, by `profile_start_time`.

    A host without it, or whose profile starts more than `MAX_PS` after that of another one, keeps its own start as origin.
    """
    starts = [host.profile_start_ns for host in hosts if host.profile_start_ns is not None]
    origin = min(starts, default=0)
    aligned = []
    for host in hosts:
        start_ns = origin if host.profile_start_ns is None else host.profile_start_ns
        offset = (start_ns - origin) * PS_PER_NS
        method = "none" if host.profile_start_ns is None or offset > MAX_PS else "profile_start"
        offset = offset if offset <= MAX_PS else 0
        clock = HostClock(method) if len(hosts) > 1 else None
        aligned.append(replace(host, start_ps=offset, stop_ps=_stop_ps(host, offset), clock=clock))
    return tuple(aligned)


def unaligned_clocks(hosts: Sequence[Host]) -> Iterator[Problem]:
    """The hosts whose clocks neither the starts of profiles nor collectives align."""
    for host in hosts:
        if host.clock is not None and host.clock.method == "none":
            far = f"the profile starts more than {MAX_HOURS} hours after that of another host; clocks not aligned"
            text = "no profile start recorded" if host.profile_start_ns is None else far
            yield Problem("unaligned-clock", text, host.name)


def _stop_ps(host: Host, offset: int) -> int | None:
    if host.profile_start_ns is None or host.profile_stop_ns is None:
        return None
    length = (host.profile_stop_ns - host.profile_start_ns) * PS_PER_NS
    return offset + length if 0 <= length <= MAX_PS else None


class ClockDifference(Struct, frozen=True):
    """How far a clock is ahead of another in the middle of the recording, in picoseconds.

    `least_ps`, `most_ps`: the smallest and the largest difference. `residual_ps`: spread of all differences;
    `noise_ps`: their spread without the drift. `drift_ps_per_s`: gain per second, None if the noise hides it.
    """

    ahead_ps: int
    least_ps: int
    most_ps: int
    count: int
    residual_ps: int
    noise_ps: int
    drift_ps_per_s: int | None


def clock_difference(reference_ps: Int64Array, other_ps: Int64Array) -> ClockDifference | None:
    """The difference of two clocks from the ends of the same collectives on both, int64 `[n]`, in time order.

    None if they are too few, or drift apart so fast that they cannot be the same collectives.
    """
    count = int(reference_ps.size)
    if count < MIN_COLLECTIVES:
        return None
    difference = other_ps - reference_ps
    ahead = median_ps(difference) or 0
    since_ps = reference_ps - (median_ps(reference_ps) or 0)
    # Slopes between events half a recording apart: outliers do not move their median (Theil and Sen).
    half = count // 2
    passed_ps = since_ps[half:] - since_ps[: count - half]
    gained_ps = difference[half:] - difference[: count - half]
    slope = median(gained_ps / np.maximum(passed_ps, 1))
    around = difference - ahead
    straightened = around - slope * since_ps
    straightened = np.abs(straightened - median(straightened))
    noise = round(MAD_TO_SIGMA * median(straightened))
    residual = round(MAD_TO_SIGMA * (median_ps(np.abs(around)) or 0))
    drift = None
    gained = abs(slope) * float(np.ptp(reference_ps))
    if count >= MIN_FOR_DRIFT and gained > CLEAR_DRIFT_RATIO * max(noise, 1):
        drift = round(slope * PS_PER_S)
        if abs(drift) > MAX_DRIFT_PS_PER_S:
            return None
    return ClockDifference(
        ahead_ps=ahead,
        least_ps=int(difference.min()),
        most_ps=int(difference.max()),
        count=count,
        residual_ps=residual,
        noise_ps=residual if drift is None else noise,
        drift_ps_per_s=drift,
    )


def on_one_clock(
    recording: Recording, steps_by_host: tuple[HostSteps, ...]
) -> tuple[Recording, tuple[HostSteps, ...]]:
    """The recording and its steps with the clocks of hosts aligned by the collectives that they share."""
    groups = [group for group in step_groups(recording.hosts) if len(group) > 1]
    if not groups:
        return recording, steps_by_host
    ends = _ends(recording, steps_by_host)
    clocks = [host.clock or HostClock("none") for host in recording.hosts]
    for group in groups:
        _set_clocks(recording.hosts, clocks, ends, group)
    shift_ps = _shifts(recording.hosts, clocks)
    return _shifted_recording(recording, clocks, shift_ps), tuple(
        shifted_steps(host_steps, int(shift_ps[host_steps.host])) for host_steps in steps_by_host
    )


def _ends(recording: Recording, steps_by_host: Sequence[HostSteps]) -> Int64Array:
    """When each complete collective ended on each host, int64 `[collectives, hosts]`, `_NO_END` where it did not run."""
    matched = match_collectives(recording, steps_by_host)
    ends = np.full((matched.count, len(recording.hosts)), _NO_END, dtype=np.int64)
    if matched.count == 0:
        return ends
    np.maximum.at(ends, (matched.collective, matched.host), matched.end_ps)
    ends_at_once = is_in(matched.kind[matched.first], _COMMON_END)
    return ends[matched.is_complete & ends_at_once]


def _set_clocks(
    hosts: tuple[Host, ...], clocks: list[HostClock], ends: Int64Array, group: tuple[int, ...]
) -> None:
    """Compare each host of a group with the host that shares most collectives with it and is compared already."""
    shares = ends[:, list(group)] != _NO_END
    # Of integers numpy multiplies matrices slowly; counts are exact in these.
    common = (shares.T.astype(np.float64) @ shares.astype(np.float64)).astype(np.int64)
    np.fill_diagonal(common, 0)
    if common.max(initial=0) < MIN_COLLECTIVES:
        return
    first = int(common.sum(axis=1).argmax())
    done = [first]
    # Of each host the compared one that shares most with it, of several the one compared first.
    most, nearest = common[first].copy(), np.full(len(group), first)
    most[first] = -1
    while len(done) < len(group):
        place = int(most.argmax())
        if most[place] < MIN_COLLECTIVES:
            break
        by = int(nearest[place])
        done.append(place)
        is_nearer = (common[place] > most) & (most >= 0)
        most[is_nearer], nearest[is_nearer] = common[place, is_nearer], place
        most[place] = -1
        host, reference = group[place], group[by]
        both = ends[(ends[:, host] != _NO_END) & (ends[:, reference] != _NO_END)]
        both = both[np.argsort(both[:, reference], kind="stable")]
        difference = clock_difference(both[:, reference], both[:, host])
        if difference is not None:
            clocks[host] = _clock(hosts[reference], clocks[reference], clocks[host], difference)
    moved = any(clocks[group[place]].reference is not None for place in done)
    if moved and clocks[group[first]].method == "none":
        clocks[group[first]] = HostClock("collectives")


def _clock(
    reference: Host, reference_clock: HostClock, own: HostClock, difference: ClockDifference
) -> HostClock:
    """The clock after a comparison: moved if the difference is clear or no profile start is known, else as before."""
    have_starts = "none" not in (own.method, reference_clock.method)
    # A reference that was moved itself moves every host that follows it.
    offset = reference_clock.offset_ps - difference.ahead_ps
    moves = not have_starts or abs(offset) > CLEAR_RATIO * difference.noise_ps
    moves = moves and abs(offset) <= MAX_PS
    # Only what one of the two was moved by changes their difference.
    moved_apart = (offset if moves else 0) - reference_clock.offset_ps
    return HostClock(
        method="collectives" if moves else own.method,
        reference=reference.name,
        offset_ps=offset if moves else 0,
        collective_count=difference.count,
        residual_ps=difference.residual_ps,
        residual_max_ps=max(
            abs(difference.least_ps + moved_apart), abs(difference.most_ps + moved_apart)
        ),
        drift_ps_per_s=difference.drift_ps_per_s,
    )


def _shifts(hosts: Sequence[Host], clocks: Sequence[HostClock]) -> Int64Array:
    """Picoseconds to add to the times of each host, so that the origin is the earliest profile start again."""
    starts = [
        host.start_ps + clock.offset_ps
        for host, clock in zip(hosts, clocks, strict=True)
        if host.profile_start_ns is not None
    ]
    offset_ps = np.array([clock.offset_ps for clock in clocks], dtype=np.int64)
    return offset_ps - min(starts, default=0)


def _shifted_recording(
    recording: Recording, clocks: Sequence[HostClock], shift_ps: Int64Array
) -> Recording:
    host, device = recording.host_columns, recording.device_columns
    if shift_ps.any():
        host = replace(host, start_ps=host.start_ps + shift_ps[host.host])
        of_device = shift_ps[recording.host_of_device]
        device = replace(device, start_ps=device.start_ps + of_device[device.device])
    return replace(
        recording,
        hosts=tuple(
            replace(
                host,
                start_ps=host.start_ps + shift,
                stop_ps=None if host.stop_ps is None else host.stop_ps + shift,
                clock=clock,
            )
            for host, clock, shift in zip(recording.hosts, clocks, shift_ps.tolist(), strict=True)
        ),
        host_columns=host,
        device_columns=device,
    )


def shifted_steps(host_steps: HostSteps, shift_ps: int) -> HostSteps:
    """The same steps on a clock that is `shift_ps` ahead."""
    return replace(
        host_steps,
        steps=tuple(
            replace(step, start_ps=step.start_ps + shift_ps, end_ps=step.end_ps + shift_ps)
            for step in host_steps.steps
        ),
        marker_spans=tuple(
            (start + shift_ps, end + shift_ps) for start, end in host_steps.marker_spans
        ),
    )
