"""Matches the events of different devices that are one collective (docs/method.md, "Collectives").

On GPUs the last replica to ask schedules the collective for all, and one launching thread per GPU runs it
(`base_collective_executor.cc`, `nccl_manager.cc`). The search for the op goes from the launch to the events around it, from
there to their producers, and on until it meets the keys:

    scope/CollectiveReduceV2:… ⊃ Schedule Collective ─▸ Run Collective ⊃ ncclAllReduce ⊃ launch
      group_key, instance_key                             per GPU          buffer_size
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.ids import (
    groups_of,
    is_in,
    labels,
    order_by,
    unique_counts,
    unique_ids,
    unique_inverse,
)
from traceview.base.intervals import BoolArray, Int32Array, Int64Array
from traceview.base.stats import median
from traceview.base.text import lazy_pattern
from traceview.trace.columns import (
    NONE,
    UNKNOWN_BYTES,
    CollectiveCalls,
    DeviceColumns,
    HostColumns,
    Names,
)
from traceview.trace.device.correlation import EventsAround, ProducerConsumerLinks
from traceview.trace.model import (
    HostSteps,
    LineInfo,
    Recording,
    Trace,
    step_groups,
    step_numbers_at,
    threads,
)
from traceview.xplane.planes import ActivityClass

CLEAR_LEAD: Final = 3
"""On several hosts a device counts as last only if its lead is more than this many times the spread of the ends."""


class CollectiveKind(IntEnum):
    """The operation of a collective."""

    UNKNOWN = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    ALL_TO_ALL = 4
    BROADCAST = 5
    REDUCE = 6
    SEND_RECV = 7


_KINDS: Final = (
    (lazy_pattern(rb"all_?-?reduce|collectivereducev|collectivereduce\b", re.I), "ALL_REDUCE"),
    (lazy_pattern(rb"all_?-?gather|collectivegather", re.I), "ALL_GATHER"),
    (lazy_pattern(rb"reduce_?-?scatter", re.I), "REDUCE_SCATTER"),
    (lazy_pattern(rb"all_?-?to_?-?all", re.I), "ALL_TO_ALL"),
    (lazy_pattern(rb"broadcast|bcast", re.I), "BROADCAST"),
    (lazy_pattern(rb"send_?recv|collective-?permute", re.I), "SEND_RECV"),
    (lazy_pattern(rb"reduce", re.I), "REDUCE"),
)


def collective_kind(name: bytes) -> CollectiveKind:
    """The kind that the name of a kernel, an op or a call of NCCL shows."""
    return next(
        (CollectiveKind[kind] for pattern, kind in _KINDS if pattern.search(name)),
        CollectiveKind.UNKNOWN,
    )


class Collectives(Struct, frozen=True, eq=False, dict=True):
    """One row per collective and device that took part, by collective and device; all arrays `[n]`.

    `collective`: int64, numbers from 0 in the order of their starts. `row`: int64, in the device columns;
    `device`: int16, in the device list. `start_ps`, `duration_ps`: int64; a replica of a CPU-only run takes part
    from where it hands the op over, before a thread runs it. `step`: int64, number of the step of its host in which
    it starts, `NONE` outside. `bytes`: int64, size of the buffer, what a device gives, or `UNKNOWN_BYTES`. `name`: int32, kernel or op;
    `op`: int32, the op that asked for it, `NONE` where not recorded. `kind`: uint8 `CollectiveKind`. `by_keys`:
    bool, matched by recorded keys. `group`: int64, equal for collectives among the same devices. `host`: int64,
    host of the device; `source`: int64, of a permutation the device that gives to this one, itself where none
    is known to, else `NONE`; `spread_ps`: int64, spread of the differences between ends on that host and on its
    reference host.
    """

    collective: Int64Array
    row: Int64Array
    device: npt.NDArray[np.int16]
    start_ps: Int64Array
    duration_ps: Int64Array
    step: Int64Array
    bytes: Int64Array
    name: Int32Array
    op: Int32Array
    kind: npt.NDArray[np.uint8]
    by_keys: BoolArray
    group: Int64Array
    host: Int64Array
    source: Int64Array
    spread_ps: Int64Array

    @property
    def end_ps(self) -> Int64Array:
        """Exclusive end of each row, int64 picoseconds."""
        return self.start_ps + self.duration_ps

    @cached_property
    def label(self) -> Int32Array:
        """The op that asked for it, by kernel where that is not recorded; int32 `[n]`."""
        return np.where(self.op == NONE, self.name, self.op)

    @cached_property
    def first(self) -> Int64Array:
        """The first row of each collective, int64 `[collectives]`."""
        return np.flatnonzero(np.diff(self.collective, prepend=-1))

    @cached_property
    def sends(self) -> Int64Array:
        """The rows in the device columns of those in which devices send to others, and reduce or gather nothing."""
        rows: Int64Array = self.row[self.kind == CollectiveKind.SEND_RECV]
        return rows

    @property
    def count(self) -> int:
        """Number of collectives."""
        return int(self.first.size)

    @cached_property
    def device_count(self) -> Int64Array:
        """Devices recorded in each collective, int64 `[collectives]`."""
        return np.diff(np.append(self.first, self.row.size))

    @cached_property
    def is_complete(self) -> BoolArray:
        """Whether every device of the group recorded the collective; bool `[collectives]`.

        The transfer and wait times of an incomplete one are unknown, because the missing device may be the last.
        A collective of a single device is incomplete.
        """
        groups, index = unique_inverse(self.group[self.first])
        most = np.zeros(groups.size, dtype=np.int64)
        np.maximum.at(most, index, self.device_count)
        result: BoolArray = (self.device_count == most[index]) & (self.device_count > 1)
        return result

    @cached_property
    def transfer_ps(self) -> Int64Array:
        """The shortest duration over the devices, int64 `[collectives]`: the last device waits for no other."""
        return np.minimum.reduceat(self.duration_ps, self.first)

    @cached_property
    def wait_ps(self) -> Int64Array:
        """How long each device waited: its duration beyond the transfer, int64 `[n]`."""
        return self.duration_ps - self.transfer_ps[self.collective]

    @cached_property
    def is_last(self) -> BoolArray:
        """Which events started after all the others of a complete collective, bool `[n]`; none in a tie.

        On one host the start decides, on several the duration (docs/method.md, "Transfer and wait").
        """
        first, result = self.first, np.zeros(self.row.size, dtype=np.bool_)
        over_hosts = np.minimum.reduceat(self.host, first) < np.maximum.reduceat(self.host, first)
        clear_ps = np.where(over_hosts, CLEAR_LEAD * np.maximum.reduceat(self.spread_ps, first), 0)
        by = np.where(over_hosts[self.collective], self.duration_ps, -self.start_ps)
        order = np.lexsort((by, self.collective))
        whole = np.flatnonzero(self.is_complete)
        last, other = order[first[whole]], order[first[whole] + 1]
        result[last[by[other] - by[last] > clear_ps[whole]]] = True
        return result

    @cached_property
    def first_step(self) -> Int64Array:
        """The step of the device that started first, int64 `[collectives]`; `NONE` outside of all steps."""
        order = np.lexsort((self.start_ps, self.collective))
        return self.step[order[self.first]]

    @cached_property
    def bytes_moved(self) -> Int64Array:
        """Bytes of the data of each collective, int64 `[collectives]`; `UNKNOWN_BYTES` where not recorded.

        For an all-gather the buffer of NCCL is the part of one device; the data is all parts together.
        """
        known = np.maximum.reduceat(self.bytes, self.first)
        gathers = (self.kind[self.first] == CollectiveKind.ALL_GATHER) & (known != UNKNOWN_BYTES)
        return np.where(gathers, known * self.device_count, known)


def collectives_of(trace: Trace) -> Collectives:
    """The collectives of the whole recording."""
    return match_collectives(trace, trace.steps_by_host)


def match_collectives(recording: Recording, steps_by_host: Sequence[HostSteps]) -> Collectives:
    """The collectives of a recording with these steps."""
    columns = recording.device_columns
    rows = np.flatnonzero(columns.class_ == ActivityClass.COLLECTIVE)
    calls = recording.collective_calls
    host = recording.host_of_device[columns.device[rows]]
    start = columns.start_ps[rows]
    handed_over = calls.arrival != NONE
    end = columns.end_ps[rows]
    arrival_ps = recording.host_columns.start_ps[calls.arrival[handed_over]]
    # An op that begins after the end of a collective did not hand it over, whatever its keys say.
    start[handed_over] = np.where(arrival_ps <= end[handed_over], arrival_ps, start[handed_over])
    step, _ = step_numbers_at(steps_by_host, host, start)
    size, members, source = _exchanges(recording, rows)
    label, group, by_keys = _labels(recording, rows, calls, members)
    collective = _matched(label, columns.device[rows].astype(np.int64), host, start, end, step)
    order = np.lexsort((columns.device[rows], collective))
    op = np.where(
        calls.op == NONE, columns.op[rows], np.append(recording.host_columns.name, NONE)[calls.op]
    )
    sends = np.uint8(CollectiveKind.SEND_RECV)
    # 0 without a comparison of ends.
    spreads = [(of.clock and of.clock.residual_ps) or 0 for of in recording.hosts]
    spread_ps = np.array(spreads, dtype=np.int64)
    return Collectives(
        collective=collective[order],
        row=rows[order],
        device=columns.device[rows][order],
        start_ps=start[order],
        duration_ps=(end - start)[order],
        step=step[order],
        bytes=np.where(calls.bytes == UNKNOWN_BYTES, size, calls.bytes)[order],
        name=columns.name[rows][order],
        op=op[order].astype(np.int32),
        kind=np.where(source == NONE, _kinds(recording, rows, calls, op), sends)[order],
        by_keys=by_keys[order],
        group=group[order],
        host=host[order],
        source=source[order],
        spread_ps=spread_ps[host[order]],
    )


def _exchanges(recording: Recording, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """What XLA programs say of collectives, by event: bytes, `UNKNOWN_BYTES` where not known; equal numbers for the same devices;
    and the source of permutations, as in `Collectives`.

    The number is `NONE` for all devices. Programs number devices as they are numbered on their host; those of several hosts are
    not told apart.
    """
    columns = recording.device_columns
    size = np.full(rows.size, UNKNOWN_BYTES, dtype=np.int64)
    number, source = np.full((2, rows.size), NONE, dtype=np.int64)
    alone = {hosts[0] for hosts in step_groups(recording.hosts) if len(hosts) == 1}
    on_host = Counter(device.host for device in recording.device_list)
    number_of: dict[frozenset[int], int] = {}
    devices = enumerate(recording.device_list)
    place_of = {(device.host, device.ordinal): place for place, device in devices}
    known = np.flatnonzero(columns.instruction[rows] != NONE)
    instruction, device_of = columns.instruction[rows[known]], columns.device[rows[known]]
    for group in groups_of(instruction, device_of.astype(np.int32)):
        at = known[group]
        exchange = recording.instructions[instruction[group[0]]].exchange
        if exchange is None:
            continue
        if exchange.bytes is not None:
            size[at] = exchange.bytes
        device = recording.device_list[device_of[group[0]]]
        if exchange.pairs:
            sources = [source for source, to in exchange.pairs if to == device.ordinal]
            given = sources[0] if sources and device.host in alone else device.ordinal
            source[at] = place_of.get((device.host, given), device_of[group[0]])
        members = next(
            (frozenset(each) for each in exchange.groups if device.ordinal in each), None
        )
        if members is None or device.host not in alone or len(members) == on_host[device.host]:
            continue
        number[at] = number_of.setdefault(members, len(number_of))
    return size, number, source


def _labels(
    recording: Recording, rows: Int64Array, calls: CollectiveCalls, members: Int64Array
) -> tuple[Int64Array, Int64Array, BoolArray]:
    """Labels that events of one collective share, their groups, and whether the label is made of recorded keys.

    The keys are used where every event of a name has them, else the name. Ops of replicas differ in name, so they
    share one; of XLA programs it is known which devices exchange with each other. Processes that make their steps independently use the same keys and share no collective.
    """
    columns = recording.device_columns
    is_replica = np.array(
        [device.kind == "replica" for device in recording.device_list], dtype=np.bool_
    )
    device = columns.device[rows]
    name = np.where(is_replica[device], NONE, columns.name[rows]).astype(np.int64)
    of_name = labels(name)
    lacking = np.zeros(of_name.max(initial=-1) + 1, dtype=np.bool_)
    lacking[of_name[calls.instance == NONE]] = True
    by_keys = ~lacking[of_name]
    apart = np.zeros(len(recording.hosts), dtype=np.int64)
    for place, hosts in enumerate(step_groups(recording.hosts)):
        apart[list(hosts)] = place
    keys = [
        apart[recording.host_of_device[device]],
        np.where(by_keys, NONE, name),
        np.where(by_keys, calls.group, NONE),
        members,
        np.where(by_keys, calls.instance, NONE),
    ]
    return labels(*keys), labels(*keys[:4]), by_keys


def _matched(
    label: Int64Array,
    device: Int64Array,
    host: Int64Array,
    start: Int64Array,
    end: Int64Array,
    step: Int64Array,
) -> Int64Array:
    """The number of the collective of each event, counted from 0 in the order of their starts."""
    order = order_by(label, device, start, end)
    opens = (np.diff(label[order], prepend=-1) != 0) | (np.diff(device[order], prepend=-1) != 0)
    place, at = np.empty(order.size, dtype=np.int64), np.arange(order.size)
    place[order] = at - np.maximum.accumulate(np.where(opens, at, 0))
    index = labels(label, place)
    # Where each device has an event, in one step, nothing is shifted, nor is a single event.
    any_row = np.empty(index.max(initial=-1) + 1, dtype=np.int64)
    any_row[index] = at
    lacks = np.bincount(index)[index] < np.bincount(label[place == 0])[label]
    odd = lacks | (step != step[any_row[index]])
    repeated = is_in(label, unique_ids(label[place > 0])) & is_in(label, unique_ids(label[odd]))
    rows_of_odd = order[repeated[order]]
    for of_label in groups_of(label[rows_of_odd]):
        own = rows_of_odd[of_label]
        parts = [own[of_device] for of_device in groups_of(device[own])]
        # Equally many events match place by place if most of them are in the same step.
        steps = [step[rows] for rows in parts]
        if all(of.size == steps[0].size and 2 * (of != steps[0]).sum() <= of.size for of in steps):
            continue
        longest = max(parts, key=len)
        for rows in parts:
            place[rows] += _shift(longest, rows, host, end, step)
    if rows_of_odd.size:
        index = labels(label, place)
    began = np.full(index.max(initial=-1) + 1, np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(began, index, start)
    rank = np.empty(began.size, dtype=np.int64)
    rank[np.argsort(began, kind="stable")] = np.arange(began.size)
    return rank[index]


def _shift(
    longest: Int64Array, rows: Int64Array, host: Int64Array, end: Int64Array, step: Int64Array
) -> int:
    """By how many places to shift the events of one device, so that they match those of the one with most.

    In a tie of votes the shift with the smallest distance between the ends wins.
    """
    votes = np.empty(0, dtype=np.int64)
    if host[rows[0]] != host[longest[0]]:
        votes = _votes_of_steps(step[longest], step[rows])
    if not votes.size:
        votes = _votes_of_ends(end[longest], end[rows])
    values, count = unique_counts(votes)
    best = values[count == count.max()].tolist()
    return int(min(best, key=lambda shift: _distance(end[longest], end[rows], shift)))


def _votes_of_ends(longest_end: Int64Array, end: Int64Array) -> Int64Array:
    """For each event the shift that makes it match the event that ends nearest: on one clock, all devices leave together."""
    after = np.minimum(np.searchsorted(longest_end, end), longest_end.size - 1)
    before = np.maximum(after - 1, 0)
    nearer = np.abs(longest_end[before] - end) < np.abs(longest_end[after] - end)
    return np.where(nearer, before, after) - np.arange(end.size)


def _votes_of_steps(longest_step: Int64Array, step: Int64Array) -> Int64Array:
    """For the first and the last event of each common step the shift that makes them match; clocks may differ."""
    by_first = _first_votes(longest_step, step)
    by_last = longest_step.size - step.size - _first_votes(longest_step[::-1], step[::-1])
    return np.concatenate((by_first, by_last))


def _first_votes(longest_step: Int64Array, step: Int64Array) -> Int64Array:
    """For each common step the shift that makes the first events of both devices match."""
    common, there, here = np.intersect1d(longest_step, step, return_indices=True)
    votes: Int64Array = (there - here)[common != NONE]
    return votes


def _distance(longest_end: Int64Array, end: Int64Array, shift: int) -> float:
    """Median distance between the ends of events that match after a shift."""
    low, high = max(0, -shift), min(end.size, longest_end.size - shift)
    if low >= high:
        return float("inf")
    return median(np.abs(longest_end[low + shift : high + shift] - end[low:high]))


def _kinds(
    recording: Recording, rows: Int64Array, calls: CollectiveCalls, op: Int64Array
) -> npt.NDArray[np.uint8]:
    """The kind by the name of the kernel; where that does not show it, by the call of NCCL, then by the op."""
    called = np.append(recording.host_columns.name, NONE)[calls.call]
    kind = np.zeros(rows.size, dtype=np.uint8)
    for name in (recording.device_columns.name[rows], called, op):
        unknown = kind == CollectiveKind.UNKNOWN
        kind[unknown] = recording.names.each(
            name[unknown], collective_kind, np.uint8, CollectiveKind.UNKNOWN
        )
    return kind


# The host calls behind a collective

_CALL: Final = b"nccl"
_ARRIVAL: Final = b"CollectiveOpV2Kernel::Run"
_MOST_HANDOVERS: Final = 4
"""Handovers between threads that are followed from a launch or an op; writers are known to make two."""


def find_collective_calls(
    device: DeviceColumns, host: HostColumns, names: Names, lines: Sequence[LineInfo]
) -> CollectiveCalls:
    """The host calls behind the collectives of one host."""
    rows = np.flatnonzero(device.class_ == ActivityClass.COLLECTIVE)
    op, call, arrival = (np.full(rows.size, NONE, dtype=np.int64) for _ in range(3))
    at = device.launch[rows].astype(np.int64)
    group, instance, size = (host.stat(key) for key in ("group_key", "instance_key", "buffer_size"))
    if (at != NONE).any() and instance.row.size + size.row.size:
        thread = threads(lines)
        is_call = names.where(host.name[size.row], lambda name: name.startswith(_CALL))
        keyed, sized = instance.row, size.row[is_call]
        searched = [
            (result, carriers, EventsAround(carriers, host, thread))
            for result, carriers in ((op, keyed), (call, sized))
        ]
        links = ProducerConsumerLinks(host, thread, slice(0, host.count))
        for _ in range(_MOST_HANDOVERS):
            for result, carriers, around in searched:
                missing = np.flatnonzero((result == NONE) & (at != NONE))
                result[missing] = np.append(carriers, NONE)[around.innermost(at[missing])]
            known = np.flatnonzero(at != NONE)
            at[known] = links.producer_of(at[known])
            if (at == NONE).all():
                break
            arrives = at != NONE
            arrives[arrives] = names.matching(host.name[at[arrives]], [_ARRIVAL])
            arrival[arrives] = at[arrives]
    return CollectiveCalls(
        op=op,
        group=group.at(op, NONE),
        instance=instance.at(op, NONE),
        call=call,
        bytes=size.at(call, UNKNOWN_BYTES),
        arrival=arrival,
    )
