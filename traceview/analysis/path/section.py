"""Shows the critical path: what a step consists of, step by step, and the longest single parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from traceview.analysis import device_time
from traceview.analysis.context import View
from traceview.analysis.idle.profiler_time import without_profiler
from traceview.analysis.path.result import CriticalPath, LongPart
from traceview.analysis.python_lock import lock_wait_sentence
from traceview.document import numbers
from traceview.document.model import (
    Bar,
    Part,
    Section,
    Span,
    Table,
    bars,
    devices,
    looks,
    names,
    ordinals,
    remarks,
    shares,
    spans,
    table,
    times,
)
from traceview.document.vocabulary import PATH_PARTS, Look, look_of

BRIEF_CAUSES: Final = 4
"""Causes in a brief document, those that cost most."""
BRIEF_PARTS: Final = 3
"""Parts in a brief document."""
_NAMED: Final = 3
"""Causes that the first sentence names."""


def section(view: View, result: CriticalPath) -> Section:
    """What made the steps as long as they were."""
    return Section(
        "path",
        "Critical path",
        (
            *_by_cause(view, result),
            *(() if view.is_brief else _steps(view, result)),
            *_longest(view, result),
            *(() if view.is_brief else _ops(result)),
            *remarks(
                lock_wait_sentence(view.findings, result.share_by_cause),
                _of_profiler(view, result),
                None
                if view.is_brief
                else "From the end of a step backwards: where a device waits for another one, the path goes on there. Its "
                "parts add up to the step exactly.",
            ),
        ),
        lead=_lead(result),
        terms=("critical path", "idle"),
        is_folded=False,
    )


def _lead(result: CriticalPath) -> str:
    largest = [
        f"{look_of(PATH_PARTS, cause).words} {numbers.share(ratio)}"
        for cause, ratio in list(result.share_by_cause.items())[:_NAMED]
    ]
    whole = "the steps" if _has_steps(result) else "the window"
    return f"Along the critical path of {whole}: {', '.join(largest)}."


def _of_profiler(view: View, result: CriticalPath) -> str | None:
    """How much of a cause on the path is the profiler's, which its finding and what can be recovered leave out."""
    for cause, ps in result.mean_by_cause.items():
        less = without_profiler(view.findings, cause, ps)
        if less is not None and less.path_ps:
            return (
                f"Of {look_of(PATH_PARTS, cause).words}, {numbers.time(less.path_ps)} per step is the time of the profiler; "
                "what can be recovered leaves it out."
            )
    return None


def _has_steps(result: CriticalPath) -> bool:
    return any(row.step is not None for row in result.steps)


def _by_cause(view: View, result: CriticalPath) -> tuple[Table, ...]:
    causes = list(result.share_by_cause)[: BRIEF_CAUSES if view.is_brief else None]
    parts = [look_of(PATH_PARTS, cause) for cause in causes]
    ratios = [result.share_by_cause[cause] for cause in causes]
    has_steps = _has_steps(result)
    return table(
        "The critical path by class of activity and cause of idle time",
        (
            looks("on the path", parts),
            shares("share", ratios, meaning="of all steps together"),
            bars(
                "",
                [_bar({cause: ratio}, 1.0) for cause, ratio in zip(causes, ratios, strict=True)],
                priority=3,
            ),
            times(
                "mean per step" if has_steps else "mean",
                [result.mean_by_cause.get(cause, 0) for cause in causes],
            ),
            times("median", [result.by_cause.get(cause, 0) for cause in causes], priority=2),
        ),
        row_count=len(result.share_by_cause),
        rest=view.command("report"),
    )


def _bar(by_cause: Mapping[str, float], whole: float) -> Bar:
    parts = tuple(
        Part(look_of(PATH_PARTS, cause), value / sum(by_cause.values()))
        for cause, value in by_cause.items()
    )
    return Bar(parts, sum(by_cause.values()) / whole if whole else 0.0)


def _steps(view: View, result: CriticalPath) -> tuple[Table, ...]:
    """A bar per step, as long as the step beside the longest one."""
    rows = result.steps[: view.most_rows]
    if len(rows) == 1 and not _has_steps(result):
        return ()
    longest = max((row.duration_ps for row in rows), default=0)
    hosts = {row.host for row in result.steps}
    return table(
        "The critical path of each step",
        (
            ordinals("step", [row.step for row in rows]),
            names("host", [row.host for row in rows]) if len(hosts) > 1 else None,
            times("step time", [row.duration_ps for row in rows]),
            bars("by cause", [_bar(row.by_cause, longest) for row in rows]),
            looks("largest loss", [_largest_loss(row.by_cause) for row in rows], priority=2),
        ),
        row_count=len(result.steps),
        rest="the JSON report",
    )


def _largest_loss(by_cause: Mapping[str, int]) -> Look | None:
    cause = next((cause for cause in by_cause if cause != "compute"), None)
    return None if cause is None else look_of(PATH_PARTS, cause)


def _longest(view: View, result: CriticalPath) -> tuple[Table, ...]:
    rows = result.longest[: BRIEF_PARTS if view.is_brief else view.most_rows]
    starts = _window_starts(view)
    return table(
        "The longest parts of the critical path",
        (
            devices("longest parts", [row.device for row in rows]),
            spans("", [_span(row, starts) for row in rows]),
            ordinals("step", [row.step for row in rows], priority=3),
            times("length", [row.duration_ps for row in rows]),
            looks("what", [look_of(PATH_PARTS, row.cause) for row in rows]),
            names("op or host event", [row.op or row.host_event for row in rows], priority=1),
            names("previous op", [row.before for row in rows], priority=5),
            names("next op", [row.after for row in rows], priority=4),
        ),
        row_count=len(rows),
    )


def _window_starts(view: View) -> dict[str, int]:
    """The start of the window by device."""
    times_of = view.result(device_time.ANALYSIS)
    return {
        row.device: view.window_start_ps[row.host]
        for row in (times_of.devices if times_of else ())
        if row.host in view.window_start_ps
    }


def _span(row: LongPart, starts: Mapping[str, int]) -> Span | None:
    if row.device not in starts:
        return None
    begin = row.start_ps - starts[row.device]
    return Span(row.device, begin, begin + row.duration_ps)


def _ops(result: CriticalPath) -> tuple[Table, ...]:
    rows = result.ops
    return table(
        "Ops on the critical path",
        (
            names("op or kernel", [row.op for row in rows]),
            looks("class", [look_of(PATH_PARTS, row.cause) for row in rows]),
            times("mean per step", [row.ps_per_step for row in rows]),
            shares("share", [row.share_ratio for row in rows]),
        ),
        row_count=result.op_count,
        rest="the JSON report",
    )
