"""Changes what devices are idle for because of each other: their turns, those without work, and collectives in which they meet often.

Devices that run one after another, and replicas in critical sections, wait for their turn; a device that only copies, or computes
little, has no work while others compute; and what all wait in the collectives of a step comes from meeting more than once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from traceview.analysis.facts.async_ops import section_waits
from traceview.analysis.facts.devices import concurrency, devices_in_use, statuses
from traceview.analysis.facts.dispatch import Draft
from traceview.analysis.facts.run import Run
from traceview.analysis.facts.threads import core_waits
from traceview.base.ids import is_in
from traceview.base.intervals import (
    NEVER,
    Int64Array,
    IntervalSet,
    difference,
    union,
    while_as_many_are_open,
)
from traceview.base.sweeping import SWEEPS
from traceview.ledger.build import Segments, is_among
from traceview.ledger.columns import IDLE, By
from traceview.ledger.states import State
from traceview.ledger.table import clocks_agree, numbers_of
from traceview.trace.columns import NONE
from traceview.trace.host.state_timeline import complement, intersection, joined_spans
from traceview.xplane.columns import joined
from traceview.xplane.planes import ActivityClass

_NOT_ITS_TURN: Final = (
    State.DEVICE_WAIT,
    State.HOST_OPS,
    State.LAUNCH,
    State.PYTHON,
    State.SYNC,
    State.DEPENDENCY,
    State.LATENCY,
    State.UNKNOWN,
    State.BETWEEN,
)
"""What a device that runs by turns is idle for while another one computes."""

_WAITS: Final = (State.PYTHON, State.BETWEEN)
"""What a device is idle for while the thread of the steps waits in Python."""

EVERY: Final = frozenset(State) - {State.NO_WORK}
_IDLE: Final = EVERY - {State.COMPUTE, State.COMMUNICATION, State.EVALUATION}
_FEWEST_BESIDE: Final = 2
_NO_LIMIT: Final = 1 << 62
_WITH_LITTLE_TO_DO: Final = _IDLE - {State.DEVICE_WAIT}
"""What a device is idle for that computes little; in a collective it waits for a device, whatever it computes."""


def recast_by_turns(context: Run, segments: Segments, drafts: Sequence[Draft]) -> None:
    """Devices that run one after another, and replicas in critical sections: each waits for its turn while another one has it."""
    computing = {device: context.activities[device].compute for device in devices_in_use(context)}
    is_serial = context.once(concurrency).is_serial and not _waits_for_sends(context, drafts)
    sections = context.once(section_waits)
    full: dict[int, IntervalSet] = {}
    for draft in drafts if is_serial or sections else ():
        if draft.kind == "replica" and draft.host not in full:
            events, rows = draft.trace.device_columns, draft.trace.device_rows(draft.host)
            cores = draft.trace.hosts[draft.host].usable_cores
            full[draft.host] = while_as_many_are_open(
                cores, events.start_ps[rows], events.end_ps[rows]
            )
    if is_serial:
        taking_turns = [draft for draft in drafts if draft.device in computing]
        for draft in taking_turns:
            for other, spans in computing.items():
                if other != draft.device:
                    _recast_turn(draft, other, spans, full)
        _keep_shortest_turns(context, segments, taking_turns)
    of_device = {draft.device: draft for draft in drafts}
    for device, holder, spans in sections:
        if (waiting := of_device.get(device)) is not None:
            idle = intersection(spans, union(waiting.gaps.start_ps, waiting.gaps.end_ps))
            _recast_turn(waiting, holder, idle, full)


def _recast_turn(
    draft: Draft, other: int, spans: IntervalSet, full: Mapping[int, IntervalSet]
) -> None:
    """What a device is idle for while another one has its turn; while all cores run ops it would have none, by host `full`."""
    alone = difference(spans, full.get(draft.host, NEVER))
    draft.recast(alone, _NOT_ITS_TURN, State.TURN, (By.DEVICE, other))


def _keep_shortest_turns(context: Run, segments: Segments, taking_turns: Sequence[Draft]) -> None:
    """Beside each other devices would take as long as the one that computes longest: that saves what this one waits in a step.

    CPU devices take at least as long as all cores need for what the model runs.
    """
    numbers, number = numbers_of(segments.steps)
    # The last is outside of steps.
    number, count = np.append(number, numbers.size), numbers.size + 1
    waited_ps = np.zeros((len(taking_turns), count), dtype=np.int64)
    turns: list[Int64Array] = []
    for place, draft in enumerate(taking_turns):
        columns = draft.columns
        turns.append(np.flatnonzero(is_among(columns, (State.TURN,))))
        of_step, duration = number[columns.step[turns[-1]]], columns.duration_ps[turns[-1]]
        waited_ps[place] = SWEEPS.totals(of_step, duration, count)
    limits = _saved_on_cores(context, segments, taking_turns, number)
    most_ps = np.full(count, _NO_LIMIT) if limits is None else np.append(limits, _NO_LIMIT)
    if 2 * np.count_nonzero(waited_ps[:, :-1].min(axis=0)) < numbers.size:
        # Each has steps of its own.
        number[:], waited_ps[:, :1] = 0, waited_ps.sum(axis=1, keepdims=True)
        most_ps[0] = _NO_LIMIT if limits is None else limits.sum()
    saved_ps = np.minimum(waited_ps.min(axis=0), most_ps)
    left = 1 - saved_ps / np.maximum(waited_ps, 1)
    for draft, rows, of_device in zip(taking_turns, turns, left, strict=True):
        columns = draft.columns
        length_ps = np.zeros(columns.count, dtype=np.int64)
        length_ps[rows] = columns.duration_ps[rows] * of_device[number[columns.step[rows]]]
        draft.recast_ends(length_ps, State.DEVICE_WAIT)


def _saved_on_cores(
    context: Run, segments: Segments, taking_turns: Sequence[Draft], number: Int64Array
) -> Int64Array | None:
    """How much shorter the time in which CPU devices compute would be if all cores worked, by the number of a step.

    None where that is not known.
    """
    hosts = {draft.host for draft in taking_turns if draft.kind == "replica"}
    waits = core_waits(context, *hosts) if len(hosts) == 1 else None
    if waits is None:
        return None
    places = [place for place, step in enumerate(segments.steps) if step.host in hosts]
    start = np.array([segments.steps[place].start_ps for place in places], dtype=np.int64)
    end = np.array([segments.steps[place].end_ps for place in places], dtype=np.int64)
    every = joined_spans([context.activities[draft.device].compute for draft in taking_turns])
    saved_ps = np.maximum(every.within(start, end) - waits.least_ps(start, end), 0)
    result: Int64Array = SWEEPS.totals(number[places], saved_ps, int(number[-1]))
    return result


def _waits_for_sends(context: Run, drafts: Sequence[Draft]) -> bool:
    """Whether devices wait in collectives for what another one sends, most of all: no turn lets them go on before that."""
    rest_ps = 0
    for columns in (draft.columns for draft in drafts):
        waits = is_among(columns, (State.DEVICE_WAIT,)) & (columns.activity != IDLE)
        is_sent = is_in(columns.event[waits], context.collectives.sends)
        rest_ps += int((columns.duration_ps[waits] * np.where(is_sent, -1, 1)).sum())
    return rest_ps < 0


def recast_unfinished(context: Run, drafts: Sequence[Draft]) -> None:
    """Replicas that have done their part, while the thread of the steps waits and others of the host compute: they wait for these.

    What is called between the markers of steps is no part of one: that has a turn of its own. What threads beside the steps run
    keeps nobody waiting here.
    """
    events = context.trace.device_columns
    for draft in drafts:
        if draft.kind != "replica" or draft.python is None or not draft.python.is_sampled:
            continue
        rests, markers = draft.python.lines.at_rest(draft.python.caller), draft.states.markers
        has_markers = markers.start.size > 0
        apart = intersection(draft.states.calls, complement(markers)) if has_markers else NEVER
        beside = joined(list(draft.states.guests.values()), np.int64)
        for other in context.trace.devices_of_host[draft.host]:
            if other != draft.device:
                guests = beside[events.device[beside] == other]
                of_guests = union(events.start_ps[guests], events.end_ps[guests])
                computes = difference(context.activities[other].compute, of_guests)
                spans = intersection(rests, computes)
                draft.recast(intersection(spans, apart), _WAITS, State.TURN, (By.DEVICE, other))
                draft.recast(spans, _WAITS, State.DEVICE_WAIT, (By.DEVICE, other))


def recast_without_work(context: Run, drafts: Sequence[Draft]) -> None:
    """Devices that only copy, or compute far less than others, have no work while those compute.

    Where no other device has the same clock it is not known when, and all that they idle counts.
    """
    trace, activities = context.trace, context.activities
    status = statuses(context)
    at_work: dict[int, IntervalSet | None] = {}
    for draft in drafts:
        if status[draft.device] == "copy_only":
            draft.recast(draft.everywhen, _IDLE, State.NO_WORK)
        elif status[draft.device] == "marginal":
            clock = trace.hosts[draft.host].clock
            # With an aligned clock all others agree.
            key = NONE if clock is not None and clock.residual_ps is not None else draft.host
            if key not in at_work:
                agreeing = [
                    activities[other.device].compute
                    for other in drafts
                    if clocks_agree(trace, (draft.device, other.device))
                ]
                at_work[key] = joined_spans(agreeing) if len(agreeing) >= _FEWEST_BESIDE else None
            others = at_work[key]
            spans = (
                draft.everywhen
                if others is None
                else difference(others, activities[draft.device].compute)
            )
            draft.recast(spans, _WITH_LITTLE_TO_DO, State.NO_WORK)


def recast_crowded(drafts: Sequence[Draft], full: Mapping[int, IntervalSet]) -> None:
    """Collectives of CPU devices while others have all cores, by host `full`: whoever is in one has none to go on with."""
    for draft in drafts:
        spans = full.get(draft.host, NEVER)
        draft.recast(spans, (State.COMMUNICATION,), State.DEVICE_WAIT, (By.NONE, NONE))


def lengths_of_meeting(
    context: Run, segments: Segments, full: Mapping[int, IntervalSet]
) -> dict[int, Int64Array]:
    """By device how much of the end of each of its segments is communication: what it waits because devices meet repeatedly.

    `full`: when others have all cores, by host. That is what all devices wait in collectives of one step: if they met once, the slowest device of the step would not wait. Not
    in permutations: what a device computes with waits for what another one sends.
    """
    numbers, number = numbers_of(segments.steps)
    shape = len(context.trace.device_list), numbers.size
    takes_part, waited_ps = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.int64)
    # A device that the ledger does not have is the last of them all in each of its collectives.
    is_known = np.zeros(shape[0] + 1, dtype=np.bool_)
    is_known[list(segments.of_device)] = True
    waiting: dict[int, tuple[Int64Array, Int64Array]] = {}
    sends = context.collectives.sends
    for device, columns in segments.of_device.items():
        rows = np.flatnonzero(columns.activity == ActivityClass.COLLECTIVE)
        rows = rows[(columns.step[rows] != NONE) & ~is_in(columns.event[rows], sends)]
        takes_part[device, number[columns.step[rows]]] = True
        rows = rows[
            (columns.state[rows] == State.DEVICE_WAIT) & (columns.by_kind[rows] == By.DEVICE)
        ]
        rows = rows[is_known[columns.by[rows]]]
        if rows.size:
            waiting[device] = rows, number[columns.step[rows]]
    if not waiting:
        return {}
    own_ps = dict[int, Int64Array]()
    for device, (rows, place) in waiting.items():
        columns, host = segments.of_device[device], context.trace.device_list[device].host
        own_ps[device] = columns.duration_ps[rows]
        if host in full:
            start = columns.start_ps[rows]
            own_ps[device] = own_ps[device] - full[host].within(start, start + own_ps[device])
        waited_ps[device] = SWEEPS.totals(place, own_ps[device], numbers.size)
    least_ps = np.where(takes_part, waited_ps, np.iinfo(np.int64).max).min(axis=0)
    least_ps[takes_part.sum(axis=0) < _FEWEST_BESIDE] = 0
    share = least_ps / np.maximum(waited_ps, 1)
    met = {}
    for device, (rows, place) in waiting.items():
        met[device] = np.zeros(segments.of_device[device].count, dtype=np.int64)
        met[device][rows] = (own_ps[device] * share[device, place]).astype(np.int64)
    return met


def recast_meeting(draft: Draft, length_ps: Int64Array) -> None:
    """The end of each segment, so long, is communication: by the collective that it is in."""
    draft.recast_ends(length_ps, State.COMMUNICATION, (By.OP, NONE))
    columns = draft.columns
    unnamed = np.flatnonzero((columns.by_kind == By.OP) & (columns.by == NONE))
    by = columns.by.copy()
    by[unnamed] = draft.trace.device_columns.op[columns.event[unnamed]]
    draft.columns = replace(columns, by=by)


def while_cores_are_full(context: Run, segments: Segments) -> dict[int, IntervalSet]:
    """By host when another replica would have no core to go on: as many compute as there are cores."""
    trace, found = context.trace, dict[int, IntervalSet]()
    for host in context.selection.windows:
        own = [
            segments.of_device[device]
            for device in trace.devices_of_host[host]
            if device in segments.of_device and trace.device_list[device].kind == "replica"
        ]
        if own:
            computes = [of.chosen(of.activity == ActivityClass.COMPUTE) for of in own]
            start = np.concatenate([of.start_ps for of in computes])
            end = np.concatenate([of.end_ps for of in computes])
            found[host] = while_as_many_are_open(trace.hosts[host].usable_cores, start, end)
    return found
