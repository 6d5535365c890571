"""How far apart are the clocks of several hosts? The collectives that they share tell.

A profile's start is stamped by the clock of its own host, and clocks of hosts may be milliseconds apart or more.
An all-reduce ends on all its members at once, to microseconds where NCCL runs it. So the median difference of
the ends of the collectives that two hosts share is the difference of their clocks:

    host0   ────▓▓▓▓▓▓│     ────▓▓▓▓│         each ends 7 ms later on the clock of host1:
    host1   ──────────▓▓▓▓▓│──────────▓▓▓│    its times move back by 7 ms

Ends of other kinds say less: who sends a broadcast is done before those who receive it. On CPUs each process takes
note of the end when a thread gets round to it; so the clock is moved only where the differences agree much better
than they differ from nothing, and where the profile starts are known to agree as well as can be told they stand.

Only whole hosts are moved, each by one number, so that no duration and no distance within a host changes. Crystals
drift by up to 0.1 ms per second; taking that out would stretch every step of a host, for less than the window of a
usual capture is uncertain by. It is measured and said instead; the offset is that of the middle of the recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from traceview.intervals import Int64Array
from traceview.robust import MAD_TO_SIGMA, median_ps
from traceview.trace.collectives import CollectiveKind, match_collectives
from traceview.trace.model import Host, HostClock, HostSteps, Problem, Recording
from traceview.trace.roles import step_groups
from traceview.units import PS_PER_NS, PS_PER_S
from traceview.xplane.read import MAX_PS

MIN_COLLECTIVES: Final = 3
"""Of fewer the spread cannot be told."""

CLEAR_RATIO: Final = 3
"""Clocks differ if their median difference is more than this many times the spread of the differences."""

MIN_FOR_DRIFT: Final = 8
CLEAR_DRIFT_RATIO: Final = 6
"""So many collectives show a drift that over all of them is more than so many times the spread."""

MAX_DRIFT_PS_PER_S: Final = 10**9
"""Clocks of computers drift by 100 ppm at most; ends that part ten times as fast are not of one collective."""

_COMMON_END: Final = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
)
_NO_END: Final = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class AlignedClocks:
    """The hosts with their times since the origin of the run, and what to add to the times of each.

    `offset_ps`: int64 `[hosts]`. `problems`: hosts whose clock could not be aligned.
    """

    hosts: tuple[Host, ...]
    offset_ps: Int64Array
    problems: tuple[Problem, ...]


def align(hosts: Sequence[Host]) -> AlignedClocks:
    """Align hosts by `profile_start_time`; one without it keeps its own start as origin."""
    starts = [host.profile_start_ns for host in hosts if host.profile_start_ns is not None]
    origin = min(starts, default=0)
    aligned, offsets, problems = [], [], []
    for host in hosts:
        offset = 0
        method = "none" if host.profile_start_ns is None else "profile_start"
        if host.profile_start_ns is not None:
            offset = (host.profile_start_ns - origin) * PS_PER_NS
        elif len(hosts) > 1:
            problems.append(Problem("unaligned-clock", "no profile start recorded", host.name))
        if offset > MAX_PS:
            text = "its profile started months after that of another host; clocks not aligned"
            problems.append(Problem("unaligned-clock", text, host.name))
            offset, method = 0, "none"
        offsets.append(offset)
        clock = HostClock(method) if len(hosts) > 1 else None
        aligned.append(replace(host, start_ps=offset, stop_ps=_stop_ps(host, offset), clock=clock))
    return AlignedClocks(tuple(aligned), np.array(offsets, dtype=np.int64), tuple(problems))


def _stop_ps(host: Host, offset: int) -> int | None:
    if host.profile_start_ns is None or host.profile_stop_ns is None:
        return None
    length = (host.profile_stop_ns - host.profile_start_ns) * PS_PER_NS
    return offset + length if 0 <= length <= MAX_PS else None


@dataclass(frozen=True)
class ClockDifference:
    """How far a clock is ahead of another: picoseconds in the middle, and gain per second if there is one.

    `least_ps`, `most_ps`: the smallest and the largest difference. `residual_ps`: spread of all of them;
    `noise_ps`: what is left of it without the drift.
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

    None if they are too few, or part faster than clocks do, so that they cannot be the same.
    """
    count = int(reference_ps.size)
    if count < MIN_COLLECTIVES:
        return None
    difference = other_ps - reference_ps
    ahead = median_ps(difference) or 0
    since_ps = reference_ps - (median_ps(reference_ps) or 0)
    # Slopes between events half a recording apart: their median is deaf to outliers (Theil and Sen).
    half = count // 2
    passed_ps = since_ps[half:] - since_ps[: count - half]
    gained_ps = difference[half:] - difference[: count - half]
    slope = float(np.median(gained_ps / np.maximum(passed_ps, 1)))
    around = difference - ahead
    straightened = around - slope * since_ps
    straightened = np.abs(straightened - np.median(straightened))
    noise = round(MAD_TO_SIGMA * float(np.median(straightened)))
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
    """The recording and its steps with all times moved to where common collectives set the clocks; one host stays."""
    groups = [group for group in step_groups(recording.hosts) if len(group) > 1]
    if not groups:
        return recording, steps_by_host
    ends = _ends(recording, steps_by_host)
    clocks = [host.clock or HostClock("none") for host in recording.hosts]
    for group in groups:
        _set_clocks(recording.hosts, clocks, ends, group)
    by = _shifts(recording.hosts, clocks)
    return _moved(recording, clocks, by), tuple(
        _steps(found, int(by[found.host])) for found in steps_by_host
    )


def unsolved(problems: Sequence[Problem], hosts: Sequence[Host]) -> tuple[Problem, ...]:
    """The problems without those of clocks that collectives have aligned since."""
    aligned = {host.name for host in hosts if host.clock and host.clock.method == "collectives"}
    return tuple(
        problem
        for problem in problems
        if problem.code != "unaligned-clock" or problem.host not in aligned
    )


def _ends(recording: Recording, steps_by_host: Sequence[HostSteps]) -> Int64Array:
    """When each complete collective ended on each host, int64 `[collectives, hosts]`, `_NO_END` where not in it."""
    found = match_collectives(recording, steps_by_host)
    host_of = np.array([device.host for device in recording.device_list], dtype=np.int64)
    ends = np.full((found.count, len(recording.hosts)), _NO_END, dtype=np.int64)
    if found.count == 0:
        return ends
    np.maximum.at(ends, (found.collective, host_of[found.device]), found.end_ps)
    together = np.isin(found.kind[found.first], _COMMON_END)
    return ends[found.is_complete & together]


def _set_clocks(
    hosts: tuple[Host, ...], clocks: list[HostClock], ends: Int64Array, group: tuple[int, ...]
) -> None:
    """Set each host of a group by the one set before it with which it shares most collectives."""
    shares = ends[:, list(group)] != _NO_END
    common = shares.T.astype(np.int64) @ shares.astype(np.int64)
    np.fill_diagonal(common, 0)
    if common.max(initial=0) < MIN_COLLECTIVES:
        return
    first = int(common.sum(axis=1).argmax())
    done = [first]
    while len(done) < len(group):
        rest = [place for place in range(len(group)) if place not in done]
        place, by = max(
            ((one, other) for one in rest for other in done), key=lambda pair: common[pair]
        )
        if common[place, by] < MIN_COLLECTIVES:
            break
        done.append(place)
        host, reference = group[place], group[by]
        both = ends[(ends[:, host] != _NO_END) & (ends[:, reference] != _NO_END)]
        both = both[np.argsort(both[:, reference], kind="stable")]
        found = clock_difference(both[:, reference], both[:, host])
        if found is not None:
            clocks[host] = _clock(hosts[reference], clocks[reference], clocks[host], found)
    moved = any(clocks[group[place]].reference is not None for place in done)
    if moved and clocks[group[first]].method == "none":
        clocks[group[first]] = HostClock("collectives")


def _clock(
    reference: Host, of_reference: HostClock, own: HostClock, found: ClockDifference
) -> HostClock:
    """The clock after a comparison: moved where that is clear or nothing else sets it, else as it was."""
    are_started = "none" not in (own.method, of_reference.method)
    # What moved the reference moves what is set by it.
    offset = of_reference.offset_ps - found.ahead_ps
    moves = not are_started or abs(offset) > CLEAR_RATIO * found.noise_ps
    moves = moves and abs(offset) <= MAX_PS
    # What both were moved by does not part them.
    left = (offset if moves else 0) - of_reference.offset_ps
    return HostClock(
        method="collectives" if moves else own.method,
        reference=reference.name,
        offset_ps=offset if moves else 0,
        collective_count=found.count,
        residual_ps=found.residual_ps,
        residual_max_ps=max(abs(found.least_ps + left), abs(found.most_ps + left)),
        drift_ps_per_s=found.drift_ps_per_s,
    )


def _shifts(hosts: Sequence[Host], clocks: Sequence[HostClock]) -> Int64Array:
    """What to add to the times of each host, so that the origin is the earliest profile start again."""
    starts = [
        host.start_ps + clock.offset_ps
        for host, clock in zip(hosts, clocks, strict=True)
        if host.profile_start_ns is not None
    ]
    offset_ps = np.array([clock.offset_ps for clock in clocks], dtype=np.int64)
    return offset_ps - min(starts, default=0)


def _moved(recording: Recording, clocks: Sequence[HostClock], by: Int64Array) -> Recording:
    host_columns, device_columns = recording.host_columns, recording.device_columns
    if by.any():
        host_of = np.array([device.host for device in recording.device_list], dtype=np.int64)
        host_columns = replace(host_columns, start_ps=host_columns.start_ps + by[host_columns.host])
        device_columns = replace(
            device_columns, start_ps=device_columns.start_ps + by[host_of[device_columns.device]]
        )
    return replace(
        recording,
        hosts=tuple(
            _host(host, clock, int(shift))
            for host, clock, shift in zip(recording.hosts, clocks, by, strict=True)
        ),
        host_columns=host_columns,
        device_columns=device_columns,
        stored_steps=tuple(step.shifted(int(by[step.host])) for step in recording.stored_steps),
    )


def _host(host: Host, clock: HostClock, by: int) -> Host:
    stop = None if host.stop_ps is None else host.stop_ps + by
    return replace(host, start_ps=host.start_ps + by, stop_ps=stop, clock=clock)


def _steps(found: HostSteps, by: int) -> HostSteps:
    return replace(
        found,
        steps=tuple(
            replace(step, start_ps=step.start_ps + by, end_ps=step.end_ps + by)
            for step in found.steps
        ),
        marker_spans=tuple((start + by, end + by) for start, end in found.marker_spans),
    )
