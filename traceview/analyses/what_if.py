"""How short could a step be if one thing about it were put right? Lower bounds, never forecasts.

Each bound takes off a step the most that any of its devices spends on that one thing. What else would take the
place of it is not known, so the step may well stay longer; it cannot become shorter by this alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from traceview.analyses.activity import DeviceActivity
from traceview.analyses.finding import timed
from traceview.analyses.joined_steps import JoinedSteps, median_ps
from traceview.analyses.selection import Selection
from traceview.intervals import Int64Array
from traceview.trace.model import Step, Trace
from traceview.xplane.planes import ActivityClass

_COPIES = (ActivityClass.H2D, ActivityClass.D2H, ActivityClass.D2D)


@dataclass(frozen=True)
class WhatIf:
    """A lower bound of the step time. `name`: no_input_wait, no_exposed_collectives, no_exposed_copies, balanced_devices.

    `step_bound_ps`: median over the used steps; `saved_ps`: what that is below the median step.
    """

    name: str
    step_bound_ps: int
    saved_ps: int
    reasoning: str


def what_ifs(
    trace: Trace,
    selection: Selection,
    activities: Sequence[DeviceActivity],
    joined: JoinedSteps,
    input_idle: Mapping[int, Int64Array],
) -> tuple[WhatIf, ...]:
    """The bounds, from the devices of `joined`; none without used steps."""
    whole = selection.median_step_ps
    if whole is None or not joined.devices:
        return ()
    saved: dict[str, list[Int64Array]] = {
        name: []
        for name in (
            "no_input_wait",
            "no_exposed_collectives",
            "no_exposed_copies",
            "balanced_devices",
        )
    }
    durations: list[int] = []
    evened = _evened(joined)
    for host in dict.fromkeys(trace.roster[device].host for device in joined.devices):
        steps = selection.steps.get(host, ())
        used = [place for place, step in enumerate(steps) if step.excluded is None]
        chosen = [steps[place] for place in used]
        durations += [step.duration_ps for step in chosen]
        mine = [device for device in joined.devices if trace.roster[device].host == host]
        parts = [_parts(activities[device], chosen) for device in mine]
        none = np.zeros(len(used), dtype=np.int64)
        waits = [input_idle[device][used] if device in input_idle else none for device in mine]
        saved["no_input_wait"].append(np.max(waits, axis=0))
        saved["no_exposed_collectives"].append(
            np.max([part[ActivityClass.COLLECTIVE] for part in parts], axis=0)
        )
        saved["no_exposed_copies"].append(
            np.max([part[list(_COPIES)].sum(axis=0) for part in parts], axis=0)
        )
        saved["balanced_devices"].append(
            np.array([evened.get(step.number, 0) for step in chosen], dtype=np.int64)
        )
    lasted = np.array(durations, dtype=np.int64)
    return tuple(
        _bound(name, lasted, np.concatenate(parts), whole, len(joined.devices))
        for name, parts in saved.items()
        if name != "balanced_devices" or len(joined.devices) > 1
    )


def _parts(activity: DeviceActivity, steps: Sequence[Step]) -> Int64Array:
    return activity.parts([step.start_ps for step in steps], [step.end_ps for step in steps])


def _evened(joined: JoinedSteps) -> dict[int, int]:
    """By step what the device that computes longest computes more than the mean of all."""
    if not joined.count:
        return {}
    longest, total = joined.compute_ps.max(axis=0), joined.compute_ps.sum(axis=0)
    # The mean rounded up: the bound must not be below what it can be.
    more = longest - -(-total // len(joined.devices))
    return dict(zip(joined.numbers, np.maximum(more, 0).tolist(), strict=True))


def _bound(
    name: str, lasted: Int64Array, saved: Int64Array, whole: int, device_count: int
) -> WhatIf:
    bound = min(median_ps(np.maximum(lasted - saved, 0)) or 0, whole)
    return WhatIf(name, bound, whole - bound, _reasoning(name, whole, bound, device_count))


def _reasoning(name: str, whole: int, bound: int, device_count: int) -> str:
    """Where the bound comes from, in a sentence."""
    of = {
        "no_input_wait": "the time in which the device that waits most for input had nothing to do",
        "no_exposed_collectives": (
            "the time in which the device that communicates most computed nothing meanwhile"
        ),
        "no_exposed_copies": (
            "the time in which the device that copies most neither computed nor communicated meanwhile"
        ),
        "balanced_devices": (
            f"what the device that computes longest computes more than the mean of {device_count}"
        ),
    }[name]
    if bound >= whole:
        return f"nothing to save in the median step: {of} is none"
    return f"the median step without {of}: at most {timed(whole - bound)} less"
