"""Words a finding about the waiting of one device: how much of what, in which steps, and who else waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from traceview.analysis.base import FEWEST_STEPS, Confidence, Evidence, Finding, Severity
from traceview.analysis.cost import Cost, mean_ps
from traceview.analysis.idle.rules import IdleRule
from traceview.analysis.idle.waiting_device import AS_LONG_RATIO, Affected, Waiting
from traceview.document import numbers
from traceview.document.vocabulary import thread_words
from traceview.intervals import Int64Array
from traceview.trace.cause import Cause
from traceview.trace.python_samples import PythonState

_LATE_PYTHON: Final = (Cause.CALLBACK, Cause.PYTHON)
_INSTEAD_OF_PYTHON: Final[Mapping[PythonState, tuple[str, str]]] = {
    "waits": (
        "The thread that runs the steps runs no Python there: it waits, for work, a lock, a queue, a process, a file, the network or a timer.",
        (
            "Wait less often, or in a thread of its own. Or let what it waits for come earlier: fill the queue ahead, or schedule "
            "further steps before waiting for all of them."
        ),
    ),
    "native": (
        (
            "The thread that runs the steps runs no Python there: it is in a call of TensorFlow, which runs an op outside of the "
            "step, or fetches a value and waits until it is computed."
        ),
        "Fetch values and run such ops less often, and not between steps: if step % 100 == 0: log(...).",
    ),
}
"""Meaning and advice where samples show that what a device waits for is not Python that runs."""

_LEAST_PART_RATIO: Final = 0.005
"""A smaller part of a cost would not change its three digits."""


def finding_of(
    rule: IdleRule,
    waiting: Waiting,
    idle_ps: int,
    evidence: Sequence[Evidence],
    *,
    severity: Severity | None = None,
    of_steps: Int64Array | None = None,
    title: str | None = None,
    words: Mapping[str, str] | None = None,
    explanation: str | None = None,
    advice: str | None = None,
    confidence: tuple[Confidence, str] | None = None,
    path_causes: Sequence[str] | None = None,
    cost: Cost | None = None,
    parts: Sequence[tuple[str, int]] = (),
) -> Finding:
    """A finding with the share of the step and the longest gap.

    `parts`: what the cost consists of, in words, mean picoseconds per step; the title names them if there are several.

    `cost`: where it is not just the idle time over the step.

    `of_steps`: the cost by step, of what need not occur in all. `words`: for `title`, besides those of every title.
    """
    affected = None if of_steps is None else waiting.affected(of_steps)
    cost = cost or waiting.cost(idle_ps)
    confidence = confidence or _confidence(waiting)
    devices = waiting.waiting_as_long(rule.cause)
    if devices:
        explanation = f"{explanation or rule.meaning} {_as_long(waiting, rule.cause, devices)}"
    others = _longer_on_others(waiting, rule, idle_ps)
    if others:
        explanation = f"{explanation or rule.meaning} The cost is that of {waiting.key}: it is idle least, and so limits the step."
    python = waiting.python.get(rule.cause.key)
    if python is not None:
        if explanation is None and advice is None and rule.cause in _LATE_PYTHON:
            explanation, advice = _INSTEAD_OF_PYTHON.get(python.state, (None, None))
        explanation = f"{explanation or rule.meaning} {python.sentence}"
    return rule.finding(
        naming(title or rule.title, waiting, _alike(waiting, rule.cause)).format(
            device=waiting.key,
            span=_span(waiting, idle_ps, cost),
            share=numbers.share(cost.ratio),
            **(words or {}),
        )
        + _parts(parts, idle_ps)
        + others
        + (affected.words if affected else ""),
        (
            *evidence,
            *_of_affected(waiting, affected),
            *([python.evidence] if python else []),
            *_longest_gap(waiting, rule.cause),
        ),
        severity="info" if confidence[0] == "low" else severity,
        confidence=confidence,
        explanation=explanation,
        advice=advice,
        devices=(waiting.key, *devices),
        steps=affected.steps if affected else (),
        cost=cost,
        path_causes=path_causes,
    )


def naming(title: str, waiting: Waiting, others: Sequence[str]) -> str:
    """A title with a place for one `device` as one that names `others` as well: `all 4 replicas wait …`."""
    if not others:
        return title
    devices = sorted((waiting.key, *others))
    noun = "replica" if waiting.is_replica else "device"
    is_all = len(others) == len(waiting.others) > 1
    who = f"all {numbers.plural(len(devices), noun)}" if is_all else numbers.listed(devices, 3)
    # Names come from the trace, and the title is formatted once more.
    who = who.replace("{", "{{").replace("}", "}}")
    for singular, plural in _VERBS.items():
        title = title.replace(f"{{device}} {singular}", f"{who} {plural}")
    return title


_ALIKE_RATIO: Final = 0.95
"""Of the time of the one and of the other."""

_VERBS: Final = {
    "waits": "wait",
    "would wait": "would wait",
    "is idle": "are idle",
    "loses": "lose",
}


def _alike(waiting: Waiting, cause: Cause) -> list[str]:
    """The other devices that wait so nearly as long as the one of the finding that one number stands for all."""
    own_ps = int(waiting.idle_ps[cause].sum())
    return [
        device
        for device, idle_ps in waiting.others.items()
        if _ALIKE_RATIO * own_ps <= int(idle_ps[cause].sum()) <= own_ps / _ALIKE_RATIO
    ]


def _parts(parts: Sequence[tuple[str, int]], whole_ps: int) -> str:
    """`: 12.3 ms waiting for input, 3.80 ms slower ops`, so that a reader can divide; parts that rounding hides are left out."""
    shown = [(words, ps) for words, ps in parts if ps >= _LEAST_PART_RATIO * whole_ps and ps > 0]
    if len(shown) < 2:
        return ""
    return f": {', '.join(f'{numbers.time(ps)} {words}' for words, ps in shown)}"


def _longer_on_others(waiting: Waiting, rule: IdleRule, idle_ps: int) -> str:
    """`; up to 5.95 ms on other devices`, where they clearly wait longer than the device of the finding."""
    longest_ps = waiting.longest_of_others(rule.cause)
    is_longer = longest_ps * AS_LONG_RATIO > idle_ps == waiting.idle_of(rule)
    return f"; up to {numbers.time(longest_ps)} on other devices" if is_longer else ""


def _as_long(waiting: Waiting, cause: Cause, devices: Sequence[str]) -> str:
    """How long devices wait beside the one of the finding: `GPU:1–7 wait 11.2 to 13.0 ms for the same reason.`"""
    waits_ps = sorted(mean_ps(waiting.others[device][cause]) for device in devices)
    verb = "waits" if len(devices) == 1 else "wait"
    per_step = " per step" if waiting.has_steps else ""
    who, span = numbers.joined_devices(devices), numbers.time_range(waits_ps)
    return f"{who} {verb} {span}{per_step} for the same reason."


def _span(waiting: Waiting, idle_ps: int, cost: Cost) -> str:
    """How much of what a device waits."""
    if cost.statistic is None:
        return f"{numbers.time(idle_ps)} of the {numbers.time(waiting.window_ps)} window"
    return cost.words


def _of_affected(waiting: Waiting, affected: Affected | None) -> Iterator[Evidence]:
    if affected is not None:
        count = numbers.plural(len(waiting.step_numbers), "used step")
        yield Evidence("affected_step_count", len(affected.steps), None, f"of {count}")
        yield Evidence("affected_step_cost_ps", affected.ps, None, waiting.key)


def _longest_gap(waiting: Waiting, cause: Cause) -> Iterator[Evidence]:
    """The longest gap of that cause, and the host event in it."""
    gap = next((gap for gap in waiting.gaps if gap.cause == cause.key), None)
    if gap is None:
        return
    where = "outside of steps" if gap.step is None else f"step {gap.step}"
    yield Evidence("longest_gap_ps", gap.duration_ps, None, f"{waiting.key}, {where}")
    if gap.host_event is not None:
        yield Evidence("host_event", gap.host_event, None, thread_words(gap.thread))


def _confidence(waiting: Waiting) -> tuple[Confidence, str]:
    if not waiting.has_steps:
        return "low", "no steps were found, so shares are of the whole window"
    if len(waiting.step_numbers) < FEWEST_STEPS:
        return "low", "only one step was measured"
    unknown_ps = int(waiting.idle_ps[Cause.UNATTRIBUTED].sum())
    idle_ps = int(waiting.idle_ps.sum())
    if unknown_ps * 2 > idle_ps:
        return (
            "medium",
            f"{numbers.share(unknown_ps / idle_ps)} of the idle time has no recorded cause",
        )
    return "high", f"attributed from host events over {len(waiting.step_numbers)} steps"
