"""Makes a report from a trace: a walk over the topics, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from msgspec.structs import replace

from traceview.analysis.facts.selection import select
from traceview.analysis.gpu_time import idle
from traceview.analysis.gpu_time import lanes as lane_topic
from traceview.analysis.machine import capture
from traceview.analysis.measures.context import TOP_GAPS, TOP_OPS, Analysis, Context, Options
from traceview.analysis.measures.step_report import detailed_steps
from traceview.analysis.registry import ANALYSES, RULES, TOPICS, Results
from traceview.analysis.rules.finding import Finding, Skipped
from traceview.analysis.rules.rule import (
    is_of_jax,
    with_explained_inside,
    with_jax_advice,
)
from traceview.base.errors import UsageError
from traceview.base.location import Location
from traceview.base.version import VERSION
from traceview.report.model import (
    SCHEMA_VERSION,
    Report,
    Source,
    by_rank,
    reproducing,
    verdict_of,
    without_recording,
)
from traceview.trace.model import WINDOW_KINDS, StepRange, Trace, WindowKind, damaged_hosts
from traceview.trace.reading.load import load


def analyze(
    trace: Trace | str | Location,
    *,
    window: WindowKind = "auto",
    steps: StepRange | slice | range | None = None,
    top: int | None = TOP_OPS,
    lanes: bool = False,
    is_for_screen: bool = False,
) -> Report:
    """The report on a run: how busy each device was and with what, and what is wrong.

    `trace`: a loaded trace, or a path for `load`. `window`: the time span to analyze. `steps`: only these, by number,
    half-open: `slice(5, 10)` or `range(5, 10)`. `top`: op rows per device, None for all. `lanes`: also what the timeline of
    a document draws; tables and texts do without. `is_for_screen`: only what the first screen of a terminal shows, without
    topics that can lead to no finding, and without gaps as evidence.

    Raises what `load` raises, and `UsageError` for arguments of another kind and steps that do not exist.
    """
    loaded = trace if isinstance(trace, Trace) else load(trace)
    if window not in WINDOW_KINDS:
        raise UsageError(f"window must be one of {', '.join(WINDOW_KINDS)}, not {window!r}")
    if top is not None and top < 0:
        raise UsageError(f"top must be a number of rows from 0 on, or None for all, not {top!r}")
    options = Options(top=top, gaps=0 if is_for_screen else TOP_GAPS)
    asked = _step_range(steps)
    context = Context(loaded, select(loaded, window, asked), options)
    return report_of(context, window=window, steps=asked, lanes=lanes, is_for_screen=is_for_screen)


def report_of(
    context: Context,
    *,
    window: WindowKind,
    steps: StepRange | None,
    lanes: bool = False,
    is_for_screen: bool = False,
) -> Report:
    """The report on what a context holds, which keeps its ledger for others; arguments as for `analyze`."""
    loaded = context.trace

    def is_wanted(topic: Analysis[Any]) -> bool:
        return not is_for_screen or topic.name in _ON_SCREEN or bool(topic.rules)

    results, skips = _results(context, is_wanted)
    recorded = context.record(capture.ANALYSIS)
    assert recorded is not None  # every trace has a capture
    made = _findings(context, [topic for topic in TOPICS if is_wanted(topic)])
    findings = tuple(sorted((without_recording(row, recorded) for row in made), key=by_rank))
    if lanes:
        results, skips = _with_lanes(context, results, skips, findings)
    verdict = verdict_of(loaded, recorded, results, findings)
    return Report(
        schema_version=SCHEMA_VERSION,
        traceview_version=VERSION,
        source=Source(str(loaded.logdir), loaded.run, loaded.other_runs, loaded.files),
        capture=recorded,
        windows=context.selection.shown(loaded),
        verdict=verdict,
        results=results,
        skipped={name: skip.reason for name, skip in skips.items()},
        findings=findings,
        recorded_reasons={name: skip.recorded for name, skip in skips.items() if skip.recorded},
        command=reproducing(str(loaded.logdir), loaded.run, window=window, steps=steps),
    )


def context_of(
    trace: Trace, *, window: WindowKind, steps: StepRange | slice | range | None
) -> Context:
    """The context that tables of a trace are made from; raises `UsageError` as `analyze` does."""
    return Context(trace, select(trace, window, _step_range(steps)), Options(top=None))


_ON_SCREEN: Final = frozenset(("ledger", "device_time", "steps", "environment", "compute"))
"""Topics whose results the first screen shows, whatever they lead to."""


def _results(
    context: Context, is_wanted: Callable[[Analysis[Any]], bool]
) -> tuple[Results, dict[str, Skipped]]:
    records: dict[str, Any] = {}
    skipped: dict[str, Skipped] = {}
    for topic in filter(is_wanted, ANALYSES):
        result = context.result(topic)
        if not isinstance(result, Skipped):
            records[topic.name] = result
        elif result.reason:
            skipped[topic.name] = result
    return Results(**records), skipped


def _with_lanes(
    context: Context, results: Results, skipped: dict[str, Skipped], findings: Sequence[Finding]
) -> tuple[Results, dict[str, Skipped]]:
    """The results with what a timeline draws; the steps that findings are about are drawn in full detail."""
    detailed = detailed_steps(results.steps, findings) if results.steps else frozenset()
    drawn = lane_topic.lanes_of(context, context.result(idle.ANALYSIS), detailed)
    if isinstance(drawn, Skipped):
        return results, {**skipped, lane_topic.ANALYSIS.name: drawn}
    return replace(results, lanes=drawn), skipped


def _findings(context: Context, topics: Sequence[Analysis[Any]]) -> list[Finding]:
    """The findings of the topics; those that another one explains stand inside it."""
    lost = damaged_hosts(context.trace)
    made = [finding for topic in topics for finding in context.findings(topic)]
    for topic in topics:
        made += topic.conclude(context, context.result(topic), made)
    made = [row for row in made if not (lost and _is_of_lost_part(row, context.trace, lost))]
    findings = with_explained_inside(made, RULES)
    if is_of_jax(context.trace):
        return [with_jax_advice(finding, RULES[finding.code]) for finding in findings]
    return findings


def _is_of_lost_part(finding: Finding, trace: Trace, lost: Collection[str]) -> bool:
    """Whether it concludes from what is not there, of a host whose file may have held it."""
    if not RULES[finding.code].is_of_absence:
        return False
    hosts = [
        trace.hosts[device.host].name
        for number, device in enumerate(trace.device_list)
        if not finding.devices or trace.device_key(number) in finding.devices
    ]
    return all(host in lost for host in hosts)


def _step_range(steps: StepRange | slice | range | None) -> StepRange | None:
    if steps is None or isinstance(steps, StepRange):
        return steps
    if isinstance(steps, slice | range):
        bounds = (steps.start, steps.stop)
        whole = all(bound is None or (isinstance(bound, int) and bound >= 0) for bound in bounds)
        if whole and steps.step in (None, 1):
            return StepRange(*bounds)
    raise UsageError(f"steps must be a range of step numbers such as slice(5, 10), not {steps!r}")
