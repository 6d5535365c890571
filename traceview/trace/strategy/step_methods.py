"""Detects steps by events that repeat once per step, for traces without markers, stored steps or repeated calls.

`iterator`: the model asks its dataset for an element once per step, or once per step and replica in a burst. Most
bursts have equally many calls, which are far closer to each other than to the next burst.
`period`: the kernels of the busiest device repeat. An anchor is a kernel name between whose occurrences the same
kernels run in the same order. The rarest anchor gives the longest period, which is the step. Other devices that run
the anchor equally often repeat the same period, some a little earlier, some later; a step begins with the first of
them. If a device recorded another number of anchors, its part of the first or last step may lie before or after all
steps. Statistics leave such a step out, because it does not compare devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

import numpy as np
from msgspec.structs import replace

from traceview.base.ids import sorted_unique
from traceview.base.intervals import Int64Array
from traceview.base.stats import median
from traceview.base.text import enumerated
from traceview.trace.model import Recording, Step
from traceview.xplane.host_names import op_type
from traceview.xplane.planes import ActivityClass

FEWEST_REPEATS: Final = 3
"""Two occurrences have one distance and no second one to compare it with."""
_BURST_RATIO: Final = 4
"""Bursts are at least this many times as far apart as the calls in them."""
_SAME_RATIO: Final = 0.8
"""This share of the periods has to be alike; the first may hold more, and the last may be cut."""
_HELD_RATIO: Final = 0.8
"""The periods have to hold this share of the kernels: kernels that repeat only now and then are no step."""
_FEWEST_KERNELS: Final = 2
"""A single repeated kernel is no period: it may be part of a step, or many steps."""
_MOST_ANCHORS: Final = 200
"""This many names are tried, the rarest first; more frequent names occur many times in a step."""
_NAMED: Final = 4
"""Of more devices only the first are named."""
_INPUT_CALL: Final = b"IteratorGetNext"
"""The model calls this; the iterators of a distributed dataset ask each other in other ways, ahead of the model."""


def _is_input_call(name: bytes) -> bool:
    return (op_type(name) or name).startswith(_INPUT_CALL)


def iterator_steps(recording: Recording) -> tuple[Step, ...]:
    """Steps from one call for input to the next; the last step ends with the recording.

    Empty if there are fewer than `FEWEST_REPEATS`.
    """
    columns = recording.host_columns
    rows = recording.named_on(0, _is_input_call)
    rows = rows[recording.runs_model[columns.line[rows]]]
    starts = _without_bursts(sorted_unique(columns.start_ps[rows]))
    if starts.size < FEWEST_REPEATS:
        return ()
    on_devices = recording.device_columns.end_ps[:]
    return _steps(starts, int((on_devices if on_devices.size else columns.end_ps[:]).max()))


def _without_bursts(starts: Int64Array) -> Int64Array:
    """The first call of each burst; all calls if they do not come in bursts of one size."""
    distance = np.diff(starts)
    by_length = sorted_unique(distance)
    jump = by_length[1:] / np.maximum(by_length[:-1], 1)
    # The clearest jump first: the distances above it separate the bursts.
    for index in np.argsort(-jump, kind="stable")[: np.count_nonzero(jump >= _BURST_RATIO)]:
        first = np.flatnonzero(np.append(True, distance >= by_length[index + 1]))
        size = np.diff(np.append(first, starts.size))
        usual = np.bincount(size).argmax()
        alike = np.count_nonzero(size == usual)
        if first.size >= FEWEST_REPEATS and usual > 1 and alike >= _SAME_RATIO * first.size:
            return starts[first]
    return starts


def periodic_steps(recording: Recording) -> tuple[Step, ...]:
    """Steps from one occurrence of the anchor to the next, over the devices that repeat alike; empty without one.

    The anchor is taken from the device with most kernels.
    """
    columns = recording.device_columns
    kernels = {
        device: rows[columns.class_[rows] <= ActivityClass.COLLECTIVE]
        for device, entry in enumerate(recording.device_list)
        if entry.kind != "replica"
        for rows in [np.arange(*columns.rows_of(device).indices(columns.count))]
    }
    if not kernels:
        return ()
    busiest = max(kernels, key=lambda device: kernels[device].size)
    rows = kernels[busiest]
    anchors = _anchors(columns.name[rows].astype(np.int64), columns.start_ps[rows])
    if anchors.size == 0:
        return ()
    period = int(median(np.diff(anchors)))
    name = columns.name[rows[anchors[0]]]
    found = {device: np.flatnonzero(columns.name[own] == name) for device, own in kernels.items()}
    begins = {device: columns.start_ps[kernels[device][at]] for device, at in found.items()}
    alike = [device for device, at in found.items() if at.size == anchors.size]
    starts = _earliest([begins[device] for device in alike])
    if starts is None:
        alike, starts = [busiest], begins[busiest]
    last = [kernels[device][found[device][-1] :][:period] for device in alike]
    end = max(int(columns.end_ps[own].max()) for own in last)
    is_cut = kernels[busiest][anchors[-1] :].size < period
    repeating = {
        recording.device_list[device].name: own
        for device, own in begins.items()
        if own.size >= _SAME_RATIO * anchors.size
    }
    return _without_parts_outside(_steps(starts, end, is_cut=is_cut), repeating)


def _earliest(begins: list[Int64Array]) -> Int64Array | None:
    """When the first device begins each repetition; None if another begins one only after the next has begun."""
    together = np.stack(begins)
    earliest = together.min(axis=0)
    if (together.max(axis=0)[:-1] >= earliest[1:]).any():
        return None
    result: Int64Array = earliest
    return result


def _without_parts_outside(
    steps: tuple[Step, ...], begins: Mapping[str, Int64Array]
) -> tuple[Step, ...]:
    """The steps, with the first and the last excluded if a device ran its part before or after all steps.

    `begins`: when each device, by its name on the host, begins its repetitions.
    """
    marked = list(steps)
    for place, where in ((0, "before"), (-1, "after")):
        step = marked[place]
        outside = [
            key
            for key, own in begins.items()
            if not ((own >= step.start_ps) & (own < step.end_ps)).any()
            and (own < step.start_ps if where == "before" else own >= step.end_ps).any()
        ]
        if outside:
            reason = f"the part of {enumerated(outside, _NAMED)} was recorded {where} it"
            marked[place] = replace(step, excluded=reason)
    return tuple(marked)


def _anchors(names: Int64Array, starts: Int64Array) -> Int64Array:
    """The indices at which a period begins; empty if nothing repeats."""
    count = np.bincount(names) if names.size else names
    candidates = np.flatnonzero(count >= FEWEST_REPEATS)
    first = {int(name): index for index, name in reversed(list(enumerate(names.tolist())))}
    # The rarest name first, of equally rare ones the earliest.
    rarest = sorted(candidates.tolist(), key=lambda name: (count[name], first[name]))
    for name in rarest[:_MOST_ANCHORS]:
        places = np.flatnonzero(names == name)
        periods = [tuple(names[a:b].tolist()) for a, b in pairwise(places.tolist())]
        period, alike = Counter(periods).most_common(1)[0]
        if len(set(period)) < _FEWEST_KERNELS:
            continue
        is_regular = alike >= FEWEST_REPEATS - 1 and alike >= _SAME_RATIO * len(periods)
        # Steps take time: kernels that begin together are in one step.
        is_regular &= bool((np.diff(starts[places]) > 0).all())
        if is_regular and places.size * len(period) >= _HELD_RATIO * names.size:
            return places
    return np.empty(0, dtype=np.int64)


def _steps(starts: Int64Array, last_end: int, *, is_cut: bool = False) -> tuple[Step, ...]:
    begins = starts.tolist()
    spans = pairwise(begins if is_cut else [*begins, max(last_end, begins[-1])])
    return tuple(Step(0, number, None, *span) for number, span in enumerate(spans))
