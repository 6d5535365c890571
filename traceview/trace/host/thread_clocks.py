"""Puts the clocks of the threads of a host on the clock of the trace: how long each ran, and how long it was ready without a core; and
knows which line of the trace is which thread, and when something stopped the process (docs/method.md, "Stops").

The kernel counts both. `traceview capture` looks at them in rounds, a few milliseconds apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceview.base.ids import unique_inverse
from traceview.base.intervals import Int64Array, union
from traceview.base.units import PS_PER_NS, PS_PER_S
from traceview.trace.columns import NONE
from traceview.trace.model import HostSteps, Recording, step_groups
from traceview.trace.sidecar.sidecar import PythonThread

FURTHEST_NS: Final = (1 << 62) // PS_PER_NS
"""What is further from the start of the profile is as if it were so far away: outside of every span."""
_ROUND_NS: Final = 2_000_000
"""What is read in one round is closer together, and what is read in two is further apart."""
_MOST_CLOCKS: Final = 1 << 23
"""Of all threads in all rounds; of more only every second, third … round is kept."""


class ThreadClocks(Struct, frozen=True, eq=False, dict=True):
    """The clocks at the rounds in which they were read.

    `time_ps`: int64 `[r]`. `ran_ps`, `waited_ps`: int64 `[threads, r]`, what each had run and waited until then. `numbers`: the
    kernel's numbers of the threads. `idents`: what pthread_self returns in each, 0 where not known. `unnamed`: the numbers of those that
    nobody has named.
    """

    recording: Recording
    time_ps: Int64Array
    numbers: tuple[int, ...]
    idents: tuple[int, ...]
    ran_ps: Int64Array
    waited_ps: Int64Array
    unnamed: frozenset[int]

    @cached_property
    def ready_ps(self) -> Int64Array:
        """How long each had waited for a core until each round, int64 `[threads, r]`: when, and not when the kernel counted it.

        It counts a wait when that is over: what does not fit between two rounds, beside what the thread ran, began before.
        """
        waited_ps = np.diff(self.waited_ps, axis=1)
        room_ps = np.maximum(np.diff(self.time_ps) - np.diff(self.ran_ps, axis=1), 0)
        # From the last round back, what is more than there is time goes on to the one before.
        more_ps = np.cumsum((waited_ps - room_ps)[:, :0:-1], axis=1)
        handed_on = more_ps - np.minimum(np.minimum.accumulate(more_ps, axis=1), 0)
        waited_ps[:, :0:-1] -= handed_on
        waited_ps[:, -2::-1] += handed_on
        return np.cumsum(np.concatenate((self.waited_ps[:, :1], waited_ps), axis=1), axis=1)

    @cached_property
    def _place_of_id(self) -> dict[int, int]:
        of_threads = zip(self.idents, self.numbers, strict=True)
        return places_of_ids(
            PythonThread(ident or None, None, number) for ident, number in of_threads
        )

    def of_line(self, line: int) -> int:
        """The place of the thread whose events are on a line of the trace; `NONE` where no clock of it is known."""
        return self._place_of_id.get(id_bits(self.recording.lines[line].id), NONE)

    def of_python(self, thread: PythonThread) -> int:
        """The place of a thread of Python; `NONE` where no clock of it is known."""
        known = (each for each in line_ids(thread) if each is not None)
        places = (self._place_of_id.get(id_bits(each), NONE) for each in known)
        return next((place for place in places if place != NONE), NONE)


def clocks_of_hosts(recording: Recording) -> dict[int, ThreadClocks]:
    """The clocks of each host that has any, by index."""
    every = ((host, _of_host(recording, host)) for host in range(len(recording.hosts)))
    return {host: clocks for host, clocks in every if clocks is not None}


def _of_host(recording: Recording, host: int) -> ThreadClocks | None:
    """The clocks of a host; None where they were not recorded, or the trace does not say when the profile began."""
    info = recording.hosts[host]
    times = info.captured.threads
    if times is None or info.profile_start_ns is None:
        return None
    start_ns = info.profile_start_ns
    order = np.argsort(times.t_ns, kind="stable")
    is_next = np.append(True, np.diff(times.t_ns[order]) >= _ROUND_NS)
    round_of = np.empty(order.size, dtype=np.int64)
    round_of[order] = np.cumsum(is_next) - 1
    since_ns = np.clip(times.t_ns[order][is_next] - start_ns, -FURTHEST_NS, FURTHEST_NS)
    numbers, thread = unique_inverse(times.thread)
    every = np.arange(0, since_ns.size, 1 + numbers.size * since_ns.size // _MOST_CLOCKS)
    first = np.searchsorted(thread, np.arange(numbers.size))
    last = np.append(first[1:], thread.size)
    # A clock that did not move has no row in a round.
    row = [
        begin + np.maximum(np.searchsorted(round_of[begin:end], every, "right") - 1, 0)
        for begin, end in zip(first.tolist(), last.tolist(), strict=True)
    ]
    return ThreadClocks(
        recording=recording,
        time_ps=since_ns[every] * PS_PER_NS + info.start_ps,
        numbers=tuple(numbers.tolist()),
        idents=tuple(times.ident[last - 1].tolist()),
        ran_ps=times.ran_ns[np.stack(row)] * PS_PER_NS,
        waited_ps=times.waited_ns[np.stack(row)] * PS_PER_NS,
        unnamed=times.unnamed,
    )


# Stops

LEAST_STOP_PS: Final = PS_PER_S
"""Shorter ones stay in their steps; a choice of ours."""
STOPPED: Final = "a process was stopped in it"


def without_stops(
    recording: Recording, steps_by_host: tuple[HostSteps, ...]
) -> tuple[Recording, tuple[HostSteps, ...]]:
    """The recording with the stops of its hosts, and the steps; those in which a host of their group was stopped are left out."""
    stops = [_stops(recording, host) for host in range(len(recording.hosts))]
    steps = list(steps_by_host)
    for group in step_groups(recording.hosts) if any(stops) else ():
        spans = np.array([span for host in group for span in stops[host] or ()], dtype=np.int64)
        of_group = union(*spans.reshape(-1, 2).T)
        for host in group:
            stopped = [of_group.within(each.start_ps, each.end_ps) for each in steps[host].steps]
            marked = (
                replace(step, excluded=step.excluded or STOPPED) if ps else step
                for step, ps in zip(steps[host].steps, stopped, strict=True)
            )
            steps[host] = replace(steps[host], steps=tuple(marked))
    hosts = (replace(host, stops=of) for host, of in zip(recording.hosts, stops, strict=True))
    return replace(recording, hosts=tuple(hosts)), tuple(steps)


def _stops(recording: Recording, host: int) -> tuple[tuple[int, int], ...] | None:
    """Where a round of samples came late by so much, and no round of clocks came meanwhile; None where one of them was not recorded.

    A clock that moved shows a thread that ran, had no core, or waited for Python's lock: for that it wakes every few milliseconds.
    """
    info = recording.hosts[host]
    samples, start_ns = info.captured.python, info.profile_start_ns
    if samples is None or start_ns is None or info.captured.threads is None:
        return None
    found: list[tuple[int, int]] = []
    late_ps = np.minimum(samples.late_ns, np.diff(samples.t_ns, prepend=0)) * PS_PER_NS
    for row in np.flatnonzero(late_ps >= LEAST_STOP_PS).tolist():
        clocks = recording.once(clocks_of_hosts)[host]
        end_ps = min(int(samples.t_ns[row]) - start_ns, FURTHEST_NS) * PS_PER_NS + info.start_ps
        span_ps = end_ps - int(late_ps[row]), end_ps
        first, last = np.searchsorted(clocks.time_ps, span_ps).tolist()
        near = np.clip(clocks.time_ps[max(first - 1, 0) : last + 1], *span_ps)
        place = int(np.diff(near, append=near[-1]).argmax())
        both = np.s_[..., max(first - 1, 0) + place : max(first - 1, 0) + place + 2]
        ran_ps, waited_ps = np.diff(clocks.ran_ps[both]), np.diff(clocks.waited_ps[both])
        begin, *_, end = near[place : place + 2].tolist()
        if end - begin - int(ran_ps.sum()) - int(waited_ps.max(initial=0)) >= LEAST_STOP_PS:
            found.append((begin, end))
    return tuple(found) if (samples.late_ns >= 0).any() else None


# Threads

_BITS: Final = (1 << 64) - 1
_LOW_BITS: Final = (1 << 32) - 1
_HASH_SEED: Final = 0xC70F6907
_HASH_FACTOR: Final = 0xC6A4A7935BD1E995
_HASH_SHIFT: Final = 47
"""MurmurHash2 of 64 bits (libstdc++, hash_bytes.cc)."""


def line_ids(thread: PythonThread) -> tuple[int | None, ...]:
    """The ids that the line of a thread may have, the likelier first; None where the sidecar does not say."""
    address = thread.ident
    if address is None:
        return None, None, None, None, thread.native_id
    hashed = _hash(address)
    return hashed, hashed & _LOW_BITS, address, address & _LOW_BITS, thread.native_id


def places_of_ids(threads: Iterable[PythonThread]) -> dict[int, int]:
    """The place of each thread by every id that its line may have; of several threads with one id that with which it is likelier."""
    known: dict[int, int] = {}
    for forms in zip(*map(line_ids, threads), strict=True):
        for place, id_ in enumerate(forms):
            if id_ is not None:
                known.setdefault(id_bits(id_), place)
    return known


def id_bits(id_: int) -> int:
    """An id of a line without its sign, as ids are compared."""
    return id_ & _BITS


def _hash(address: int) -> int:
    mixed = _shifted(address * _HASH_FACTOR & _BITS) * _HASH_FACTOR & _BITS
    start = _HASH_SEED ^ (8 * _HASH_FACTOR & _BITS)
    return _shifted(_shifted((start ^ mixed) * _HASH_FACTOR & _BITS) * _HASH_FACTOR & _BITS)


def _shifted(value: int) -> int:
    return value ^ (value >> _HASH_SHIFT)
