"""Says what limits a comparison: steps that decide the mean, what was not recorded, and which noise is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from traceview.base.stats import median
from traceview.comparison.captures import SIDES, CaptureSteps
from traceview.comparison.difference import RunSpread
from traceview.document import numbers
from traceview.report.absent import is_lost, why_absent
from traceview.report.model import Report

_COMPARED: Final = {
    "device_time": "the devices in use",
    "steps": "the steps as found",
}
"""Results that are compared beside the states and the ops."""
_LARGE_OVERHEAD: Final = 0.1
"""Of the step: what the profiler adds is worth a word; a choice of ours."""
_LONG_FACTOR: Final = 3
"""Times the median step: a step from there on decides the mean and its noise; a choice of ours."""


def limits_of(
    sides: Sequence[Sequence[Report]],
    steps: Sequence[Sequence[CaptureSteps]],
    spread: RunSpread | None,
    *,
    has_states: bool,
) -> Iterator[str]:
    """Sentences without a full stop, what matters most first."""
    reports = [report for side in sides for report in side]
    yield from _long_steps(steps)
    if not has_states:
        yield f"The difference is not explained by states: {_why_no_states(reports)}"
    for name, side in zip(SIDES, sides, strict=True):
        for report in side:
            lost = [words for topic, words in _COMPARED.items() if is_lost(report, topic)]
            if lost:
                yield (
                    f"The report on the run {name}, {report.source.run}, does not hold {numbers.listed(lost)}, "
                    "so these are not compared"
                )
    if any(capture.lengths_ps.size == 1 for side in steps for capture in side):
        yield "A side has a single step, which shows no noise: capture ten or more"
    if len(reports) == len(sides):
        yield _on_single_captures(spread)
    for name, side in zip(SIDES, sides, strict=True):
        for report in side:
            if report.capture.quality != "ok":
                yield f"The capture {name}, {report.source.run}, is {report.capture.quality}"
    tables = [report.results.op_steps for report in reports]
    if None in tables:
        report = reports[tables.index(None)]
        yield f"Ops are not compared: those of {report.source.run} are {why_absent(report, 'op_steps')}"
    elif not all(table.rows for table in tables if table):
        yield "No op was recorded in the steps of a side"
    by_reason: dict[str, dict[str, None]] = {}
    for report in reports:
        if report.results.environment is None:
            why = why_absent(report, "environment")
            by_reason.setdefault(why, {})[report.source.run] = None
    if by_reason:
        runs = [f"of {numbers.listed(list(runs))}: {why}" for why, runs in by_reason.items()]
        yield f"Batch, precision, strategy and versions are not known {'; '.join(runs)}"
    overheads = [host.overhead_ratio or 0 for report in reports for host in report.capture.hosts]
    if max(overheads, default=0) >= _LARGE_OVERHEAD:
        yield f"The profiler made steps up to {numbers.share(max(overheads))} longer"


def _why_no_states(reports: Sequence[Report]) -> str:
    for report in reports:
        if report.results.ledger is None:
            return f"the states of {report.source.run}: {why_absent(report, 'ledger')}"
    return "a run has no step with device events"


def _on_single_captures(spread: RunSpread | None) -> str:
    if spread is None:
        return (
            "One capture of each side shows the noise of its steps, not how much runs differ: "
            "repeat --before and --after to include that"
        )
    return (
        "Noise includes how much runs on shared CPU cores differ without a change: "
        "several captures of each side, by --before and --after, show smaller changes"
    )


def _long_steps(steps: Sequence[Sequence[CaptureSteps]]) -> Iterator[str]:
    """Single steps that decide the mean, with the medians, which they hardly change."""
    lengths = [np.concatenate([capture.lengths_ps for capture in side]) for side in steps]
    medians = [median(side) for side in lengths]
    both = f"{numbers.time(medians[0])} before and {numbers.time(medians[1])} after"
    for name, side, middle in zip(SIDES, lengths, medians, strict=True):
        count = int((side > _LONG_FACTOR * middle).sum())
        if count:
            verb, up_to = ("decides", "") if count == 1 else ("decide", "up to ")
            yield (
                f"{numbers.plural(count, 'step')} {name}, of {up_to}{numbers.time(side.max())}, "
                f"{verb} the mean: the median step is {both}"
            )
