"""How does a trace become a report? Every analysis is asked once, in report order."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final, TypeVar

from traceview.analysis import between_steps, environment, ops, placement, precision, scaling
from traceview.analysis import utilization as timeline
from traceview.analysis.activity import activities
from traceview.analysis.balance import compute as balance
from traceview.analysis.balance import findings as balance_findings
from traceview.analysis.base import Finding, Skipped, by_cost
from traceview.analysis.capture import compute as capture
from traceview.analysis.catalogue import FINDINGS
from traceview.analysis.collectives import compute as collectives
from traceview.analysis.collectives import findings as collective_findings
from traceview.analysis.device_time import compute as device_time
from traceview.analysis.device_time import findings as roster
from traceview.analysis.explained_findings import absorbed
from traceview.analysis.idle import compute as idle
from traceview.analysis.idle import findings as idle_findings
from traceview.analysis.input import compute as input_pipeline
from traceview.analysis.input import findings as input_findings
from traceview.analysis.lanes import compute as timeline_lanes
from traceview.analysis.launches import compute as launches
from traceview.analysis.nvml import compute as outside_view
from traceview.analysis.nvml import findings as outside_findings
from traceview.analysis.selection import Selection, select
from traceview.analysis.steps import compute as step_times
from traceview.analysis.transfers import compute as transfers
from traceview.analysis.transfers import findings as transfer_findings
from traceview.errors import UsageError
from traceview.report.command import reproducing
from traceview.report.model import (
    SCHEMA_VERSION,
    Report,
    ReportFile,
    ReportWindow,
    Results,
    Source,
)
from traceview.report.verdict import verdict_of
from traceview.trace.cause import Cause
from traceview.trace.collectives import collectives_of
from traceview.trace.load import load
from traceview.trace.model import Trace
from traceview.trace.windows import WINDOW_KINDS, StepRange, WindowKind
from traceview.version import VERSION

TOP_OPS: Final = 10
"""Rows of the op table per device in a report, unless asked otherwise."""

_Result = TypeVar("_Result")


def analyze(
    trace: Trace | str | Path,
    *,
    window: WindowKind = "auto",
    steps: StepRange | slice | range | None = None,
    top: int | None = TOP_OPS,
    select_codes: Collection[str] | None = None,
    ignore_codes: Collection[str] = (),
    baseline: Trace | str | Path | None = None,
    lanes: bool = False,
) -> Report:
    """Answer, for every device: how busy was it, with what, and what is wrong?

    `trace`: a loaded trace, or a path for `load`. `window`: the span that numbers speak of. `steps`: only
    these, by number, half-open: `slice(5, 10)` or `range(5, 10)`. `top`: op rows per device, None for all. `select_codes` and `ignore_codes`
    choose findings by code. `baseline`: a run on one device to compare the speed with.
    `lanes`: also what the timeline of a document draws; tables and texts do without.

    Raises what `load` raises, and `UsageError` for arguments of another kind, steps that are not there and
    codes that do not exist.
    """
    loaded = trace if isinstance(trace, Trace) else load(trace)
    check_codes([*(select_codes or ()), *ignore_codes])
    if window not in WINDOW_KINDS:
        raise UsageError(f"window must be one of {', '.join(WINDOW_KINDS)}, not {window!r}")
    if top is not None and top < 0:
        raise UsageError(f"top must be a number of rows from 0 on, or None for all, not {top!r}")
    selection = select(loaded, window, _step_range(steps))
    unions = tuple(activities(loaded))
    skipped: dict[str, str] = {}

    def kept(name: str, result: _Result | Skipped) -> _Result | None:
        if isinstance(result, Skipped):
            skipped[name] = result.reason
            return None
        return result

    of_capture = capture.compute(loaded)
    of_devices = device_time.compute(loaded, selection, unions)
    of_steps = step_times.compute(loaded, selection, unions)
    idle_time = idle.idle_time(loaded, selection)
    of_idle = idle.compute(loaded, selection, idle_time)
    seen = outside_view.compute(loaded, unions)
    of_transfers = transfers.compute(loaded, selection, unions)
    of_launches = launches.compute(loaded, selection, unions)
    of_precision = precision.compute(loaded, selection, unions)
    matched = collectives_of(loaded)
    of_collectives = collectives.compute(loaded, selection, unions, matched)
    input_idle = {
        device: causes[Cause.INPUT] for device, causes in idle_time.causes_of_steps.items()
    }
    of_input = input_pipeline.compute(loaded, selection, input_idle)
    of_placement = placement.compute(loaded, of_steps)
    of_balance = balance.compute(
        loaded,
        selection,
        unions,
        balance.BalanceInput(of_devices, input_idle, idle_time.gaps, matched, seen, of_placement),
    )
    of_scaling = scaling.compare(
        loaded, selection, unions, idle_time.causes_of_steps, _loaded(baseline)
    )
    results = Results(
        device_time=of_devices,
        steps=kept("steps", of_steps),
        timeline=kept("timeline", timeline.compute(loaded, selection, unions)),
        idle=kept("idle", of_idle),
        between_steps=kept(
            "between_steps", between_steps.compute(loaded, selection, idle_time.states)
        ),
        ops=kept("ops", ops.compute(loaded, selection, top)),
        transfers=kept("transfers", of_transfers),
        input=kept("input", of_input),
        launches=kept("launches", of_launches),
        precision=kept("precision", of_precision),
        collectives=kept("collectives", of_collectives),
        environment=kept("environment", environment.compute(loaded)),
        placement=kept("placement", of_placement),
        outside_view=kept("outside_view", seen),
        balance=kept("balance", of_balance),
        scaling=kept("scaling", of_scaling),
        lanes=kept("lanes", timeline_lanes.compute(loaded, selection, idle_time, of_idle))
        if lanes
        else None,
    )
    waiting = idle_findings.diagnose(loaded, of_idle, idle_time, selection)
    is_bound = None
    if idle_time.gaps:
        is_bound = any(one.code == "input-bound" for one in waiting)
    of_capture_findings = capture.diagnose(loaded, of_capture)
    # Where GPUs were lost they may have worked while the host waited.
    are_gpus_lost = any(
        one.code == "no-gpu-plane" and one.severity == "critical" for one in of_capture_findings
    )
    of_input_findings = (
        [] if are_gpus_lost else input_findings.diagnose(of_input, selection, is_bound=is_bound)
    )
    outside = outside_findings.diagnose(seen)
    explained = (*waiting, *of_input_findings, *outside)
    told = absorbed(
        [
            *of_capture_findings,
            *roster.diagnose(loaded, of_devices, selection, unions),
            *step_times.diagnose(of_steps, selection),
            *waiting,
            *of_input_findings,
            *transfer_findings.diagnose(of_transfers, of_devices, selection),
            *launches.diagnose(of_launches),
            *precision.diagnose(loaded, of_precision),
            *collective_findings.diagnose(of_collectives, of_devices, of_steps, selection),
            *balance_findings.diagnose(of_balance, selection),
            *outside,
            *step_times.diagnose_unsteady(of_steps, [one.code for one in explained]),
        ]
    )
    of_scale = balance_findings.diagnose_scaling(
        of_balance, selection, told, has_baseline=results.scaling is not None
    )
    found = by_cost([*told, *of_scale])
    chosen = [one for one in found if _is_chosen(one, select_codes, ignore_codes)]
    return Report(
        schema_version=SCHEMA_VERSION,
        traceview_version=VERSION,
        source=_source(loaded),
        capture=of_capture,
        windows=_windows(loaded, selection),
        verdict=verdict_of(loaded, of_capture, of_devices, results.steps, found),
        results=results,
        skipped=skipped,
        findings=tuple(chosen),
        left_out_findings=tuple(one.code for one in found if one not in chosen),
        command=reproducing(
            str(loaded.logdir),
            loaded.run,
            window=window,
            steps=_step_range(steps),
            select_codes=select_codes,
            ignore_codes=ignore_codes,
            baseline=str(baseline.logdir if isinstance(baseline, Trace) else baseline or ""),
        ),
    )


def _loaded(baseline: Trace | str | Path | None) -> Trace | None:
    return baseline if baseline is None or isinstance(baseline, Trace) else load(baseline)


def _step_range(steps: StepRange | slice | range | None) -> StepRange | None:
    if steps is None or isinstance(steps, StepRange):
        return steps
    if isinstance(steps, slice | range):
        bounds = (steps.start, steps.stop)
        whole = all(bound is None or (isinstance(bound, int) and bound >= 0) for bound in bounds)
        if whole and steps.step in (None, 1):
            return StepRange(*bounds)
    raise UsageError(f"steps must be a range of step numbers such as slice(5, 10), not {steps!r}")


def check_codes(codes: Collection[str]) -> None:
    """Raise `UsageError` for a finding code that does not exist."""
    for code in codes:
        if code not in FINDINGS:
            raise UsageError(f"no finding is called {code!r}", hint="traceview explain lists them")


def _is_chosen(
    finding: Finding, select_codes: Collection[str] | None, ignore_codes: Collection[str]
) -> bool:
    return finding.code not in ignore_codes and (not select_codes or finding.code in select_codes)


def _source(trace: Trace) -> Source:
    files = tuple(
        ReportFile(f.name, f.host, f.bytes, f.sha256, f.event_count, f.duplicate_of)
        for f in trace.files
    )
    return Source(str(trace.logdir), trace.run, trace.other_runs, files)


def _windows(trace: Trace, selection: Selection) -> tuple[ReportWindow, ...]:
    return tuple(
        ReportWindow(trace.hosts[host].name, window.kind, window.start_ps, window.end_ps)
        for host, window in selection.windows.items()
    )
