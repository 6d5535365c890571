"""Finds the steps in which the optimizer runs, where gradients are accumulated over several steps.

The names of ops show the optimizer. Where it runs in each step, most of its ops do. Where gradients accumulate, most of
its ops are those of an update and run in some steps only; the few others count the steps or add the gradients up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from traceview.analysis.selection import Selection
from traceview.ids import unique_ids
from traceview.trace.model import Step, Trace
from traceview.trace.op_phase import Phase, phases_of

_FEWEST_UPDATES = 2
_MOST_UPDATES_RATIO = 0.5
"""Where the update runs in more steps than this share, it is left out now and then, and gradients do not accumulate."""


class Accumulation(Struct, frozen=True):
    """`updates`: numbers of the steps in which the optimizer updated the variables.

    `every`: it does so in every so manieth step; None where too few updates were recorded and the sidecar does not say.
    """

    updates: tuple[int, ...]
    every: int | None


def accumulation(trace: Trace, selection: Selection) -> Accumulation | None:
    """What the first host with train steps shows; None where the optimizer runs in each step or nothing shows it."""
    for host, steps in selection.steps.items():
        train = [step for step in steps if step.kind == "train"]
        if len(train) >= _FEWEST_UPDATES:
            updates = _updates(trace, host, train)
            recorded = _recorded(trace, host)
            if updates is None or (len(updates) < _FEWEST_UPDATES and recorded is None):
                return None
            return Accumulation(updates, recorded or _period(updates, train))
    return None


def _updates(trace: Trace, host: int, steps: Sequence[Step]) -> tuple[int, ...] | None:
    """The steps that hold most of the ops of the optimizer, by name; None if they are not a part of all steps."""
    columns, phase = trace.device_columns, phases_of(trace)
    of_host = np.array([device.host == host for device in trace.device_list], dtype=np.bool_)
    rows = np.flatnonzero((phase == Phase.OPTIMIZER) & of_host[columns.device])
    start, op = columns.start_ps[rows], columns.op[rows]
    steps_of_op: dict[int, list[int]] = {}
    for step in steps:
        inside = (start >= step.start_ps) & (start < step.end_ps)
        for name in unique_ids(op[inside].astype(np.int64)).tolist():
            steps_of_op.setdefault(name, []).append(step.number)
    together = Counter(tuple(numbers) for numbers in steps_of_op.values())
    if not together:
        return None
    updates, _ = max(together.items(), key=lambda item: (item[1], -len(item[0])))
    return updates if len(updates) <= _MOST_UPDATES_RATIO * len(steps) else None


def _recorded(trace: Trace, host: int) -> int | None:
    sidecar = trace.hosts[host].sidecar
    count = sidecar.environment.training.accumulation_steps if sidecar else None
    return count if count is not None and count > 1 else None


def _period(updates: Sequence[int], steps: Sequence[Step]) -> int | None:
    """The distance of the updates, if it is always the same and none is missing at either end."""
    distances = {after - before for before, after in pairwise(updates)}
    if len(distances) != 1:
        return None
    (distance,) = distances
    is_whole = updates[0] - steps[0].number < distance and steps[-1].number - updates[-1] < distance
    return distance if is_whole else None
