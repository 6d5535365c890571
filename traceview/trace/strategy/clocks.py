"""Aligns the clocks of several hosts by the ends of collectives that they share (docs/method.md, "Clocks of several hosts").

    host0   ────▓▓▓▓▓▓│     ────▓▓▓▓│         each ends 7 ms later on the clock of host1:
    host1   ──────────▓▓▓▓▓│──────────▓▓▓│    its times move back by 7 ms

A host moves as a whole, by one number, so that durations and distances within a host stay as recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from traceview.base.ids import is_in
from traceview.base.intervals import Int64Array
from traceview.base.stats import MAD_TO_SIGMA, median_ps
from traceview.base.units import PS_PER_NS
from traceview.trace.model import Host, HostClock, HostSteps, Problem, Recording
from traceview.trace.strategy.collectives import CollectiveKind, match_collectives
from traceview.trace.strategy.roles import step_groups
from traceview.xplane.read import MAX_HOURS, MAX_PS

MIN_COLLECTIVES: Final = 3
"""Fewer collectives do not show how far their ends spread."""

CLEAR_RATIO: Final = 3
"""Clocks differ if their median difference is more than this many times the spread of the differences."""

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
    done, left = [first], [place for place in range(len(group)) if place != first]
    while left:
        shared = common[np.ix_(left, done)]
        place, by = np.unravel_index(int(shared.argmax()), shared.shape)
        if shared[place, by] < MIN_COLLECTIVES:
            break
        host, reference = group[left[place]], group[done[by]]
        done.append(left.pop(place))
        both = ends[(ends[:, host] != _NO_END) & (ends[:, reference] != _NO_END)]
        ahead_ps = both[:, host] - both[:, reference]
        clocks[host] = _clock(hosts[reference], clocks[reference], clocks[host], ahead_ps)
    moved = any(clocks[group[place]].reference is not None for place in done)
    if moved and clocks[group[first]].method == "none":
        clocks[group[first]] = HostClock("collectives")


def _clock(
    reference: Host, reference_clock: HostClock, own: HostClock, ahead_ps: Int64Array
) -> HostClock:
    """The clock after a comparison: moved if the difference is clear or no profile start is known, else as before.

    `ahead_ps`: how much later each common collective ended on it, int64 `[collectives]`.
    """
    have_starts = "none" not in (own.method, reference_clock.method)
    middle_ps = median_ps(ahead_ps) or 0
    residual_ps = round(MAD_TO_SIGMA * (median_ps(np.abs(ahead_ps - middle_ps)) or 0))
    # A reference that was moved itself moves every host that follows it.
    offset = reference_clock.offset_ps - middle_ps
    moves = not have_starts or abs(offset) > CLEAR_RATIO * residual_ps
    moves = moves and abs(offset) <= MAX_PS
    return HostClock(
        method="collectives" if moves else own.method,
        reference=reference.name,
        offset_ps=offset if moves else 0,
        collective_count=int(ahead_ps.size),
        residual_ps=residual_ps,
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
