"""Concludes that much of the critical path has no recorded cause, and says what is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from traceview.analysis.base import Evidence, Finding, Rule, Skipped
from traceview.analysis.idle.waiting_device import Affected, affected_steps
from traceview.analysis.idle_python import PYTHON_LINE
from traceview.analysis.path.result import CriticalPath, UnexplainedPart
from traceview.analysis.selection import Selection
from traceview.document import numbers
from traceview.document.vocabulary import a_thread, thread_words
from traceview.trace.cause import Cause

UNEXPLAINED_IDLE: Final = Rule(
    code="unexplained-idle",
    starts_at=(
        "{info_ratio} of the critical path idle without a recorded cause; a warning from {warning_ratio} on"
    ),
    severities=("warning", "info"),
    limits={"info_ratio": 0.10, "warning_ratio": 0.20},
    meaning=(
        "A device on the critical path is idle, and nothing that the trace holds shows why. Code that records no event "
        "and the operating system are the usual causes."
    ),
    evidence="unexplained_ratio in results.path, its longest parts, and the events of the host around the first of them",
    advice=(
        "Record the run with traceview capture, whose samples of Python name the line that ran. Or wrap what the thread "
        "does there in tf.profiler.experimental.Trace('name'), or sample the process: py-spy record --native --pid PID. "
        "traceview gaps LOGDIR shows both sides of the gaps."
    ),
    example="GPU:0 is idle 7.90 ms of the mean 50.0 ms step without a recorded cause (15.8%)",
    idle_causes=("unattributed",),
    jax_advice=(
        "Wrap what the thread does there in jax.profiler.TraceAnnotation('name'), or sample the process: "
        "py-spy record --native --pid PID. traceview gaps LOGDIR shows both sides of the gaps."
    ),
)

_ADVICE_WITH_SAMPLES: Final = (
    "traceview gaps LOGDIR shows both sides of the gaps, and the line of Python where one was sampled. What native code does "
    "there, py-spy record --native --pid PID shows."
)

_MOST_NAMED: Final = 3
"""Parts without a recorded cause that are evidence; results.path has more."""
_LONGEST_NAME: Final = 60
"""Characters of a name: what tells functions apart is at its start."""


def diagnose(
    result: CriticalPath | Skipped, selection: Selection, *, is_sampled: bool
) -> Iterator[Finding]:
    """The path without a recorded cause, with its longest parts. `is_sampled`: the stacks of Python were."""
    limits = UNEXPLAINED_IDLE.limits
    if isinstance(result, Skipped) or result.unexplained_ratio < limits["info_ratio"]:
        return
    cost = selection.cost("mean", result.mean_by_cause[Cause.UNATTRIBUTED.key])
    idle = (
        f"idle {cost.words} without a recorded cause ({numbers.share(cost.ratio)})"
        if cost.ps_per_step
        else f"idle for {numbers.share(cost.ratio)} of the window without a recorded cause"
    )
    first = result.unexplained[0]
    devices = list(dict.fromkeys(part.device for part in result.unexplained))
    affected = _affected(result)
    in_steps = affected.words if affected else ""
    few_steps = selection.few_steps
    is_warning = result.unexplained_ratio >= limits["warning_ratio"] and few_steps is None
    yield UNEXPLAINED_IDLE.finding(
        f"{first.device} is {idle}{in_steps}"
        if len(devices) == 1
        else f"{numbers.listed(devices)} are {idle}{in_steps}",
        (
            Evidence(
                "unexplained_ratio",
                result.unexplained_ratio,
                limits["info_ratio"],
                "of all steps together",
            ),
            *_parts(result.unexplained[:_MOST_NAMED]),
        ),
        severity="warning" if is_warning else "info",
        confidence=few_steps
        or ("high", f"every instant of {numbers.plural(len(result.steps), 'step')} was examined"),
        explanation=f"{UNEXPLAINED_IDLE.meaning} {_where(first)}",
        advice=_ADVICE_WITH_SAMPLES if is_sampled else None,
        devices=devices,
        steps=affected.steps if affected else (),
        cost=cost,
    )


def _affected(result: CriticalPath) -> Affected | None:
    """The few steps that the time is in; None where most have some, and where hosts number steps each for itself."""
    numbered = [(row.step, row) for row in result.steps if row.step is not None]
    if len({row.host for row in result.steps}) != 1 or len(numbered) != len(result.steps):
        return None
    of_steps = [row.by_cause.get(Cause.UNATTRIBUTED.key, 0) for row in result.steps]
    return affected_steps([number for number, _ in numbered], np.array(of_steps, dtype=np.int64))


def _parts(parts: tuple[UnexplainedPart, ...]) -> Iterator[Evidence]:
    """The longest parts, and what the thread that was late in the first of them recorded before and after it."""
    for part in parts:
        step = "the window" if part.step is None else f"step {part.step}"
        yield Evidence("unexplained_ps", part.duration_ps, None, f"{part.device}, {step}")
    first = parts[0]
    for metric, event in (
        (PYTHON_LINE, first.python),
        ("host_event", first.host_event),
        ("previous_event", first.previous_event),
        ("next_event", first.next_event),
    ):
        if event is not None:
            yield Evidence(metric, event, None, thread_words(first.thread))


def _where(part: UnexplainedPart) -> str:
    """Between which ops the longest part lies, and what the thread that was late recorded in it and after it."""
    place = f"The longest part, {numbers.time(part.duration_ps)} on {part.device},"
    if part.before is None and part.after is None:
        place += " is all of the window"
    elif part.before is None:
        place += f" lies before {_short(part.after)}"
    elif part.after is None:
        place += f" lies after {_short(part.before)}"
    else:
        place += f" lies between {_short(part.before)} and {_short(part.after)}"
    if part.is_launch_unknown:
        return f"{place}; the launch of {_short(part.after)} was not recorded."
    if part.thread is None:
        return f"{place}; the host recorded no thread."
    if part.python is not None:
        return f"{place}; {a_thread(part.thread)} was in {part.python} there."
    recorded = (
        "recorded nothing inside the event that was open" if part.host_event else "recorded nothing"
    )
    return f"{place}; {a_thread(part.thread)} {recorded} there."


def _short(name: str | None) -> str:
    name = name or "nothing"
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
