"""Holds the ledger: one row per segment of a device's time, and the sums that every stated time is made from.

    device   step   start      duration   state      activity   by            event
    GPU:0    5      1.20 ms    0.40 ms    compute    compute    model/conv1   the kernel
    GPU:0    5      1.60 ms    2.10 ms    input      idle       tf_data …     the request

The segments of a device partition its window, so sums over states hold exactly. A share is one of the *GPU time*: all rows of all
visible devices in the used steps, or without steps in the window.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceview.base.ids import is_in, unique_ids, unique_inverse
from traceview.base.intervals import BoolArray, Int32Array, Int64Array, IntervalSet, places, union
from traceview.base.sweeping import SWEEPS
from traceview.ledger.columns import ACTIVITIES, IDLE, WAITS, By, Columns
from traceview.ledger.states import KEYS, State
from traceview.trace.columns import NONE
from traceview.trace.device.table import Column, Table, category, flag, named, table, whole
from traceview.trace.host.gaps import Gaps
from traceview.trace.model import Step, Trace

if TYPE_CHECKING:
    import pandas as pd


AS_LONG_RATIO: Final = 0.5
"""Of the longest loss of a device: with this share of it a device is named as well."""


class Loss(Struct, frozen=True):
    """How much of what some rows are.

    `ps`: their sum. `gpu_ps`: the GPU time. `devices`: keys of the devices named. `named_ps`: the sum on these;
    `named_gpu_ps`: their GPU time; `named_steps`: their used steps, summed over them, 0 in a run without steps.
    `step_count`: used steps of the run, of several hosts those of the host with most.
    """

    ps: int
    gpu_ps: int
    devices: tuple[str, ...]
    named_ps: int
    named_gpu_ps: int
    named_steps: int
    step_count: int

    @property
    def share(self) -> float:
        """Share of the GPU time of all visible devices; what ranks."""
        return self.ps / self.gpu_ps if self.gpu_ps else 0.0

    @property
    def mean_ps(self) -> int:
        """Mean per step of the devices named, rounded down; without steps, per window."""
        return self.named_ps // self._spans if self._spans else 0

    @property
    def of_ps(self) -> int:
        """The mean step of the devices named, rounded down; without steps, their window."""
        return self.named_gpu_ps // self._spans if self._spans else 0

    @property
    def named_share(self) -> float:
        """Share of the step of the devices named; what a sentence states."""
        return self.named_ps / self.named_gpu_ps if self.named_gpu_ps else 0.0

    def times(self, ratio: float) -> Loss:
        """This part of it, rounded down."""
        if ratio == 1:
            return self
        return replace(self, ps=int(self.ps * ratio), named_ps=int(self.named_ps * ratio))

    @property
    def _spans(self) -> int:
        return self.named_steps or len(self.devices)


class Ledger(Struct, frozen=True, eq=False, dict=True):
    """The segments of all visible devices, device by device, and what is made of them.

    `devices`: the visible devices of hosts that recorded device events, ascending numbers of the device list; `first`
    `[devices + 1]`: where the rows of each begin. `steps`: those of all hosts in their windows, host by host. `python`:
    the lines of Python that caused something. `input_ratio`: the share of its window for which the input pipeline of a host
    works ahead of the steps; of several hosts the largest.
    """

    trace: Trace
    columns: Columns
    devices: tuple[int, ...]
    first: tuple[int, ...]
    steps: tuple[Step, ...]
    python: tuple[str, ...] = ()
    input_ratio: float = 0.0

    def rows_of(self, device: int) -> slice:
        """The rows of a device; none if it is not visible."""
        return self._rows_of_device.get(device, slice(0, 0))

    @cached_property
    def _rows_of_device(self) -> dict[int, slice]:
        return dict(zip(self.devices, map(slice, self.first, self.first[1:]), strict=False))

    @cached_property
    def is_used(self) -> BoolArray:
        """By step, whether it takes part in statistics; bool `[steps]`."""
        return np.array([step.excluded is None for step in self.steps], dtype=np.bool_)

    @cached_property
    def has_steps(self) -> bool:
        """Whether times are per step; otherwise of the whole window."""
        return bool(self.is_used.any())

    @property
    def count(self) -> int:
        """Number of segments."""
        return self.columns.count

    @cached_property
    def device(self) -> npt.NDArray[np.int16]:
        """The device of each row, in the device list."""
        first = np.array(self.first, dtype=np.int64)
        return np.repeat(np.array(self.devices, dtype=np.int16), first[1:] - first[:-1])

    def steps_of(self, device: int) -> slice:
        """The steps of the host of a device, by their places among all steps."""
        host = self.trace.device_list[device].host
        return self._steps_of_host.get(host, slice(0, 0))

    @cached_property
    def _steps_of_host(self) -> dict[int, slice]:
        hosts, first = np.unique([step.host for step in self.steps], return_index=True)
        bounds = [*first.tolist(), len(self.steps)]
        return dict(zip(hosts.tolist(), map(slice, bounds, bounds[1:]), strict=False))

    def keys(self, devices: Iterable[int]) -> tuple[str, ...]:
        """The keys of devices, as sentences name them."""
        return tuple(self.trace.device_key(device) for device in devices)

    @cached_property
    def counts(self) -> BoolArray:
        """Which rows take part in sums: those of used steps; without any, all."""
        if not self.has_steps:
            return np.ones(self.count, dtype=np.bool_)
        # Outside of steps is the last place.
        result: BoolArray = np.append(self.is_used, False).take(self.columns.step)
        return result

    @cached_property
    def steps_of_device(self) -> dict[int, int]:
        """Used steps of the host of each device."""
        used = self.is_used
        return {device: int(used[self.steps_of(device)].sum()) for device in self.devices}

    # Queries

    def rows(
        self,
        *,
        states: Collection[State] | None = None,
        devices: Collection[int] | None = None,
        by_device: int | None = None,
        events: Int64Array | None = None,
    ) -> BoolArray:
        """Which rows are of these states and devices (numbers of the device list), and by a device; bool `[n]`.

        `events`: rows of the device columns, in which the device is busy with one of these. Only rows that take part in
        sums are chosen.
        """
        columns = self.columns
        chosen = self.counts.copy()
        if states is not None:
            wanted = np.zeros(len(State), dtype=np.bool_)
            wanted[[int(state) for state in states]] = True
            chosen &= wanted.take(columns.state)
        if devices is not None:
            for device in frozenset(self.devices).difference(devices):
                chosen[self.rows_of(device)] = False
        if by_device is not None:
            chosen &= (columns.by_kind == By.DEVICE) & (columns.by == by_device)
        if events is not None:
            chosen &= (columns.activity != IDLE) & is_in(columns.event, events)
        return chosen

    def loss(
        self, rows: BoolArray, named: Collection[int] | None = None, *, keeps_waiting: bool = False
    ) -> Loss:
        """The sum of some rows. `named`: the devices that a sentence about it names; by default those that lose half as
        much as the one that loses most, or more. `keeps_waiting`: with what other devices wait meanwhile for these.
        """
        of_device = self.by_device(rows)
        if keeps_waiting:
            waits = self._kept_waiting(rows)
            of_device = {device: ps + waits[device] for device, ps in of_device.items()}
        return self.loss_of(of_device, named)

    def _kept_waiting(self, rows: BoolArray) -> dict[int, int]:
        """By device how long it waits for other devices because of some rows of theirs, picoseconds.

        While the other one is in the rows; for the rest as much, step by step, as the other one has lost to them more than the
        one that waits, by its own and by such waits. Hosts share the numbers of steps; what lies outside of steps is one more.
        """
        columns, waits = self.columns, self._waits & (self.columns.by_kind == By.DEVICE)
        distinct, place = numbers_of(self.steps)
        place_of_step = np.append(place, distinct.size)

        def by_number(chosen: Int64Array, values: Int64Array) -> Int64Array:
            return totals(place_of_step[columns.step[chosen]], values, distinct.size + 1)

        spans: dict[int, IntervalSet] = {}
        lost: dict[int, Int64Array] = {}
        found: list[tuple[int, int, Int64Array, Int64Array]] = []
        for device in self.devices:
            own = self.rows_of(device)
            chosen, waiting = (np.flatnonzero(of[own]) + own.start for of in (rows, waits))
            lost[device] = by_number(chosen, columns.duration_ps[chosen])
            # Of a host without a window nobody knows what it was in.
            for holder in self._rows_of_device.keys() & unique_ids(columns.by[waiting]).tolist():
                if holder not in spans:
                    spans[holder] = self.spans_of((holder,), rows)
                held = waiting[columns.by[waiting] == holder]
                start, duration = columns.start_ps[held], columns.duration_ps[held]
                within = spans[holder].within(start, start + duration)
                meanwhile = by_number(held, within)
                lost[device] += meanwhile
                found.append((device, holder, meanwhile, by_number(held, duration - within)))
        result = dict.fromkeys(self.devices, 0)
        for device, holder, meanwhile, rest in found:
            late_ps = np.clip(lost[holder] - lost[device], 0, rest)
            result[device] += int(meanwhile.sum() + late_ps.sum())
        return result

    def loss_of(self, of_device: Mapping[int, int], named: Collection[int] | None = None) -> Loss:
        """The loss that each device has so much of; `named` as in `loss`."""
        if named is None:
            most = max(of_device.values(), default=0)
            named = [d for d, ps in of_device.items() if ps and ps >= AS_LONG_RATIO * most]
        whole = self.gpu_ps_by_device
        chosen = sorted(named)
        return Loss(
            ps=sum(of_device.values()),
            gpu_ps=sum(whole.values()),
            devices=self.keys(chosen),
            # A device without a used step has no rows, and loses nothing.
            named_ps=sum(of_device.get(device, 0) for device in chosen),
            named_gpu_ps=sum(whole.get(device, 0) for device in chosen),
            named_steps=sum(self.steps_of_device.get(device, 0) for device in chosen),
            step_count=max(self.steps_of_device.values(), default=0),
        )

    @cached_property
    def gpu_ps_by_device(self) -> dict[int, int]:
        """The GPU time of each device: the length of its used steps, or without steps of its window."""
        return self.by_device(self.counts)

    def by_device(self, rows: BoolArray) -> dict[int, int]:
        """The sum of some rows of each device, by its number."""
        own = map(self.rows_of, self.devices)
        sums = [int(self.columns.duration_ps[of] @ rows[of]) for of in own]
        return dict(zip(self.devices, sums, strict=True))

    def per_step(self, rows: BoolArray) -> dict[int, int | None]:
        """The sum of some rows of each device per used step of its host, mean, rounded down; None without steps."""
        sums, steps = self.by_device(rows & self.counts), self.steps_of_device
        return {each: ps // steps[each] if steps[each] else None for each, ps in sums.items()}

    def by_step(self, rows: BoolArray, device: int) -> Int64Array:
        """The sum of some rows of a device in each used step of its host, int64 `[steps]`; without steps one number."""
        total = self._in_steps(rows, device)
        return total[self.is_used[self.steps_of(device)]] if self.has_steps else total

    def by_state(self, device: int) -> dict[State, int]:
        """The time of a device in each state that occurs, in the order of states; of the rows that take part in sums."""
        return self._by_state(device, self.counts[self.rows_of(device)])

    def idle_by_state(self, device: int) -> dict[State, int]:
        """The same of all its idle rows."""
        return self._by_state(device, self.columns.activity[self.rows_of(device)] == IDLE)

    def _by_state(self, device: int, chosen: BoolArray) -> dict[State, int]:
        own, columns = self.rows_of(device), self.columns
        total = totals(columns.state[own], columns.duration_ps[own] * chosen, len(State))
        return {State(i): ps for i, ps in enumerate(total.tolist()) if ps}

    def states_of_steps(self, device: int) -> Int64Array:
        """The time of a device by state and step of its host, int64 `[states, steps of the host]`."""
        own, count = self.rows_of(device), self._step_count(device)
        # Outside of steps it is below 0.
        place = self._steps_of_rows(device) * np.int32(len(State)) + self.columns.state[own]
        flat = totals(place, self.columns.duration_ps[own], len(State) * count)
        return flat.reshape(count, len(State)).T

    def _step_count(self, device: int) -> int:
        steps = self.steps_of(device)
        return int(steps.stop - steps.start)

    def _steps_of_rows(self, device: int) -> Int32Array:
        """The step of each row of a device, counted from the first of its host; below 0 outside of steps."""
        step = self.columns.step[self.rows_of(device)]
        first = self.steps_of(device).start
        return step - np.int32(first) if first else step

    def spans_of(self, devices: Collection[int], rows: BoolArray) -> IntervalSet:
        """When one of these devices or more is in some rows."""
        own = [np.flatnonzero(rows[self.rows_of(d)]) + self.rows_of(d).start for d in devices]
        chosen = np.concatenate(own)
        start = self.columns.start_ps[chosen]
        return union(start, start + self.columns.duration_ps[chosen])

    # The critical path

    @cached_property
    def path(self) -> PathRows:
        """What made the used steps as long as they were; without steps, the windows."""
        return path_of(self)

    def bound_ps(self, rows: BoolArray) -> int:
        """By how much the mean step would be shorter if these rows took no time and all else as long; 0 or more.

        It is their part of the critical path, step by step no more than any device has of them and of time in which it has
        no work, or waits for others: what else it does lasts as long as before. Waits for a device are on no path, which
        goes on along that device: of them it is what the device waits that waits longest.
        """
        path, waits = self.path, self._waits & rows
        lost, on_path = waits[path.row], rows[path.row]
        step = path.step if self.has_steps else np.zeros(path.row.size, dtype=np.int32)
        count = len(self.steps) if self.has_steps else 1
        gained = totals(step, path.duration_ps * (on_path & ~lost), count)
        # Waits that cannot be followed are on the path.
        longest = totals(step, path.duration_ps * lost, count)
        spare = rows | self.rows(states=(*WAITS, State.NO_WORK, State.UNKNOWN))
        for device in self.devices:
            of_host = self.steps_of(device) if self.has_steps else slice(1)
            np.minimum(gained[of_host], self._in_steps(spare, device), out=gained[of_host])
            np.maximum(longest[of_host], self._in_steps(waits, device), out=longest[of_host])
        return int(gained.sum() + longest.sum()) // (int(self.is_used.sum()) or 1)

    @cached_property
    def without_core_ratio(self) -> float:
        """The share of the GPU time in which threads were ready and had no core, but for other processes or a limit of their own."""
        return self.loss(self.rows(states=(State.NO_CORE,))).share

    @cached_property
    def _waits(self) -> BoolArray:
        return self.rows(states=WAITS)

    def _in_steps(self, rows: BoolArray, device: int) -> Int64Array:
        """The sum of some rows of a device in each step of its host; without steps one number."""
        own = self.rows_of(device)
        duration_ps, chosen = self.columns.duration_ps[own], rows[own]
        if not self.has_steps:
            return np.array([duration_ps[chosen].sum()], dtype=np.int64)
        step, count = self._steps_of_rows(device), self._step_count(device)
        total: Int64Array = SWEEPS.totals(step, duration_ps, count, chosen.view(np.uint8))
        return total

    # Views

    def to_frame(self) -> pd.DataFrame:
        """The ledger as a DataFrame, a row a segment.

        Columns: device (key), step (number; missing outside of steps), is_used, start_ps, duration_ps, state, activity,
        by_kind, by (device, thread or op), event (name of the device event).
        """
        from traceview.trace.device.table import frame_of

        # Text that is no category, as in other frames.
        texts = {"by": "string", "event": "string"}
        return frame_of(self.table(slice(None))).astype(texts)

    def table(self, rows: slice) -> Table:
        """These rows, with the columns of `to_frame`."""
        columns, trace = self.columns, self.trace
        keys = [trace.device_key(device) for device in range(len(trace.device_list))]
        numbers = np.array([*(step.number for step in self.steps), NONE], dtype=np.int64)
        step, kinds = columns.step[rows], [kind.name.lower() for kind in By]
        names = np.append(trace.device_columns.name, NONE)[columns.event[rows]]
        return table(
            "ledger",
            category("device", self.device[rows], keys),
            whole("step", numbers[step], step == NONE),
            flag("is_used", np.append(self.is_used, False)[step]),
            whole("start_ps", columns.start_ps[rows]),
            whole("duration_ps", columns.duration_ps[rows]),
            category("state", columns.state[rows], KEYS),
            category("activity", columns.activity[rows], ACTIVITIES),
            category("by_kind", columns.by_kind[rows], kinds),
            self._causers(columns.by_kind[rows], columns.by[rows]),
            named("event", names, trace.names),
        )

    def _causers(self, kind: npt.NDArray[np.integer], by: npt.NDArray[np.integer]) -> Column:
        """The device, thread, op or line of Python that caused each of these rows."""
        trace = self.trace
        text_of: dict[int, Callable[[int], str | None]] = {
            By.DEVICE: trace.device_key,
            By.THREAD: lambda line: trace.lines[line].name,
            By.OP: trace.names.text,
            By.PYTHON: self.python.__getitem__,
        }
        codes, labels = np.full(by.size, NONE, dtype=np.int64), list[str]()
        for of, text in text_of.items():
            chosen = np.flatnonzero((kind == of) & (by != NONE))
            distinct, index = unique_inverse(by[chosen])
            codes[chosen] = index + len(labels)
            labels += [text(number) or "" for number in distinct.tolist()]
        return category("by", codes, labels)


def by_size(picoseconds: Mapping[str, int]) -> dict[str, int]:
    """Picoseconds by key of the state, largest first; states that do not occur are left out."""
    known = [(key, ps) for key, ps in picoseconds.items() if ps]
    return dict(sorted(known, key=lambda item: -item[1]))


def numbers_of(steps: Sequence[Step]) -> tuple[Int64Array, Int64Array]:
    """The numbers of steps, ascending, and which of these each step has; hosts share them."""
    return unique_inverse(np.array([step.number for step in steps], dtype=np.int64))


def totals(places: npt.NDArray[np.integer], values: Int64Array, length: int) -> Int64Array:
    """The exact sum of the values at each place; places below 0 are left out."""
    total: Int64Array = SWEEPS.totals(places, values, length)
    return total


class GapStates(Struct, frozen=True, eq=False):
    """The states of some gaps of a device, in time order.

    Per idle row in them, all `[n]`: int64 `start_ps`, `end_ps`, `gap`, the place of its gap among them; uint8 `state`. Per
    gap, all `[m]`: int64 `by_state`, the time in each state that occurs, in the order of states; uint8 `largest`, the state
    with most of it, of equal ones the first.
    """

    start_ps: Int64Array
    end_ps: Int64Array
    gap: Int64Array
    state: npt.NDArray[np.uint8]
    by_state: Mapping[int, Int64Array]
    largest: npt.NDArray[np.uint8]

    def parts_of(self, chosen: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """The idle rows of some gaps in the largest state of each: start, end, and the place of the gap in `chosen`."""
        place = np.full(self.largest.size, NONE, dtype=np.int64)
        place[chosen] = np.arange(chosen.size)
        is_part = (self.state == self.largest[self.gap]) & (place[self.gap] != NONE)
        return self.start_ps[is_part], self.end_ps[is_part], place[self.gap[is_part]]

    def longest_parts(self) -> tuple[Int64Array, Int64Array]:
        """Start and end of the longest idle row of each gap in its largest state, of equal ones the first."""
        start, end, place = self.parts_of(np.arange(self.largest.size))
        order = np.lexsort((start, start - end, place))
        first = order[np.flatnonzero(np.diff(place[order], prepend=NONE))]
        result = np.zeros((2, self.largest.size), dtype=np.int64)
        result[:, place[first]] = start[first], end[first]
        return result[0], result[1]


def gap_states(ledger: Ledger, gaps: Gaps, chosen: Int64Array) -> GapStates:
    """The states of the gaps of these numbers, ascending, that a device has in the window of the ledger."""
    own, columns = ledger.rows_of(gaps.device), ledger.columns
    begins = columns.start_ps[own]
    # All rows between the bounds of a gap are idle.
    first, last = (places(begins, bound[chosen]) for bound in (gaps.start_ps, gaps.end_ps))
    count = last - first
    gap = np.repeat(np.arange(chosen.size), count)
    rows = own.start + np.arange(gap.size) + (last - np.cumsum(count))[gap]
    start, duration, state = columns.start_ps[rows], columns.duration_ps[rows], columns.state[rows]
    known = np.flatnonzero(np.bincount(state))
    place = np.zeros(len(State), dtype=np.int64)
    place[known] = np.arange(known.size) * chosen.size
    sums = SWEEPS.totals(place.take(state) + gap, duration, known.size * chosen.size)
    by_state = dict(zip(known.tolist(), sums.reshape(known.size, chosen.size), strict=True))
    largest = np.full(chosen.size, State.UNKNOWN, dtype=np.uint8)
    most_ps = np.zeros(chosen.size, dtype=np.int64)
    for number, in_state in by_state.items():
        largest[in_state > most_ps] = number
        np.maximum(most_ps, in_state, out=most_ps)
    return GapStates(start, start + duration, gap, state, by_state, largest)


# The critical path

_FOR_NOBODY: Final = -2
"""Of a row in which a device waits for no other one."""


class PathRows(Struct, frozen=True, eq=False):
    """The critical path of the used steps: parts of segments, all arrays `[n]`; per step they sum to its length.

    int64 `row` of the ledger, `start_ps`, `duration_ps`; int32 `step`.
    """

    row: Int64Array
    start_ps: Int64Array
    duration_ps: Int64Array
    step: Int32Array


def clocks_agree(trace: Trace, devices: Sequence[int]) -> bool:
    """Whether collectives show that a moment on one of the devices is the same on another."""
    hosts = {trace.device_list[device].host for device in devices}
    clocks = [trace.hosts[host].clock for host in hosts]
    # The host that the others are aligned to has no residual itself.
    unaligned = sum(clock is None or clock.residual_ps is None for clock in clocks)
    return len(clocks) == 1 or unaligned <= 1


def path_of(ledger: Ledger) -> PathRows:
    """The critical path of the used steps; without steps, of the window of each host (docs/method.md, "Critical path"):

        GPU:0   ▕ compute ▏▕ waits for GPU:1 ······▕ transfer ▏        ◂ the step ends here
                                                   ┆
        GPU:1   ▕ input ······▏▕ compute          ▏▕ transfer ▏
                ◂──────── the path goes on ────────┘

    The pieces of a step touch each other and cover it, so they sum to its length.
    """
    columns = ledger.columns
    is_active = columns.activity != IDLE
    # A device that was given no work holds nobody up.
    takes_part = [bool(is_active[ledger.rows_of(device)].any()) for device in ledger.devices]
    walks = _walks(ledger, np.flatnonzero(takes_part).tolist())
    begins_on = _last_active(ledger, is_active, takes_part, walks)
    runs = _Walker(ledger, takes_part).runs(walks, begins_on)
    first, last, low, high, step = np.array(runs, dtype=np.int64).reshape(-1, 5).T
    of_run = np.repeat(np.arange(first.size), last + 1 - first)
    row = np.arange(of_run.size) + (last + 1 - np.cumsum(last + 1 - first))[of_run]
    start = np.maximum(columns.start_ps[row], low[of_run])
    end = np.minimum(columns.start_ps[row] + columns.duration_ps[row], high[of_run])
    return PathRows(row, start, end - start, step[of_run].astype(np.int32))


_Walk: TypeAlias = tuple[int, int, int, int]
"""What to walk back along: the step, its host, start and end."""
_Run: TypeAlias = tuple[int, int, int, int, int]
"""A part of a walk on one device: its first and last row, start and end, and the step."""


def _last_active(
    ledger: Ledger, is_active: BoolArray, takes_part: Sequence[bool], walks: Sequence[_Walk]
) -> list[int]:
    """The place of the device that each walk begins on: of its host the one that is active last, then the one that is for longest."""
    columns, hosts = ledger.columns, ledger.trace.device_list
    of_walk, low, high = np.array(walks, dtype=np.int64).reshape(-1, 4).T[1:].copy()
    best = np.full((2, len(walks)), np.iinfo(np.int64).min)
    result = np.zeros(len(walks), dtype=np.int64)
    for place, device in enumerate(ledger.devices):
        chosen = np.flatnonzero(of_walk == hosts[device].host)
        if not takes_part[place] or not chosen.size:
            continue
        own = ledger.rows_of(device)
        start, duration, active = columns.start_ps[own], columns.duration_ps[own], is_active[own]
        passed = np.append(0, np.cumsum(duration * active))
        first, last = (places(start, bound[chosen]) - 1 for bound in (low + 1, high))
        latest = np.maximum.accumulate(np.where(active, np.arange(active.size), NONE))[last]
        end = np.append(start + duration, 0)[latest]
        until = np.where(latest == NONE, low[chosen], np.minimum(end, high[chosen]))
        until = np.maximum(until, low[chosen])
        before, after = (
            passed[row] + active[row] * (bound[chosen] - start[row])
            for row, bound in ((first, low), (last, high))
        )
        most_until, most_length = best[:, chosen]
        length = after - before
        is_better = (until > most_until) | ((until == most_until) & (length > most_length))
        best[:, chosen[is_better]] = until[is_better], length[is_better]
        result[chosen[is_better]] = place
    return result.tolist()


class _Walker:
    """Walks back along the devices of a ledger, from each to the one that it waits for."""

    def __init__(self, ledger: Ledger, takes_part: Sequence[bool]) -> None:
        waits, columns, devices = _waits_for(ledger), ledger.columns, ledger.trace.device_list
        self._takes_part = takes_part
        self._start, self._first = columns.start_ps, ledger.first
        self._waiting = np.flatnonzero(waits != _FOR_NOBODY).tolist()
        self._waits_for = dict(zip(self._waiting, waits[self._waiting].tolist(), strict=True))
        self._host = [devices[device].host for device in ledger.devices]
        of_walks = np.flatnonzero(takes_part).tolist()
        first, after = ledger.first, ledger.first[1:]
        end_ps = columns.end_ps
        self._begin = {each: int(columns.start_ps[first[each]]) for each in of_walks}
        self._end = {each: int(end_ps[after[each] - 1]) for each in of_walks}
        self._has_one_clock = clocks_agree(
            ledger.trace, [ledger.devices[each] for each in of_walks]
        )

    def runs(self, walks: Sequence[_Walk], begins_on: Sequence[int]) -> list[_Run]:
        """The parts of all walks, in time order."""
        found: list[_Run] = []
        for (step, _, low, high), device in zip(walks, begins_on, strict=True):
            parts = [(*part, step) for part in self._walked(device, low, high)]
            found += reversed(parts)
        return found

    def _walked(self, device: int, low: int, high: int) -> Iterator[tuple[int, int, int, int]]:
        """The parts of one walk, from its end: first and last row, start and end.

        Where the rows of another host begin, it goes back to the device of its own host that it left last. Of devices that wait
        for each other the one that began last keeps the wait.
        """
        home, own_host, passed = device, self._host[device], [device]
        while high > low:
            if high <= self._begin[device]:
                device, passed = home, [home]
            row = self._row_before(device, high)
            other = self._waits_for.get(row, _FOR_NOBODY)
            first = row
            if self._can_follow(device, other, high):
                is_new = other not in passed
                if is_new:
                    passed.append(other)
                    device = other
                else:
                    circle = [
                        (self._row_before(place, high), place)
                        for place in passed[passed.index(other) :]
                    ]
                    first, device = max(circle, key=lambda each: self._start[each[0]])
                    row = first
                home = device if self._host[device] == own_host else home
                if is_new:
                    continue
            elif other == _FOR_NOBODY:
                first = self._first_without_wait(device, row, low)
            begin = max(int(self._start[first]), low)
            yield first, row, begin, high
            high, passed = begin, [device]

    def _first_without_wait(self, device: int, row: int, low: int) -> int:
        """From which row of a device on it waits for nobody, up to a row, or has begun at an instant."""
        place = bisect_left(self._waiting, row)
        last_wait = self._waiting[place - 1] if place else NONE
        return max(last_wait + 1, self._first[device], self._row_before(device, low + 1))

    def _row_before(self, device: int, moment: int) -> int:
        """The last row of a device that begins before a moment."""
        return bisect_left(self._start, moment, self._first[device], self._first[device + 1]) - 1

    def _can_follow(self, device: int, other: int, moment: int) -> bool:
        return (
            other >= 0
            and other != device
            and self._takes_part[other]
            and (self._has_one_clock or self._host[other] == self._host[device])
            and self._begin[other] < moment <= self._end[other]
        )


def _walks(ledger: Ledger, places: Sequence[int]) -> list[_Walk]:
    """The used steps in the window of their host, or without steps the windows."""
    # The devices of a host have one window.
    begins, ends = ledger.columns.start_ps, ledger.columns.end_ps
    bounds = {}
    for place in places:
        first, after = ledger.first[place : place + 2]
        host = ledger.trace.device_list[ledger.devices[place]].host
        bounds[host] = int(begins[first]), int(ends[after - 1])
    walks = [(NONE, of, *bounds[of]) for of in sorted(bounds)]
    if ledger.has_steps:
        walks = []
        for number, step in enumerate(ledger.steps):
            if step.excluded is None and step.host in bounds:
                begin, until = bounds[step.host]
                walks.append(
                    (number, step.host, max(step.start_ps, begin), min(step.end_ps, until))
                )
    return [walk for walk in walks if walk[2] < walk[3]]


def _waits_for(ledger: Ledger) -> Int32Array:
    """The place of the device that each row waits for, `NONE` for one that is not known, `_FOR_NOBODY` where it waits for none."""
    columns = ledger.columns
    place_of = np.full(len(ledger.trace.device_list) + 1, NONE, dtype=np.int32)
    place_of[list(ledger.devices)] = np.arange(len(ledger.devices))
    rows = np.flatnonzero(is_in(columns.state, [int(state) for state in WAITS]))
    result = np.full(columns.count, _FOR_NOBODY, dtype=np.int32)
    by = np.where(columns.by_kind[rows] == By.DEVICE, columns.by[rows], NONE)
    result[rows] = place_of[by]
    return result
